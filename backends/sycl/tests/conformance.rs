//! The whole conformance suite on the first SYCL device; on a machine without a
//! card that is the OpenCL CPU device. A CPU device runs it in its own form and
//! as a GPU of each sub-group size, and products as a GPU with matrix units.
//!
//! `STRATA_CONFORMANCE` picks more than the quick cases: `full`, `large`, and
//! after it texts that a case's name must contain. Without a SYCL runtime this
//! prints `skipped:` and why, unless `STRATA_REQUIRE_SYCL` is set.

use std::process::Command;
use std::time::Duration;
use strata_conformance::{Observer, Outcome, ReferenceBackend, Selection, run_against};
use strata_core::backend::Backend;
use strata_cpu::{CpuBackend, CpuOptions};
use strata_sycl::{SyclBackend, environment};
use sycl_bindgen::restart_with;

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

fn open() -> Option<SyclBackend> {
    // What the runtime wants to find in the environment is set from outside.
    restart_with(&environment()).expect("the test starts again");
    match SyclBackend::open(0) {
        Ok(backend) => Some(backend),
        Err(e) if std::env::var_os("STRATA_REQUIRE_SYCL").is_none() => {
            println!("skipped: {e}");
            None
        }
        Err(e) => panic!("STRATA_REQUIRE_SYCL is set: {e}"),
    }
}

#[test]
fn every_byte_is_the_references() {
    let Some(backend) = open() else { return };
    let chosen = std::env::var("STRATA_CONFORMANCE").unwrap_or_else(|_| "quick".into());
    let mut words = chosen.split_whitespace();
    let size = words.next().map_or(Ok(strata_conformance::Size::Quick), str::parse);
    let mut selection = Selection::up_to(size.expect("quick, full or large"));
    for text in words {
        selection = selection.matching(text);
    }
    if let Ok(dot) = std::env::var("STRATA_SYCL_DOT") {
        // A device that cannot falls back, which would prove something else.
        let arch = &backend.device().arch;
        assert!(arch.ends_with(&format!("byte products {dot}")), "{arch}");
    }
    // One form is held to the reference. The others are held to the CPU, which is held to it by the
    // same cases and takes a small part of its time.
    let trusted: Box<dyn Backend> = match std::env::var_os("STRATA_SYCL_SUB_GROUP") {
        Some(_) => Box::new(CpuBackend::new(CpuOptions::default()).expect("a CPU")),
        None => Box::new(ReferenceBackend::new()),
    };
    let summary = run_against(&backend, &*trusted, &selection, &mut Print);
    println!("{:?}: {summary}", backend.device());
    assert!(summary.is_clean(), "{summary}");
}

/// Runs the test above again, as a GPU of this sub-group size.
fn with_sub_groups_of(size: u32, variables: &[(&str, &str)]) {
    // What a test is told, its second run would pass on.
    if std::env::var_os("STRATA_SYCL_SUB_GROUP").is_some() {
        println!("skipped: STRATA_SYCL_SUB_GROUP picks one form for all");
        return;
    }
    let Some(backend) = open() else { return };
    if !backend.sub_group_sizes().contains(&size) {
        println!("skipped: the device has sub-groups of {:?} only", backend.sub_group_sizes());
        return;
    }
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "every_byte_is_the_references"])
        .env("STRATA_SYCL_SUB_GROUP", size.to_string())
        // Set for the form that this process has itself.
        .env_remove("CL_CONFIG_USE_VECTORIZER")
        .envs(variables.iter().copied())
        .status()
        .unwrap();
    assert!(status.success(), "with sub-groups of {size} and {variables:?}");
}

#[test]
fn sub_groups_of_8() {
    with_sub_groups_of(8, &[]);
}

#[test]
fn sub_groups_of_16() {
    with_sub_groups_of(16, &[]);
}

#[test]
fn sub_groups_of_32() {
    with_sub_groups_of(32, &[]);
}

/// Products of all types the way matrix units do them, the tile itself by a loop.
const BY_HAND: [(&str, &str); 2] =
    [("STRATA_SYCL_DOT", "matrix-by-hand"), ("STRATA_CONFORMANCE", "quick mmq/ T=19")];

#[test]
fn tiles_by_hand_of_sub_groups_of_8() {
    with_sub_groups_of(8, &BY_HAND);
}

#[test]
fn tiles_by_hand_of_sub_groups_of_16() {
    with_sub_groups_of(16, &BY_HAND);
}
