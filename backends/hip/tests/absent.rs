//! What a machine without HIP gets: errors in words, from a program that started.

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
