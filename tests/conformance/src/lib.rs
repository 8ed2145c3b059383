//! One suite for every backend: cases are data, the runner knows no case, and a
//! backend is one line.
//!
//! ```
//! use strata_conformance::{ReferenceBackend, Selection, run};
//! let selection = Selection::quick().matching("map/");
//! let summary = run(&ReferenceBackend::new(), &selection, &mut ());
//! assert!(summary.is_clean() && summary.passed > 0, "{summary}");
//! ```
//!
//! - [`cases`] lists the cases: shapes, routings, values, seeds, by name.
//! - [`ops`] holds one kind of case per operation: inputs, launch, output buffers.
//! - [`run`] compares every byte of those buffers with the [`ReferenceBackend`],
//!   or [`run_against`] with a backend that has already proved itself.
//! - [`poisoned`] lays out output buffers, [`guard`] puts canaries behind every allocation,
//!   [`output`] says where bytes differ.
//!
//! `docs/conformance.md` tells how to run it and how to read a difference.

pub mod cases;
pub mod guard;
pub mod ops;
pub mod output;
pub mod poisoned;
pub mod values;

mod reference_backend;
mod runner;

pub use reference_backend::ReferenceBackend;
pub use runner::{Difference, Observer, Outcome, Summary, run, run_against, run_cases};

use output::Output;
use strata_core::backend::Backend;

/// How long a case takes, and on what it can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Size {
    /// Part of the run that takes about a minute on two CPU cores.
    Quick,
    /// Minutes.
    Full,
    /// Buffers past 2^31 bytes and 4 GiB.
    Large,
}

impl Size {
    /// All sizes.
    pub const ALL: [Self; 3] = [Self::Quick, Self::Full, Self::Large];

    /// The name, as `quick`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Full => "full",
            Self::Large => "large",
        }
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Size {
    type Err = strata_core::Error;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|size| size.name() == s);
        found.ok_or_else(|| strata_core::Error::invalid("size", s, "quick, full or large"))
    }
}

/// Which cases run: all up to a size whose names contain every given text, or a part of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    size: Size,
    texts: Vec<String>,
    every: usize,
}

impl Selection {
    /// All cases of `size` and of the smaller sizes.
    pub fn up_to(size: Size) -> Self {
        Self { size, texts: vec![], every: 1 }
    }

    /// The quick cases.
    pub fn quick() -> Self {
        Self::up_to(Size::Quick)
    }

    /// Of these, the ones whose name contains `text`.
    #[must_use]
    pub fn matching(mut self, text: impl Into<String>) -> Self {
        self.texts.push(text.into());
        self
    }

    /// Of these, one of so many, and always the same: for where each takes long.
    #[must_use]
    pub fn one_of(mut self, many: usize) -> Self {
        self.every = many.max(1);
        self
    }

    /// The selected ones of some cases, in their order.
    pub fn select(&self, cases: Vec<Case>) -> Vec<Case> {
        let selected = |case: &Case| {
            case.size <= self.size && self.texts.iter().all(|text| case.name.contains(text))
        };
        cases.into_iter().filter(selected).step_by(self.every).collect()
    }
}

/// One case: a name, a size, and what it does.
pub struct Case {
    /// Stable and readable, as `mmq/q4_K/experts/E=9,k=3,skewed/T=67/m=37,K=512/normal`.
    pub name: String,
    /// Its size.
    pub size: Size,
    /// What it does.
    pub op: Box<dyn Op>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.name, self.size)
    }
}

/// Where a case runs.
#[derive(Clone, Copy)]
pub struct Stage<'a> {
    /// The backend: its allocations are guarded unless the case asks otherwise.
    pub backend: &'a dyn Backend,
    /// Whether this is the yardstick's run. A case that has a plainer way to
    /// the same bytes takes it there.
    pub plain: bool,
}

/// Why a case could not hand back its outputs.
#[derive(Debug)]
pub enum Stop {
    /// The backend failed.
    Error(strata_core::Error),
    /// A check inside the case found a difference.
    Differs(String),
}

impl<E: Into<strata_core::Error>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Error(error) => write!(f, "the backend failed: {error}"),
            Self::Differs(message) => f.write_str(message),
        }
    }
}

/// The output buffers of a case, or why there are none.
pub type Outputs = Result<Vec<Output>, Stop>;

/// One kind of case. An implementation holds the data of one case; it knows no backend.
pub trait Op: Send + Sync {
    /// Runs on `stage`'s backend and hands back every output buffer whole.
    ///
    /// # Errors
    /// [`Stop`].
    fn run(&self, stage: &Stage<'_>) -> Outputs;

    /// Why this backend cannot run it, if it cannot.
    fn unsupported(&self, _: &dyn Backend) -> Option<String> {
        None
    }

    /// Bytes of device memory it needs, where that is more than any device has.
    fn needs(&self) -> u64 {
        0
    }

    /// Cases that follow each other and have the same key have the same expected
    /// bytes: the yardstick runs once for them.
    fn yardstick_key(&self) -> Option<String> {
        None
    }

    /// Whether its allocations are guarded; not where dropping memory is the point.
    fn guarded(&self) -> bool {
        true
    }
}
