//! What a machine without SYCL gets: an error that says where was looked, from
//! a process that started all the same.

use std::process::Command;
use sycl_bindgen::{Error, Options, Runtime};

#[test]
fn a_missing_runtime_is_an_error_that_names_every_place() {
    // The environment is set from outside: this test runs itself again.
    if std::env::var_os("STRATA_TEST_ABSENT").is_some() {
        let e = Runtime::load(Options::default()).expect_err("there is none");
        assert!(matches!(e, Error::NotFound(_)), "{e}");
        println!("{e}");
        return;
    }
    let run = |root: Option<&str>| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "--nocapture"])
            .arg("a_missing_runtime_is_an_error_that_names_every_place")
            .env_clear()
            .env("STRATA_TEST_ABSENT", "1");
        if let Some(root) = root {
            command.env("STRATA_SYCL_ROOT", root);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    let text = run(Some("/nonexistent"));
    for part in ["STRATA_SYCL_ROOT: /nonexistent", "libsycl.so", "pip install"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
    // A named folder stands alone.
    assert!(!text.contains("CMPLR_ROOT"), "{text}");

    if std::path::Path::new("/opt/intel/oneapi/compiler/latest/lib").is_dir() {
        println!("skipped: the rest, because this machine has a oneAPI");
        return;
    }
    let text = run(None);
    for part in ["STRATA_SYCL_ROOT is not set", "ONEAPI_ROOT", "/opt/intel", "python3"] {
        assert!(text.contains(part), "{part} is not in: {text}");
    }
}
