//! Streams, the events on them, and launches.

use std::any::Any;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::sys::{self, CUevent, CUevent_flags_enum as EventFlags, CUresult, CUstream};
use strata_core::backend::{Mark, RawEvent};
use strata_core::{Error, Result};

use crate::device::{Device, Raw};
use crate::driver;
use crate::memory::Owner;
use crate::module::Kernel;

/// Largest number of blocks along x.
const MAX_BLOCKS: u64 = i32::MAX as u64;

/// The streams of a device that live.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Vec<Raw<CUstream>>>);

impl Streams {
    /// An event on every stream, at this point of each.
    pub(crate) fn fences(&self, device: &Device) -> Result<Vec<Event>> {
        // Held while recording: a stream leaves the list before it is destroyed.
        let streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        streams
            .iter()
            .map(|stream| {
                let event = Event::new(device, EventFlags::CU_EVENT_DISABLE_TIMING)?;
                event.record(device, stream.0)?;
                Ok(event)
            })
            .collect()
    }
}

/// One ordered stream of work.
pub(crate) struct Stream {
    pub(crate) device: Arc<Device>,
    raw: Raw<CUstream>,
    /// Who keeps it, where it is another's.
    owner: Option<Owner>,
}

impl Stream {
    pub(crate) fn new(device: Arc<Device>) -> Result<Self> {
        device.enter()?;
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let mut raw = std::ptr::null_mut();
        // SAFETY: the context is current; writes one handle, destroyed in drop.
        device.check("cuStreamCreate", unsafe { sys::cuStreamCreate(&raw mut raw, flags) })?;
        Ok(Self::on(device, Raw(raw), None))
    }

    /// A stream of another, which `owner` keeps.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one of another context than the device's primary one.
    ///
    /// # Safety
    /// It is a stream, and lives as long as `owner`.
    pub(crate) unsafe fn adopt(device: Arc<Device>, raw: CUstream, owner: Owner) -> Result<Self> {
        device.enter()?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the caller's; writes one handle.
        let result = unsafe { sys::cuStreamGetCtx(raw, &raw mut context) };
        device.check("cuStreamGetCtx", result)?;
        if context != device.context() {
            let expected = format!("one of the primary context of {}", device.info.id);
            return Err(Error::invalid("stream", "one of another context", expected));
        }
        Ok(Self::on(device, Raw(raw), Some(owner)))
    }

    fn on(device: Arc<Device>, raw: Raw<CUstream>, owner: Option<Owner>) -> Self {
        device.streams.0.lock().unwrap_or_else(PoisonError::into_inner).push(raw);
        Self { device, raw, owner }
    }

    /// The driver's handle.
    pub(crate) fn address(&self) -> *mut c_void {
        self.raw.0.cast()
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.device.enter()?;
        // SAFETY: the stream lives.
        let result = unsafe { sys::cuStreamSynchronize(self.raw.0) };
        self.device.check("cuStreamSynchronize", result)
    }

    /// Copies host bytes to an address.
    ///
    /// # Safety
    /// The bytes behind `to` are device memory of this device, and `from` stays
    /// as it is until the stream has passed this point.
    pub(crate) unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()> {
        self.device.enter()?;
        let (data, len) = (from.as_ptr().cast::<c_void>(), from.len());
        // SAFETY: as the caller promises.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, data, len, self.raw.0) };
        self.device.check("cuMemcpyHtoDAsync", result)
    }

    /// Copies from an address, and waits for it.
    ///
    /// # Safety
    /// The bytes behind `from` are device memory of this device.
    pub(crate) unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<()> {
        self.device.enter()?;
        let (data, len) = (to.as_mut_ptr().cast::<c_void>(), to.len());
        // SAFETY: as the caller promises; `to` is borrowed until the wait below ends.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(data, from, len, self.raw.0) };
        let copied = self.device.check("cuMemcpyDtoHAsync", result);
        // Also after an error: nothing may still write to `to` when this returns.
        copied.and(self.synchronize())
    }

