//! Memory of another program part: no copy.

use std::ptr::NonNull;

use bytemuck::Pod;
use strata_core::backend::{Backend as _, Buffer, DeviceId, Slice, SliceMut};
use strata_core::{Error, Result};

use crate::CpuBackend;
use crate::memory::{Adopted, CpuMemory, values, values_mut};

impl CpuBackend {
    /// A buffer of `len` values that the caller has, a `Vec`'s for one, without a copy. A launch has
    /// run when it returns, so `owner` is dropped with the buffer.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an address that is null or not aligned for its values.
    ///
    /// # Safety
    /// `len` values lie at `pointer`, and stay until `owner` is dropped. While a call of a
    /// backend uses the buffer nobody else writes them, nor reads them where it is an output.
    pub unsafe fn adopt<T: Pod>(
        &self,
        pointer: *mut T,
        len: usize,
        owner: impl Send + Sync + 'static,
    ) -> Result<Buffer<T>> {
        let bytes = len.checked_mul(size_of::<T>()).filter(|&b| isize::try_from(b).is_ok());
        let bytes =
            bytes.ok_or_else(|| Error::invalid("buffer length", len, "a size below 2^63 bytes"))?;
        let start = NonNull::new(pointer).filter(|_| pointer.is_aligned()).ok_or_else(|| {
            let expected = format!("an address that is a multiple of {}", align_of::<T>());
            Error::invalid("address", format!("{pointer:?}"), expected)
        })?;
        // SAFETY: the caller's.
        let memory = unsafe { Adopted::new(start.cast(), bytes, Box::new(owner)) };
        let memory = Box::new(CpuMemory::Adopted(memory));
        // SAFETY: memory of this backend's own type, aligned, and of so many values.
        Ok(unsafe { Buffer::adopt(memory, self.device().id, len) })
    }

    /// Where values lie.
    ///
    /// # Errors
    /// [`Error::Invalid`] for those of another device.
    pub fn address<'a, T: Pod>(&self, from: impl Into<Slice<'a, T>>) -> Result<*const T> {
        let from = from.into();
        self.mine(from.device())?;
        Ok(values(from).as_ptr())
    }

    /// Where values that may be written lie.
    ///
    /// # Errors
    /// [`Error::Invalid`] for those of another device, and for imported bytes.
    pub fn address_mut<'a, T: Pod>(&self, to: impl Into<SliceMut<'a, T>>) -> Result<*mut T> {
        let mut to = to.into();
        self.mine(to.device())?;
        Ok(values_mut(&mut to)?.as_mut_ptr())
    }

    fn mine(&self, given: DeviceId) -> Result<()> {
        let expected = self.device().id;
        match given == expected {
            true => Ok(()),
            false => Err(Error::invalid("buffer", given, format!("one on {expected}"))),
        }
    }
}
