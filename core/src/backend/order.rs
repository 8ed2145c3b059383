//! The order between streams, for what kernels index by.
//!
//! A map or routes read while another stream writes them would be rows and
//! experts that do not exist. So they remember which stream used them last, and
//! serve another only when that one has been waited for since: by the host, or
//! on the device by an [`Event`] that was recorded behind the use.
//!
//! The uses of a stream are numbered. An event knows the number that its stream
//! had come to, and what that stream was itself behind; a stream that waits for
//! the event is behind all of that.
//!
//! One that failed may have been left unwritten. A failure is said once, by
//! whichever call of the stream comes upon it, so every call's outcome passes
//! through [`StreamState::outcome`]. A stream that is dropped has run to its end,
//! but nobody has heard how: what it wrote behind its last wait counts as failed.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Backend, DeviceId};
use crate::{Error, Result};

/// What core remembers of a handle's stream. A handle makes one for itself.
///
/// It keeps a handle to one thread at a time: what is launched and waited for
/// through it has an order. It is dropped with the handle, behind what was launched
/// through that: see the `# Safety` of [`Backend`].
#[derive(Debug, Default)]
pub struct StreamState {
    waits: Arc<Waits>,
    /// What of other streams this one is behind. Not to be shared between threads.
    behind: RefCell<Behind>,
}

/// A point of a stream that others can wait for on the device: see `dyn Backend::record`.
///
/// It stands for all that was launched through its stream before, and for all that
/// this was itself behind.
pub struct Event {
    pub(super) device: DeviceId,
    pub(super) raw: Box<dyn RawEvent>,
    behind: Behind,
}

/// A backend's own event.
pub trait RawEvent: Any + Send + Sync {
    /// For the backend to recognise its own.
    fn as_any(&self) -> &dyn Any;
}

impl std::fmt::Debug for Event {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Event on {}", self.device)
    }
}

/// Streams, and the number of the last use of each that one is behind.
#[derive(Debug, Default, Clone)]
struct Behind(Vec<(Arc<Waits>, u64)>);

impl Behind {
    /// Adds the uses of a stream up to number `uses`.
    fn add(&mut self, stream: &Arc<Waits>, uses: u64) {
        match self.0.iter_mut().find(|(s, _)| Arc::ptr_eq(s, stream)) {
            Some((_, last)) => *last = uses.max(*last),
            None => self.0.push((Arc::clone(stream), uses)),
        }
    }

    fn holds(&self, stream: &Arc<Waits>, used: u64) -> bool {
        self.0.iter().any(|(s, last)| Arc::ptr_eq(s, stream) && used <= *last)
    }
}

/// What the host knows of how far a stream has come.
#[derive(Debug, Default)]
struct Waits {
    /// Waits that ended well.
    done: AtomicU64,
    /// Calls that failed, waits or not.
    failed: AtomicU64,
    /// Uses so far of what kernels index by.
    uses: AtomicU64,
    /// Whether the handle is gone. Nothing is left in the stream, but what failed of it was not said.
    dropped: AtomicBool,
}

impl StreamState {
    /// A stream that nothing was launched on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of how a call of this stream ended. A failure may be that of an earlier launch,
    /// which no later call says again.
    pub(super) fn outcome<T>(&self, result: Result<T>) -> Result<T> {
        if result.is_err() {
            self.waits.failed.fetch_add(1, Ordering::Release);
        }
        result
    }

