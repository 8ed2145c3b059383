//! Opening a device, its streams, and the memory half of the backend.

use std::any::Any;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use strata_core::backend::{
    Backend, Checked, Counts, DeviceInfo, HostBytes, Mark, Memory, MemoryInfo, Raw, RawEvent,
    RawMut, StreamState,
};
use strata_core::{Error, Result};
use sycl_bindgen::{Event, Queue};

use crate::error::device;
use crate::memory::{SyclMemory, pointer, pointer_mut};
use crate::shared::{Owner, Shared, Stream};

/// One stream on one SYCL device.
pub struct SyclBackend {
    pub(crate) shared: Arc<Shared>,
    pub(crate) stream: Arc<Stream>,
    order: StreamState,
    /// Memory for the parts of an operation; the stream's order makes reuse safe.
    pub(crate) scratch: RefCell<HashMap<&'static str, SyclMemory>>,
}

impl SyclBackend {
    /// Opens device `index` of [`devices`](crate::devices) and checks its arithmetic.
    ///
    /// # Errors
    /// [`Error::Unavailable`] without a runtime or for a device that breaks
    /// `docs/numerics.md`, naming the rule; [`Error::Invalid`] past the last device.
    pub fn open(index: u32) -> Result<Self> {
        Self::beside(Shared::open(index, None)?)
    }

    /// With a stream of its own.
    fn beside(shared: Arc<Shared>) -> Result<Self> {
        let queue = shared.base.beside();
        let queue = queue.map_err(|e| device(&shared.info.id, "opening a stream", e))?;
        Ok(Self::on(shared, queue, None))
    }

    /// On a queue of the device, which may be another's.
    pub(crate) fn on(shared: Arc<Shared>, queue: Queue, owner: Option<Owner>) -> Self {
        let stream = shared.stream(queue, owner);
        Self { shared, stream, order: StreamState::new(), scratch: RefCell::default() }
    }

    /// Sub-group sizes that the device has, ascending.
    pub fn sub_group_sizes(&self) -> &[u32] {
        &self.shared.device.sub_group_sizes
    }

    /// What was done so far on the device, through all its handles.
    pub fn counts(&self) -> Counts {
        self.shared.counters.counts()
    }

    pub(crate) fn error(&self, call: &'static str, e: sycl_bindgen::Error) -> Error {
        device(&self.shared.info.id, call, e)
    }

    pub(crate) fn queue(&self) -> &Queue {
        &self.stream.queue
    }
}

impl Drop for SyclBackend {
    fn drop(&mut self) {
        // Marks may keep the queue, which would wait only then. Core takes what was not waited for
        // as failed, so an error of that has no use.
        let ran = self.queue().wait();
        // An event's wait says whether all has run, and nothing of what failed by it.
        let ran = ran.or_else(|_| self.queue().record().and_then(|event| event.wait()));
        if let Err(error) = ran {
            self.shared.lose(error);
        }
    }
}

/// A point of a stream.
struct SyclMark(Event);

impl Mark for SyclMark {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A point of a stream that other streams of the device can wait for.
struct SyclEvent(Event);

impl RawEvent for SyclEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Uploads that are larger wait in between, so that no runtime stages all of it.
const UPLOAD_CHUNK: usize = 256 << 20;

// SAFETY: handles of one index share one `Shared` and its memory; kernels get the addresses and sizes of
// what they are handed, in one in-order queue; memory is used again when all queues have passed it.
unsafe impl Backend for SyclBackend {
    fn device(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.shared.memory()
    }

    fn stream(&self) -> &StreamState {
        &self.order
    }

    fn fork(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self::beside(Arc::clone(&self.shared))?))
    }

    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        Ok(Box::new(self.shared.alloc(*bytes)?))
    }

    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
        let memory = self.shared.alloc(host.len())?;
        self.copy_in(memory.as_ptr(), host.as_slice())?;
        Ok(Box::new(memory))
    }

    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()> {
        self.copy_in(pointer_mut(&dst), src)
    }

    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()> {
        self.shared.counters.copy();
        // SAFETY: core has checked that the region lies inside its buffer and is as long as
        // `dst`; the wait below ends the copy before either can go.
        unsafe { self.queue().copy(dst.as_mut_ptr().cast(), pointer(*src), dst.len() as u64) }
            .map_err(|e| self.error("download", e))?;
        self.finish()
    }

    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()> {
        // SAFETY: core has checked the region, and its memory outlives what is submitted.
        unsafe { self.queue().fill(pointer_mut(&dst), byte, dst.bytes() as u64) }
            .map_err(|e| self.error("fill", e))
    }

    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()> {
        self.shared.counters.copy();
        // SAFETY: core has checked both regions, and their memory outlives what is submitted.
        unsafe { self.queue().copy(pointer_mut(&dst), pointer(*src), dst.bytes() as u64) }
            .map_err(|e| self.error("copy", e))
    }

    fn synchronize_raw(&self, _: Checked<()>) -> Result<()> {
        self.finish()
    }

    fn record_raw(&self, _: Checked<()>) -> Result<Box<dyn RawEvent>> {
        let event = self.queue().record().map_err(|e| self.error("record", e))?;
        Ok(Box::new(SyclEvent(event)))
    }

    fn wait_raw(&self, event: Checked<&dyn RawEvent>) -> Result<()> {
        let Some(SyclEvent(event)) = event.as_any().downcast_ref() else {
            return Err(Error::invalid("event", "one of another backend", "an event of sycl"));
        };
        self.queue().wait_for(event).map_err(|e| self.error("wait for an event", e))
    }

    fn mark(&self) -> Result<Box<dyn Mark>> {
        let event = self.queue().record().map_err(|e| self.error("mark", e))?;
        Ok(Box::new(SyclMark(event)))
    }

    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        let marks = (from.as_any().downcast_ref(), to.as_any().downcast_ref());
        let (Some(SyclMark(from)), Some(SyclMark(to))) = marks else {
            return Err(Error::invalid("elapsed", "a mark of another backend", "marks of sycl"));
        };
        from.elapsed(to).map_err(|e| self.error("elapsed", e))
    }
}

impl SyclBackend {
    /// Waits for all that was submitted.
    fn finish(&self) -> Result<()> {
        self.shared.dismiss();
        self.shared.counters.wait();
        self.queue().wait().map_err(|e| self.error("synchronize", e))
    }

    fn copy_in(&self, to: *mut core::ffi::c_void, src: &[u8]) -> Result<()> {
        let mut to = to;
        for chunk in src.chunks(UPLOAD_CHUNK) {
            self.shared.counters.copy();
            // SAFETY: `to` has room for all of `src`, as core or the allocation above has made
            // sure; the wait ends the copy before `src` can change.
            unsafe { self.queue().copy(to, chunk.as_ptr().cast(), chunk.len() as u64) }
                .map_err(|e| self.error("upload", e))?;
            self.finish()?;
            to = to.wrapping_byte_add(chunk.len());
        }
        Ok(())
    }
}
