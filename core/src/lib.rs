//! The core of Strata: everything that does not depend on a backend.
//!
//! - [`format`](mod@format): the 25 GGUF weight types, decoded to integers and scales.
//! - [`q8_1`]: the activation layouts that products read; [`rows`]: the row-major ones.
//! - [`numerics`]: rounding, conversions and `exp`, written out operation by operation.
//! - [`attention`]: shapes of attention, and the pages that keep keys and values.
//! - [`activation`]: hidden values from gate and up values.
//! - [`routing`]: top-k and the stable map from (token, choice) to row.
//! - [`reference`](mod@reference): every step of the layer, plainly, to be read beside `docs/numerics.md`.
//! - [`backend`]: the traits a backend implements, and the checked arguments they take.
//! - [`prefill`]: the eight steps of a mixture-of-experts layer over any backend.
//! - [`gguf`]: a strict reader of GGUF files.
//!
//! Shapes, ids, sizes and overflow are checked here, once, when the argument of
//! an operation is built; a backend may rely on what its argument promises.

pub mod activation;
pub mod attention;
pub mod backend;
pub mod error;
pub mod floats;
pub mod format;
pub mod gguf;
mod host_memory;
pub mod numerics;
pub mod prefill;
pub mod q8_1;
pub mod reference;
pub mod routing;
pub mod rows;

pub use error::{Error, Result};
pub use format::WeightType;
pub use host_memory::{host_memory, host_room, host_vec};
pub use q8_1::Layout;
