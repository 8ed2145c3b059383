//! What images export about their launches.
//!
//! Each constant names a variable of the image of the same group; the comment
//! says what its words are.

/// `quantize`: threads of a block, 128-value blocks they make at a time.
pub const QUANTIZE: &str = "strata_quantize_shape";
/// `scatter`: threads of a block; bytes of shared memory that it takes, that a
/// token of its chunk takes beside it, and that each of the token's rows does.
pub const SCATTER: &str = "strata_scatter_shape";
/// `swiglu`: threads of a block, 128-value blocks they make at a time.
pub const SWIGLU: &str = "strata_swiglu_shape";
/// `router`: threads, tokens and experts of a tile of scores.
pub const SCORES: &str = "strata_router_scores_shape";
/// `router`: the same of `strata_router_few_scores`, for few tokens.
pub const FEW_SCORES: &str = "strata_router_few_scores_shape";
/// `router`: threads of a block, tokens they choose for at a time.
pub const TOP_K: &str = "strata_top_k_shape";
/// `choose`: threads of a block, tokens they choose for at a time.
pub const CHOOSE: &str = "strata_choose_shape";
/// `router`: threads of a block.
pub const COMBINE: &str = "strata_combine_shape";
/// `map`: threads of the passes, threads of the ranking pass, experts a block
/// sums at a time, experts whose counters fit shared memory.
pub const MAP: &str = "strata_map_shape";
/// `mmq_*`: a [`MmqShape`] for each tile.
pub const MMQ: &str = "strata_mmq_shapes";

/// One tile of a product; all but `tokens` 0 where an architecture or a type has none
/// of so many.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MmqShape {
    /// Weight rows.
    pub rows: u32,
    /// Activation rows.
    pub tokens: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Shared memory of a block, in bytes.
    pub shared_bytes: u32,
    /// What the tile costs beside its activation rows, in rows.
    pub overhead: u32,
    /// 1 where it takes 16-aligned activations alone.
    pub aligned: u32,
    /// Activation rows of a part of the tile, which costs nothing where it has none.
    pub part: u32,
    /// What a row costs, in hundredths of what it costs in other tiles.
    pub price: u32,
}

/// What a launch of the kernels of `scatter` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScatterShape {
    /// Threads of a block.
    pub threads: u32,
    /// Bytes of shared memory beside those of a chunk's tokens.
    pub fixed_bytes: u32,
    /// Bytes that each token of a chunk takes.
    pub token_bytes: u32,
    /// Bytes that each of a token's rows takes.
    pub route_bytes: u32,
}

impl From<[u32; 4]> for ScatterShape {
    /// Of the words of [`SCATTER`].
    fn from([threads, fixed_bytes, token_bytes, route_bytes]: [u32; 4]) -> Self {
        Self { threads, fixed_bytes, token_bytes, route_bytes }
    }
}
