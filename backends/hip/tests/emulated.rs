//! The backend's own host code on a test double of the HIP runtime, and its
//! kernels on an instruction-set emulator: every byte is compared with the CPU
//! backend's, which has passed the same cases against the plain reference.
//!
//! `STRATA_TINYGRAD` is the emulator; without it the tests that launch kernels
//! are reported as ignored. Which architectures run is what the kernels were
//! compiled for: `STRATA_HIP_ARCHS=gfx1100,gfx1201,gfx942 STRATA_TINYGRAD=... cargo
//! test --release -p strata-hip --test emulated`.

mod double;

use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};
use strata_conformance::{Case, Size, cases, run_cases};
use strata_core::backend::{Backend, BackendKind};
use strata_core::{Error, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_hip::HipBackend;

/// Parts of the names of cases that take an emulator minutes each.
const LONG: &[&str] = &[];

fn main() {
    let mut arguments = Arguments::from_args();
    // One emulator serves one launch at a time.
    arguments.test_threads = Some(1);
    let checkout = double::checkout();
    let folder = tempfile::tempdir().expect("a temporary folder");
    if let Err(reason) = double::install(folder.path(), checkout.as_deref().ok()) {
        eprintln!("the test double of the HIP runtime cannot be built: {reason}");
        std::process::exit(1);
    }
    let why = match (&checkout, double::emulated().is_empty()) {
        (Err(reason), _) => Some(reason.clone()),
        (_, true) => Some("no kernels for an architecture that the emulator has".to_owned()),
        _ => None,
    };
    if let Some(reason) = &why {
        println!("skipped: {reason}");
    }
    let mut trials = host();
    let devices = double::emulated().into_iter().zip(double::UNSUPPORTED.len() as u32..);
    for (arch, index) in devices {
        trials.extend(kernels(arch, index, why.is_some()));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Tests of the host code that launch nothing.
fn host() -> Vec<Trial> {
    vec![]
}

fn kernels(arch: &'static str, index: u32, ignored: bool) -> Vec<Trial> {
    let names: Vec<String> = cases::all()
        .into_iter()
        .filter(|case| case.size == Size::Quick)
        .map(|case| case.name)
        .collect();
    let mut groups: Vec<String> = Vec::new();
    for name in &names {
        let group = group(name);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
        .into_iter()
        .map(|group| {
            let name = format!("{arch}/{group}");
            Trial::test(name, move || conform(index, &group)).with_ignored_flag(ignored)
        })
        .collect()
}

/// The cases that are one test: an operation, or a product's type.
fn group(name: &str) -> String {
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    match (first, parts.next()) {
        ("mmq", Some(ty)) => format!("mmq/{ty}/"),
        _ => format!("{first}/"),
    }
}

fn conform(index: u32, group_name: &str) -> Result<(), Failed> {
    let started = Instant::now();
    let backend = HipBackend::open(index)?;
    let trusted = CpuBackend::new(CpuOptions::default())?;
    let selected: Vec<Case> = cases::all()
        .into_iter()
        .filter(|case| case.size == Size::Quick && group(&case.name) == group_name)
        .filter(|case| !LONG.iter().any(|part| case.name.contains(part)))
        .collect();
    let trace = std::env::var_os("STRATA_DOUBLE_TRACE").is_some();
    let mut observer = Times(trace);
    let summary = run_cases(&backend, &trusted, &selected, &mut observer);
    println!("{group_name} {summary} ({:.1} s)", started.elapsed().as_secs_f64());
    match summary.is_clean() {
        true => Ok(()),
        false => Err(summary.to_string().into()),
    }
}
struct Times(bool);
impl strata_conformance::Observer for Times {
    fn finished(
        &mut self,
        name: &str,
        outcome: &strata_conformance::Outcome,
        time: std::time::Duration,
    ) {
        if self.0 {
            println!(
                "CASE {:.2} {name} {}",
                time.as_secs_f64(),
                !matches!(outcome, strata_conformance::Outcome::Differs(_))
            );
        }
    }
}
