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
