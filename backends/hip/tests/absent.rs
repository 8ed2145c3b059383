//! What a machine without HIP gets, or with half of it: errors in words, from a program that
//! started.

use std::path::Path;
use std::process::Command;

use strata_core::Error;
use strata_hip::{HipBackend, HipOptions, best, devices};

#[test]
fn a_missing_runtime_is_an_error_that_says_where_was_looked() {
    if devices().is_ok() {
        println!("skipped: this machine has a HIP runtime");
        return;
    }
    for error in [devices().err(), best().err(), HipBackend::new(0, HipOptions::default()).err()] {
        match error {
            Some(Error::Unavailable { reason, .. }) => {
                // A runtime that is there and too old says so instead.
                let words =
                    ["libamdhip64.so", "libhiprtc.so", "ROCM_PATH", "HIP_PATH", "install ROCm"];
                assert!(
                    words.iter().all(|word| reason.contains(word))
                        || reason.contains("expected 6.0"),
                    "{reason}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Set in the process that finds a runtime without one of its calls: the name of that.
const LACKS: &str = "STRATA_TEST_RUNTIME_LACKS";

#[test]
fn a_runtime_that_lacks_a_call_is_an_error_with_its_name() {
    let case = "a_runtime_that_lacks_a_call_is_an_error_with_its_name";
    if let Ok(name) = std::env::var(LACKS) {
        for error in [devices().err(), best().err()] {
            let said = error.expect("a runtime that lacks a call").to_string();
            assert!(said.contains(&format!("that was found has no {name}: ")), "{said}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // The binding wants this library too, and calls nothing in it.
    library(folder.path(), "hiprtc", "int nothing;");
    // One that is looked for before the version, and others.
    for lacked in ["hipGetErrorString", "hipEventCreateWithFlags", "hipStreamWaitEvent"] {
        library(folder.path(), "amdhip64", &runtime_without(lacked));
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", case])
            .envs([("ROCM_PATH", folder.path().as_os_str()), (LACKS, lacked.as_ref())])
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&child.stdout);
        assert!(child.status.success() && told.contains("1 passed"), "{lacked}: {told}");
    }
}

/// A runtime that has all calls but one, in C.
fn runtime_without(lacked: &str) -> String {
    let listed = include_str!("../src/library.rs").split("c\"hip").skip(1);
    let names = listed.map(|rest| format!("hip{}", rest.split('"').next().unwrap()));
    let there = names.filter(|name| name != lacked).map(|name| match &*name {
        "hipRuntimeGetVersion" => format!("int {name}(int *v) {{ *v = 70000000; return 0; }}\n"),
        _ => format!("int {name}(void) {{ return 1; }}\n"),
    });
    there.collect()
}

fn library(folder: &Path, name: &str, text: &str) {
    let source = folder.join("source.c");
    std::fs::write(&source, text).unwrap();
    let to = folder.join(format!("lib{name}.so"));
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).args([&to, &source]).status();
    assert!(made.expect("cc, a C compiler").success());
}
