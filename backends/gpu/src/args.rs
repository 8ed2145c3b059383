//! The arguments of the kernels, as the device reads them.
//!
//! Pointers are device addresses; 0 stands for null. Sizes are in values
//! unless they say bytes. Every struct is the one argument of its entry points.

/// A device address.
pub type Address = u64;

/// Where the first token with a value that is not finite is reported.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct ReportTo {
    /// The word that keeps the minimum of `token << 3 | kind`; null: nowhere.
    pub word: Address,
    /// Kind of a value.
    pub value_kind: u32,
    /// Kind of a stored scale or sum.
    pub header_kind: u32,
}

/// `quantize`: `strata_quantize_{layout}`, `strata_quantize_scatter_{layout}`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Quantize {
    /// f32 rows.
    pub x: Address,
    /// Input row of each output row; null: the same.
    pub src: Address,
    /// Token of each input row; null: the same.
    pub tokens: Address,
    /// Scatter: the `k` output rows of each input row.
    pub slot: Address,
    /// q8_1 blocks.
    pub out: Address,
    /// Report.
    pub report: ReportTo,
    /// Rows to quantize: output rows, or input rows of a scatter.
    pub items: i64,
    /// Rows of the output.
    pub out_rows: i64,
    /// Columns of x.
    pub cols: i64,
    /// Values from row to row of x.
    pub stride: i64,
    /// Scatter: output rows per input row.
    pub k: u32,
    /// Blocks along k.
    pub k_blocks: u32,
    /// 1 where every row of x is 16-aligned.
    pub vector: u32,
    /// 1 where `out` is 16-aligned.
    pub aligned: u32,
}

/// `scatter`: `strata_scatter_{layout}`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Scatter {
    /// f32 rows of tokens.
    pub x: Address,
    /// Token of each output row.
    pub src: Address,
    /// The rows of each expert: `experts + 1` bounds.
    pub bounds: Address,
    /// q8_1 blocks.
    pub out: Address,
    /// Report.
    pub report: ReportTo,
    /// Rows of the output.
    pub out_rows: i64,
    /// Columns of x.
    pub cols: i64,
    /// Values from row to row of x.
    pub stride: i64,
    /// Rows of x.
    pub tokens: u32,
    /// Output rows per token.
    pub k: u32,
    /// Experts.
    pub experts: u32,
    /// Blocks along k.
    pub k_blocks: u32,
    /// Chunks that the tokens are cut into.
    pub chunks: u32,
    /// Tokens of a chunk.
    pub chunk_tokens: u32,
    /// 1 where every row of x is 16-aligned.
    pub vector: u32,
    /// 1 where `out` is 16-aligned.
    pub aligned: u32,
}

/// What experts do between their products.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct Experts {
    /// Scales of gate and up, or of up alone: a row per expert; null: 1.
    pub scale: Address,
    /// Biases of every column: a row per expert; null: +0.
    pub bias: Address,
    /// Rows of the experts; null: all are of expert 0.
    pub bounds: Address,
    /// Values from row to row of the scales.
    pub scale_stride: i64,
    /// Values from row to row of the biases.
    pub bias_stride: i64,
    /// Experts.
    pub experts: u32,
    /// The activation's number.
    pub kind: u32,
    /// Its first parameter.
    pub limit: f32,
    /// Its second.
    pub alpha: f32,
}

/// `swiglu`: `strata_swiglu`, `strata_hidden`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SwiGlu {
    /// Gate and up.
    pub gate_up: Address,
    /// Hidden values.
    pub out: Address,
    /// Rows.
    pub rows: i64,
    /// Hidden values of a row.
    pub ffn: i64,
    /// Values from row to row of gate and up.
    pub stride: i64,
    /// Values from row to row of the output.
    pub out_stride: i64,
    /// 1: gate and up in turns; 0: all gate, then all up; 2: up alone.
    pub interleaved: u32,
    /// Of `strata_hidden` alone.
    pub experts: Experts,
}

/// `swiglu`: `strata_swiglu_quantize_{layout}`, `strata_hidden_quantize_{layout}`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SwiGluQuantize {
    /// Gate and up.
    pub gate_up: Address,
    /// Token of each row; null: the row.
    pub tokens: Address,
    /// q8_1 blocks.
    pub out: Address,
    /// Report.
    pub report: ReportTo,
    /// Rows.
    pub rows: i64,
    /// Hidden values of a row.
    pub ffn: i64,
    /// Values from row to row of gate and up.
    pub stride: i64,
    /// Blocks along k.
    pub k_blocks: u32,
    /// 1: gate and up in turns; 2: up alone.
    pub interleaved: u32,
    /// 1 where every row's halves are 16-aligned.
    pub vector: u32,
    /// 1 where `out` is 16-aligned.
    pub aligned: u32,
    /// Of `strata_hidden_quantize_{layout}` alone.
    pub experts: Experts,
}

/// `router`: `strata_router_scores`, `strata_router_few_scores`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Scores {
    /// Tokens.
    pub x: Address,
    /// A row per expert.
    pub weights: Address,
    /// Scores.
    pub out: Address,
    /// Tokens.
    pub tokens: i64,
    /// Experts.
    pub experts: i64,
    /// Values of a token.
    pub width: i64,
    /// Values from row to row of x.
    pub x_stride: i64,
    /// Values from row to row of the weights.
    pub weights_stride: i64,
    /// Values from row to row of the scores.
    pub out_stride: i64,
}

