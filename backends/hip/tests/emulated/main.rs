//! The backend's own host code on a test double of the HIP runtime, and its
//! kernels on an instruction-set emulator: every byte of every output is
//! compared with the plain reference's.
//!
//! `STRATA_TINYGRAD` is the emulator; without it the tests that launch kernels
//! are reported as ignored. They run for each architecture that the kernels
//! were compiled for and the emulator knows:
//!
//! ```text
//! STRATA_TINYGRAD=/path/to/tinygrad STRATA_HIP_ARCHS=gfx1100,gfx1201,gfx942 \
//!     cargo test -p strata-hip --test emulated
//! ```
//!
//! `STRATA_EMULATED=all` adds the cases of the suite that are much work.

mod double;
mod host;
mod layer;

use std::sync::Mutex;
use std::time::Instant;

use libtest_mimic::{Arguments, Failed, Trial};
use strata_conformance::{Case, ReferenceBackend, Size, cases, run_cases};
use strata_hip::{HipBackend, HipOptions};

/// Parts of the names of cases that take an emulator minutes: they are about
/// sizes and repetition, not about instructions.
const LONG: [&str; 9] = [
    "runs=1000",
    "threads=4",
    "T=65537",
    "T=8193",
    "T=600",
    "T=2099",
    "T=1050",
    "T=2048",
    "m=120818",
];

macro_rules! names {
    ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => {
        &[$($((stringify!($trait), $name)),*),*]
    };
}
/// The operations: the trait of each, and its name in errors.
const OPERATIONS: &[(&str, &str)] = strata_core::for_each_operation!(names);

/// Whether a case was skipped for want of a kernel for whole models, which this backend has none
/// of. Anything else that is skipped counts as a failure.
fn is_of_models(reason: &str) -> bool {
    let mut models = OPERATIONS.iter().filter(|(of, _)| *of == "ModelOps");
    models.any(|(_, name)| reason.strip_prefix(name).is_some_and(|rest| rest.starts_with(": ")))
}

/// What the summaries add up to.
#[derive(Default)]
struct Total {
    passed: usize,
    skipped: usize,
    bytes: u64,
    seconds: f64,
}

static TOTAL: Mutex<Total> = Mutex::new(Total { passed: 0, skipped: 0, bytes: 0, seconds: 0.0 });

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
    let none = double::emulated().is_empty();
    let why = match checkout {
        Err(reason) => Some(reason),
        Ok(_) if none => Some("no kernels for an architecture that the emulator has".to_owned()),
        Ok(_) => None,
    };
    if let Some(reason) = &why {
        println!("skipped: {reason}");
    }
    let mut trials = host::trials(none);
    for (arch, index) in double::emulated().into_iter().zip(double::UNSUPPORTED.len() as u32..) {
        trials.push(layer::trial(arch, index).with_ignored_flag(why.is_some()));
        for trial in suite(arch, index).into_iter().chain(choices(arch, index)) {
            trials.push(trial.with_ignored_flag(why.is_some()));
        }
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    let Total { passed, skipped, bytes, seconds } =
        std::mem::take(&mut *TOTAL.lock().expect("no test panicked here"));
    if passed + skipped > 0 {
        println!(
            "{passed} cases of the suite, {skipped} skipped, {bytes} bytes compared, {seconds:.0} s on the emulator"
        );
    }
    // The emulator ends when its socket closes; the double's folder goes first.
    drop(folder);
    conclusion.exit();
}

/// The quick cases of the conformance suite, a test for each operation or type.
fn suite(arch: &'static str, index: u32) -> Vec<Trial> {
    let mut groups: Vec<String> = Vec::new();
    for case in selected() {
        let group = group(&case.name);
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    groups
        .into_iter()
        .map(|group| Trial::test(format!("{arch}/{group}"), move || conform(index, &group)))
        .collect()
}

fn selected() -> impl Iterator<Item = Case> {
    let all = std::env::var("STRATA_EMULATED").is_ok_and(|v| v == "all");
    cases::all().into_iter().filter(move |case| {
        case.size == Size::Quick && (all || !LONG.iter().any(|part| case.name.contains(part)))
    })
}

/// The cases that are one test: an operation, or a product's type.
fn group(name: &str) -> String {
    let mut parts = name.split('/');
    let first = parts.next().unwrap_or_default();
    match (first, parts.next()) {
        ("mmq", Some(ty)) => format!("mmq/{ty}"),
        _ => first.to_owned(),
    }
}

/// What the host chooses by size, chosen otherwise: the bytes are the same.
fn choices(arch: &'static str, index: u32) -> Vec<Trial> {
    let tiles = move || {
        // The smallest tile is only taken where no other fits.
        let few = HipOptions { shared_bytes: Some(14 << 10), ..HipOptions::default() };
        let tile = |tokens| HipOptions { tile: Some(tokens), ..HipOptions::default() };
        for options in [tile(128), tile(64), tile(32), tile(16), few] {
            for ty in ["q4_K", "q2_0", "iq2_xs"] {
                run(index, options, |case| group(&case.name) == format!("mmq/{ty}"))?;
            }
        }
        Ok(())
    };
    // One chunk, and chunks of some tokens.
    let scatter = move || {
        for (shared_bytes, part) in [(None, "scatter"), (Some(12 << 10), "quantize/")] {
            let options = HipOptions { shared_bytes, scatter_in_order_from: Some(0), tile: None };
            run(index, options, |case| case.name.contains(part))?;
        }
        Ok(())
    };
    vec![
        Trial::test(format!("{arch}/every-tile"), tiles),
        Trial::test(format!("{arch}/scatter-in-order"), scatter),
    ]
}

fn conform(index: u32, wanted: &str) -> Result<(), Failed> {
    run(index, HipOptions::default(), |case| group(&case.name) == wanted)
}

fn run(index: u32, options: HipOptions, wanted: impl Fn(&Case) -> bool) -> Result<(), Failed> {
    let started = Instant::now();
    let backend = HipBackend::new(index, options)?;
    let cases: Vec<Case> = selected().filter(wanted).collect();
    if cases.is_empty() {
        return Err("no case of that name".into());
    }
    let summary = run_cases(&backend, &ReferenceBackend::new(), &cases, &mut ());
    let (passed, skipped) = (summary.passed, summary.skipped.len());
    if let Ok(mut total) = TOTAL.lock() {
        total.passed += passed;
        total.skipped += skipped;
        total.bytes += summary.bytes;
        total.seconds += started.elapsed().as_secs_f64();
    }
    let expected = summary.skipped.iter().all(|(_, reason)| is_of_models(reason));
    if !summary.differing.is_empty() || !expected {
        return Err(summary.to_string().into());
    }
    print!("[{passed} cases, {:.1} s", started.elapsed().as_secs_f64());
    if let Some((_, why)) = summary.skipped.first() {
        print!("; {skipped} skipped: {why}");
    }
    print!("] ");
    Ok(())
}