    /// Copies from one address to another.
    ///
    /// # Safety
    /// The `len` bytes behind both are device memory of this device.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<()> {
        self.device.enter()?;
        // SAFETY: as the caller promises.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, len, self.raw.0) };
        self.device.check("cuMemcpyDtoDAsync", result)
    }

    /// Sets bytes.
    ///
    /// # Safety
    /// The `len` bytes behind `to` are device memory of this device.
    pub(crate) unsafe fn fill(&self, to: u64, byte: u8, len: usize) -> Result<()> {
        self.device.enter()?;
        // SAFETY: as the caller promises.
        let result = unsafe { sys::cuMemsetD8Async(to, byte, len, self.raw.0) };
        self.device.check("cuMemsetD8Async", result)
    }

    /// Launches a kernel; a grid without blocks is not launched.
    ///
    /// # Safety
    /// `kernel` takes one `A`, and what `args` says holds: addresses in it are
    /// of this device's memory, as large as its sizes say, and none of it is
    /// given back to the pool before this call returns.
    pub(crate) unsafe fn launch<A>(&self, kernel: &Kernel, grid: Grid, args: &A) -> Result<()> {
        let blocks = grid.blocks(kernel);
        if blocks == 0 {
            return Ok(());
        }
        if blocks > MAX_BLOCKS {
            let detail = format!("{blocks} blocks, at most {MAX_BLOCKS} can be launched");
            return Err(self.device.error("cuLaunchKernel", detail));
        }
        self.device.enter()?;
        let mut params = [std::ptr::from_ref(args).cast_mut().cast::<c_void>()];
        // SAFETY: the kernel has one parameter, which is copied before the call
        // returns; the driver checks the launch against the device's limits.
        let result = unsafe {
            sys::cuLaunchKernel(
                kernel.function.0,
                blocks as u32,
                1,
                1,
                kernel.threads,
                1,
                1,
                kernel.shared,
                self.raw.0,
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.device.check("cuLaunchKernel", result)
    }

    /// An event at this point.
    pub(crate) fn event(&self, flags: EventFlags) -> Result<Event> {
        let event = self.new_event(flags)?;
        self.record_into(&event)?;
        Ok(event)
    }

    /// An event that stands nowhere yet.
    pub(crate) fn new_event(&self, flags: EventFlags) -> Result<Event> {
        self.device.enter()?;
        Event::new(&self.device, flags)
    }

    /// Puts an event at this point.
    pub(crate) fn record_into(&self, event: &Event) -> Result<()> {
        self.device.enter()?;
        event.record(&self.device, self.raw.0)
    }

    /// A point that other streams of the device can wait for.
    pub(crate) fn record(&self) -> Result<CudaEvent> {
        let event = self.event(EventFlags::CU_EVENT_DISABLE_TIMING)?;
        Ok(CudaEvent { event, device: Arc::clone(&self.device) })
    }

    /// Orders what comes behind a point of another stream.
    pub(crate) fn wait(&self, event: &dyn RawEvent) -> Result<()> {
        let event: &CudaEvent = event
            .as_any()
            .downcast_ref()
            .ok_or_else(|| Error::invalid("event", "one of another backend", "an event of CUDA"))?;
        self.device.enter()?;
        // SAFETY: stream and event live, and core has checked that both are of this device.
        let result = unsafe { sys::cuStreamWaitEvent(self.raw.0, event.event.raw.0, 0) };
        self.device.check("cuStreamWaitEvent", result)
    }

    /// A mark at this point.
    pub(crate) fn mark(&self) -> Result<CudaMark> {
        let event = self.event(EventFlags::CU_EVENT_DEFAULT)?;
        Ok(CudaMark { event, stream: self.raw, device: Arc::clone(&self.device) })
    }

    /// Time between two marks of this stream.
    pub(crate) fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        let own = |mark: &dyn Mark, which| {
            let mark = mark.as_any().downcast_ref::<CudaMark>();
            let known = mark
                .filter(|m| Arc::ptr_eq(&m.device, &self.device) && m.stream == self.raw)
                .map(|m| m.event.raw);
            known.ok_or_else(|| {
                Error::invalid(which, "a mark of another handle", "a mark of this handle")
            })
        };
        let (first, last) = (own(from, "first mark")?, own(to, "second mark")?);
        self.device.enter()?;
        // SAFETY: both events live as long as their marks.
        let result = unsafe { sys::cuEventSynchronize(last.0) };
        self.device.check("cuEventSynchronize", result)?;
        let mut milliseconds = 0f32;
        // SAFETY: both were recorded with timing and the later one has passed.
        let result = unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, first.0, last.0) };
        self.device.check("cuEventElapsedTime", result)?;
        Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).map_err(|_| {
            Error::invalid("marks", format!("{milliseconds} ms"), "the earlier mark first")
        })
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // Memory dropped from now on does not wait for this stream, so nothing may be left in it.
        if let Err(error) = self.synchronize() {
            tracing::debug!("a stream ends: {error}");
        }
        let mut streams = self.device.streams.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Once: a stream of another may stand here for several handles.
        if let Some(index) = streams.iter().position(|&raw| raw == self.raw) {
            streams.swap_remove(index);
        }
        drop(streams);
        if self.owner.is_some() {
            return;
        }
        // SAFETY: created by `new`, destroyed once.
        let result = unsafe { sys::cuStreamDestroy_v2(self.raw.0) };
        if let Err(error) = self.device.check("cuStreamDestroy", result) {
            tracing::debug!("{error}");
        }
    }
}

