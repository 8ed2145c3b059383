//! Points in the stream. Launches have run when they return, so a mark is the time it was made.

use std::any::Any;
use std::time::{Duration, Instant};

use strata_core::backend::Mark;
use strata_core::{Error, Result};

/// The instant of [`mark`](strata_core::backend::Backend::mark).
pub(crate) struct CpuMark(Instant);

impl CpuMark {
    pub(crate) fn now() -> Self {
        Self(Instant::now())
    }
}

impl Mark for CpuMark {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// From one mark to another of this backend.
pub(crate) fn elapsed(from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
    let instant = |mark: &dyn Mark| match mark.as_any().downcast_ref::<CpuMark>() {
        Some(mark) => Ok(mark.0),
        None => Err(Error::invalid("mark", "a mark of another backend", "a mark of the CPU")),
    };
    let (from, to) = (instant(from)?, instant(to)?);
    to.checked_duration_since(from)
        .ok_or_else(|| Error::invalid("marks", "the later one first", "the earlier one first"))
}
