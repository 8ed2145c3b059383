//! What a model computes, block by block.

use strata_core::Result;
use strata_core::activation::Activation;
use strata_core::gguf::{Gguf, MoeTensors};
use strata_core::prefill::{MoePlan, plan_moe};
use strata_core::routing::RouterOptions;

use super::rope::{Factors, Rope, Scaling};
use super::tensors::{Norm, Projection};

/// A model.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// `general.architecture`.
    pub architecture: String,
    /// Rows of the embedding: ids are below it. A tokenizer may have fewer words.
    pub vocab: usize,
    /// Values of a token between blocks.
    pub width: usize,
    /// The most tokens that the model was trained for.
    pub context: usize,
    /// The eps of every norm.
    pub eps: f32,
    /// The embedding's tensor, `[width, vocab]`.
    pub embedding: String,
    /// A factor on the embedding's rows.
    pub embedding_scale: Option<f32>,
    /// The blocks.
    pub layers: Vec<Layer>,
    /// The norm in front of the head.
    pub output_norm: Norm,
    /// The head; its tensor is the embedding's where the file has none.
    pub head: Projection,
    /// What logits are multiplied by.
    pub logit_scale: Option<f32>,
    /// What logits are divided by.
    pub logit_divisor: Option<f32>,
    /// Logits become `cap * tanh(logit / cap)`.
    pub logit_softcap: Option<f32>,
    /// How positions are stretched.
    pub scaling: Scaling,
    /// Which of two tables of frequency factors is used.
    pub factors: Option<Factors>,
    /// Keys of the architecture that nobody reads.
    pub unread: Vec<String>,
    /// Tensors that are left out, each with the reason.
    pub skipped: Vec<(String, &'static str)>,
}

/// One block: `x += post(mixer(norm(x))); x += post(ffn(norm(x)))`.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    /// The norm in front of the mixer.
    pub mixer_norm: Norm,
    /// What mixes tokens.
    pub mixer: Mixer,
    /// A norm of the mixer's output.
    pub mixer_post_norm: Option<Norm>,
    /// The norm in front of the feed-forward network.
    pub ffn_norm: Norm,
    /// The feed-forward network.
    pub ffn: Ffn,
    /// A norm of its output.
    pub ffn_post_norm: Option<Norm>,
    /// A factor on both outputs before they are added.
    pub residual_scale: Option<f32>,
}

/// What mixes tokens.
#[derive(Debug, Clone, PartialEq)]
pub enum Mixer {
    /// Attention with heads that share keys and values in groups.
    Attention(Box<Attention>),
    /// Attention over a compressed row for all heads.
    Mla(Box<Mla>),
    /// A gated delta net: a state for each head.
    DeltaNet(Box<DeltaNet>),
    /// A short convolution.
    ShortConv(Box<ShortConv>),
}

/// Attention.
#[derive(Debug, Clone, PartialEq)]
pub struct Attention {
    /// Query heads.
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    /// Values of a query or key head.
    pub key_size: usize,
    /// Values of a value head.
    pub value_size: usize,
    /// Where queries, keys and values come from.
    pub qkv: Qkv,
    /// `[heads * value_size, width]`.
    pub output: Projection,
    /// Which keys a query sees.
    pub mask: Mask,
    /// What scores are multiplied by.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// A tensor of one more score for each head, without a value.
    pub sinks: Option<String>,
    /// The norm of queries and keys.
    pub qk_norm: Option<QkNorm>,
    /// The rotation of queries and keys.
    pub rope: Option<Rope>,
    /// What the output is multiplied by, in front of its projection.
    pub gate: Option<Gate>,
    /// A factor on the output, in front of its projection.
    pub value_scale: Option<f32>,
    /// A factor on queries that grows with their position.
    pub temperature: Option<Temperature>,
}

/// Where queries, keys and values come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Qkv {
    /// Three matrices. With an interleaved gate, a head's rows of the first are its query, then
    /// its gate.
    Split {
        /// Queries.
        query: Projection,
        /// Keys.
        key: Projection,
        /// Values.
        value: Projection,
    },
    /// One matrix: rows of queries, of keys, of values.
    Fused(Projection),
}

/// Which keys a query at position p sees: none behind p, and of those before
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mask {
    /// all.
    Full,
    /// the last ones: position k with p - k < window.
    Sliding {
        /// Keys that are seen.
        window: usize,
    },
    /// those of p's chunk.
    Chunked {
        /// Positions of a chunk.
        chunk: usize,
    },
}

/// The norm of queries and keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QkNorm {
    /// The factors of queries and of keys; without them the norm alone.
    pub weights: Option<[String; 2]>,
    /// Over all heads together instead of each.
    pub whole: bool,
    /// After the rotation instead of before.
    pub after_rope: bool,
}

/// What attention's output is multiplied by: the sigmoid of
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Gate {
    /// a projection of the normed input, `[width, heads * value_size]`.
    Projection(Projection),
    /// the values behind each head's query.
    Interleaved,
}

/// Queries at position p are multiplied by `scale * ln(floor((p + offset) / length) + 1) + 1`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Temperature {
    /// The factor.
    pub scale: f32,
    /// Positions in which it stays the same.
    pub length: usize,
    /// What is added to positions.
    pub offset: usize,
}

