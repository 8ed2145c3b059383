//! Typed device memory that knows its device and length.

use std::any::Any;
use std::marker::PhantomData;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use bytemuck::Pod;

use super::DeviceId;
use crate::{Error, Result};

/// Memory that a backend allocated; dropping it gives it back, in an order
/// that is safe for work still in flight.
pub trait Memory: Any + Send + Sync {
    /// For the backend to recognise its own.
    fn as_any(&self) -> &dyn Any;
}

/// Host bytes with an owner that keeps them, such as a mapped file.
#[derive(Clone)]
pub struct HostBytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
}

impl HostBytes {
    /// The bytes `range` of `owner`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range does not lie inside.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Result<Self> {
        let len = (*owner).as_ref().len();
        if range.start > range.end || range.end > len {
            return Err(Error::invalid(
                "host bytes",
                format!("{range:?}"),
                format!("a range inside 0..{len}"),
            ));
        }
        Ok(Self { owner, range })
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }
}

impl From<Vec<u8>> for HostBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self { range: 0..bytes.len(), owner: Arc::new(bytes) }
    }
}

/// `len` values of `T` on one device.
pub struct Buffer<T> {
    memory: Box<dyn Memory>,
    device: DeviceId,
    len: usize,
    values: PhantomData<T>,
}

impl<T: Pod> Buffer<T> {
    pub(super) fn new(memory: Box<dyn Memory>, device: DeviceId, len: usize) -> Self {
        Self { memory, device, len, values: PhantomData }
    }

    /// A buffer of `len` values of memory that somebody else owns, for a backend's own `adopt`.
    ///
    /// # Safety
    /// The memory is of the type that the backend of `device` returns from `alloc_raw`, has
    /// room for the values, is aligned for them, and stays for as long as memory of
    /// `alloc_raw` does.
    pub unsafe fn adopt(memory: Box<dyn Memory>, device: DeviceId, len: usize) -> Self {
        Self::new(memory, device, len)
    }

    /// The memory alone, for a backend around another.
    pub fn into_memory(self) -> Box<dyn Memory> {
        self.memory
    }

    /// Values it holds.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device it lives on.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// All of it.
    pub fn view(&self) -> Slice<'_, T> {
        Slice {
            memory: &*self.memory,
            device: self.device,
            start: 0,
            len: self.len,
            values: PhantomData,
        }
    }

    /// All of it, to be written.
    pub fn view_mut(&mut self) -> SliceMut<'_, T> {
        SliceMut { slice: Slice { values: PhantomData, ..self.view() }, exclusive: PhantomData }
    }

    /// The values `range`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range does not lie inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'_, T>> {
        self.view().slice(range)
    }

    /// The values `range`, to be written.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range does not lie inside.
    pub fn slice_mut(&mut self, range: impl RangeBounds<usize>) -> Result<SliceMut<'_, T>> {
        self.view_mut().slice(range)
    }
}

impl<T> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer<{}>[{}] on {}", std::any::type_name::<T>(), self.len, self.device)
    }
}

/// Consecutive values of a [`Buffer`], to be read.
pub struct Slice<'a, T> {
    memory: &'a dyn Memory,
    device: DeviceId,
    start: usize,
    len: usize,
    values: PhantomData<&'a [T]>,
}

impl<T> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Slice<'_, T> {}

impl<'a, T: Pod> Slice<'a, T> {
    /// Values it covers.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it covers none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The device it lives on.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The values `range` of this slice.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range does not lie inside.
    pub fn slice(&self, range: impl RangeBounds<usize>) -> Result<Slice<'a, T>> {
        let range = inside(range, self.len)?;
        Ok(Slice { start: self.start + range.start, len: range.len(), ..*self })
    }

    /// The memory and the bytes of it, for a backend.
    pub fn raw(&self) -> Raw<'a> {
        Raw {
            memory: self.memory,
            offset: self.start * size_of::<T>(),
            bytes: self.len * size_of::<T>(),
        }
    }
}

