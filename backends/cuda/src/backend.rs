//! The handle: one stream on one device.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use strata_core::Result;
use strata_core::backend::{
    Backend, Checked, DeviceInfo, HostBytes, Mark, Memory, MemoryInfo, Raw, RawEvent, RawMut,
    StreamState,
};

use crate::device::Device;
use crate::memory::{CudaMemory, address, address_mut};
use crate::module::Kernel;
use crate::options::CudaOptions;
use crate::staging::Staging;
use crate::stream::Stream;

/// A handle on one NVIDIA GPU.
///
/// Handles on the same device share its memory, wherever they were opened.
/// Fields drop in order: the stream, which waits, before what it uses.
pub struct CudaBackend {
    pub(crate) stream: Stream,
    order: StreamState,
    pub(crate) options: CudaOptions,
    staging: RefCell<Staging>,
    /// Memory of launches that need some; they follow each other in the stream.
    scratch: RefCell<Option<CudaMemory>>,
}

impl CudaBackend {
    /// Opens a device by its index.
    ///
    /// # Errors
    /// [`strata_core::Error::Unavailable`] where there is no usable driver or no
    /// image for the device, [`strata_core::Error::Invalid`] where there is no
    /// device of that index, and those of the driver.
    pub fn new(index: u32, options: CudaOptions) -> Result<Self> {
        Ok(Self::on(Stream::new(Device::open(index)?)?, options))
    }

    pub(crate) fn on(stream: Stream, options: CudaOptions) -> Self {
        Self {
            stream,
            order: StreamState::new(),
            options,
            staging: RefCell::default(),
            scratch: RefCell::default(),
        }
    }

    pub(crate) fn gpu(&self) -> &Device {
        &self.stream.device
    }

    /// A kernel of an image, launched with so many threads.
    pub(crate) fn kernel(
        &self,
        unit: &'static str,
        name: &'static str,
        threads: u32,
    ) -> Result<Kernel> {
        let device = self.gpu();
        device.modules.kernel(device, unit, name, threads, 0)
    }

    /// The words that an image exports under a name.
    pub(crate) fn shape<const N: usize>(
        &self,
        unit: &'static str,
        name: &'static str,
    ) -> Result<[u32; N]> {
        let device = self.gpu();
        device.modules.shape_of(device, unit, name)
    }

    /// Memory for the next launch or two of this stream, which later ones
    /// write over; it stays at this address until the next call.
    pub(crate) fn scratch(&self, bytes: usize) -> Result<u64> {
        let mut scratch = self.scratch.borrow_mut();
        if let Some(memory) = scratch.as_ref().filter(|m| m.bytes() >= bytes) {
            return Ok(memory.address());
        }
        let memory = CudaMemory::new(&self.stream.device, bytes.next_power_of_two())?;
        // The old one goes to the pool, which keeps it until the stream is past it.
        Ok(scratch.insert(memory).address())
    }
}

// SAFETY: handles of one index share one `Device` and its memory; kernels get the addresses and sizes of
// what they are handed, in one stream; memory waits for all streams before it is used again.
unsafe impl Backend for CudaBackend {
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
        Ok(Box::new(Self::on(Stream::new(Arc::clone(&self.stream.device))?, self.options)))
    }

    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        Ok(Box::new(CudaMemory::new(&self.stream.device, *bytes)?))
    }

    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
        let memory = CudaMemory::new(&self.stream.device, host.len())?;
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
        Ok(Box::new(self.stream.record()?))
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
