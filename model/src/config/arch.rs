//! The architectures, one entry each: what their files leave to programs that know them. What
//! experts compute is `plan_moe`'s to say.
//!
//! Facts are of llama.cpp (`src/models`), for whose programs the files are made.

use strata_core::activation::Activation;
use strata_core::routing::{Gating, Norm, RouterOptions};

use super::rope::Pairing;
use super::tensors::Presence::{self, May, Must, No};

/// The norm of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QkRule {
    None,
    /// Over each head, before the rotation.
    Head,
    /// The same, in files that have its weights.
    HeadIfThere,
    /// Over each head, after the rotation.
    HeadAfter,
    /// Over each head, after the rotation, without weights; not with 128 experts.
    Plain,
    /// Over all heads together, before the rotation.
    Whole,
}

/// Which keys a query sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WindowRule {
    /// All that come before it, whatever keys say.
    Full,
    /// In some layers the last ones only. `period`: without a pattern, the last layer of every
    /// `period` is full; 0: a pattern is needed. `stated`: the window has to be stated.
    Sliding { period: usize, stated: bool },
    /// In some layers those of its chunk of 8192 only.
    Chunked,
}

/// Which layers turn queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RopeLayers {
    All,
    /// As `attention.rope_pattern` says; without it all, unless `rope.scaling.finetuned` is false.
    Finetuned,
    /// All but every fourth.
    NotFourth,
    /// Layers with a window.
    Sliding,
}

/// What attention's output is multiplied by, value by value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GateRule {
    None,
    /// The sigmoid of a projection `attn_gate`.
    Projection,
    /// The sigmoid of values that lie behind each head's query.
    Interleaved,
}

/// Layers that are no attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Recurrent {
    None,
    /// Gated delta net; value head h reads key head h / r.
    DeltaNet,
    /// Gated delta net; value head h reads key head h mod n.
    DeltaNetModulo,
    /// Short convolutions where a layer has no key heads.
    ShortConv,
}

/// Which blocks have experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blocks {
    All,
    /// All if there are experts, else none.
    IfAny,
    /// From `leading_dense_block_count` on.
    Leading,
    /// From there on, every `interleave_moe_layer_step`-th.
    LeadingStep,
    /// Every `interleave_moe_layer_step`-th.
    Step,
    /// Where a router is.
    Router,
}

/// The experts of an architecture.
#[derive(Debug, Clone, Copy)]
pub(super) struct MoeRule {
    pub blocks: Blocks,
    /// Another router than the plan's.
    pub router: Option<RouterOptions>,
    /// A bias of the choice.
    pub bias: Presence,
    pub shared: Presence,
    /// Whether the shared expert is weighed.
    pub shared_gate: bool,
}

/// One architecture.
#[derive(Debug, Clone, Copy)]
pub(super) struct Architecture {
    pub name: &'static str,
    pub pairing: Pairing,
    pub head: Presence,
    pub head_bias: Presence,
    pub final_norm: &'static str,
    pub norm_bias: bool,
    pub ffn_norm: &'static str,
    /// Norms of a branch's output: behind attention, behind the feed-forward network.
    pub post_norms: Option<[&'static [&'static str]; 2]>,
    pub qk_norm: QkRule,
    /// Whether scales and biases of queries, keys and values are read.
    pub qkv_extras: bool,
    pub output_bias: Presence,
    pub ffn_bias: Presence,
    pub window: WindowRule,
    /// Layers with a window turn by base 10000 unless a key says otherwise, unscaled.
    pub own_window_base: bool,
    pub rope: RopeLayers,
    pub gate: GateRule,
    pub sinks: Presence,
    pub embedding_by_width: bool,
    /// `embedding_scale`, `logit_scale` (a divisor) and `residual_scale` count.
    pub granite_scales: bool,
    pub final_softcap: bool,
    pub grok: bool,
    pub recurrent: Recurrent,
    pub mla: bool,
    pub activation: Activation,
    pub moe: Option<MoeRule>,
    /// Whether `.scale` tensors count: of dense networks, of delta nets.
    pub scales: [bool; 2],
}

