//! The prompt path of one mixture-of-experts layer, over any backend.
//!
//! For each chunk of tokens: router scores, top-k, map, quantization into
//! expert order, gate and up products, SwiGLU and quantization, down product,
//! and the weighted sum of each token's rows, with the shared expert where
//! there is one. The result does not depend on mode, chunk or backend.

mod architectures;
mod ffn;
mod forward;
mod layer;
mod load;
mod options;
mod plan;
mod sizes;
mod synthetic;
mod timing;
mod workspace;

pub use forward::Routing;
pub use layer::{ExpertOptions, GateUpWeights, MoeLayer, Router, SharedExpert, Tensor};
pub use load::{LoadProgress, load_dense, load_moe, load_planned, tensor_f32};
pub use options::{Chunk, Options, QuantMode};
pub use plan::{MoePlan, plan_dense, plan_moe};
pub use synthetic::{Synthetic, SyntheticWeights, normals, try_normals};
pub use timing::{Phase, PhaseTime, Timings};
pub use workspace::Workspace;
