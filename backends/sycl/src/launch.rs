//! Launches: how many work-items, and memory for the parts of an operation.

use bytemuck::Pod;
use strata_core::Result;
use strata_core::backend::{Slice, SliceMut};
use strata_kernels_sycl::Unit;
use sycl_bindgen::{Arg, Range};

use crate::SyclBackend;
use crate::kernels::Built;
use crate::memory::{pointer, pointer_mut};
use std::sync::Arc;

/// Work-items per thread of a CPU device: enough to even out, few enough that
/// starting one costs nothing.
const PER_UNIT: u64 = 8;

/// Work-items of a work-group on a GPU.
const WORK_GROUP: u64 = 128;

/// Most work-items of a launch; each takes a larger share beyond that.
const MOST: u64 = 1 << 22;

/// A slice as a kernel argument.
pub(crate) fn read<'a, T: Pod>(slice: Slice<'a, T>) -> Arg<'a> {
    Arg::pointer(pointer(slice.raw()))
}

/// A slice, or null where there is none.
pub(crate) fn read_or_null<T: Pod>(slice: Option<Slice<'_, T>>) -> Arg<'_> {
    Arg::pointer(slice.map_or(std::ptr::null(), |s| pointer(s.raw())))
}

/// A slice that is written as a kernel argument.
pub(crate) fn write<T: Pod>(mut slice: SliceMut<'_, T>) -> Arg<'static> {
    Arg::pointer(pointer_mut(&slice.raw_mut()).cast_const())
}

impl SyclBackend {
    /// The kernels of a unit.
    pub(crate) fn unit(&self, unit: Unit) -> Result<Arc<Built>> {
        let shared = &self.shared;
        shared.kernels.get(&shared.info, &shared.base, unit, &shared.form)
    }

    /// Runs a kernel whose work-items share `total` units of work.
    ///
    /// # Safety
    /// The arguments are those of the kernel, and what it reads and writes of
    /// their memory lies inside.
    pub(crate) unsafe fn share(
        &self,
        built: &Built,
        name: &'static str,
        args: &[Arg<'_>],
        total: u64,
    ) -> Result<()> {
        if total == 0 {
            return Ok(());
        }
        let range = if self.shared.form.lanes > 1 {
            let items = total.min(PER_UNIT * u64::from(self.shared.device.compute_units.max(1)));
            Range::linear(items, 1)
        } else {
            let local = WORK_GROUP.min(self.shared.device.max_work_group);
            Range::linear(total.min(MOST).next_multiple_of(local), local)
        };
        // SAFETY: the caller's promise; a range of any size is right for a kernel that shares.
        unsafe { self.groups(built, name, args, range) }
    }

    /// Runs a kernel over `range`.
    ///
    /// # Safety
    /// As [`share`](Self::share), and `range` is one that the kernel is made for.
    pub(crate) unsafe fn groups(
        &self,
        built: &Built,
        name: &'static str,
        args: &[Arg<'_>],
        range: Range,
    ) -> Result<()> {
        let kernel = built.kernel(&self.shared.info, name)?;
        // SAFETY: the caller's promise. Memory outlives the launch: it goes back to the pool only,
        // which keeps it until the streams have passed.
        unsafe { kernel.launch(self.queue(), args, range) }
            .map_err(|e| self.error("launching a kernel", e))
    }

    /// `bytes` bytes for this stream's own use until the next call with the
    /// same `name`.
    pub(crate) fn scratch(&self, name: &'static str, bytes: usize) -> Result<Arg<'static>> {
        let mut scratch = self.scratch.borrow_mut();
        let fits = |m: &crate::memory::SyclMemory| m.len() >= bytes as u64;
        if !scratch.get(name).is_some_and(fits) {
            scratch.remove(name);
            scratch.insert(name, self.shared.alloc(bytes.max(1))?);
        }
        let memory = scratch.get(name).map_or(std::ptr::null_mut(), |m| m.as_ptr());
        Ok(Arg::pointer(memory.cast_const()))
    }
}
