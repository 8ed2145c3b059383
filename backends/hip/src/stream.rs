//! A stream, its staging memory, and marks in it.

use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use strata_core::backend::{Mark, RawEvent};
use strata_core::{Error, Result};

use crate::device::Device;
use crate::memory::Owner;
use crate::runtime::{Address, Handle, Runtime};

/// Bytes of one half of the staging memory.
const STAGE: usize = 8 << 20;

/// One ordered stream of work.
pub(crate) struct Stream {
    pub(crate) device: Arc<Device>,
    pub(crate) handle: Handle,
    stages: Mutex<Option<Stages>>,
    /// Who keeps it, where it is another's.
    owner: Option<Owner>,
}

impl Stream {
    pub(crate) fn new(device: Arc<Device>) -> Result<Arc<Self>> {
        let handle = device.runtime.stream_create()?;
        Ok(Self::on(device, handle, None))
    }

    /// A stream of another, which `owner` keeps.
    ///
    /// # Safety
    /// It is a stream of this device, and lives as long as `owner`.
    pub(crate) unsafe fn adopt(device: Arc<Device>, handle: Handle, owner: Owner) -> Arc<Self> {
        Self::on(device, handle, Some(owner))
    }

    fn on(device: Arc<Device>, handle: Handle, owner: Option<Owner>) -> Arc<Self> {
        let this = Arc::new(Self { device, handle, stages: Mutex::new(None), owner });
        this.device
            .streams
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&this));
        this
    }

    fn runtime(&self) -> Runtime {
        self.device.runtime
    }

    /// Waits for everything launched.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.runtime().stream_synchronize(self.handle)
    }

    /// Copies in, in stream order, through page-locked memory: `src` is free on return.
    ///
    /// # Safety
    /// `src.len()` bytes at `to` are memory of this device.
    pub(crate) unsafe fn upload(&self, to: Address, src: &[u8]) -> Result<()> {
        let mut guard = self.stages.lock().unwrap_or_else(PoisonError::into_inner);
        if guard.is_none() {
            *guard = Some(Stages::new(self.runtime(), src.len())?);
        }
        let Some(stages) = guard.as_mut().map(|s| s.at_least(src.len())).transpose()? else {
            return Ok(());
        };
        let size = stages.size;
        for (i, part) in src.chunks(size).enumerate() {
            let stage = stages.next()?;
            // SAFETY: the stage has `size` bytes and the stream is past its last use; the rest is
            // the caller's. The stage stays until the stream does.
            let copied = unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), stage.memory, part.len());
                let to = to + (i * size) as Address;
                self.runtime().copy_in(to, stage.memory, part.len(), self.handle)
            };
            // Also after an error: part of the copy may be under way.
            if let Err(error) = self.runtime().event_record(stage.event, self.handle) {
                // The event's last point says nothing of this copy.
                if self.synchronize().is_err() {
                    // Whether the device still reads them cannot be known: never written or freed.
                    std::mem::forget(guard.take());
                }
                return Err(error);
            }
            copied?;
        }
        Ok(())
    }

    /// Copies out, in stream order, and waits.
    ///
    /// # Safety
    /// `dst.len()` bytes at `from` are memory of this device.
    pub(crate) unsafe fn download(&self, from: Address, dst: &mut [u8]) -> Result<()> {
        // SAFETY: the caller's; `dst` outlives the copy, which is waited for.
        let copied =
            unsafe { self.runtime().copy_out(dst.as_mut_ptr(), from, dst.len(), self.handle) };
        // Wait in any case: after an error the copy may still be under way.
        copied.and(self.synchronize())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // An error here was reported by the launch or will be by the next stream.
        let _ = self.synchronize();
        let stages = self.stages.get_mut().unwrap_or_else(PoisonError::into_inner);
        drop(stages.take());
        if self.owner.is_some() {
            return;
        }
        // SAFETY: the stream is idle, and this was its only owner.
        let _ = unsafe { self.runtime().stream_destroy(self.handle) };
    }
}

/// Two pieces of page-locked memory: one is filled while the other is copied.
struct Stages {
    runtime: Runtime,
    size: usize,
    pair: [Stage; 2],
    turn: usize,
}

#[derive(Clone, Copy)]
struct Stage {
    memory: *mut u8,
    /// Recorded after the copy from it.
    event: Handle,
}

// SAFETY: it is plain memory, reached through the stream's lock only.
unsafe impl Send for Stages {}