/// `router`: `strata_top_k`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct TopK {
    /// Scores.
    pub scores: Address,
    /// Chosen experts.
    pub ids: Address,
    /// Their weights.
    pub weights: Address,
    /// Report.
    pub report: ReportTo,
    /// Tokens.
    pub tokens: i64,
    /// Values from row to row of the scores.
    pub stride: i64,
    /// Experts.
    pub experts: u32,
    /// Chosen per token.
    pub k: u32,
    /// 1: weights are normalised over all experts.
    pub over_all: u32,
    /// What weights are multiplied by at the end.
    pub scale: f32,
}

/// `choose`: `strata_choose`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Choose {
    /// Scores.
    pub scores: Address,
    /// Added to them, a value per expert; null: nothing.
    pub score_bias: Address,
    /// Added where experts are chosen; null: nothing.
    pub selection_bias: Address,
    /// Chosen experts.
    pub ids: Address,
    /// Their weights.
    pub weights: Address,
    /// Report.
    pub report: ReportTo,
    /// Tokens.
    pub tokens: i64,
    /// Values from row to row of the scores.
    pub stride: i64,
    /// Experts.
    pub experts: u32,
    /// Chosen per token.
    pub k: u32,
    /// The gating's number.
    pub gating: u32,
    /// Its parameter.
    pub near: f32,
    /// Cap of the scores; 0: none.
    pub softcap: f32,
    /// Groups; 0: none.
    pub groups: u32,
    /// Groups that can be chosen from.
    pub groups_used: u32,
    /// 1: a group is worth its two best experts; 0: its best.
    pub top_two: u32,
    /// 1: weights are divided by their sum.
    pub normalised: u32,
    /// Added to the sum.
    pub epsilon: f32,
    /// The least that is divided by.
    pub least: f32,
    /// What weights are multiplied by at the end.
    pub scale: f32,
}

/// `router`: `strata_combine`, `strata_combine_any`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Combine {
    /// Expert outputs, in expert order.
    pub y: Address,
    /// Rows of each token.
    pub slot: Address,
    /// Router weights.
    pub weights: Address,
    /// Output of the shared expert; null where there is none.
    pub shared: Address,
    /// Scores of its gate; null: weight 1.
    pub shared_score: Address,
    /// Output.
    pub out: Address,
    /// Where to report: of a value the output, and the shared expert's score as of a header.
    pub report: ReportTo,
    /// Tokens.
    pub tokens: i64,
    /// Columns.
    pub width: i64,
    /// Values from row to row of y.
    pub y_stride: i64,
    /// Values from row to row of the shared expert's output.
    pub shared_stride: i64,
    /// Values from row to row of its scores.
    pub score_stride: i64,
    /// Values from row to row of the output.
    pub out_stride: i64,
    /// Rows per token.
    pub k: u32,
    /// 1 where all rows are 16-aligned and the width is a multiple of 4.
    pub vector: u32,
    /// Experts of each token; this and what follows of `strata_combine_any` alone.
    pub ids: Address,
    /// A scale per expert; null: 1.
    pub scale: Address,
    /// A row of biases per expert; null: +0.
    pub bias: Address,
    /// Values from scale to scale.
    pub scale_stride: i64,
    /// Values from row to row of the biases.
    pub bias_stride: i64,
    /// Multiplies the shared expert's weight.
    pub shared_factor: f32,
    /// Multiplies the sum.
    pub sum_factor: f32,
}

/// `map`: `strata_map_count` (a block per chunk), `strata_map_chunks` (a wave per
/// expert), `strata_map_bounds` (one block), `strata_map_rank` (a wave per chunk),
/// in this order.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Map {
    /// Expert ids of the routes.
    pub ids: Address,
    /// Row of each route.
    pub slot: Address,
    /// Token of each row.
    pub src: Address,
    /// Rows of the experts.
    pub bounds: Address,
    /// Room for `experts * chunks` words.
    pub counts: Address,
    /// Tokens times k.
    pub routes: u32,
    /// Routes per token.
    pub k: u32,
    /// Experts.
    pub experts: u32,
    /// Chunks of routes.
    pub chunks: u32,
    /// Routes of a chunk; the last may have fewer.
    pub chunk_routes: u32,
    /// Bits in which ids below `experts` can differ.
    pub id_bits: u32,
}

/// `map`: `strata_map_tiles`, one block.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Tiles {
    /// Rows of the experts.
    pub bounds: Address,
    /// Room for one entry of 16 bytes, and one for each tile.
    pub tiles: Address,
    /// Experts.
    pub experts: u32,
    /// Rows of a tile.
    pub tile_tokens: u32,
}

/// `mmq_{type}`: `strata_mmq_{tile}`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Mmq {
    /// Blocks of weights.
    pub weights: Address,
    /// q8_1 blocks.
    pub activations: Address,
    /// Activation row of each output row; null: the same.
    pub src: Address,
    /// What [`Tiles`] made; null for one expert.
    pub tiles: Address,
    /// Output.
    pub out: Address,
    /// Bytes from weight row to weight row.
    pub row_stride: i64,
    /// Bytes from expert to expert.
    pub expert_stride: i64,
    /// Rows of the activations.
    pub act_rows: i64,
    /// Values from row to row of the output.
    pub out_stride: i64,
    /// Weight rows of an expert.
    pub rows: u32,
    /// Weight columns.
    pub cols: u32,
    /// Output rows, without tiles.
    pub out_rows: u32,
    /// 1 where the activations are 16-aligned.
    pub aligned: u32,
}
