//! Integers on a device that kernels index by.

use std::ops::RangeBounds;

use bytemuck::Pod;

use super::order::LastUse;
use super::{Backend, Buffer, DeviceId, Slice, SliceMut};
use crate::error::same_device;
use crate::{Error, Result};

/// `N` arrays of integers that are used together: expert ids; `slot`, `src` and `bounds` of a map;
/// token ids, sequences, positions and pages of a batch.
///
/// Every value that a kernel can read is below its array's bound: it was checked on the host
/// ([`Indices::upload`]), or an operation wrote it that writes no other. They remember which stream
/// used them last, and whether what was written holds ([`super::order`]).
#[derive(Debug)]
pub(super) struct Indices<T, const N: usize> {
    arrays: [Array<T>; N],
    last_use: LastUse,
}

#[derive(Debug)]
struct Array<T> {
    what: &'static str,
    data: Buffer<T>,
    bound: usize,
}

/// Values of the host that are below the bound of an array.
pub(super) struct Within<'a, T> {
    array: usize,
    values: &'a [T],
}

impl<T: Pod + Into<i64>, const N: usize> Indices<T, N> {
    /// Arrays by name, length and bound. What is in them is not specified.
    pub(super) fn new(
        backend: &dyn Backend,
        arrays: [(&'static str, usize, usize); N],
    ) -> Result<Self> {
        let arrays = arrays
            .map(|(what, len, bound)| backend.alloc(len).map(|data| Array { what, data, bound }));
        let mut made = Vec::with_capacity(N);
        for array in arrays {
            made.push(array?);
        }
        let given = made.len();
        let arrays =
            made.try_into().map_err(|_| Error::invalid("indices", given, format!("{N}")))?;
        Ok(Self { arrays, last_use: LastUse::written_by(backend) })
    }

    /// Values for an array, where all of them are below its bound.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the first that is not.
    pub(super) fn within<'v>(&self, array: usize, values: &'v [T]) -> Result<Within<'v, T>> {
        let Array { what, bound, .. } = &self.arrays[array];
        let is_below = |&value: &T| usize::try_from(value.into()).is_ok_and(|v| v < *bound);
        match values.iter().position(|value| !is_below(value)) {
            None => Ok(Within { array, values }),
            Some(at) => {
                let given: i64 = values[at].into();
                Err(Error::invalid(format!("{what} {at}"), given, format!("below {bound}")))
            }
        }
    }

    /// Puts values at the beginning of their array, between [`Indices::write`] and
    /// [`Indices::written`].
    pub(super) fn upload(&mut self, backend: &dyn Backend, values: Within<'_, T>) -> Result<()> {
        let Within { array, values } = values;
        backend.upload(self.arrays[array].data.slice_mut(..values.len())?, values)
    }

    /// Sets every byte of an array, likewise.
    pub(super) fn fill(&mut self, backend: &dyn Backend, array: usize, byte: u8) -> Result<()> {
        backend.fill(&mut self.arrays[array].data, byte)
    }

    /// All of an array.
    pub(super) fn all(&self, array: usize) -> Slice<'_, T> {
        self.arrays[array].data.view()
    }

    /// A part of an array.
    pub(super) fn slice(
        &self,
        array: usize,
        range: impl RangeBounds<usize>,
    ) -> Result<Slice<'_, T>> {
        self.arrays[array].data.slice(range)
    }

    /// All arrays, for the operation that writes them.
    pub(super) fn all_mut(&mut self) -> [SliceMut<'_, T>; N] {
        self.arrays.each_mut().map(|array| array.data.view_mut())
    }

    /// Values that the first array has room for.
    pub(super) fn len(&self) -> usize {
        self.arrays.first().map_or(0, |array| array.data.len())
    }

    /// The device they live on.
    pub(super) fn device(&self) -> DeviceId {
        self.arrays[0].data.device()
    }

    /// The guard, for views.
    pub(super) fn last_use(&self) -> &LastUse {
        &self.last_use
    }

    /// Before a launch that reads them; `what` names them in errors.
    pub(super) fn read(&self, what: &str, backend: &dyn Backend) -> Result<()> {
        same_device(what, self.device(), backend.id())?;
        self.last_use.read(what, backend)
    }

    /// Before they are written: nobody reads them until [`Indices::written`].
    pub(super) fn write(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        self.last_use.write(what, backend)
    }

    /// After it.
    pub(super) fn written(&mut self) {
        self.last_use.written();
    }
}