    /// The same of a wait for everything launched so far.
    pub(super) fn waited(&self, result: Result<()>) -> Result<()> {
        self.outcome(result)?;
        self.waits.done.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The event that a backend has just recorded on this stream.
    pub(super) fn recorded(&self, device: DeviceId, raw: Box<dyn RawEvent>) -> Event {
        let mut behind = self.behind.borrow_mut();
        // Whoever comes after a stream that is gone is behind it anyway.
        behind.0.retain(|(stream, _)| !stream.dropped());
        let mut behind = behind.clone();
        behind.add(&self.waits, self.waits.uses.load(Ordering::Acquire));
        Event { device, raw, behind }
    }

    /// What is launched on this stream from now on runs behind the event.
    pub(super) fn waits_for(&self, event: &Event) {
        let mut behind = self.behind.borrow_mut();
        for (stream, uses) in &event.behind.0 {
            behind.add(stream, *uses);
        }
    }
}

impl Drop for StreamState {
    fn drop(&mut self) {
        self.waits.dropped.store(true, Ordering::Release);
    }
}

impl Waits {
    fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    fn failed(&self) -> u64 {
        self.failed.load(Ordering::Acquire)
    }

    fn dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }

    /// The number of one more use.
    fn used(&self) -> u64 {
        self.uses.fetch_add(1, Ordering::AcqRel) + 1
    }
}

/// Who used something last, and whether what was written to it holds.
#[derive(Debug)]
pub(super) struct LastUse(Mutex<Use>);

#[derive(Debug)]
struct Use {
    /// The stream that used it last, its waits at that time, and the number of the use.
    stream: Arc<Waits>,
    waits: u64,
    number: u64,
    /// None while a launch is to write it.
    written: Option<Written>,
}

/// The stream that wrote something, and its waits and failures at that time.
#[derive(Debug)]
struct Written {
    stream: Arc<Waits>,
    done: u64,
    failed: u64,
}

impl LastUse {
    /// Of something that the backend's stream has just written.
    pub(super) fn written_by(backend: &dyn Backend) -> Self {
        let stream = Arc::clone(&backend.stream().waits);
        let (waits, number) = (stream.done(), stream.used());
        let written = Some(Written::by(&stream));
        Self(Mutex::new(Use { stream, waits, number, written }))
    }

    /// Before a launch that reads it; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::OtherStream`], [`Error::NotWritten`].
    pub(super) fn read(&self, what: &str, backend: &dyn Backend) -> Result<()> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Before the failures: those that a wait has left behind are seen by whoever sees the wait.
        let ordered = last.is_ordered(backend);
        if !last.written.as_ref().is_some_and(Written::holds) {
            return Err(Error::NotWritten { what: what.into() });
        }
        last.pass(what, backend, ordered)
    }

    /// Before a launch that writes it: it must not be read until [`written`](Self::written).
    ///
    /// # Errors
    /// [`Error::OtherStream`].
    pub(super) fn write(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        let last = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        let ordered = last.is_ordered(backend);
        last.pass(what, backend, ordered)?;
        last.written = None;
        Ok(())
    }

    /// After the launch that writes it.
    pub(super) fn written(&mut self) {
        let last = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        last.written = Some(Written::by(&last.stream));
    }
}

impl Written {
    /// By the stream, at this moment.
    fn by(stream: &Arc<Waits>) -> Self {
        Self { stream: Arc::clone(stream), done: stream.done(), failed: stream.failed() }
    }

    /// Whether nothing has failed since that may have been to write it.
    fn holds(&self) -> bool {
        let unheard = self.stream.dropped() && self.stream.done() == self.done;
        self.stream.failed() == self.failed && !unheard
    }
}

impl Use {
    /// Whether what is launched through the backend now runs behind its last use.
    fn is_ordered(&self, backend: &dyn Backend) -> bool {
        let stream = backend.stream();
        Arc::ptr_eq(&self.stream, &stream.waits)
            || self.stream.done() != self.waits
            || self.stream.dropped()
            || stream.behind.borrow().holds(&self.stream, self.number)
    }

    /// Passes it to the backend's stream.
    fn pass(&mut self, what: &str, backend: &dyn Backend, ordered: bool) -> Result<()> {
        if !ordered {
            return Err(Error::OtherStream { what: what.into() });
        }
        self.stream = Arc::clone(&backend.stream().waits);
        self.waits = self.stream.done();
        self.number = self.stream.used();
        Ok(())
    }
}
