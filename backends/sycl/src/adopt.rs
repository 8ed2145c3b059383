//! Memory and queues of another program part: no copy, no wait.

use core::ffi::c_void;

use bytemuck::Pod;
use strata_core::backend::{Backend as _, Buffer, Slice, SliceMut};
use strata_core::{Error, Result};
use sycl_bindgen::Queue;

use crate::error::device;
use crate::memory::{SyclMemory, pointer, pointer_mut};
use crate::shared::Shared;
use crate::{SyclBackend, list};

impl SyclBackend {
    /// A handle whose stream is a queue that the caller has. What is launched through it runs in
    /// the queue's order, behind what the caller submitted before and ahead of what comes later:
    /// neither waits for the other on the host. Dropping the handle waits for the queue.
    ///
    /// The device is that of the queue. Where it is not open yet, its memory and kernels are of
    /// the queue's context. `elapsed` wants a queue with profiling. `owner` is kept as long as the
    /// handle.
    ///
    /// # Errors
    /// [`Error::Device`] for a queue that is not in order, or on a device that is not listed;
    /// [`Error::Invalid`] where the device is open in another context; those of [`open`](Self::open).
    ///
    /// # Safety
    /// `queue` points to a `sycl::queue` of the libsycl that this process has loaded, and `owner`
    /// keeps what it needs. Failures that its own handler is given are the caller's to act on:
    /// what was launched behind one may not have run.
    pub unsafe fn on_stream(
        queue: *const c_void,
        owner: impl Send + Sync + 'static,
    ) -> Result<Self> {
        let runtime = list::load()?;
        // SAFETY: the caller's promise.
        let queue = unsafe { Queue::adopt(runtime, queue) }
            .map_err(|e| device(&"sycl", "taking over a queue", e))?;
        let usable = list::usable(runtime)?;
        let index = usable.iter().position(|d| d.index == queue.device()).ok_or_else(|| {
            Error::invalid("queue", "one on a device that is not listed", "a device of `devices`")
        })?;
        let shared = Shared::open(index as u32, Some(&queue))?;
        Ok(Self::on(shared, queue, Some(Box::new(owner))))
    }

    /// The `sycl::queue` of this handle's stream, for a caller's own kernels: they run in the
    /// order of what is launched through the handle, as long as which it lives.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn stream_address(&self) -> Result<*mut c_void> {
        self.queue().native().map_err(|e| self.error("asking for a queue's address", e))
    }

    /// A buffer of `len` values of unified shared memory that the caller has, without a copy.
    /// `owner` is dropped when no stream of the device can touch the memory any more: at a later
    /// call that allocates, drops memory or waits, or with the device's last handle.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is not aligned for its values or that the device's
    /// context does not know.
    ///
    /// # Safety
    /// `len` values lie at `pointer`, and stay until `owner` is dropped. Meanwhile others read and
    /// write them in the order of the streams that use the buffer alone, and write none while a
    /// stream reads.
    pub unsafe fn adopt<T: Pod>(
        &self,
        pointer: *mut T,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Buffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .ok_or_else(|| Error::invalid("buffer length", len, "a size below 2^63 bytes"))?;
        if !pointer.is_aligned() {
            let expected = format!("a multiple of {}", align_of::<T>());
            return Err(Error::invalid("address", format!("{pointer:?}"), expected));
        }
        let known = self.shared.base.knows(pointer.addr());
        if !known.map_err(|e| self.error("asking what a pointer is", e))? {
            return Err(Error::invalid(
                "address",
                format!("{pointer:?}"),
                "one of unified shared memory of the device's context",
            ));
        }
        let memory = SyclMemory::adopt(&self.shared, pointer.cast(), bytes as u64, Box::new(owner));
        // SAFETY: memory of this backend's own type and of so many values, by the caller's
        // promise; it goes to its owner when all streams have passed.
        Ok(unsafe { Buffer::adopt(Box::new(memory), self.device().id, len) })
    }

    /// Where values lie on the device, for a caller's own kernels.
    ///
    /// # Errors
    /// [`Error::Invalid`] for those of another device.
    pub fn address<'a, T: Pod>(&self, values: impl Into<Slice<'a, T>>) -> Result<*const T> {
        let values = values.into();
        self.mine(values.device())?;
        Ok(pointer(values.raw()).cast())
    }

    /// Where values that may be written lie on the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] for those of another device.
    pub fn address_mut<'a, T: Pod>(&self, values: impl Into<SliceMut<'a, T>>) -> Result<*mut T> {
        let mut values = values.into();
        self.mine(values.device())?;
        Ok(pointer_mut(&values.raw_mut()).cast())
    }

    fn mine(&self, given: strata_core::backend::DeviceId) -> Result<()> {
        let expected = self.device().id;
        match given == expected {
            true => Ok(()),
            false => Err(Error::invalid("buffer", given, format!("one on {expected}"))),
        }
    }
}
