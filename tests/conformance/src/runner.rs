//! Runs cases and compares; knows none of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use strata_core::Error;
use strata_core::backend::Backend;

use crate::guard::Guard;
use crate::output::{Mismatch, Output};
use crate::{Case, Outputs, ReferenceBackend, Selection, Stage, Stop, cases};

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Every byte was as expected.
    Passed {
        /// Bytes compared, poison and canaries included.
        bytes: u64,
    },
    /// Something was not.
    Differs(Difference),
    /// This device cannot run it.
    Skipped(String),
}

/// Which case differs, where, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The case.
    pub case: String,
    /// Which of its output buffers, if it got that far.
    pub output: Option<String>,
    /// How.
    pub mismatch: Mismatch,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.output {
            Some(output) => write!(f, "{}: {output}: {}", self.case, self.mismatch),
            None => write!(f, "{}: {}", self.case, self.mismatch),
        }
    }
}

/// Is told what happens, as it happens. `()` does not listen.
pub trait Observer {
    /// Case `index` of `total` begins.
    fn started(&mut self, index: usize, total: usize, case: &str) {
        let _ = (index, total, case);
    }

    /// It has ended; `time` includes the yardstick's.
    fn finished(&mut self, case: &str, outcome: &Outcome, time: Duration) {
        let _ = (case, outcome, time);
    }
}

impl Observer for () {}

/// What came of a run.
#[derive(Debug, Clone, Default)]
pub struct Summary {
    /// Cases selected.
    pub cases: usize,
    /// Cases without a differing byte.
    pub passed: usize,
    /// The others that ran.
    pub differing: Vec<Difference>,
    /// Cases that this device cannot run, and why.
    pub skipped: Vec<(String, String)>,
    /// Bytes compared.
    pub bytes: u64,
    /// Time in all.
    pub time: Duration,
    /// Of it, the time of the backend under test.
    pub backend_time: Duration,
}

impl Summary {
    /// Whether cases were selected, none differs, and not all were skipped.
    pub fn is_clean(&self) -> bool {
        self.differing.is_empty() && self.passed > 0
    }
}

impl std::fmt::Display for Summary {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { cases, passed, differing, skipped, bytes, time, backend_time } = self;
        write!(f, "{cases} cases: {passed} passed, {} differ, ", differing.len())?;
        write!(
            f,
            "{} skipped; {bytes} bytes compared in {:.1} s ",
            skipped.len(),
            time.as_secs_f64()
        )?;
        write!(f, "({:.1} s of it the backend's)", backend_time.as_secs_f64())?;
        for difference in differing {
            write!(f, "\n  {difference}")?;
        }
        for (case, reason) in skipped {
            write!(f, "\n  {case}: skipped: {reason}")?;
        }
        Ok(())
    }
}

/// Runs the selected cases on `backend`; the plain reference is the yardstick.
pub fn run(backend: &dyn Backend, selection: &Selection, observer: &mut dyn Observer) -> Summary {
    run_against(backend, &ReferenceBackend::new(), selection, observer)
}

/// Runs the selected cases on `backend`; `trusted`, which has passed the same
/// cases against the reference, is the yardstick.
pub fn run_against(
    backend: &dyn Backend,
    trusted: &dyn Backend,
    selection: &Selection,
    observer: &mut dyn Observer,
) -> Summary {
    run_cases(backend, trusted, &selection.select(cases::all()), observer)
}

/// Runs cases that the caller made.
pub fn run_cases(
    backend: &dyn Backend,
    trusted: &dyn Backend,
    cases: &[Case],
    observer: &mut dyn Observer,
) -> Summary {
    let start = Instant::now();
    let mut runner = Runner { backend, trusted, known: None, backend_time: Duration::ZERO };
    let mut summary = Summary { cases: cases.len(), ..Summary::default() };
    for (index, case) in cases.iter().enumerate() {
        observer.started(index, cases.len(), &case.name);
        let case_start = Instant::now();
        let outcome = runner.case(case);
        observer.finished(&case.name, &outcome, case_start.elapsed());
        match outcome {
            Outcome::Passed { bytes } => {
                summary.passed += 1;
                summary.bytes += bytes;
            }
            Outcome::Differs(difference) => summary.differing.push(difference),
            Outcome::Skipped(reason) => summary.skipped.push((case.name.clone(), reason)),
        }
    }
    summary.time = start.elapsed();
    summary.backend_time = runner.backend_time;
    summary
}