/// Turns of a grid that reads and writes memory: more blocks than run at once,
/// so that early ones are followed by others.
pub(crate) const TURNS: u64 = 4;

/// How many blocks a launch has.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Grid {
    /// As many.
    Exactly(u64),
    /// As many, but no more than so many times those that run at once: the
    /// kernel's blocks walk the rest.
    UpTo(u64, u64),
}

impl Grid {
    fn blocks(self, kernel: &Kernel) -> u64 {
        match self {
            Self::Exactly(blocks) => blocks,
            Self::UpTo(blocks, turns) => blocks.min(kernel.resident.max(1) * turns.max(1)),
        }
    }
}

/// A point in a stream.
pub(crate) struct Event {
    index: u32,
    raw: Raw<CUevent>,
}

impl Event {
    fn new(device: &Device, flags: EventFlags) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the caller has made the context current; writes one handle.
        let result = unsafe { sys::cuEventCreate(&raw mut raw, flags as u32) };
        device.check("cuEventCreate", result)?;
        Ok(Self { index: device.info.id.index, raw: Raw(raw) })
    }

    fn record(&self, device: &Device, stream: CUstream) -> Result<()> {
        // SAFETY: event and stream live, in the same context.
        device.check("cuEventRecord", unsafe { sys::cuEventRecord(self.raw.0, stream) })
    }

    /// Whether the stream has passed it.
    pub(crate) fn passed(&self) -> Result<bool> {
        // SAFETY: the event lives.
        match unsafe { sys::cuEventQuery(self.raw.0) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => driver::check(Some(self.index), "cuEventQuery", result).map(|()| true),
        }
    }

    /// Waits until the stream has passed it.
    pub(crate) fn wait(&self) -> Result<()> {
        // SAFETY: the event lives.
        let result = unsafe { sys::cuEventSynchronize(self.raw.0) };
        driver::check(Some(self.index), "cuEventSynchronize", result)
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        // SAFETY: created by `new`, destroyed once; the driver keeps it until it has passed.
        let result = unsafe { sys::cuEventDestroy_v2(self.raw.0) };
        if let Err(error) = driver::check(Some(self.index), "cuEventDestroy", result) {
            tracing::debug!("{error}");
        }
    }
}

/// A point in a stream, for other streams. Fields drop in order: the event before its device.
pub(crate) struct CudaEvent {
    event: Event,
    device: Arc<Device>,
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // As for marks.
        if let Err(error) = self.device.enter() {
            tracing::debug!("{error}");
        }
    }
}

impl RawEvent for CudaEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// A point in a stream, for timing. Fields drop in order: the event before its device.
pub(crate) struct CudaMark {
    event: Event,
    stream: Raw<CUstream>,
    device: Arc<Device>,
}

impl Drop for CudaMark {
    fn drop(&mut self) {
        // Marks may be dropped by a thread that has never called the driver.
        if let Err(error) = self.device.enter() {
            tracing::debug!("{error}");
        }
    }
}

impl Mark for CudaMark {
    fn as_any(&self) -> &dyn Any {
        self
    }
}
