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

impl Event {
    pub(crate) fn record(queue: &Queue) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the queue is live and `raw` is valid for the call.
        let code = unsafe { (queue.api().event_record)(queue.raw(), &mut raw) };
        check(queue.api(), code, "recording an event")?;
        let raw = NonNull::new(raw)
            .ok_or_else(|| Error::invalid("recording an event", "no event".into()))?;
        Ok(Event { raw, queue: queue.clone() })
    }

    pub(crate) fn raw(&self) -> *mut sys::Event {
        self.raw.as_ptr()
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