const BASE: Architecture = Architecture {
    name: "",
    pairing: Pairing::Halves,
    head: May,
    head_bias: No,
    final_norm: "output_norm",
    norm_bias: false,
    ffn_norm: "ffn_norm",
    post_norms: None,
    qk_norm: QkRule::None,
    qkv_extras: true,
    output_bias: No,
    ffn_bias: No,
    window: WindowRule::Full,
    own_window_base: false,
    rope: RopeLayers::All,
    gate: GateRule::None,
    sinks: No,
    embedding_by_width: false,
    granite_scales: false,
    final_softcap: false,
    grok: false,
    recurrent: Recurrent::None,
    mla: false,
    activation: Activation::SwiGlu,
    moe: None,
    scales: [false; 2],
};

const MOE: MoeRule =
    MoeRule { blocks: Blocks::All, router: None, bias: No, shared: No, shared_gate: false };

/// Dense blocks first, a bias and a shared expert where the file has them.
const DEEPSEEK_LIKE: MoeRule = MoeRule { blocks: Blocks::Leading, bias: May, shared: May, ..MOE };

/// Softmax of the chosen ones' scores.
const SOFTMAX_OF_CHOSEN: RouterOptions = RouterOptions {
    gating: Gating::SoftmaxOfChosen,
    softcap: 0.0,
    groups: None,
    norm: Norm::None,
    scale: 1.0,
};

const SANDWICH: [&[&str]; 2] = [&["post_attention_norm"], &["post_ffw_norm"]];

