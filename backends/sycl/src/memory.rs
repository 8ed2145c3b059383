//! Device memory.

use core::ffi::c_void;
use std::any::Any;
use std::sync::Arc;

use strata_core::backend::{Memory, MemoryInfo, Raw, RawMut};
use strata_core::{Error, Result, host_memory};
use sycl_bindgen::{Code, Kind, UsmBuffer};

use crate::error::device;
use crate::pool::GRANULE;
use crate::shared::{Owner, Shared};

/// The memory of one buffer. It returns to its device's pool, or to its owner.
pub(crate) struct SyclMemory {
    held: Held,
    shared: Arc<Shared>,
}

/// Whose it is.
enum Held {
    Own(UsmBuffer),
    Adopted {
        pointer: Address,
        bytes: u64,
        owner: Owner,
    },
    /// On its way back.
    Nothing,
}

/// An address of device memory.
struct Address(*mut c_void);

// SAFETY: an address by itself; what is at it is reached through queues alone, as with
// `UsmBuffer`, and its owner may be dropped on any thread.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Memory for SyclMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for SyclMemory {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Own(buffer) => self.shared.release(buffer),
            Held::Adopted { owner, .. } => self.shared.retire(owner),
            Held::Nothing => {}
        }
    }
}

impl SyclMemory {
    /// Memory of another, which `owner` keeps.
    pub(crate) fn adopt(
        shared: &Arc<Shared>,
        pointer: *mut c_void,
        bytes: u64,
        owner: Owner,
    ) -> Self {
        let held = Held::Adopted { pointer: Address(pointer), bytes, owner };
        Self { held, shared: Arc::clone(shared) }
    }

    /// Bytes there is room for.
    pub(crate) fn len(&self) -> u64 {
        match &self.held {
            Held::Own(buffer) => buffer.len(),
            Held::Adopted { bytes, .. } => *bytes,
            Held::Nothing => 0,
        }
    }

    pub(crate) fn as_ptr(&self) -> *mut c_void {
        match &self.held {
            Held::Own(buffer) => buffer.as_ptr(),
            Held::Adopted { pointer, .. } => pointer.0,
            Held::Nothing => std::ptr::null_mut(),
        }
    }
}

/// Where a region starts on the device.
pub(crate) fn pointer(raw: Raw<'_>) -> *const c_void {
    raw.memory::<SyclMemory>().as_ptr().wrapping_byte_add(raw.offset())
}

/// Where a region that is written starts on the device.
pub(crate) fn pointer_mut(raw: &RawMut<'_>) -> *mut c_void {
    raw.memory::<SyclMemory>().as_ptr().wrapping_byte_add(raw.offset())
}

impl Shared {
    /// Takes memory back, to be used again when every stream that may use it has passed.
    fn release(&self, buffer: UsmBuffer) {
        // Where that cannot be known, the memory is left to the driver.
        let kept = match self.fences() {
            Ok(fences) => self.pool.keep(buffer, fences),
            Err(error) => {
                std::mem::forget(buffer);
                Err(error)
            }
        };
        if let Err(error) = kept {
            tracing::warn!("{}: memory left to the driver: {error}", self.info.id);
        }
    }

    /// Frees what the pool keeps; whether that was anything.
    fn empty(&self) -> Result<bool> {
        self.pool.empty().map_err(|e| device(&self.info.id, "freeing memory", e))
    }

    /// Free and total memory.
    pub(crate) fn memory(&self) -> Result<MemoryInfo> {
        // The OpenCL CPU device lives in host memory, of which the process may have little.
        let host = if self.device.kind == Kind::Cpu { host_memory() } else { None };
        let all = self.device.global_memory;
        let total = host.map_or(all, |host| all.min(host.total));
        let asked = self.runtime.free_memory(self.device.index);
        let free = match asked.map_err(|e| device(&self.info.id, "asking for free memory", e))? {
            Some(free) => free,
            None => total,
        };
        let free = host.map_or(free, |host| free.min(host.free));
        // What the pool keeps can be had.
        Ok(MemoryInfo { free: free.saturating_add(self.pool.bytes()).min(total), total })
    }

    /// Allocates, from the pool where it has something that fits.
    pub(crate) fn alloc(self: &Arc<Self>, bytes: usize) -> Result<SyclMemory> {
        self.counters.allocation();
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
        let own = |buffer| SyclMemory { held: Held::Own(buffer), shared: Arc::clone(self) };
        let Some(rounded) = asked.checked_next_multiple_of(GRANULE) else {
            return Err(exhausted(self));
        };
        self.dismiss();
        let kept = self.pool.take(rounded);
        if let Some(buffer) = kept.map_err(|e| device(&self.info.id, "allocating", e))? {
            return Ok(own(buffer));
        }
        // A system that overcommits hands out what it does not have, and ends the process later.
        if self.device.kind == Kind::Cpu && asked >= 64 << 20 {
            let fits = || self.memory().map(|m| asked <= m.free - self.pool.bytes().min(m.free));
            let enough = fits()? || self.empty()? && fits()?;
            if !enough {
                return Err(exhausted(self));
            }
        }
        let mut result = self.base.alloc(rounded);
        if matches!(&result, Err(e) if e.code() == Some(Code::OutOfMemory)) && self.empty()? {
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
            _ => {
                "; UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1, set when the program starts, lets \
                 Level Zero give more"
            }
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
