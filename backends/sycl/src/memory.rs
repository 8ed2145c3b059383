//! Device memory, and the pool that keeps it between uses.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strata_core::backend::{Memory, MemoryInfo, Raw, RawMut};
use strata_core::{Error, Result};
use sycl_bindgen::{Code, Kind, UsmBuffer};

use crate::device::Shared;
use crate::error::device;

/// The memory of one buffer. It returns to its device's pool.
pub(crate) struct SyclMemory {
    buffer: Option<UsmBuffer>,
    shared: Arc<Shared>,
}

impl Memory for SyclMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SyclMemory {
    fn drop(&mut self) {
        if let Some(buffer) = self.buffer.take() {
            self.shared.pool.keep(buffer, &self.shared);
        }
    }
}

impl SyclMemory {
    /// Bytes there is room for.
    pub(crate) fn len(&self) -> u64 {
        self.buffer.as_ref().map_or(0, UsmBuffer::len)
    }

    pub(crate) fn as_ptr(&self) -> *mut core::ffi::c_void {
        self.buffer.as_ref().map_or(std::ptr::null_mut(), UsmBuffer::as_ptr)
    }
}

/// Where a region starts on the device.
pub(crate) fn pointer(raw: Raw<'_>) -> *const core::ffi::c_void {
    raw.memory::<SyclMemory>().as_ptr().wrapping_byte_add(raw.offset())
}

/// Where a region that is written starts on the device.
pub(crate) fn pointer_mut(raw: &RawMut<'_>) -> *mut core::ffi::c_void {
    raw.memory::<SyclMemory>().as_ptr().wrapping_byte_add(raw.offset())
}

/// Sizes are rounded up to this, so that buffers of nearly one size fit each other.
const GRANULE: u64 = 4096;

/// Free buffers by size.
#[derive(Default)]
struct Free {
    by_size: BTreeMap<u64, Vec<UsmBuffer>>,
    bytes: u64,
}

/// Memory that buffers gave back.
///
/// With one stream, its order makes reuse safe: what last touched the memory
/// runs before what touches it next. With more, all are waited for first.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<Free>,
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A buffer of at least `bytes`, at most an eighth larger.
    fn take(&self, bytes: u64) -> Option<UsmBuffer> {
        let mut free = self.lock();
        let most = bytes + bytes / 8;
        let size = *free.by_size.range(bytes..=most).next()?.0;
        let list = free.by_size.get_mut(&size)?;
        let buffer = list.pop();
        if list.is_empty() {
            free.by_size.remove(&size);
        }
        free.bytes -= size;
        buffer
    }

    /// Keeps a buffer for later, or frees it where enough is kept already.
    fn keep(&self, buffer: UsmBuffer, shared: &Shared) {
        let size = buffer.len();
        {
            let mut free = self.lock();
            if free.bytes + size <= shared.kept_bytes() {
                free.bytes += size;
                free.by_size.entry(size).or_default().push(buffer);
                return;
            }
        }
        shared.settle();
        drop(buffer);
    }

    /// Frees everything that is kept; whether that was anything.
    fn empty(&self, shared: &Shared) -> bool {
        let kept = std::mem::take(&mut *self.lock());
        if kept.bytes == 0 {
            return false;
        }
        shared.settle();
        drop(kept);
        true
    }
}

impl Shared {
    /// Memory to keep for reuse: a quarter of a GPU's, and little of the
    /// host's, which others want.
    fn kept_bytes(&self) -> u64 {
        match self.device.kind {
            Kind::Cpu => 256 << 20,
            _ => self.device.global_memory / 4,
        }
    }

    /// Free and total memory.
    pub(crate) fn memory(&self) -> Result<MemoryInfo> {
        let total = self.device.global_memory;
        let asked = self.runtime.free_memory(self.device.index);
        let free = match asked.map_err(|e| device(&self.info.id, "asking for free memory", e))? {
            Some(free) => free,
            // The OpenCL CPU device lives in host memory.
            None if self.device.kind == Kind::Cpu => host_available().unwrap_or(total),
            None => total,
        };
        Ok(MemoryInfo { free: free.min(total), total })
    }

    /// Allocates, from the pool where it has something that fits.
    pub(crate) fn alloc(self: &Arc<Self>, bytes: usize) -> Result<SyclMemory> {
        let asked = bytes as u64;
        let exhausted = |this: &Self| match this.memory() {
            Ok(MemoryInfo { free, .. }) if asked <= free && asked > this.device.max_allocation => {
                this.too_large_in_one_piece(asked, free)
            }
            Ok(MemoryInfo { free, total }) => {
                Error::OutOfMemory { device: this.info.id.to_string(), asked, free, total }
            }
            Err(e) => e,
        };
        let own = |buffer| SyclMemory { buffer: Some(buffer), shared: Arc::clone(self) };
        let Some(rounded) = asked.checked_next_multiple_of(GRANULE) else {
            return Err(exhausted(self));
        };
        if let Some(buffer) = self.pool.take(rounded) {
            if self.streams() > 1 {
                self.settle();
            }
            return Ok(own(buffer));
        }
        // A system that overcommits hands out what it does not have, and ends the process later.
        if self.device.kind == Kind::Cpu
            && asked >= 64 << 20
            && self.memory().is_ok_and(|m| asked > m.free)
            && !(self.pool.empty(self) && self.memory().is_ok_and(|m| asked <= m.free))
        {
            return Err(exhausted(self));
        }
        let mut result = self.base.alloc(rounded);
        if matches!(&result, Err(e) if e.code() == Some(Code::OutOfMemory)) && self.pool.empty(self)
        {
            result = self.base.alloc(rounded);
        }
        match result {
            Ok(buffer) => Ok(own(buffer)),
            Err(e) if e.code() == Some(Code::OutOfMemory) => Err(exhausted(self)),
            Err(e) => Err(device(&self.info.id, "allocating", e)),
        }
    }
}

impl Shared {
    /// There is room, but the device does not give that much in one piece.
    fn too_large_in_one_piece(&self, asked: u64, free: u64) -> Error {
        let most = self.device.max_allocation;
        let hint = match self.device.kind {
            Kind::Cpu => "; CL_CONFIG_CPU_FORCE_MAX_MEM_ALLOC_SIZE=64GB, say, lets it give more",
            _ => "",
        };
        Error::Device {
            device: self.info.id.to_string(),
            call: "allocating",
            detail: format!(
                "{asked} bytes in one piece of a device that gives {most} at most, {free} free{hint}"
            ),
        }
    }
}

/// `MemAvailable` of the host.
fn host_available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}
