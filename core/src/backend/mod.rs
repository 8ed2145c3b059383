//! What a backend is: four small traits over one ordered stream of work.
//!
//! [`Backend`] owns memory, order and time; [`Quantize`], [`Scatter`], [`Mmq`]
//! and [`MoeOps`] are the steps of the layer. All are object safe: the program
//! picks a backend at run time and holds it as `Box<dyn Backend>`.
//!
//! A backend never checks an argument: the types in [`ops`] can only be built
//! from values that fit together, and it is handed them only as [`Checked`].
//!
//! # Order
//! A handle is one stream. What is launched through it runs in that order, and
//! a launch may return before it has run; `synchronize` waits, and so does
//! `download`. [`Backend::fork`] gives another stream on the same device;
//! between streams nothing is ordered but by waiting. A map or routes that are
//! used on another stream before that are refused. So are those written on a
//! stream of which any call has failed since: the failure may be that of the
//! launch that was to write them. Dropping a handle waits too, but says nothing
//! of failures: what it wrote behind its last wait must be made again. Memory
//! may be dropped at any time: a backend keeps it until no stream of the device
//! can still touch it.

mod buffer;
mod checked;
pub mod ops;
mod order;
mod routes;

pub use buffer::{Buffer, HostBytes, Memory, Raw, RawMut, Slice, SliceMut};
pub use checked::Checked;
pub use order::StreamState;
pub use routes::{DeviceRoutes, Report, RoutesView, RoutingMap};

use std::time::Duration;

use bytemuck::Pod;

use crate::error::same_device;
use crate::{Error, Result, WeightType};

/// The four kinds of backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BackendKind {
    /// Host memory and host threads.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Hip,
    /// Intel GPUs and OpenCL CPUs.
    Sycl,
}

impl BackendKind {
    /// All kinds; `auto` tries the GPUs in this order, then the CPU.
    pub const ALL: [Self; 4] = [Self::Cpu, Self::Cuda, Self::Hip, Self::Sycl];

    /// The name, as in `cuda:0`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::Sycl => "sycl",
        }
    }
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One device of this process: two handles with the same id share memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceId {
    /// The kind of backend.
    pub kind: BackendKind,
    /// Its index among the devices of that kind.
    pub index: u32,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

/// What a device says of itself.
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Its id.
    pub id: DeviceId,
    /// The vendor's name for it.
    pub name: String,
    /// Architecture or instruction set in use: `sm_90`, `gfx1100`, `avx2`.
    pub arch: String,
    /// Driver or runtime version, where there is one.
    pub driver: String,
    /// Multiprocessors, compute units or threads.
    pub units: u32,
    /// Lanes of a warp, wave or sub-group; 1 on a CPU.
    pub wave: u32,
}

/// Free and total bytes of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that can still be allocated.
    pub free: u64,
    /// Bytes the device has.
    pub total: u64,
}

/// A point in a stream, for timing: see [`Backend::mark`].
pub trait Mark: std::any::Any + Send {
    /// For the backend to recognise its own.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// One ordered stream of work on one device, and that device's memory.
///
/// The raw methods take regions that core has checked to lie inside their buffer
/// and on this device, as long as what they are copied from or to; the typed
/// ones callers use are on `dyn Backend`.
///
/// # Safety
/// Others' kernels index by what this one writes, and nobody checks what it says:
/// - `device` names one id for ever, and what has this id uses the same memory;
/// - `alloc_raw` and `import_raw` return memory of at least as many bytes, which
///   stays until it is dropped and no stream of the device can touch it any more;
/// - `stream` is the same for ever and no other handle's, and `synchronize_raw` and
///   `download_raw` succeed only when all that was launched before has run, but for
///   what an error of this handle has said to have failed: of one of the two, or of
///   another raw method, `alloc_raw` (other than for want of memory) or a step. `memory`,
///   `fork`, `mark` and `elapsed` leave it to those. What was launched behind something
///   that failed on the device does not run before such an error;
/// - dropping a handle waits for all that was launched through it, whether or not it
///   failed, before what `stream` returned is dropped;
/// - `top_k` writes ids of experts there are, `map_routes` the map of its routes;
/// - all methods, those of the supertraits too, touch no memory but what they are
///   handed, in stream order, and write only what they are handed to be written;
/// - a [`Checked`] goes to no backend but one of the same device, and with it
///   goes what it came with.
pub unsafe trait Backend: Quantize + Scatter + Mmq + MoeOps + Send {
    /// What the device says of itself.
    fn device(&self) -> &DeviceInfo;

