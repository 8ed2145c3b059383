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

/// Every variable of this process, but for the one that libsycl sets by itself when it lists devices.
fn environment() -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    let all = std::env::vars_os();
    let mut all: Vec<_> = all.filter(|(name, _)| name != "ZES_ENABLE_SYSMAN").collect();
    all.sort();
    all
}

#[test]
fn loading_runs_no_program_and_changes_no_variable() {
    const SELF: &str = "loading_runs_no_program_and_changes_no_variable";
    if let Some(root) = std::env::var_os("STRATA_TEST_LOAD") {
        let before = environment();
        let mut options = Options::default();
        if !root.is_empty() {
            options.root = Some(root.into());
        }
        match Runtime::load(options) {
            Ok(runtime) => println!("{} devices", runtime.devices().unwrap().len()),
            Err(e) => println!("{e}"),
        }
        assert_eq!(environment(), before);
        return;
    }
    let folder = std::env::temp_dir().join(format!("strata-python-{}", std::process::id()));
    let bin = folder.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let python = bin.join("python3");
    std::fs::write(&python, format!("#!/bin/sh\necho ran > {}/ran\n", folder.display())).unwrap();
    std::fs::set_permissions(&python, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let run = |root: Option<&std::path::Path>| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "--nocapture", SELF])
            .env_clear()
            .env("PATH", &bin)
            .env("STRATA_TEST_LOAD", root.unwrap_or("".as_ref()))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    };
    // Named by nothing: the folder of that python3 is looked at, and python3 is not asked.
    let text = run(None);
    let looked = format!("the folder of python3: {}", folder.display());
    assert!(text.contains(&looked) || text.contains("devices"), "{looked} is not in: {text}");
    // And one that loads, given by its path.
    match sycl_bindgen::found() {
        Ok(found) => assert!(run(Some(&found.root)).contains("devices")),
        Err(e) => println!("skipped: a runtime that loads: {e}"),
    }
    assert!(!folder.join("ran").exists(), "python3 was run");
    std::fs::remove_dir_all(&folder).unwrap();
}
