//! `strata conform`: a backend against the plain reference.

use std::time::Duration;

use indicatif::ProgressBar;
use serde_json::{Value, json};
use strata_conformance::{Observer, Outcome as CaseOutcome, Selection, Size, Summary};

use super::args::{self, DeviceArgs};
use super::{Failure, Outcome, print, print_json, progress};

/// Run the conformance cases on a backend and compare every byte with the plain
/// reference.
///
/// Output buffers are filled with 0xA5 before and have canaries behind them, and all
/// of them is compared. Prints what differs and where; ends with 1 if anything does.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,

    /// Only cases whose name contains this; given several times, all of them
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,

    /// The cases that take about a minute on two CPU cores
    #[arg(long)]
    quick: bool,

    /// These and the ones that take minutes [default]
    #[arg(long, conflicts_with = "quick")]
    full: bool,

    /// These and the ones with buffers past 4 GiB
    #[arg(long, conflicts_with_all = ["quick", "full"])]
    large: bool,

    /// Print the name of each case as it ends
    #[arg(long, short, conflicts_with = "json")]
    verbose: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let size = match (args.quick, args.large) {
        (true, _) => Size::Quick,
        (_, true) => Size::Large,
        _ => Size::Full,
    };
    let selection =
        args.filter.iter().fold(Selection::up_to(size), |s, text| s.matching(text.as_str()));
    let backend = args.device.open()?;
    let device = backend.device().clone();
    if !args.json {
        listened(print(&format!("{}\n", args::device_text(&device))))?;
    }
    let mut watch = Watch {
        bar: progress::counted("", 0),
        verbose: args.verbose,
        json: args.json,
        broken: None,
        skips: Vec::new(),
    };
    let summary = strata_conformance::run(&*backend, &selection, &mut watch);
    watch.bar.finish_and_clear();
    if let Some(failure) = watch.broken {
        listened(Err(failure))?;
    }
    if summary.cases == 0 {
        return Err(Failure::Failed(format!(
            "no {size} case has {} in its name",
            args.filter.iter().map(|f| format!("\"{f}\"")).collect::<Vec<_>>().join(" and ")
        )));
    }
    let said = match args.json {
        true => print_json(&report(&device, size, &summary)),
        false => {
            let mut text = watch.skips.concat();
            text.push_str(&format!(
                "{} cases: {} passed, {} differ, {} skipped; {} bytes compared in {:.1} s\n",
                summary.cases,
                summary.passed,
                summary.differing.len(),
                summary.skipped.len(),
                summary.bytes,
                summary.time.as_secs_f64()
            ));
            print(&text)
        }
    };
    listened(said)?;
    match summary.is_clean() {
        true => Ok(()),
        false => Err(Failure::Differs),
    }
}

/// Where nobody reads any more the verdict still is the exit code.
fn listened(said: Outcome) -> Outcome {
    match said {
        Err(Failure::Pipe) => Ok(()),
        said => said,
    }
}

struct Watch {
    bar: ProgressBar,
    verbose: bool,
    json: bool,
    broken: Option<Failure>,
    skips: Vec<String>,
}

impl Observer for Watch {
    fn started(&mut self, index: usize, total: usize, case: &str) {
        self.bar.set_length(total as u64);
        self.bar.set_position(index as u64);
        self.bar.set_message(case.to_owned());
    }

    fn finished(&mut self, case: &str, outcome: &CaseOutcome, time: Duration) {
        let line = match outcome {
            CaseOutcome::Passed { .. } if !self.verbose => return,
            CaseOutcome::Passed { bytes } => {
                format!("same     {case} ({bytes} bytes, {:.2} s)\n", time.as_secs_f64())
            }
            CaseOutcome::Differs(difference) => format!("DIFFERS  {difference}\n"),
            CaseOutcome::Skipped(reason) => {
                self.skips.push(format!("skipped  {case}: {reason}\n"));
                return;
            }
        };
        if !self.json && self.broken.is_none() {
            self.broken = self.bar.suspend(|| print(&line)).err();
        }
    }
}

fn report(device: &strata::backend::DeviceInfo, size: Size, summary: &Summary) -> Value {
    let differing: Vec<Value> = summary
        .differing
        .iter()
        .map(|d| json!({ "case": d.case, "output": d.output, "how": d.mismatch.to_string() }))
        .collect();
    let skipped: Vec<Value> = summary
        .skipped
        .iter()
        .map(|(case, reason)| json!({ "case": case, "reason": reason }))
        .collect();
    json!({
        "device": args::device_json(device),
        "size": size.name(),
        "cases": summary.cases,
        "passed": summary.passed,
        "differing": differing,
        "skipped": skipped,
        "bytes": summary.bytes,
        "seconds": summary.time.as_secs_f64(),
        "backend_seconds": summary.backend_time.as_secs_f64(),
    })
}