    /// Free and total memory at this moment.
    fn memory(&self) -> Result<MemoryInfo>;

    /// Bytes of memory that the host's threads work in and keep from one launch to the next.
    /// What launches on a GPU work in beside buffers is not in it: that is the device's memory.
    fn scratch(&self) -> u64 {
        0
    }

    /// What core remembers of this handle's stream.
    fn stream(&self) -> &StreamState;

    /// Another stream on the same device.
    fn fork(&self) -> Result<Box<dyn Backend>>;

    /// Allocates `bytes` (more than 0) with unspecified content, aligned to 256.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] with what was asked for and what is free.
    fn alloc_raw(&self, bytes: usize) -> Result<Box<dyn Memory>>;

    /// Memory that holds `host`'s bytes, which stay as they are as long as
    /// `host` lives. A device of its own memory copies; a CPU may use them in place.
    fn import_raw(&self, host: HostBytes) -> Result<Box<dyn Memory>>;

    /// Copies host bytes in, in stream order; `src` may be reused on return.
    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()>;

    /// Copies out, in stream order, and waits for it.
    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()>;

    /// Sets every byte, in stream order.
    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()>;

    /// Copies bytes of this device's memory, in stream order.
    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()>;

    /// Waits until everything launched through this handle has run, and
    /// reports what failed.
    fn synchronize_raw(&self) -> Result<()>;

    /// Marks this point of the stream.
    fn mark(&self) -> Result<Box<dyn Mark>>;

    /// Time from one mark of this handle to a later one; waits for the later.
    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration>;
}

/// q8_1 quantization of rows, in place or gathered.
pub trait Quantize {
    /// See [`ops::QuantizeRows`].
    fn quantize(&self, op: &mut Checked<ops::QuantizeRows<'_>>) -> Result<()>;
}

/// q8_1 quantization of tokens, each once, written to all its rows.
pub trait Scatter {
    /// See [`ops::QuantizeScatter`].
    fn quantize_scatter(&self, op: &mut Checked<ops::QuantizeScatter<'_>>) -> Result<()>;
}

/// Products with quantized weights, over all experts in one launch.
pub trait Mmq {
    /// Whether [`Mmq::multiply`] takes this type.
    fn supports(&self, ty: WeightType) -> bool;

    /// See [`ops::Product`].
    fn multiply(&self, op: &mut Checked<ops::Product<'_>>) -> Result<()>;
}

/// The steps between the products.
pub trait MoeOps {
    /// See [`ops::RouterScores`].
    fn router_scores(&self, op: &mut Checked<ops::RouterScores<'_>>) -> Result<()>;

    /// See [`ops::TopK`].
    fn top_k(&self, op: &mut Checked<ops::TopK<'_>>) -> Result<()>;

    /// See [`ops::MapRoutes`].
    fn map_routes(&self, op: &mut Checked<ops::MapRoutes<'_>>) -> Result<()>;

    /// See [`ops::SwiGlu`].
    fn swiglu(&self, op: &mut Checked<ops::SwiGlu<'_>>) -> Result<()>;

    /// See [`ops::SwiGluQuantize`].
    fn swiglu_quantize(&self, op: &mut Checked<ops::SwiGluQuantize<'_>>) -> Result<()>;

    /// See [`ops::Combine`].
    fn combine(&self, op: &mut Checked<ops::Combine<'_>>) -> Result<()>;
}

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
        let memory = match self.alloc_raw(bytes.max(1)) {
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
        let memory = self.stream().outcome(self.import_raw(host))?;
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
        let mut out = vec![T::zeroed(); src.len()];
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
        self.stream().waited(self.synchronize_raw())
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
