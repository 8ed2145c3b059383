//! Host memory behind the buffers, and shared access to it while a launch runs.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::slice;

use bytemuck::Pod;
use strata_core::backend::{HostBytes, Memory, Raw, RawMut, Slice, SliceMut};
use strata_core::{Error, Result};

/// What buffers are aligned to.
const ALIGN: usize = 256;

/// The memory of one buffer.
pub(crate) enum CpuMemory {
    /// Allocated here.
    Owned(Allocation),
    /// The caller's bytes, used where they are and never written.
    Imported(HostBytes),
    /// Another's memory, read and written where it is.
    Adopted(Adopted),
}

/// Memory of another, and what keeps it.
pub(crate) struct Adopted {
    start: NonNull<u8>,
    bytes: usize,
    _owner: Box<dyn Any + Send + Sync>,
}

// SAFETY: as of `Allocation`: who may touch which bytes when is decided by the buffer's borrows.
unsafe impl Send for Adopted {}
// SAFETY: as above.
unsafe impl Sync for Adopted {}

impl Adopted {
    /// # Safety
    /// So many bytes lie at `start` and stay until `owner` is dropped.
    pub(crate) unsafe fn new(
        start: NonNull<u8>,
        bytes: usize,
        owner: Box<dyn Any + Send + Sync>,
    ) -> Self {
        Self { start, bytes, _owner: owner }
    }

    /// Where a region begins.
    ///
    /// # Panics
    /// Where it does not lie inside: as of an [`Allocation`].
    fn region(&self, offset: usize, bytes: usize) -> *mut u8 {
        let inside = offset <= self.bytes && bytes <= self.bytes - offset;
        assert!(inside, "memory as long as its buffer");
        // SAFETY: not past the end, as was just checked.
        unsafe { self.start.as_ptr().add(offset) }
    }
}

impl Memory for CpuMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl CpuMemory {
    /// `bytes` zeros; `None` where the allocator has no such room.
    pub(crate) fn zeroed(bytes: usize) -> Option<Self> {
        Allocation::zeroed(bytes).map(Self::Owned)
    }
}

/// Zeroed heap memory that views of one buffer read and write.
pub(crate) struct Allocation {
    start: NonNull<u8>,
    layout: Layout,
    /// `start`, moved up to the next multiple of [`ALIGN`].
    aligned: NonNull<u8>,
}

// SAFETY: it is plain memory; who may touch which bytes when is decided by the borrows of the
// buffer that owns it.
unsafe impl Send for Allocation {}
// SAFETY: as above.
unsafe impl Sync for Allocation {}

