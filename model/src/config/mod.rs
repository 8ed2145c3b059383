//! What a model computes, read from the metadata and tensor table of a GGUF file.
//!
//! Loading checks everything: each tensor that the architecture needs is there in the shape that the
//! keys state, a tensor that nobody reads is an error unless it is known why, and keys that nobody
//! reads are listed. What files leave to programs that know the architecture stands in one table
//! (`arch.rs`).

mod arch;
mod build;
mod keys;
mod mixer;
mod rope;
mod tensors;
mod types;

pub use rope::{Factors, Pairing, Rope, Scaling};
pub use tensors::{Norm, Projection};
pub use types::*;
