//! Events.

use crate::error::{Error, check};
use crate::queue::Queue;
use crate::sys;
use std::ptr::NonNull;
use std::time::Duration;

/// A point in a queue.
pub struct Event {
    raw: NonNull<sys::Event>,
    queue: Queue,
}

// SAFETY: the bridge's objects may be used and freed from any thread, and a
// SYCL event is thread-safe.
unsafe impl Send for Event {}
// SAFETY: as above.
unsafe impl Sync for Event {}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: the handle is live and owned here.
        unsafe { (self.queue.api().event_destroy)(self.raw.as_ptr()) };
    }
}

impl Queue {
    /// Marks the point after everything submitted so far.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn record(&self) -> Result<Event, Error> {
        Event::record(self)
    }

    /// Orders what is submitted from now on behind an event of any queue of the
    /// device; does not wait.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn wait_for(&self, event: &Event) -> Result<(), Error> {
        // SAFETY: both handles are live.
        let code = unsafe { (self.api().queue_wait_event)(self.raw(), event.raw.as_ptr()) };
        check(self.api(), code, "waiting for an event of another queue")
    }
}

impl Event {
    fn record(queue: &Queue) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the queue is live and `raw` is valid for the call.
        let code = unsafe { (queue.api().event_record)(queue.raw(), &mut raw) };
        check(queue.api(), code, "recording an event")?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::invalid("recording an event", "no event".into()))?;
        Ok(Event { raw, queue: queue.clone() })
    }

    /// Waits for the event.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: the handle is live.
        let code = unsafe { (self.queue.api().event_wait)(self.raw.as_ptr()) };
        check(self.queue.api(), code, "waiting for an event")
    }

    /// Whether all before it has run; does not wait.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn passed(&self) -> Result<bool, Error> {
        let mut passed = 0;
        // SAFETY: the handle is live and `passed` is valid for the call.
        let code = unsafe { (self.queue.api().event_passed)(self.raw.as_ptr(), &mut passed) };
        check(self.queue.api(), code, "asking whether an event has passed")?;
        Ok(passed != 0)
    }

    /// Device time from this event to a later one of the same queue; waits for
    /// both.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) when `later` came before.
    pub fn elapsed(&self, later: &Event) -> Result<Duration, Error> {
        let mut ns = 0;
        let api = self.queue.api();
        // SAFETY: both handles are live and `ns` is valid for the call.
        let code = unsafe { (api.event_elapsed)(self.raw.as_ptr(), later.raw.as_ptr(), &mut ns) };
        check(api, code, "measuring time between events")?;
        Ok(Duration::from_nanos(ns))
    }
}
