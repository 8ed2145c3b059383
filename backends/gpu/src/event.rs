//! Points in streams.

use std::any::Any;
use std::sync::Arc;

use strata_core::Result;
use strata_core::backend::{Mark, RawEvent};

use crate::driver::{Driver, EventHandle, StreamHandle};
use crate::log_failure;

/// A point in a stream, once it was put there.
pub(crate) struct Event<D: Driver> {
    driver: Arc<D>,
    pub(crate) handle: EventHandle,
}

impl<D: Driver> Event<D> {
    /// One that stands nowhere yet.
    pub(crate) fn new(driver: &Arc<D>, timed: bool) -> Result<Self> {
        Ok(Self { handle: driver.new_event(timed)?, driver: Arc::clone(driver) })
    }

    /// Puts it at this point.
    pub(crate) fn record(&self, stream: StreamHandle) -> Result<()> {
        self.driver.record(self.handle, stream)
    }

    /// Whether the stream has passed it.
    pub(crate) fn passed(&self) -> Result<bool> {
        self.driver.passed(self.handle)
    }

    /// Waits until the stream has passed it.
    pub(crate) fn wait(&self) -> Result<()> {
        self.driver.wait_event(self.handle)
    }
}

impl<D: Driver> Drop for Event<D> {
    fn drop(&mut self) {
        // SAFETY: made by `new`, and this was its only owner.
        log_failure(unsafe { self.driver.end_event(self.handle) });
    }
}

impl<D: Driver> RawEvent for Event<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A point in a stream, for timing.
pub(crate) struct StreamMark<D: Driver> {
    pub(crate) event: Event<D>,
    /// The number of its stream.
    pub(crate) stream: u64,
}

impl<D: Driver> Mark for StreamMark<D> {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
