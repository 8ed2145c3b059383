//! Queues.

use crate::error::{Error, check};
use crate::load::Runtime;
use crate::sys;
use core::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Arc;

/// What a queue and everything made from it keep alive.
pub(crate) struct Inner {
    pub(crate) runtime: &'static Runtime,
    pub(crate) raw: NonNull<sys::Queue>,
    device: u32,
}

// SAFETY: the bridge's objects may be used and freed from any thread: SYCL
// queues are thread-safe, and the bridge guards its own list with a mutex.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Drop for Inner {
    fn drop(&mut self) {
        // SAFETY: the handle is live, and nothing else holds it any more.
        unsafe { (self.runtime.api.queue_destroy)(self.raw.as_ptr()) };
    }
}

/// An in-order queue on one device. Clones are the same queue.
#[derive(Clone)]
pub struct Queue(pub(crate) Arc<Inner>);

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Queue(device {})", self.0.device)
    }
}

impl Queue {
    /// Opens a queue on device `index`.
    ///
    /// # Errors
    /// [`Code::NoDevice`](crate::Code::NoDevice) past the last device.
    pub fn open(runtime: &'static Runtime, index: u32) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: `raw` is valid for the call.
        let code = unsafe { (runtime.api.queue_create)(index, &mut raw) };
        let doing = format!("opening device {index}");
        Self::opened(runtime, code, raw, index, &doing)
    }

    /// Opens a queue on the same device and context: memory of one may be used in the other.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn beside(&self) -> Result<Self, Error> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the queue is live and `raw` is valid for the call.
        let code = unsafe { (self.api().queue_beside)(self.raw(), &mut raw) };
        Self::opened(self.0.runtime, code, raw, self.0.device, "opening a queue beside another")
    }

    /// Takes over a queue of another program part, which shares it from now on.
    ///
    /// # Errors
    /// [`Code::Invalid`](crate::Code::Invalid) for one that is not in order;
    /// [`Code::NoDevice`](crate::Code::NoDevice) for one on a device that is not listed.
    ///
    /// # Safety
    /// `native` points to a `sycl::queue` of the libsycl that `runtime` has loaded.
    pub unsafe fn adopt(runtime: &'static Runtime, native: *const c_void) -> Result<Self, Error> {
        let (mut raw, mut device) = (std::ptr::null_mut(), 0);
        // SAFETY: the caller's promise; `raw` and `device` are valid for the call.
        let code = unsafe { (runtime.api.queue_adopt)(native, &mut raw, &mut device) };
        Self::opened(runtime, code, raw, device, "taking over a queue")
    }

    fn opened(
        runtime: &'static Runtime,
        code: i32,
        raw: *mut sys::Queue,
        device: u32,
        doing: &str,
    ) -> Result<Self, Error> {
        check(&runtime.api, code, doing)?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::invalid(doing, "no queue".into()))?;
        Ok(Queue(Arc::new(Inner { runtime, raw, device })))
    }

    /// Its `sycl::queue`, which lives as long as this queue.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn native(&self) -> Result<*mut c_void, Error> {
        let mut native = std::ptr::null_mut();
        // SAFETY: the queue is live and `native` is valid for the call.
        let code = unsafe { (self.api().queue_native)(self.raw(), &mut native) };
        check(self.api(), code, "asking for a queue's address")?;
        Ok(native)
    }

    /// Whether memory of one may be used in the other.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn shares_context(&self, other: &Queue) -> Result<bool, Error> {
        let mut same = 0;
        // SAFETY: both queues are live and `same` is valid for the call.
        let code = unsafe { (self.api().queue_same_context)(self.raw(), other.raw(), &mut same) };
        check(self.api(), code, "comparing contexts")?;
        Ok(same != 0)
    }

    /// Whether an address is one of unified shared memory of its context.
    ///
    /// # Errors
    /// What the runtime reports.
    pub fn knows(&self, address: usize) -> Result<bool, Error> {
        let mut known = 0;
        let pointer = std::ptr::without_provenance(address);
        // SAFETY: the queue is live, `known` is valid for the call, and the address is only
        // compared.
        let code = unsafe { (self.api().queue_knows)(self.raw(), pointer, &mut known) };
        check(self.api(), code, "asking what a pointer is")?;
        Ok(known != 0)
    }

    /// The runtime that it is of.
    pub fn runtime(&self) -> &'static Runtime {
        self.0.runtime
    }

    /// The index of its device.
    pub fn device(&self) -> u32 {
        self.0.device
    }

    /// Waits until everything submitted has run.
    ///
    /// # Errors
    /// What failed since the last wait, [`Code::DeviceLost`](crate::Code::DeviceLost)
    /// included.
    pub fn wait(&self) -> Result<(), Error> {
        // SAFETY: the handle is live.
        let code = unsafe { (self.api().queue_wait)(self.raw()) };
        check(self.api(), code, "waiting for the queue")
    }

    /// Copies `bytes` bytes between any two of host and device memory, after
    /// what was submitted before; does not wait.
    ///
    /// # Errors
    /// What the runtime reports.
    ///
    /// # Safety
    /// Both ranges are valid, and stay so until the queue has been waited for.
    pub unsafe fn copy(
        &self,
        to: *mut c_void,
        from: *const c_void,
        bytes: u64,
    ) -> Result<(), Error> {
        // SAFETY: the queue is live; the ranges are the caller's promise.
        let code = unsafe { (self.api().copy)(self.raw(), to, from, bytes) };
        check(self.api(), code, "copying")
    }

    /// Sets `bytes` bytes to `value`, after what was submitted before; does not
    /// wait.
    ///
    /// # Errors
    /// What the runtime reports.
    ///
    /// # Safety
    /// The range is valid, and stays so until the queue has been waited for.
    pub unsafe fn fill(&self, to: *mut c_void, value: u8, bytes: u64) -> Result<(), Error> {
        // SAFETY: the queue is live; the range is the caller's promise.
        let code = unsafe { (self.api().fill)(self.raw(), to, value, bytes) };
        check(self.api(), code, "filling")
    }

    pub(crate) fn api(&self) -> &'static sys::Api {
        &self.0.runtime.api
    }

    pub(crate) fn raw(&self) -> *mut sys::Queue {
        self.0.raw.as_ptr()
    }
}
