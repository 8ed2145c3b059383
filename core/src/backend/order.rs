//! The order between streams, for what kernels index by.
//!
//! A map or routes read while another stream writes them would be rows and
//! experts that do not exist. So they remember which stream used them last, and
//! serve another only when that one has been waited for since.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::Backend;
use crate::{Error, Result};

/// What core remembers of a handle's stream. A handle makes one for itself.
///
/// It keeps a handle to one thread at a time: what is launched and waited for
/// through it has an order.
#[derive(Debug, Default)]
pub struct StreamState {
    waits: Arc<Waits>,
    one_thread: PhantomData<Cell<()>>,
}

/// How often the host has waited for a stream.
#[derive(Debug, Default)]
struct Waits {
    done: AtomicU64,
    failed: AtomicU64,
}

impl StreamState {
    /// A stream that nothing was launched on.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of how a wait for everything launched so far ended.
    pub(super) fn waited(&self, result: Result<()>) -> Result<()> {
        let count = if result.is_ok() { &self.waits.done } else { &self.waits.failed };
        count.fetch_add(1, Ordering::Release);
        result
    }
}

impl Waits {
    fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    fn failed(&self) -> u64 {
        self.failed.load(Ordering::Acquire)
    }
}

/// Who used something last, and whether what was written to it holds.
#[derive(Debug)]
pub(super) struct LastUse(Mutex<Use>);

#[derive(Debug)]
struct Use {
    /// The stream that used it last, and its waits at that time.
    stream: Arc<Waits>,
    waits: u64,
    /// The stream that wrote it, and its failures at that time; none while a launch is to write it.
    writer: Option<(Arc<Waits>, u64)>,
}

impl LastUse {
    /// Of something that the backend's stream has just written.
    pub(super) fn written_by(backend: &dyn Backend) -> Self {
        let stream = Arc::clone(&backend.stream().waits);
        let (waits, writer) = (stream.done(), Some((Arc::clone(&stream), stream.failed())));
        Self(Mutex::new(Use { stream, waits, writer }))
    }

    /// Before a launch that reads it; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::OtherStream`], [`Error::NotWritten`].
    pub(super) fn read(&self, what: &str, backend: &dyn Backend) -> Result<()> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &last.writer {
            Some((writer, failed)) if writer.failed() == *failed => {}
            _ => return Err(Error::NotWritten { what: what.into() }),
        }
        last.pass(what, backend)
    }

    /// Before a launch that writes it: it must not be read until [`written`](Self::written).
    ///
    /// # Errors
    /// [`Error::OtherStream`].
    pub(super) fn write(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        let last = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        last.pass(what, backend)?;
        last.writer = None;
        Ok(())
    }

    /// After the launch that writes it.
    pub(super) fn written(&mut self) {
        let last = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        last.writer = Some((Arc::clone(&last.stream), last.stream.failed()));
    }
}

impl Use {
    /// Passes it to the backend's stream.
    fn pass(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        let own = &backend.stream().waits;
        if !Arc::ptr_eq(&self.stream, own) {
            if self.stream.done() == self.waits {
                return Err(Error::OtherStream { what: what.into() });
            }
            self.stream = Arc::clone(own);
        }
        self.waits = own.done();
        Ok(())
    }
}
