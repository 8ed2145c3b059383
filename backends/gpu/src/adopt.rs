//! Memory and streams of another program part: no copy, no wait.

use std::ffi::c_void;

use bytemuck::Pod;
use strata_core::backend::{Backend as _, Buffer, DeviceId, Slice, SliceMut};
use strata_core::{Error, Result};

use crate::backend::GpuBackend;
use crate::device::Device;
use crate::driver::{Driver, StreamHandle};
use crate::memory::{DeviceMemory, address, address_mut};
use crate::options::GpuOptions;
use crate::stream::Stream;

impl<D: Driver> GpuBackend<D> {
    /// A handle on device `index` whose stream is one that the caller has: a `CUstream` or
    /// `cudaStream_t`, a `hipStream_t`. What is launched through it runs in the stream's order, behind what the
    /// caller launched before and ahead of what comes later: neither waits for the other on the
    /// host. Dropping the handle waits for the stream and leaves it; `owner` is kept until then.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a stream of another device (on CUDA, of another context than the
    /// device's primary one, which CUDA's runtime uses); those of [`new`](Self::new).
    ///
    /// # Safety
    /// `stream` is a stream of this process and lives as long as `owner`. Failures that its own
    /// handler is given are the caller's to act on: what was launched behind one may not have run.
    pub unsafe fn on_stream(
        index: u32,
        options: GpuOptions,
        stream: *mut c_void,
        owner: impl Send + Sync + 'static,
    ) -> Result<Self> {
        let device = Device::open(index)?;
        // SAFETY: the caller's.
        let stream = unsafe { Stream::adopt(device, StreamHandle(stream), Box::new(owner))? };
        Ok(Self::on(stream, options))
    }

    /// The stream of this handle as the vendor's runtime names it, for a caller's own kernels: they run in the order of what
    /// is launched through the handle, as long as which it lives.
    pub fn stream_address(&self) -> *mut c_void {
        self.stream.handle.0
    }

    /// A buffer of `len` values of device memory that the caller has, without a copy. `owner` is
    /// dropped when no stream of the device can touch the memory any more: at a later call that
    /// allocates, drops memory or waits, or with the device's last handle.
    ///
    /// # Errors
    /// [`Error::Invalid`] for address 0, and for one that is not a multiple of 16 bytes.
    ///
    /// # Safety
    /// `len` values lie at `pointer`, in memory of this device that its kernels (on CUDA, those
    /// of its primary context) may read and write, and stay until `owner` is dropped; bytes up to the next
    /// multiple of 16 may be read as well. Meanwhile others read and write the values in the
    /// order of the streams that use the buffer alone, and write none while a stream reads.
    pub unsafe fn adopt<T: Pod>(
        &self,
        pointer: u64,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Buffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::invalid("buffer length", len, "a size below 2^63 bytes"))?;
        if pointer == 0 || !pointer.is_multiple_of(16) {
            let expected = "the address of device memory, a multiple of 16";
            return Err(Error::invalid("address", format!("{pointer:#x}"), expected));
        }
        let memory = DeviceMemory::adopt(self.keeper(), pointer, bytes, Box::new(owner));
        // SAFETY: memory of this backend's own type and of so many values, by the caller's
        // promise; it goes to its owner when all streams have passed.
        Ok(unsafe { Buffer::adopt(Box::new(memory), self.device().id, len) })
    }

    /// Where values lie on the device, for a caller's own kernels.
    ///
    /// # Errors
    /// [`Error::Invalid`] for those of another device.
    pub fn address<'a, T: Pod>(&self, values: impl Into<Slice<'a, T>>) -> Result<u64> {
        let values = values.into();
        self.mine(values.device())?;
        Ok(address(values.raw()))
    }

    /// Where values that may be written lie on the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] for those of another device.
    pub fn address_mut<'a, T: Pod>(&self, values: impl Into<SliceMut<'a, T>>) -> Result<u64> {
        let mut values = values.into();
        self.mine(values.device())?;
        Ok(address_mut(&values.raw_mut()))
    }

    fn mine(&self, given: DeviceId) -> Result<()> {
        let expected = self.device().id;
        match given == expected {
            true => Ok(()),
            false => Err(Error::invalid("buffer", given, format!("one on {expected}"))),
        }
    }
}
