//! The host half of the GPU backends: all of CUDA's and HIP's but the calls of their drivers.
//!
//! A vendor's crate implements [`Driver`], the calls of one device, and names
//! [`GpuBackend`] over it. Here is the rest: a pool that hands memory out when all
//! streams have passed it, uploads through pinned memory, streams, events, images and
//! kernels, and the [`steps`], which launch the kernels that both vendors share.

mod adopt;
mod args;
mod backend;
mod device;
mod driver;
mod event;
mod images;
mod memory;
mod operand;
mod options;
mod pool;
mod staging;
pub mod steps;
mod stream;

pub use args::Layout;
pub use backend::GpuBackend;
pub use device::{Opened, best, devices};
pub use driver::{Driver, EventHandle, ImageHandle, KernelHandle, Launch, StreamHandle};
pub use options::GpuOptions;

/// Where a failure has nobody to be returned to, as in a drop.
fn log_failure(result: strata_core::Result<()>) {
    if let Err(error) = result {
        tracing::debug!("{error}");
    }
}