impl Allocation {
    /// Pages stay untouched until they are written: the allocator is asked for
    /// zeros at its own alignment, which it has from the system, and the rest
    /// of the alignment is made here.
    fn zeroed(bytes: usize) -> Option<Self> {
        let layout = Layout::from_size_align(bytes.checked_add(ALIGN)?, 16).ok()?;
        // SAFETY: the layout's size is at least ALIGN, so not zero.
        let start = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        let up = start.as_ptr().align_offset(ALIGN);
        debug_assert!(up < ALIGN);
        // SAFETY: up < ALIGN, and the allocation is ALIGN bytes longer than asked for.
        let aligned = unsafe { start.add(up) };
        Some(Self { start, layout, aligned })
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        // SAFETY: allocated in `zeroed` with this layout, and freed once.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Allocation {
    /// Where a region begins.
    ///
    /// # Panics
    /// Where it does not lie inside: core has checked it against the length that this memory was
    /// asked for, so the memory is not the buffer's own.
    fn region(&self, offset: usize, bytes: usize) -> *mut u8 {
        let len = self.layout.size() - ALIGN;
        assert!(offset <= len && bytes <= len - offset, "memory as long as its buffer");
        // SAFETY: `len` bytes from `aligned` are inside the allocation, and `offset` is not past them.
        unsafe { self.aligned.as_ptr().add(offset) }
    }
}

/// The bytes of a region that is read.
pub(crate) fn bytes(raw: Raw<'_>) -> &[u8] {
    match raw.memory::<CpuMemory>() {
        CpuMemory::Imported(host) => &host.as_slice()[raw.offset()..][..raw.bytes()],
        // SAFETY: the region lies inside the memory, which was zeroed when it was allocated, and the
        // view borrows the buffer: no one writes to it meanwhile.
        CpuMemory::Owned(memory) => unsafe {
            slice::from_raw_parts(memory.region(raw.offset(), raw.bytes()), raw.bytes())
        },
        // SAFETY: as above, of memory that the caller of `adopt` vouches for.
        CpuMemory::Adopted(memory) => unsafe {
            slice::from_raw_parts(memory.region(raw.offset(), raw.bytes()), raw.bytes())
        },
    }
}

/// The bytes of a region that is written.
///
/// # Errors
/// [`Error::Invalid`] for imported bytes: they stay as they are.
pub(crate) fn bytes_mut(raw: RawMut<'_>) -> Result<&mut [u8]> {
    match raw.memory::<CpuMemory>() {
        CpuMemory::Imported(_) => Err(Error::invalid(
            "output",
            "a buffer over imported host bytes",
            "a buffer that may be written",
        )),
        // SAFETY: as in `bytes`, and a `RawMut`, which is given up here, comes from the only borrow
        // that can reach these bytes.
        CpuMemory::Owned(memory) => Ok(unsafe {
            slice::from_raw_parts_mut(memory.region(raw.offset(), raw.bytes()), raw.bytes())
        }),
        // SAFETY: as above, of memory that the caller of `adopt` vouches for.
        CpuMemory::Adopted(memory) => Ok(unsafe {
            slice::from_raw_parts_mut(memory.region(raw.offset(), raw.bytes()), raw.bytes())
        }),
    }
}

/// The values of a view.
pub(crate) fn values<T: Pod>(slice: Slice<'_, T>) -> &[T] {
    // Only u8 buffers are ever imported; adopted ones are aligned for their values, the others
    // start at a multiple of ALIGN.
    bytemuck::cast_slice(bytes(slice.raw()))
}

/// The values of a view that is written.
///
/// # Errors
/// As [`bytes_mut`].
pub(crate) fn values_mut<'a, T: Pod>(slice: &'a mut SliceMut<'_, T>) -> Result<&'a mut [T]> {
    Ok(bytemuck::cast_slice_mut(bytes_mut(slice.raw_mut())?))
}

/// Values that several threads write, each its own part.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a, T> {
    start: NonNull<T>,
    len: usize,
    values: PhantomData<&'a mut [T]>,
}

// SAFETY: the only access is `part`, whose callers keep their parts apart.
unsafe impl<T: Send> Send for Parts<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    pub(crate) fn new(values: &'a mut [T]) -> Self {
        let len = values.len();
        Self { start: NonNull::from(values).cast(), len, values: PhantomData }
    }

    /// The `len` values from `at`.
    ///
    /// # Panics
    /// Where they do not lie inside.
    ///
    /// # Safety
    /// While the part lives, no other part may hold one of its values.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // what the safety contract is about
    pub(crate) unsafe fn part(&self, at: usize, len: usize) -> &'a mut [T] {
        assert!(at <= self.len && len <= self.len - at, "a part lies inside its values");
        // SAFETY: the range was checked, and the caller keeps parts apart.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr().add(at), len) }
    }

    /// All values, to be read.
    ///
    /// # Safety
    /// While the slice lives, no one may write to one of its values.
    pub(crate) unsafe fn shared(&self) -> &'a [T] {
        // SAFETY: they are borrowed for 'a, and the caller keeps writers away.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }

    /// Sets one value.
    ///
    /// # Safety
    /// `at` must lie inside, and no one may read or write this value meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn set(&self, at: usize, value: T) {
        debug_assert!(at < self.len, "a value inside its values");
        // SAFETY: the caller's.
        unsafe { self.start.as_ptr().add(at).write(value) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_aligned_and_zero() {
        for bytes in [1, 255, 256, 257, 1 << 20] {
            let Some(CpuMemory::Owned(memory)) = CpuMemory::zeroed(bytes) else {
                panic!("{bytes} bytes");
            };
            assert_eq!(memory.aligned.as_ptr() as usize % ALIGN, 0);
            // SAFETY: `bytes` bytes from `aligned` are inside the allocation and zeroed.
            let all = unsafe { slice::from_raw_parts(memory.aligned.as_ptr(), bytes) };
            assert!(all.iter().all(|&b| b == 0));
        }
        assert!(CpuMemory::zeroed(usize::MAX - 8).is_none());
    }
}
