//! Streams and launches.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use strata_core::backend::{Mark, RawEvent};
use strata_core::{Error, Result};

use crate::args::Arguments;
use crate::device::Device;
use crate::driver::{Driver, Launch, StreamHandle};
use crate::event::{Event, StreamMark};
use crate::images::Kernel;
use crate::log_failure;
use crate::memory::Owner;

/// Largest number of blocks.
const MAX_BLOCKS: u64 = i32::MAX as u64;

/// The streams of a device that live.
#[derive(Default)]
pub(crate) struct Streams(Mutex<Vec<StreamHandle>>);

impl Streams {
    /// An event on every stream, at this point of each.
    pub(crate) fn fences<D: Driver>(&self, driver: &Arc<D>) -> Result<Vec<Event<D>>> {
        // Held while recording: a stream leaves the list before it ends.
        let fence = |&stream: &StreamHandle| {
            let event = Event::new(driver, false)?;
            event.record(stream)?;
            Ok(event)
        };
        self.lock().iter().map(fence).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<StreamHandle>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One ordered stream of work.
pub(crate) struct Stream<D: Driver> {
    pub(crate) device: Arc<Device<D>>,
    pub(crate) handle: StreamHandle,
    /// Tells it from every other there was.
    number: u64,
    /// Who keeps it, where it is another's.
    owner: Option<Owner>,
}

impl<D: Driver> Stream<D> {
    pub(crate) fn new(device: Arc<Device<D>>) -> Result<Self> {
        let handle = device.driver.new_stream()?;
        Ok(Self::on(device, handle, None))
    }

    /// A stream of another, which `owner` keeps.
    ///
    /// # Errors
    /// [`Error::Invalid`] for one of another device.
    ///
    /// # Safety
    /// It is a stream, and lives as long as `owner`.
    pub(crate) unsafe fn adopt(
        device: Arc<Device<D>>,
        handle: StreamHandle,
        owner: Owner,
    ) -> Result<Self> {
        // SAFETY: the caller's.
        unsafe { device.driver.check_stream(handle)? };
        Ok(Self::on(device, handle, Some(owner)))
    }

    fn on(device: Arc<Device<D>>, handle: StreamHandle, owner: Option<Owner>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        device.streams.lock().push(handle);
        Self { device, handle, number: NEXT.fetch_add(1, Ordering::Relaxed), owner }
    }

    fn driver(&self) -> &Arc<D> {
        &self.device.driver
    }

    pub(crate) fn synchronize(&self) -> Result<()> {
        self.device.counters.wait();
        self.driver().wait_stream(self.handle)
    }

    /// Copies host bytes to an address.
    ///
    /// # Safety
    /// The bytes behind `to` are device memory of this device, and `from` stays
    /// as it is until the stream has passed this point.
    pub(crate) unsafe fn copy_in(&self, to: u64, from: &[u8]) -> Result<()> {
        self.device.counters.copy();
        // SAFETY: as the caller promises.
        unsafe { self.driver().copy_in(self.handle, to, from) }
    }

    /// Copies from an address, and waits for it.
    ///
    /// # Safety
    /// The bytes behind `from` are device memory of this device.
    pub(crate) unsafe fn copy_out(&self, to: &mut [u8], from: u64) -> Result<()> {
        self.device.counters.copy();
        // SAFETY: as the caller promises; `to` is borrowed until the wait below ends.
        let copied = unsafe { self.driver().copy_out(self.handle, to, from) };
        // Also after an error: nothing may still write to `to` when this returns.
        copied.and(self.synchronize())
    }

    /// Copies from one address to another.
    ///
    /// # Safety
    /// The `len` bytes behind both are device memory of this device.
    pub(crate) unsafe fn copy(&self, to: u64, from: u64, len: usize) -> Result<()> {
        self.device.counters.copy();
        // SAFETY: as the caller promises.
        unsafe { self.driver().copy(self.handle, to, from, len) }
    }

    /// Sets bytes.
    ///
    /// # Safety
    /// The `len` bytes behind `to` are device memory of this device.
    pub(crate) unsafe fn fill(&self, to: u64, byte: u8, len: usize) -> Result<()> {
        // SAFETY: as the caller promises.
        unsafe { self.driver().fill(self.handle, to, byte, len) }
    }

    /// Launches a kernel; a grid without blocks is not launched.
    ///
    /// # Safety
    /// `kernel` takes one `A`, and what `args` says holds: addresses in it are
    /// of this device's memory, as large as its sizes say, and none of it is
    /// given back to the pool before this call returns.
    pub(crate) unsafe fn launch<A: Arguments>(
        &self,
        kernel: &Kernel,
        grid: Grid,
        args: &A,
    ) -> Result<()> {
        let blocks = grid.blocks(kernel);
        if blocks == 0 {
            return Ok(());
        }
        if blocks > MAX_BLOCKS {
            let detail = format!("{blocks} blocks, at most {MAX_BLOCKS} can be launched");
            return Err(self.device.error("launching a kernel", detail));
        }
        let Kernel { handle: kernel, threads, shared, .. } = *kernel;
        let launch = Launch { kernel, blocks: blocks as u32, threads, shared };
        let args = std::ptr::slice_from_raw_parts(std::ptr::from_ref(args).cast(), size_of::<A>());
        // SAFETY: as the caller promises.
        unsafe { self.driver().launch(self.handle, launch, args) }
    }

    /// An event at this point.
    pub(crate) fn event(&self, timed: bool) -> Result<Event<D>> {
        let event = Event::new(self.driver(), timed)?;
        event.record(self.handle)?;
        Ok(event)
    }

    /// Orders what comes behind a point of another stream.
    pub(crate) fn wait(&self, event: &dyn RawEvent) -> Result<()> {
        let event: &Event<D> = event.as_any().downcast_ref().ok_or_else(|| {
            Error::invalid("event", "one of another backend", format!("an event of {}", D::KIND))
        })?;
        self.driver().wait_for(self.handle, event.handle)
    }

    /// A mark at this point.
    pub(crate) fn mark(&self) -> Result<StreamMark<D>> {
        Ok(StreamMark { event: self.event(true)?, stream: self.number })
    }

    /// Time between two marks of this stream.
    pub(crate) fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        fn own<'a, D: Driver>(
            mark: &'a dyn Mark,
            which: &str,
            stream: u64,
        ) -> Result<&'a Event<D>> {
            let mark = mark.as_any().downcast_ref::<StreamMark<D>>();
            mark.filter(|m| m.stream == stream).map(|m| &m.event).ok_or_else(|| {
                Error::invalid(which, "a mark of another handle", "a mark of this handle")
            })
        }
        let first = own::<D>(from, "first mark", self.number)?;
        let last = own::<D>(to, "second mark", self.number)?;
        last.wait()?;
        let milliseconds = self.driver().elapsed(first.handle, last.handle)?;
        Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).map_err(|_| {
            Error::invalid("marks", format!("{milliseconds} ms"), "the earlier mark first")
        })
    }
}

impl<D: Driver> Drop for Stream<D> {
    fn drop(&mut self) {
        // Memory dropped from now on does not wait for this stream, so nothing may be left in it.
        log_failure(self.synchronize());
        let mut streams = self.device.streams.lock();
        // Once: a stream of another may stand here for several handles.
        if let Some(index) = streams.iter().position(|&handle| handle == self.handle) {
            streams.swap_remove(index);
        }
        drop(streams);
        if self.owner.is_none() {
            // SAFETY: made by `new`, and waited for above.
            log_failure(unsafe { self.driver().end_stream(self.handle) });
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
