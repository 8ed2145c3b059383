//! The handle: one stream on one device.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use strata_core::Result;
use strata_core::backend::{
    Backend, Checked, Counts, DeviceInfo, HostBytes, Mark, Memory, MemoryInfo, Raw, RawEvent,
    RawMut, StreamState,
};

use crate::device::Device;
use crate::driver::Driver;
use crate::images::{Kernel, Unit};
use crate::memory::{DeviceMemory, Keeper, address, address_mut};
use crate::options::GpuOptions;
use crate::staging::Staging;
use crate::stream::Stream;

/// A handle on one GPU.
///
/// Handles on the same device share its memory, wherever they were opened.
/// Fields drop in order: the stream, which waits, before what it uses.
pub struct GpuBackend<D: Driver> {
    pub(crate) stream: Stream<D>,
    order: StreamState,
    pub(crate) options: GpuOptions,
    staging: RefCell<Staging<D>>,
    /// Memory of launches that need some; they follow each other in the stream.
    scratch: RefCell<Option<DeviceMemory>>,
}

impl<D: Driver> GpuBackend<D> {
    /// Opens a device by its index.
    ///
    /// # Errors
    /// [`strata_core::Error::Unavailable`] where there is no usable driver or no
    /// image for the device, [`strata_core::Error::Invalid`] where there is no
    /// device of that index, and those of the driver.
    pub fn new(index: u32, options: GpuOptions) -> Result<Self> {
        Ok(Self::on(Stream::new(Device::open(index)?)?, options))
    }

    pub(crate) fn on(stream: Stream<D>, options: GpuOptions) -> Self {
        Self {
            stream,
            order: StreamState::new(),
            options,
            staging: RefCell::default(),
            scratch: RefCell::default(),
        }
    }

    /// What was done so far on the device, through all its handles.
    pub fn counts(&self) -> Counts {
        self.gpu().counters.counts()
    }

    pub(crate) fn gpu(&self) -> &Arc<Device<D>> {
        &self.stream.device
    }

    pub(crate) fn keeper(&self) -> Arc<dyn Keeper> {
        Arc::<Device<D>>::clone(self.gpu())
    }

    /// Bytes of shared memory a block may have.
    pub(crate) fn shared_memory(&self) -> u32 {
        self.options.shared_bytes.unwrap_or(u32::MAX).min(self.gpu().shared)
    }

    /// A kernel of an image, launched with so many threads.
    pub(crate) fn kernel(
        &self,
        unit: impl Into<Unit>,
        name: &'static str,
        threads: u32,
    ) -> Result<Kernel> {
        let device = self.gpu();
        device.images.kernel(device, unit.into(), name, threads, 0)
    }

    /// The words that an image exports under a name, of which there must be so many.
    pub(crate) fn shape<const N: usize>(
        &self,
        unit: impl Into<Unit>,
        name: &'static str,
    ) -> Result<[u32; N]> {
        let device = self.gpu();
        let words = device.images.words(device, unit.into(), name)?;
        <[u32; N]>::try_from(&*words).ok().filter(|w| w.iter().all(|&x| x > 0)).ok_or_else(|| {
            let detail = format!("{name} is {words:?}, expected {N} words above 0");
            device.error("reading a launch shape", detail)
        })
    }

    /// Memory for the next launch or two of this stream, which later ones
    /// write over; it stays at this address until the next call.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<u64> {
        let mut scratch = self.scratch.borrow_mut();
        if let Some(memory) = scratch.as_ref().filter(|m| m.bytes() >= bytes) {
            return Ok(memory.address());
        }
        let memory = self.gpu().alloc(bytes.next_power_of_two())?;
        // The old one goes to the pool, which keeps it until the stream is past it.
        Ok(scratch.insert(memory).address())
    }
}

// SAFETY: handles of one index share one `Device` and its memory; kernels get the addresses and sizes of
// what they are handed, in one stream; memory waits for all streams before it is used again.
unsafe impl<D: Driver> Backend for GpuBackend<D> {
    fn device(&self) -> &DeviceInfo {
        &self.gpu().info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        self.gpu().memory()
    }

    fn stream(&self) -> &StreamState {
        &self.order
    }

    fn fork(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self::on(Stream::new(Arc::clone(self.gpu()))?, self.options)))
    }

    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        Ok(Box::new(self.gpu().alloc(*bytes)?))
    }

    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
        let memory = self.gpu().alloc(host.len())?;
        let mut staging = self.staging.borrow_mut();
        // SAFETY: the memory was just made for these bytes.
        unsafe { staging.upload(&self.stream, memory.address(), host.as_slice())? };
        Ok(Box::new(memory))
    }

    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()> {
        debug_assert_eq!(dst.bytes(), src.len());
        // SAFETY: core has checked that the region lies in memory of this device.
        unsafe { self.staging.borrow_mut().upload(&self.stream, address_mut(&dst), src) }
    }

    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()> {
        debug_assert_eq!(src.bytes(), dst.len());
        // SAFETY: as above.
        unsafe { self.stream.copy_out(dst, address(*src)) }
    }

    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()> {
        // SAFETY: as above.
        unsafe { self.stream.fill(address_mut(&dst), byte, dst.bytes()) }
    }

    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()> {
        // SAFETY: as above, of both.
        unsafe { self.stream.copy(address_mut(&dst), address(*src), dst.bytes()) }
    }

    fn synchronize_raw(&self, _: Checked<()>) -> Result<()> {
        self.stream.synchronize()?;
        self.gpu().reap();
        Ok(())
    }

    fn record_raw(&self, _: Checked<()>) -> Result<Box<dyn RawEvent>> {
        Ok(Box::new(self.stream.event(false)?))
    }

    fn wait_raw(&self, event: Checked<&dyn RawEvent>) -> Result<()> {
        self.stream.wait(*event)
    }

    fn mark(&self) -> Result<Box<dyn Mark>> {
        Ok(Box::new(self.stream.mark()?))
    }

    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        self.stream.elapsed(from, to)
    }
}