struct Runner<'a> {
    backend: &'a dyn Backend,
    trusted: &'a dyn Backend,
    /// The yardstick's last outputs, and the key they go by.
    known: Option<(String, Vec<Output>)>,
    backend_time: Duration,
}

impl Runner<'_> {
    fn case(&mut self, case: &Case) -> Outcome {
        if let Some(reason) = case.op.unsupported(self.backend) {
            return Outcome::Skipped(reason);
        }
        let needs = case.op.needs();
        if needs > 0 {
            match self.backend.memory() {
                Ok(memory) if memory.free < needs => {
                    let free = memory.free;
                    return Outcome::Skipped(format!("needs {needs} bytes, {free} free"));
                }
                Ok(_) => {}
                Err(error) => return differs(case, None, Mismatch::Failed(error.to_string())),
            }
        }
        let start = Instant::now();
        let given = on(self.backend, case, false);
        self.backend_time += start.elapsed();
        let (given, mut bytes) = match given {
            Ok(given) => given,
            Err(Failure::Unsupported(message)) => return Outcome::Skipped(message),
            Err(Failure::Failed(message)) => {
                return differs(case, None, Mismatch::Failed(message));
            }
        };
        let expected = match given.iter().any(|output| output.expected.is_none()) {
            true => match self.expected(case) {
                Ok(expected) => expected,
                Err(message) => {
                    let message = format!("the yardstick: {message}");
                    return differs(case, None, Mismatch::Failed(message));
                }
            },
            false => &[],
        };
        for (i, output) in given.iter().enumerate() {
            let expected = match (&output.expected, expected.get(i)) {
                (Some(expected), _) => expected,
                (None, Some(output)) => &output.bytes,
                (None, None) => {
                    let message = format!("the yardstick has no output {i}");
                    return differs(case, Some(&output.what), Mismatch::Failed(message));
                }
            };
            if let Some(mismatch) = output.compare(expected) {
                return differs(case, Some(&output.what), mismatch);
            }
            bytes += output.bytes.len() as u64;
        }
        Outcome::Passed { bytes }
    }

    fn expected(&mut self, case: &Case) -> Result<&[Output], String> {
        let key = case.op.yardstick_key();
        let known = self.known.as_ref().is_some_and(|(known, _)| Some(known) == key.as_ref());
        if !known {
            self.known = None;
            let (outputs, _) = on(self.trusted, case, true).map_err(|e| e.to_string())?;
            self.known = Some((key.unwrap_or_default(), outputs));
        }
        Ok(self.known.as_ref().map_or(&[], |(_, outputs)| outputs))
    }
}

fn differs(case: &Case, output: Option<&str>, mismatch: Mismatch) -> Outcome {
    let (case, output) = (case.name.clone(), output.map(str::to_owned));
    Outcome::Differs(Difference { case, output, mismatch })
}

/// Why a case has no outputs.
enum Failure {
    /// The backend has no kernel for a step of it.
    Unsupported(String),
    Failed(String),
}

impl From<String> for Failure {
    fn from(message: String) -> Self {
        Self::Failed(message)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Self::Unsupported(message) | Self::Failed(message)) = self;
        f.write_str(message)
    }
}

/// The outputs of a case on a stream of its own, and the bytes of canary that were looked at.
fn on(backend: &dyn Backend, case: &Case, plain: bool) -> Result<(Vec<Output>, u64), Failure> {
    let fork = backend.fork().map_err(|e| format!("no stream: {e}"))?;
    let outputs = |backend: &dyn Backend| {
        let run = || -> Outputs {
            let outputs = case.op.run(&Stage { backend, plain })?;
            // What a launch left behind must show in this case, not in the next.
            backend.synchronize()?;
            Ok(outputs)
        };
        match catch_unwind(AssertUnwindSafe(run)) {
            Ok(Err(Stop::Error(error @ Error::Unsupported { .. }))) => {
                Err(Failure::Unsupported(error.to_string()))
            }
            Ok(outputs) => outputs.map_err(|stop| Failure::Failed(stop.to_string())),
            Err(panic) => Err(Failure::Failed(format!("panicked: {}", panic_message(&*panic)))),
        }
    };
    if !case.op.guarded() {
        return Ok((outputs(&*fork)?, 0));
    }
    let guard = Guard::new(fork);
    let outputs = outputs(&guard);
    // Also where the case failed: memory is let go of in any case.
    let canaries = guard.check().map_err(|e| format!("reading canaries: {e}"))?;
    Ok((outputs?, canaries?))
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
