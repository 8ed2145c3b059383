//! The HIP backend of Strata: the layer on AMD GPUs.
//!
//! The HIP runtime is looked for when a device is asked for, never when the
//! program starts: without ROCm, [`devices`] is an error that says what is
//! missing. Kernels are the CUDA backend's sources, compiled for AMD and
//! embedded by `strata-kernels-hip`; the code object of a card's own
//! architecture is loaded, and launch shapes are read from that object.
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
//!
//! One file per concern, named as in the CUDA backend: `device` (opening, and
//! the memory half of the backend), `memory`, `stream`, `module`, and one per
//! step. `runtime` is the one file that calls into HIP.

mod adopt;
mod device;
mod map;
mod memory;
mod mmq;
mod model;
mod module;
mod moe;
// The kernels are shared, and so is how they take their operands.
#[path = "../../cuda/src/operand.rs"]
mod operand;
mod options;
mod quantize;
mod runtime;
mod scatter;
mod stream;

pub use device::{HipBackend, best, devices};
pub use options::HipOptions;
