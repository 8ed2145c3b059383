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
        check(&runtime.api, code, &doing)?;
        let raw = NonNull::new(raw).ok_or_else(|| Error::invalid(&doing, "no queue".into()))?;
        Ok(Queue(Arc::new(Inner { runtime, raw, device: index })))
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
