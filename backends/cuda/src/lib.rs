//! The CUDA backend of Strata: every step of the layer on NVIDIA
//! GPUs, with the bytes of [`strata_core::reference`].
//!
//! The driver library is loaded when it is first asked for: a program with
//! this backend starts on a machine without one, and [`devices`] then says
//! what is missing. Kernels come from [`strata_kernels_cuda`], compiled when
//! this program was. Here are the driver's calls; the rest of the host half is
//! [`strata_gpu`]'s, which HIP shares.
//!
//! Calls make the device's primary context current on the calling thread and
//! leave it so.
//!
//! Three variables choose another tile of the products or another scatter, for
//! tests and for those who measure; the bytes are the same: see
//! [`CudaOptions::from_env`].

mod driver;
mod images;
mod library;

use strata_core::Result;
use strata_core::backend::DeviceInfo;

pub use driver::CudaDriver;
pub use strata_gpu::GpuOptions as CudaOptions;

/// A handle on one NVIDIA GPU.
pub type CudaBackend = strata_gpu::GpuBackend<CudaDriver>;

/// All devices the driver shows, also those no image in this binary runs on.
///
/// # Errors
/// [`Unavailable`](strata_core::Error::Unavailable) where there is no usable driver.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    strata_gpu::devices::<CudaDriver>()
}

/// The first device that this binary has images for.
///
/// # Errors
/// [`Unavailable`](strata_core::Error::Unavailable) where there is none, with what stands against each.
pub fn best() -> Result<u32> {
    strata_gpu::best::<CudaDriver>()
}