/// Consecutive values of a [`Buffer`], to be written by this borrower alone.
pub struct SliceMut<'a, T> {
    slice: Slice<'a, T>,
    exclusive: PhantomData<&'a mut [T]>,
}

impl<'a, T: Pod> SliceMut<'a, T> {
    /// Values it covers.
    pub fn len(&self) -> usize {
        self.slice.len
    }

    /// Whether it covers none.
    pub fn is_empty(&self) -> bool {
        self.slice.len == 0
    }

    /// The device it lives on.
    pub fn device(&self) -> DeviceId {
        self.slice.device
    }

    /// The values `range` of this slice.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range does not lie inside.
    pub fn slice(self, range: impl RangeBounds<usize>) -> Result<SliceMut<'a, T>> {
        Ok(SliceMut { slice: self.slice.slice(range)?, exclusive: PhantomData })
    }

    /// The same values, lent for a shorter time.
    pub fn reborrow(&mut self) -> SliceMut<'_, T> {
        SliceMut { slice: self.slice, exclusive: PhantomData }
    }

    /// The same values, to be read.
    pub fn as_slice(&self) -> Slice<'_, T> {
        self.slice
    }

    /// The memory and the bytes of it, for a backend.
    pub fn raw_mut(&mut self) -> RawMut<'_> {
        RawMut { raw: self.slice.raw() }
    }
}

/// What [`Slice`] and [`SliceMut`] have in common.
pub trait View: Sized {
    /// Values it covers.
    fn len(&self) -> usize;
    /// The device it lives on.
    fn device(&self) -> DeviceId;
    /// Its first `len` values.
    fn first(self, len: usize) -> Result<Self>;
}

impl<T: Pod> View for Slice<'_, T> {
    fn len(&self) -> usize {
        self.len
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn first(self, len: usize) -> Result<Self> {
        self.slice(..len)
    }
}

impl<T: Pod> View for SliceMut<'_, T> {
    fn len(&self) -> usize {
        self.slice.len
    }

    fn device(&self) -> DeviceId {
        self.slice.device
    }

    fn first(self, len: usize) -> Result<Self> {
        self.slice(..len)
    }
}

impl<'a, T: Pod> From<&'a Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        buffer.view()
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        buffer.view_mut()
    }
}

/// Bytes of a backend's memory, to be read. They lie inside it.
#[derive(Clone, Copy)]
pub struct Raw<'a> {
    memory: &'a dyn Memory,
    offset: usize,
    bytes: usize,
}

impl<'a> Raw<'a> {
    /// The backend's own memory: the type is known, since core has checked the device.
    ///
    /// # Panics
    /// Where a backend's `alloc_raw` returned another type than it asks for here.
    pub fn memory<M: Memory>(&self) -> &'a M {
        self.memory.as_any().downcast_ref().expect("memory of this backend's own type")
    }

    /// First byte.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Bytes of a backend's memory, to be written by this borrower alone.
pub struct RawMut<'a> {
    raw: Raw<'a>,
}

impl<'a> RawMut<'a> {
    /// See [`Raw::memory`].
    pub fn memory<M: Memory>(&self) -> &'a M {
        self.raw.memory()
    }

    /// First byte.
    pub fn offset(&self) -> usize {
        self.raw.offset
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.raw.bytes
    }
}

fn inside(range: impl RangeBounds<usize>, len: usize) -> Result<Range<usize>> {
    let start = match range.start_bound() {
        Bound::Included(&s) => Some(s),
        Bound::Excluded(&s) => s.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&e) => e.checked_add(1),
        Bound::Excluded(&e) => Some(e),
        Bound::Unbounded => Some(len),
    };
    match (start, end) {
        (Some(start), Some(end)) if start <= end && end <= len => Ok(start..end),
        _ => Err(Error::invalid(
            "slice of a buffer",
            format!("{:?}..{:?}", range.start_bound(), range.end_bound()),
            format!("a range inside 0..{len}"),
        )),
    }
}
