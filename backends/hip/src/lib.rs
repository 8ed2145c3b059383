//! The HIP backend of Strata: the layer on AMD GPUs.
//!
//! The HIP runtime is looked for when a device is asked for, never when the
//! program starts: without ROCm, [`devices`] is an error that says what is
//! missing. Kernels are the CUDA backend's sources, compiled for AMD and
//! embedded by `strata-kernels-hip`; the code object of a card's own
//! architecture is loaded, and launch shapes are read from that object. Here are
//! the runtime's calls; the rest of the host half is [`strata_gpu`]'s, which CUDA
//! shares.
//!
//! ```no_run
//! use strata_core::backend::Backend;
//! use strata_hip::{HipBackend, HipOptions};
//!
//! let backend = HipBackend::new(0, HipOptions::default())?;
//! println!("{} ({})", backend.device().name, backend.device().arch);
//! # Ok::<(), strata_core::Error>(())
//! ```
//!
//! Three variables choose otherwise than the host would, for tests and for those who
//! measure; the bytes are the same: see [`HipOptions::from_env`].

mod driver;
mod images;
mod library;

use strata_core::Result;
use strata_core::backend::DeviceInfo;

pub use driver::HipDriver;
pub use strata_gpu::GpuOptions as HipOptions;

/// A handle on one AMD GPU.
pub type HipBackend = strata_gpu::GpuBackend<HipDriver>;

/// Every AMD device of this machine, whether the kernels run on it or not.
///
/// # Errors
/// [`Unavailable`](strata_core::Error::Unavailable) where the HIP runtime is missing or too old.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    strata_gpu::devices::<HipDriver>()
}

/// The first device whose architecture the kernels were compiled for.
///
/// # Errors
/// [`Unavailable`](strata_core::Error::Unavailable) with each device's reason where there is none.
pub fn best() -> Result<u32> {
    strata_gpu::best::<HipDriver>()
}