/// All architectures that are known.
pub(super) const ARCHITECTURES: &[Architecture] = &[
    Architecture {
        name: "llama",
        pairing: Pairing::Interleaved,
        output_bias: May,
        ffn_bias: May,
        moe: Some(MoeRule { blocks: Blocks::IfAny, ..MOE }),
        scales: [true, false],
        ..BASE
    },
    Architecture { name: "qwen2", head_bias: May, ..BASE },
    Architecture { name: "qwen3", qk_norm: QkRule::Head, scales: [true, false], ..BASE },
    Architecture {
        name: "qwen2moe",
        head: Must,
        moe: Some(MoeRule { shared: Must, shared_gate: true, ..MOE }),
        ..BASE
    },
    Architecture { name: "qwen3moe", qk_norm: QkRule::Head, moe: Some(MOE), ..BASE },
    Architecture { name: "olmoe", head: Must, qk_norm: QkRule::Whole, moe: Some(MOE), ..BASE },
    Architecture {
        name: "granitemoe",
        pairing: Pairing::Interleaved,
        output_bias: May,
        ffn_bias: May,
        rope: RopeLayers::Finetuned,
        granite_scales: true,
        moe: Some(MoeRule { blocks: Blocks::IfAny, shared: May, ..MOE }),
        ..BASE
    },
    Architecture {
        name: "phimoe",
        head: Must,
        head_bias: Must,
        norm_bias: true,
        output_bias: Must,
        moe: Some(MoeRule { router: Some(SOFTMAX_OF_CHOSEN), ..MOE }),
        ..BASE
    },
    Architecture {
        name: "gpt-oss",
        head: Must,
        ffn_norm: "post_attention_norm",
        output_bias: Must,
        window: WindowRule::Sliding { period: 2, stated: true },
        sinks: Must,
        moe: Some(MOE),
        ..BASE
    },
    Architecture {
        name: "glm4moe",
        ffn_norm: "post_attention_norm",
        qk_norm: QkRule::HeadIfThere,
        moe: Some(MoeRule { bias: Must, ..DEEPSEEK_LIKE }),
        ..BASE
    },
    Architecture {
        name: "ernie4_5-moe",
        pairing: Pairing::Interleaved,
        moe: Some(MoeRule { blocks: Blocks::LeadingStep, bias: May, shared: May, ..MOE }),
        ..BASE
    },
    Architecture {
        name: "minimax-m2",
        head: Must,
        qk_norm: QkRule::Whole,
        moe: Some(MoeRule { bias: Must, ..MOE }),
        ..BASE
    },
    Architecture {
        name: "deepseek2",
        pairing: Pairing::Interleaved,
        mla: true,
        moe: Some(DEEPSEEK_LIKE),
        ..BASE
    },
    Architecture {
        name: "bailingmoe2",
        head: Must,
        qk_norm: QkRule::Head,
        moe: Some(MoeRule { shared: Must, ..DEEPSEEK_LIKE }),
        ..BASE
    },
    Architecture {
        name: "dots1",
        head: Must,
        qk_norm: QkRule::Head,
        moe: Some(MoeRule { shared: Must, ..DEEPSEEK_LIKE }),
        ..BASE
    },
    Architecture {
        name: "lfm2moe",
        final_norm: "token_embd_norm",
        qk_norm: QkRule::Head,
        recurrent: Recurrent::ShortConv,
        moe: Some(MoeRule { bias: Must, shared: No, ..DEEPSEEK_LIKE }),
        ..BASE
    },
    Architecture {
        name: "hunyuan-moe",
        qk_norm: QkRule::HeadAfter,
        moe: Some(MoeRule { shared: Must, ..MOE }),
        ..BASE
    },
    Architecture {
        name: "llama4",
        pairing: Pairing::Interleaved,
        qk_norm: QkRule::Plain,
        window: WindowRule::Chunked,
        rope: RopeLayers::NotFourth,
        moe: Some(MoeRule { blocks: Blocks::Step, shared: Must, ..MOE }),
        ..BASE
    },
    Architecture {
        name: "mimo2",
        head: Must,
        qkv_extras: false,
        window: WindowRule::Sliding { period: 0, stated: true },
        own_window_base: true,
        sinks: May,
        moe: Some(MoeRule { blocks: Blocks::Router, bias: May, ..MOE }),
        ..BASE
    },
    Architecture {
        name: "gemma3",
        post_norms: Some(SANDWICH),
        qk_norm: QkRule::Head,
        window: WindowRule::Sliding { period: 6, stated: false },
        own_window_base: true,
        embedding_by_width: true,
        final_softcap: true,
        activation: Activation::GeluTanh,
        ..BASE
    },
    Architecture {
        name: "qwen3next",
        ffn_norm: "post_attention_norm",
        qk_norm: QkRule::Head,
        gate: GateRule::Interleaved,
        recurrent: Recurrent::DeltaNet,
        moe: Some(MoeRule { shared: Must, shared_gate: true, ..MOE }),
        ..BASE
    },
    Architecture {
        name: "qwen35moe",
        ffn_norm: "post_attention_norm",
        qk_norm: QkRule::Head,
        gate: GateRule::Interleaved,
        recurrent: Recurrent::DeltaNetModulo,
        moe: Some(MoeRule { shared: Must, shared_gate: true, ..MOE }),
        scales: [false, true],
        ..BASE
    },
    Architecture {
        name: "afmoe",
        post_norms: Some(SANDWICH),
        qk_norm: QkRule::Head,
        window: WindowRule::Sliding { period: 4, stated: false },
        rope: RopeLayers::NotFourth,
        gate: GateRule::Projection,
        embedding_by_width: true,
        moe: Some(MoeRule { bias: Must, ..DEEPSEEK_LIKE }),
        ..BASE
    },
    Architecture {
        name: "exaone-moe",
        head: Must,
        qk_norm: QkRule::Head,
        window: WindowRule::Sliding { period: 4, stated: true },
        rope: RopeLayers::Sliding,
        moe: Some(MoeRule { shared: Must, ..DEEPSEEK_LIKE }),
        ..BASE
    },
    Architecture {
        name: "grok",
        post_norms: Some([&["attn_output_norm"], &["layer_output_norm", "post_ffw_norm"]]),
        final_softcap: true,
        grok: true,
        activation: Activation::GeluTanh,
        moe: Some(MOE),
        ..BASE
    },
];