impl Temperature {
    /// The factor of a position: in f64 by the `libm` crate, rounded to f32 at the end.
    pub fn factor(&self, position: usize) -> f32 {
        let steps = ((position + self.offset) / self.length) as f64;
        (f64::from(self.scale) * libm::log(steps + 1.0) + 1.0) as f32
    }
}

/// Attention over a compressed row.
#[derive(Debug, Clone, PartialEq)]
pub struct Mla {
    /// Heads.
    pub heads: usize,
    /// Values of a head's query and key that do not turn.
    pub plain_size: usize,
    /// Values of a head's value.
    pub value_size: usize,
    /// Values of the compressed row.
    pub rank: usize,
    /// Where queries come from: `[width, heads * (plain_size + rope.dims)]`.
    pub query: MlaQuery,
    /// `[width, rank + rope.dims]`: the compressed row, then the key that turns.
    pub compress: Projection,
    /// The norm of the compressed row.
    pub compress_norm: Norm,
    /// Keys and values from the compressed row.
    pub expand: MlaExpand,
    /// `[heads * value_size, width]`.
    pub output: Projection,
    /// What scores are multiplied by.
    pub scale: f32,
    /// The rotation; of each head's values behind the plain ones, and of the shared key.
    pub rope: Rope,
}

/// Where MLA's queries come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MlaQuery {
    /// One matrix.
    Direct(Projection),
    /// A low rank, with a norm between.
    LowRank {
        /// `[width, rank]`.
        down: Projection,
        /// The norm.
        norm: Norm,
        /// `[rank, heads * size]`.
        up: Projection,
    },
}

/// Keys and values from MLA's compressed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MlaExpand {
    /// `attn_k_b`, `[plain_size, rank, heads]`, and `attn_v_b`, `[rank, value_size, heads]`.
    Absorbed {
        /// Keys.
        key: String,
        /// Values.
        value: String,
    },
    /// `attn_kv_b`, `[rank, heads * (plain_size + value_size)]`: for each head its key's rows, then
    /// its value's.
    Joint(Projection),
}

/// A gated delta net.
#[derive(Debug, Clone, PartialEq)]
pub struct DeltaNet {
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values; a multiple of `key_heads`.
    pub value_heads: usize,
    /// Values of a query or key head.
    pub key_size: usize,
    /// Values of a value head.
    pub value_size: usize,
    /// Whether value head h reads key head h mod `key_heads`, and not h / r.
    pub modulo: bool,
    /// Queries, keys, values and gates.
    pub input: DeltaInput,
    /// Strengths and decays.
    pub rates: DeltaRates,
    /// The convolution's taps, `[kernel, channels]`.
    pub conv: String,
    /// Taps of the convolution.
    pub kernel: usize,
    /// A tensor of `value_heads` values that is added to the decays.
    pub decay_bias: String,
    /// A tensor of `value_heads` factors of the decays.
    pub decay: String,
    /// The norm of each value head's output.
    pub norm: Norm,
    /// `[value_heads * value_size, width]`.
    pub output: Projection,
}

/// Where a delta net's queries, keys, values and gates come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeltaInput {
    /// Rows of all queries, all keys, all values; and gates.
    Split {
        /// Queries, keys, values.
        qkv: Projection,
        /// Gates.
        gate: Projection,
    },
    /// For each key head: its query, its key, its values, their gates.
    Interleaved(Projection),
}

/// Where a delta net's strengths (beta) and decays (alpha) come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeltaRates {
    /// Two matrices.
    Split {
        /// Strengths.
        beta: Projection,
        /// Decays.
        alpha: Projection,
    },
    /// For each key head: strengths, then decays, of its value heads.
    Interleaved(Projection),
}

/// A short convolution: `out(c * conv(b * x))`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShortConv {
    /// `[width, 3 width]`: b, c, x.
    pub input: Projection,
    /// The taps, `[kernel, width]`.
    pub conv: String,
    /// Taps.
    pub kernel: usize,
    /// `[width, width]`.
    pub output: Projection,
}

/// A feed-forward network.
#[derive(Debug, Clone, PartialEq)]
pub enum Ffn {
    /// One for all tokens.
    Dense(Box<Dense>),
    /// A few of many for each.
    Moe(Box<Moe>),
}

/// A dense feed-forward network.
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    /// `[width, ffn]`.
    pub gate: Projection,
    /// `[width, ffn]`.
    pub up: Projection,
    /// `[ffn, width]`.
    pub down: Projection,
    /// Between them.
    pub activation: Activation,
}

/// A mixture of experts: what it computes is [`Moe::plan`].
#[derive(Debug, Clone, PartialEq)]
pub struct Moe {
    /// The block.
    pub block: usize,
    /// Experts.
    pub experts: usize,
    /// Experts of a token.
    pub used: usize,
    /// Hidden values of an expert.
    pub ffn: usize,
    /// How scores become experts and weights.
    pub router: RouterOptions,
}

impl Moe {
    pub(super) fn of(plan: &MoePlan) -> Self {
        let MoeTensors { block, experts, used, ffn, .. } = plan.tensors;
        Self { block, experts, used, ffn, router: plan.router }
    }

    /// What the block computes, with the values of its small tensors; from the model's file.
    ///
    /// # Errors
    /// As [`plan_moe`].
    pub fn plan(&self, gguf: &Gguf) -> Result<MoePlan> {
        Ok(MoePlan { router: self.router, ..plan_moe(gguf, self.block)? })
    }
}
