//! Memory, copies and order as callers use them: typed and checked.

use bytemuck::Pod;

use super::{Backend, Buffer, Checked, DeviceId, Event, HostBytes, Slice, SliceMut};
use crate::error::same_device;
use crate::{Error, Result};

impl dyn Backend + '_ {
    /// The device's id.
    pub fn id(&self) -> DeviceId {
        self.device().id
    }

    /// A buffer of `len` values with unspecified content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; [`Error::Invalid`] where the size overflows.
    pub fn alloc<T: Pod>(&self, len: usize) -> Result<Buffer<T>> {
        let bytes = len
            .checked_mul(size_of::<T>())
            .filter(|&b| isize::try_from(b).is_ok())
            .ok_or_else(|| Error::invalid("buffer length", len, "a size below 2^63 bytes"))?;
        // Nothing to address in an empty buffer, but a pointer that kernels can be handed.
        let memory = match self.alloc_raw(Checked(bytes.max(1))) {
            // Nothing was launched that could have failed.
            Err(error @ Error::OutOfMemory { .. }) => return Err(error),
            other => self.stream().outcome(other)?,
        };
        Ok(Buffer::new(memory, self.id(), len))
    }

    /// A buffer that holds `values`.
    pub fn from_slice<T: Pod>(&self, values: &[T]) -> Result<Buffer<T>> {
        let mut buffer = self.alloc(values.len())?;
        self.upload(&mut buffer, values)?;
        Ok(buffer)
    }

    /// A buffer over host bytes: a copy on a device, the bytes themselves on a CPU.
    pub fn import(&self, host: HostBytes) -> Result<Buffer<u8>> {
        let len = host.len();
        if len == 0 {
            return self.alloc(0);
        }
        let memory = self.stream().outcome(self.import_raw(Checked(host)))?;
        Ok(Buffer::new(memory, self.id(), len))
    }

    /// Copies `values` to the whole of `dst`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the lengths differ, [`Error::WrongDevice`].
    pub fn upload<'a, T: Pod>(&self, dst: impl Into<SliceMut<'a, T>>, values: &[T]) -> Result<()> {
        let mut dst = dst.into();
        same_len("upload", values.len(), dst.len())?;
        same_device("upload", dst.device(), self.id())?;
        match dst.is_empty() {
            true => Ok(()),
            false => {
                let values = bytemuck::cast_slice(values);
                self.stream().outcome(self.upload_raw(Checked(dst.raw_mut()), values))
            }
        }
    }

    /// Copies the whole of `src` out, and waits for it.
    ///
    /// # Errors
    /// [`Error::WrongDevice`], and what earlier launches of this stream failed with.
    pub fn download<'a, T: Pod>(&self, src: impl Into<Slice<'a, T>>) -> Result<Vec<T>> {
        let src = src.into();
        let mut out = crate::host_vec(src.len())?;
        self.download_to(src, &mut out)?;
        Ok(out)
    }

    /// The same as `download`, into memory the caller has.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the lengths differ, [`Error::WrongDevice`].
    pub fn download_to<'a, T: Pod>(
        &self,
        src: impl Into<Slice<'a, T>>,
        out: &mut [T],
    ) -> Result<()> {
        let src = src.into();
        same_len("download", out.len(), src.len())?;
        same_device("download", src.device(), self.id())?;
        match src.is_empty() {
            true => Ok(()),
            false => {
                let out = bytemuck::cast_slice_mut(out);
                self.stream().waited(self.download_raw(Checked(src.raw()), out))
            }
        }
    }

    /// Copies the whole of `src` to the whole of `dst`, on the device.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the lengths differ, [`Error::WrongDevice`].
    pub fn copy<'d, 's, T: Pod>(
        &self,
        dst: impl Into<SliceMut<'d, T>>,
        src: impl Into<Slice<'s, T>>,
    ) -> Result<()> {
        let (mut dst, src) = (dst.into(), src.into());
        same_len("copy", src.len(), dst.len())?;
        same_device("copy: to", dst.device(), self.id())?;
        same_device("copy: from", src.device(), self.id())?;
        match dst.is_empty() {
            true => Ok(()),
            false => {
                let (dst, src) = (Checked(dst.raw_mut()), Checked(src.raw()));
                self.stream().outcome(self.copy_raw(dst, src))
            }
        }
    }

    /// Waits until everything launched through this handle has run.
    ///
    /// # Errors
    /// What of it failed: maps and routes written on this stream must be made again.
    pub fn synchronize(&self) -> Result<()> {
        self.stream().waited(self.synchronize_raw(Checked(())))
    }

    /// Marks this point of the stream, for other streams of the device to `wait` for.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn record(&self) -> Result<Event> {
        let raw = self.stream().outcome(self.record_raw(Checked(())))?;
        Ok(self.stream().recorded(self.id(), raw))
    }

    /// Orders what is launched through this handle from now on behind an event, on the device:
    /// the host does not wait. Maps, routes and other indices that the event's stream used before
    /// it may then be used here.
    ///
    /// # Errors
    /// [`Error::WrongDevice`] for an event of another device, and those of the backend.
    pub fn wait(&self, event: &Event) -> Result<()> {
        same_device("event", event.device, self.id())?;
        self.stream().outcome(self.wait_raw(Checked(&*event.raw)))?;
        self.stream().waits_for(event);
        Ok(())
    }

    /// Sets every byte of `dst`.
    ///
    /// # Errors
    /// [`Error::WrongDevice`].
    pub fn fill<'a, T: Pod>(&self, dst: impl Into<SliceMut<'a, T>>, byte: u8) -> Result<()> {
        let mut dst = dst.into();
        same_device("fill", dst.device(), self.id())?;
        match dst.is_empty() {
            true => Ok(()),
            false => self.stream().outcome(self.fill_raw(Checked(dst.raw_mut()), byte)),
        }
    }
}

fn same_len(what: &str, given: usize, expected: usize) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::invalid(what, format!("{given} values"), format!("{expected}")))
}
