//! The SYCL backend of Strata: Intel GPUs, and any OpenCL CPU.
//!
//! Kernels are compiled by the DPC++ runtime for the device that is there, a
//! weight type on its first use. Nothing is linked: without a SYCL runtime every
//! call returns [`Error::Unavailable`](strata_core::Error::Unavailable), which
//! says where one was looked for. The runtime reads variables of the process, of
//! which this crate sets none: [`environment`] lists those that a program should
//! set, before it starts a thread (the CPU device, kernels kept on disk).
//!
//! Devices are numbered GPUs first, CPUs last. Opening one checks its
//! arithmetic on a few hundred values and refuses a device that breaks
//! `docs/numerics.md`.
//!
//! Variables choose another form of the kernels, for tests:
//! `STRATA_SYCL_SUB_GROUP=8|16|32` runs a CPU device as a GPU of that sub-group
//! size; `STRATA_SYCL_LANES=8|16` and `STRATA_SYCL_DOT=plain|avx512-vnni|avx-vnni`
//! pick the vectors and the byte products of the CPU form.
#![warn(missing_docs)]

mod adopt;
mod check;
mod device;
mod error;
mod form;
mod kernels;
mod launch;
mod list;
mod map;
mod memory;
mod mmq;
mod model;
mod moe;
mod pool;
mod quantize;
mod scatter;
mod shared;

pub use device::SyclBackend;
pub use list::{best, devices, environment, runtime};
pub use sycl_bindgen::Variable;
