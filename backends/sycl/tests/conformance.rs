//! The whole conformance suite on the first SYCL device; on a machine without a
//! card that is the OpenCL CPU device.
//!
//! `STRATA_CONFORMANCE` picks more than the quick cases: `full`, `large`, and
//! after it texts that a case's name must contain. Without a SYCL runtime this
//! prints `skipped:` and why, unless `STRATA_REQUIRE_SYCL` is set.

use std::time::Duration;
use strata_conformance::{Observer, Outcome, Selection, run};
use strata_core::backend::Backend;
use strata_sycl::SyclBackend;

/// Prints what differs as it is found: a wrong kernel differs in many cases.
struct Print;

impl Observer for Print {
    fn finished(&mut self, case: &str, outcome: &Outcome, time: Duration) {
        if let Outcome::Differs(difference) = outcome {
            println!("{difference}");
        } else if time > Duration::from_secs(5) {
            println!("{case}: {time:?}");
        }
    }
}

#[test]
fn every_byte_is_the_references() {
    let backend = match SyclBackend::open(0) {
        Ok(backend) => backend,
        Err(e) if std::env::var_os("STRATA_REQUIRE_SYCL").is_none() => {
            println!("skipped: {e}");
            return;
        }
        Err(e) => panic!("STRATA_REQUIRE_SYCL is set: {e}"),
    };
    let chosen = std::env::var("STRATA_CONFORMANCE").unwrap_or_else(|_| "quick".into());
    let mut words = chosen.split_whitespace();
    let size = words.next().map_or(Ok(strata_conformance::Size::Quick), str::parse);
    let mut selection = Selection::up_to(size.expect("quick, full or large"));
    for text in words {
        selection = selection.matching(text);
    }
    let summary = run(&backend, &selection, &mut Print);
    println!("{:?}: {summary}", backend.device());
    assert!(summary.is_clean(), "{summary}");
}
