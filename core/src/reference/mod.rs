//! Every step of the layer, plainly: slow, sequential, and held to
//! `docs/numerics.md` line by line. All fast paths are compared with these
//! functions by `==` on bytes.
//!
//! They check nothing and are for tests and tools: where shapes do not fit
//! together they panic.
//!
//! The map has one plain form, in [`crate::routing`].

mod attention;
mod layer;
mod mmq;
mod model;
mod quantize;
mod recurrent;
mod routing;

pub use attention::{Digits, append, attend, digits};
pub use layer::{Affine, CombineWith, combine, hidden, router_scores, swiglu};
pub use mmq::mmq;
pub use model::{
    add, embed, float_product, gate, l2_norm, layer_norm, multiply, rms_norm, rope, scale,
    silu_gate, softcap,
};
pub use quantize::{quantize, quantize_row};
pub use recurrent::{DeltaToken, convolve, delta_net};
pub use routing::top_k;
