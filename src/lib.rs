//! Strata: the prompt path of quantized mixture-of-experts models, on CPUs and
//! GPUs, with the same bytes everywhere.
//!
//! This crate is the front door: it re-exports the core and opens devices.
//!
//! ```
//! use strata::backend::ops::{Matrix, MatrixMut};
//! use strata::prefill::{Options, Routing, Synthetic, Workspace};
//! use strata::{Device, WeightType};
//!
//! # fn main() -> strata::Result<()> {
//! let backend = Device::open("cpu")?;
//! let synthetic = Synthetic {
//!     experts: 8,
//!     k: 2,
//!     width: 256,
//!     ffn: 128,
//!     gate_up: WeightType::Q4_K,
//!     order: strata::backend::ops::GateUpOrder::Split,
//!     down: WeightType::Q8_0,
//!     seed: 1,
//! };
//! let layer = synthetic.layer(&*backend)?;
//! let tokens = 5;
//! let x = backend.from_slice(&synthetic.input(tokens))?;
//! let mut y = backend.alloc::<f32>(tokens * 256)?;
//!
//! let mut workspace = Workspace::new(&*backend, &layer, tokens, Options::default())?;
//! layer.forward(
//!     &*backend,
//!     &mut workspace,
//!     Matrix::dense("input", &x, tokens, 256)?,
//!     Routing::Router,
//!     &mut MatrixMut::dense("output", &mut y, tokens, 256)?,
//! )?;
//! let y: Vec<f32> = backend.download(&y)?;
//! assert!(y.iter().all(|v| v.is_finite()));
//! # Ok(())
//! # }
//! ```
//!
//! - [`Device`]: opens `cpu`, `cuda:0`, `auto`, and says what this machine has.
//! - [`prefill`]: a layer, from a seed or a GGUF file, and how it is run.
//! - [`backend`]: the traits and the checked operations below it.
//! - [`raw`]: single steps over files of plain values, for other programs.
//! - [`model`]: whole models: tokenizer, template, configuration, sessions, the choice of tokens.
//! - [`npy`]: activations as NumPy writes them.

#[cfg(target_endian = "big")]
compile_error!("weights, activations and files are little-endian, and are used where they lie");

pub mod device;
pub mod npy;
pub mod raw;

pub use device::Device;
pub use strata_model as model;

pub use strata_core::{
    Error, Layout, Result, WeightType, backend, error, format, gguf, host_memory, host_room,
    host_vec, numerics, prefill, q8_1, reference, routing, rows,
};
