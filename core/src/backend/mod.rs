//! What a backend is: five small traits over one ordered stream of work.
//!
//! [`Backend`] owns memory, order and time; [`Quantize`], [`Scatter`], [`Mmq`]
//! and [`MoeOps`] are the steps of the layer, [`ModelOps`] those around it; a backend
//! may lack some of the latter, and then says so. All are object safe: the program
//! picks a backend at run time and holds it as `Box<dyn Backend>`.
//!
//! A backend never checks an argument: the types in [`ops`] can only be built
//! from values that fit together, and it is handed them only as [`Checked`].
//!
//! # Order
//! A handle is one stream. What is launched through it runs in that order, and
//! a launch may return before it has run; `synchronize` waits, and so does
//! `download`. [`Backend::fork`] gives another stream on the same device;
//! between streams nothing is ordered but by waiting: the host's `synchronize`, or
//! on the device `record` on one stream and `wait` on another. A map or routes
//! that are used on another stream before that are refused. So are those written
//! on a stream of which any call has failed since: the failure may be that of the
//! launch that was to write them. Dropping a handle waits too, but says nothing
//! of failures: what it wrote behind its last wait must be made again. Memory
//! may be dropped at any time: a backend keeps it until no stream of the device
//! can still touch it.

mod batch;
mod buffer;
mod checked;
mod copies;
mod counts;
mod device;
mod forward;
mod indices;
pub mod ops;
mod order;
mod report;
mod routes;
mod state;

pub use batch::{BatchLimits, KvCache, TokenBatch};
pub use buffer::{Buffer, HostBytes, Memory, Raw, RawMut, Slice, SliceMut};
pub use checked::Checked;
pub use counts::{Counters, Counts};
pub use device::{BackendKind, DeviceId, DeviceInfo, MemoryInfo};
pub use order::{Event, RawEvent, StreamState};
pub use report::Report;
pub use routes::{DeviceRoutes, RoutesView, RoutingMap};
pub use state::{Runs, States};

use std::time::Duration;

use crate::{Result, WeightType};

/// A point in a stream, for timing: see [`Backend::mark`].
pub trait Mark: std::any::Any + Send {
    /// For the backend to recognise its own.
    fn as_any(&self) -> &dyn std::any::Any;
}

/// One ordered stream of work on one device, and that device's memory.
///
/// The raw methods, whose names end so, are called by core alone: each takes a [`Checked`],
/// which nobody else can make. Regions lie inside their buffer and on this device, and are as
/// long as what they are copied from or to. Callers use the typed methods of `dyn Backend`.
///
/// ```compile_fail
/// # use strata_core::backend::Backend;
/// fn hears_a_failure_that_core_does_not(backend: &dyn Backend) {
///     let _ = backend.synchronize_raw();
/// }
/// ```
/// ```compile_fail
/// # use strata_core::backend::Backend;
/// fn the_same(backend: &dyn Backend) {
///     let _ = backend.alloc_raw(4);
/// }
/// ```
/// ```compile_fail
/// # use strata_core::backend::Backend;
/// fn the_same(backend: &dyn Backend) {
///     let _ = backend.import_raw(vec![0].into());
/// }
/// ```
///
/// # Safety
/// Others' kernels index by what this one writes, and nobody checks what it says.
///
/// Memory:
/// - `device` names one id for ever, and what has this id uses the same memory;
/// - `alloc_raw` and `import_raw` return memory of at least as many bytes, which
///   stays until it is dropped and no stream of the device can touch it any more;
/// - all methods, those of the supertraits too, touch no memory but what they are
///   handed, in stream order, and write only what they are handed to be written;
/// - `top_k` writes ids of experts there are, whatever the scores are and whoever writes
///   them meanwhile; `map_routes` the map of its routes.
///
/// Order:
/// - `stream` is the same for ever and no other handle's;
/// - `synchronize_raw` and `download_raw` return when all that was launched before has run;
/// - what is launched behind `wait_raw` runs when all has run that was launched on the event's
///   stream before `record_raw`, and what that stream was itself behind;
/// - dropping a handle waits for all that was launched through it, whether or not it
///   failed, before what `stream` returned is dropped.
///
/// Failures:
/// - what did not run has been said by an error of this handle: of `alloc_raw` (other than
///   for want of memory), of another raw method, or of a step. `memory`, `fork`, `mark` and
///   `elapsed` leave it to those;
/// - what was launched behind something that failed on the device, by stream order or by
///   `wait_raw`, does not run before such an error.
///
/// A [`Checked`] goes to no backend but one of the same device, in the call that it came with,
/// and with it goes what it came with.
pub unsafe trait Backend: Quantize + Scatter + Mmq + MoeOps + ModelOps + Send {
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
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) with what was asked for and what is free.
    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>>;

    /// Memory that holds `host`'s bytes, which stay as they are as long as
    /// `host` lives. A device of its own memory copies; one that works in the host's may use
    /// them in place.
    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>>;

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
    fn synchronize_raw(&self, asked: Checked<()>) -> Result<()>;

    /// An event at this point of the stream.
    fn record_raw(&self, asked: Checked<()>) -> Result<Box<dyn RawEvent>>;

    /// Orders what comes behind an event of a stream of this device, without waiting on the host.
    fn wait_raw(&self, event: Checked<&dyn RawEvent>) -> Result<()>;

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

/// The steps of a whole model around its layers. A backend that lacks one leaves the body here.
pub trait ModelOps {
    /// See [`ops::Embed`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn embed(&self, op: &mut Checked<ops::Embed<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::Norm`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn norm(&self, op: &mut Checked<ops::Norm<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::AddNorm`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn add_norm(&self, op: &mut Checked<ops::AddNorm<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::Pointwise`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn pointwise(&self, op: &mut Checked<ops::Pointwise<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::Rope`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn rope(&self, op: &mut Checked<ops::Rope<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::FloatProduct`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn float_product(&self, op: &mut Checked<ops::FloatProduct<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::AppendKv`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn append_kv(&self, op: &mut Checked<ops::AppendKv<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::Attend`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn attend(&self, op: &mut Checked<ops::Attend<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::Convolve`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn convolve(&self, op: &mut Checked<ops::Convolve<'_>>) -> Result<()> {
        op.unsupported()
    }

    /// See [`ops::DeltaNet`].
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported) where the backend has no kernel for it.
    fn delta_net(&self, op: &mut Checked<ops::DeltaNet<'_>>) -> Result<()> {
        op.unsupported()
    }
}
