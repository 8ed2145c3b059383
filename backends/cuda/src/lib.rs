//! The CUDA backend of Strata: every step of the layer on NVIDIA
//! GPUs, with the bytes of [`strata_core::reference`].
//!
//! The driver library is loaded when it is first asked for: a program with
//! this backend starts on a machine without one, and [`devices`] then says
//! what is missing. Kernels come from [`strata_kernels_cuda`], compiled when
//! this program was.
//!
//! Calls make the device's primary context current on the calling thread and
//! leave it so.
//!
//! Three variables choose another tile of the products or another scatter, for
//! tests and for those who measure; the bytes are the same: see
//! [`CudaOptions::from_env`].

mod adopt;
mod backend;
mod device;
mod driver;
mod images;
mod map;
mod memory;
mod mmq;
mod model;
mod module;
mod moe;
mod operand;
mod options;
mod quantize;
mod scatter;
mod staging;
mod stream;

pub use backend::CudaBackend;
pub use device::{best, devices};
pub use options::CudaOptions;
