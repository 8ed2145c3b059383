//! Memory.

use crate::error::{Error, check};
use crate::queue::Queue;
use core::ffi::c_void;

/// Unified shared memory of a queue's device or of the host, aligned to 256
/// bytes. An empty buffer has a null pointer.
pub struct UsmBuffer {
    pointer: *mut c_void,
    bytes: u64,
    queue: Queue,
}

// SAFETY: the memory is owned here and only reached through the queue, which is
// thread-safe; writing it takes `&mut`.
unsafe impl Send for UsmBuffer {}
// SAFETY: as above.
unsafe impl Sync for UsmBuffer {}

impl std::fmt::Debug for UsmBuffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UsmBuffer({} bytes, {:?})", self.bytes, self.queue)
    }
}

impl Drop for UsmBuffer {
    fn drop(&mut self) {
        if self.pointer.is_null() {
            return;
        }
        // SAFETY: the pointer came from this queue's context, and the bridge
        // waits for work that still uses it. A failure has nobody to tell here;
        // what it was about is reported by the queue's next wait.
        unsafe { (self.queue.api().free)(self.queue.raw(), self.pointer) };
    }
}

impl Queue {
    /// Allocates device memory; its bytes are not initialised.
    ///
    /// # Errors
    /// [`Code::OutOfMemory`](crate::Code::OutOfMemory), with what was asked.
    pub fn alloc(&self, bytes: u64) -> Result<UsmBuffer, Error> {
        UsmBuffer::device(self, bytes)
    }

    /// Allocates host memory that the device can use; copies to and from it
    /// need no staging.
    ///
    /// # Errors
    /// [`Code::OutOfMemory`](crate::Code::OutOfMemory), with what was asked.
    pub fn alloc_host(&self, bytes: u64) -> Result<UsmBuffer, Error> {
        UsmBuffer::host(self, bytes)
    }
}

impl UsmBuffer {
    fn device(queue: &Queue, bytes: u64) -> Result<Self, Error> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the queue is live and `pointer` is valid for the call.
        let code = unsafe { (queue.api().malloc_device)(queue.raw(), bytes, &mut pointer) };
        check(queue.api(), code, "allocating device memory")?;
        Ok(Self::own(queue, pointer, bytes))
    }

    fn host(queue: &Queue, bytes: u64) -> Result<Self, Error> {
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the queue is live and `pointer` is valid for the call.
        let code = unsafe { (queue.api().malloc_host)(queue.raw(), bytes, &mut pointer) };
        check(queue.api(), code, "allocating host memory")?;
        Ok(Self::own(queue, pointer, bytes))
    }

    fn own(queue: &Queue, pointer: *mut c_void, bytes: u64) -> Self {
        UsmBuffer { pointer, bytes, queue: queue.clone() }
    }

    /// Its size in bytes.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Its address, for kernel arguments.
    pub fn as_ptr(&self) -> *mut c_void {
        self.pointer
    }

    /// The address of byte `offset`, once `bytes` from there are known to lie
    /// inside.
    fn span(&self, offset: u64, bytes: u64, doing: &str) -> Result<*mut c_void, Error> {
        let end = offset.checked_add(bytes);
        if end.is_none_or(|end| end > self.bytes) {
            return Err(Error::invalid(
                doing,
                format!("{bytes} bytes at offset {offset} do not fit a buffer of {}", self.bytes),
            ));
        }
        Ok(self.pointer.wrapping_byte_add(offset as usize))
    }

    /// Copies `from` to byte `offset`, and waits.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) past the end; what the runtime
    /// reports.
    pub fn upload(&mut self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let to = self.span(offset, from.len() as u64, "uploading")?;
        // SAFETY: both ranges are valid for their length, and the wait below
        // ends the copy before `from` can go.
        let code = unsafe {
            (self.queue.api().copy)(self.queue.raw(), to, from.as_ptr().cast(), from.len() as u64)
        };
        check(self.queue.api(), code, "uploading")?;
        self.queue.wait()
    }

    /// Copies from byte `offset` into `to`, after what was submitted, and waits.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) past the end; what the runtime
    /// reports.
    pub fn download(&self, offset: u64, to: &mut [u8]) -> Result<(), Error> {
        let from = self.span(offset, to.len() as u64, "downloading")?;
        // SAFETY: as for `upload`.
        let code = unsafe {
            (self.queue.api().copy)(self.queue.raw(), to.as_mut_ptr().cast(), from, to.len() as u64)
        };
        check(self.queue.api(), code, "downloading")?;
        self.queue.wait()
    }

    /// Copies `bytes` bytes of `from` to byte `offset`, in the order of this
    /// buffer's queue; does not wait. Both buffers wait for it when dropped.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) past either end, or for buffers
    /// of two queues, whose order would be open.
    pub fn copy_from(
        &mut self,
        offset: u64,
        from: &UsmBuffer,
        from_offset: u64,
        bytes: u64,
    ) -> Result<(), Error> {
        if !std::sync::Arc::ptr_eq(&self.queue.0, &from.queue.0) {
            return Err(Error::invalid("copying", "buffers of two queues".into()));
        }
        let to = self.span(offset, bytes, "copying")?;
        let from = from.span(from_offset, bytes, "copying")?;
        // SAFETY: both ranges are valid, and neither buffer is freed before the
        // queue has been waited for.
        let code = unsafe { (self.queue.api().copy)(self.queue.raw(), to, from, bytes) };
        check(self.queue.api(), code, "copying")
    }

    /// Sets `bytes` bytes from byte `offset` to `value`; does not wait.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) past the end.
    pub fn fill(&mut self, offset: u64, value: u8, bytes: u64) -> Result<(), Error> {
        let to = self.span(offset, bytes, "filling")?;
        // SAFETY: the range is valid, and the buffer is not freed before the
        // queue has been waited for.
        let code = unsafe { (self.queue.api().fill)(self.queue.raw(), to, value, bytes) };
        check(self.queue.api(), code, "filling")
    }
}
