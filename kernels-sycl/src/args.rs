//! Arguments of kernels that are structs: a source has each of them too, and
//! `backends/sycl/tests/args.rs` compares the two.

/// What a kernel of `layer.cpp` is told: `step` there.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Step {
    /// Values between input rows.
    pub stride: u64,
    /// Values between output rows, where the output is f32.
    pub out_stride: u64,
    /// Rows of the output (scatter: of the routed rows).
    pub rows: u32,
    /// Values of an output row.
    pub cols: u32,
    /// q8_1 blocks of an output row, padding included.
    pub k_blocks: u32,
    /// Scatter, combine: tokens.
    pub tokens: u32,
    /// Scatter, combine: choices per token.
    pub k: u32,
    /// Layout of q8_1.
    pub layout: u32,
    /// Whether gate and up values stand in turns.
    pub interleaved: u32,
    /// Whether the sums of q8_1 are of the codes, not of the values.
    pub of_codes: u32,
    /// What a value that is not finite is reported as.
    pub value_kind: u32,
    /// What a scale or sum that is not finite is reported as.
    pub header_kind: u32,
}

/// What the product is told: `product` of `product/args.hpp`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct Product {
    /// Bytes between weight rows.
    pub row_stride: u64,
    /// Bytes between experts.
    pub expert_stride: u64,
    /// Values between output rows.
    pub ld: u64,
    /// Weight rows of an expert.
    pub rows: u32,
    /// Values of a weight row.
    pub cols: u32,
    /// Rows of the activations.
    pub act_rows: u32,
    /// Work-groups along the weight rows.
    pub row_tiles: u32,
}

/// How experts are chosen: `choose_how` of `routing.cpp`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ChooseHow {
    /// Values between rows of scores.
    pub stride: u64,
    /// Tokens.
    pub tokens: u32,
    /// Experts.
    pub experts: u32,
    /// Chosen experts per token.
    pub k: u32,
    /// Which function makes scores of logits, by number.
    pub gating: u32,
    /// How near a sparsemixer's scores are to the best, relative.
    pub near: f32,
    /// The cap of logits, or 0.
    pub softcap: f32,
    /// Groups of experts.
    pub groups: u32,
    /// Groups to choose from.
    pub groups_used: u32,
    /// Whether a group's score is the sum of its two best.
    pub top_two: u32,
    /// Whether weights are divided by their sum.
    pub normalised: u32,
    /// What is added to that sum.
    pub epsilon: f32,
    /// The least that the sum is.
    pub least: f32,
    /// The factor of all weights.
    pub scale: f32,
    /// What a score that is not finite is reported as.
    pub kind: u32,
}

/// What experts do between their products: `experts_how` of `activation.hpp`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ExpertsHow {
    /// Values between experts' scales.
    pub scale_stride: u64,
    /// Values between experts' biases.
    pub bias_stride: u64,
    /// Experts of the bounds.
    pub experts: u32,
    /// The activation, by number.
    pub kind: u32,
    /// Whether it is more than SwiGLU of gates and ups.
    pub any: u32,
    /// The activation's limit.
    pub limit: f32,
    /// Its factor.
    pub alpha: f32,
    /// Nothing: it fills the struct.
    pub end: u32,
}

/// Scales and biases of a combine, and factors: `combine_how` of `layer.cpp`.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct CombineHow {
    /// Values between experts' scales.
    pub scale_stride: u64,
    /// Values between experts' biases.
    pub bias_stride: u64,
    /// Whether rows are weighed; each has weight 1 otherwise.
    pub weighed: u32,
    /// The shared expert's factor.
    pub shared_factor: f32,
    /// The sum's factor.
    pub sum_factor: f32,
    /// Nothing: it fills the struct.
    pub end: u32,
}