impl Stages {
    /// Pieces that hold `bytes`, but not more than [`STAGE`] each.
    fn new(runtime: Runtime, bytes: usize) -> Result<Self> {
        let size = bytes.next_power_of_two().clamp(64 << 10, STAGE);
        let stage = || -> Result<Stage> {
            let event = runtime.event_create(false)?;
            match runtime.host_alloc(size) {
                Ok(memory) => Ok(Stage { memory, event }),
                Err(e) => {
                    // SAFETY: made above and not used.
                    let _ = unsafe { runtime.event_destroy(event) };
                    Err(e)
                }
            }
        };
        let first = stage()?;
        match stage() {
            Ok(second) => Ok(Self { runtime, size, pair: [first, second], turn: 0 }),
            Err(e) => {
                release(runtime, first);
                Err(e)
            }
        }
    }

    /// Grows the pieces where that saves turns.
    fn at_least(&mut self, bytes: usize) -> Result<&mut Self> {
        if bytes > self.size && self.size < STAGE {
            let larger = Self::new(self.runtime, bytes)?;
            for stage in self.pair {
                self.runtime.event_synchronize(stage.event)?;
            }
            *self = larger;
        }
        Ok(self)
    }

    /// The next piece, when the copy from it is done.
    fn next(&mut self) -> Result<Stage> {
        // The turn is taken after the wait: without it the other piece is still read.
        let stage = self.pair[self.turn ^ 1];
        self.runtime.event_synchronize(stage.event)?;
        self.turn ^= 1;
        Ok(stage)
    }
}

impl Drop for Stages {
    fn drop(&mut self) {
        for stage in self.pair {
            // The copy from it may be under way where the stages are outgrown.
            let _ = self.runtime.event_synchronize(stage.event);
            release(self.runtime, stage);
        }
    }
}

fn release(runtime: Runtime, stage: Stage) {
    // SAFETY: both were made by `Stages::new`, and this is their end.
    unsafe {
        let _ = runtime.event_destroy(stage.event);
        let _ = runtime.host_free(stage.memory);
    }
}

/// A point of a stream that other streams of the device can wait for.
pub(crate) struct HipEvent {
    runtime: Runtime,
    event: Handle,
}

impl HipEvent {
    /// The end of what was launched so far.
    pub(crate) fn new(stream: &Stream) -> Result<Self> {
        let runtime = stream.runtime();
        let this = Self { runtime, event: runtime.event_create(false)? };
        runtime.event_record(this.event, stream.handle)?;
        Ok(this)
    }

    /// Whether its stream has passed it.
    pub(crate) fn passed(&self) -> Result<bool> {
        self.runtime.event_done(self.event)
    }

    /// Orders what comes behind it in another stream.
    pub(crate) fn wait(event: &dyn RawEvent, stream: &Stream) -> Result<()> {
        let error = || Error::invalid("event", "one of another backend", "an event of HIP");
        let this: &Self = event.as_any().downcast_ref().ok_or_else(error)?;
        stream.runtime().stream_wait_event(stream.handle, this.event)
    }
}

impl RawEvent for HipEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for HipEvent {
    fn drop(&mut self) {
        // SAFETY: this was the event's only owner; the runtime keeps it until it has passed.
        let _ = unsafe { self.runtime.event_destroy(self.event) };
    }
}

/// A point of a stream that knows its time.
pub(crate) struct HipMark {
    stream: Arc<Stream>,
    event: Handle,
}

impl HipMark {
    /// The end of what was launched so far.
    pub(crate) fn new(stream: &Arc<Stream>) -> Result<Self> {
        let event = stream.runtime().event_create(true)?;
        let mark = Self { stream: Arc::clone(stream), event };
        stream.runtime().event_record(event, stream.handle)?;
        Ok(mark)
    }

    /// Time from one mark to another of the same stream; waits for the later.
    pub(crate) fn elapsed(from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        let (from, to) = (Self::own(from)?, Self::own(to)?);
        if !Arc::ptr_eq(&from.stream, &to.stream) {
            return Err(Error::invalid("marks", "two of different streams", "two of one stream"));
        }
        let runtime = to.stream.runtime();
        runtime.event_synchronize(to.event)?;
        let ms = runtime.event_elapsed(from.event, to.event)?;
        if ms < 0.0 {
            return Err(Error::invalid("marks", "the later one first", "the earlier one first"));
        }
        Ok(Duration::from_secs_f64(f64::from(ms) / 1e3))
    }

    fn own(mark: &dyn Mark) -> Result<&Self> {
        let error = || Error::invalid("mark", "a mark of another backend", "a mark of HIP");
        mark.as_any().downcast_ref().ok_or_else(error)
    }
}

impl Mark for HipMark {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for HipMark {
    fn drop(&mut self) {
        // SAFETY: this was the event's only owner.
        let _ = unsafe { self.stream.runtime().event_destroy(self.event) };
    }
}
