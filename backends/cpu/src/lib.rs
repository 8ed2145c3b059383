//! The CPU backend of Strata: the bytes of [`strata_core::reference`], fast.
//!
//! One backend is one ordered stream on host memory; since every launch has
//! run when it returns, marks are instants and `synchronize` has
//! nothing to wait for.
//!
//! Each step is written once and compiled for every instruction set of
//! [`Isa`]; which of them runs is decided when the backend is opened. The
//! bytes are the same from each: see `docs/numerics.md`.
//!
//! ```
//! use strata_core::backend::Backend;
//! use strata_cpu::{CpuBackend, CpuOptions};
//!
//! let backend = CpuBackend::new(CpuOptions::default())?;
//! println!("{} with {}", backend.device().name, backend.device().arch);
//! # Ok::<(), strata_core::Error>(())
//! ```

mod adopt;
mod attention;
mod control;
mod device;
mod exp;
mod hidden;
mod isa;
mod map;
mod memory;
mod mmq;
mod model;
mod moe;
mod q8;
mod quantize;
mod recurrent;
mod router;
mod scatter;
mod scratch;
mod simd;
mod time;

pub use device::{CpuBackend, CpuOptions};
pub use isa::Isa;
