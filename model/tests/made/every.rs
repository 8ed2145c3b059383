//! A small model of every architecture, of seeded weights: four heads of 32 values, 128 wide.
//!
//! Matrices are Q8_0, of scales that are powers of two; [`write`] writes the same values as F32 too, for
//! another program to say what is right.

use strata_core::WeightType;
use strata_core::gguf::{MetaValue, TensorType, ValueType, Writer};

/// Words.
pub const VOCAB: u64 = 60;
const WIDTH: u64 = 128;
const HEADS: u64 = 4;
const KV_HEADS: u64 = 2;
const HEAD: u64 = 32;
const FFN: u64 = 96;
const EXPERTS: u64 = 8;
const HIDDEN: u64 = 64;
const SHARED: u64 = 96;
/// Of Q8_0: std 0.14 and 1.1.
const SCALE: u32 = 9;
const LARGE: u32 = 6;

/// What can be written; behind a colon, which form of an architecture.
pub const FORMS: &[&str] = &[
    "llama",
    "llama:experts",
    "qwen2",
    "qwen3",
    "qwen2moe",
    "qwen3moe",
    "olmoe",
    "granitemoe",
    "phimoe",
    "gpt-oss",
    "glm4moe",
    "ernie4_5-moe",
    "minimax-m2",
    "deepseek2",
    "deepseek2:joint",
    "bailingmoe2",
    "dots1",
    "lfm2moe",
    "hunyuan-moe",
    "llama4",
    "mimo2",
    "gemma3",
    "qwen3next",
    "qwen3next:old",
    "qwen35moe",
    "afmoe",
    "exaone-moe",
    "grok",
];

/// The bytes of a file of a form; its matrices as F32 where that is asked for.
pub fn write(form: &str, floats: bool) -> Vec<u8> {
    let (architecture, variant) = form.split_once(':').unwrap_or((form, ""));
    let seed =
        form.bytes().fold(seed(form), |all, byte| all.wrapping_mul(31).wrapping_add(byte.into()));
    let mut made = Every { writer: Writer::new(), architecture, variant, seed, floats };
    made.all();
    made.writer.to_bytes().unwrap()
}

/// Seeds by which no token stands between two experts, where any rounding decides.
fn seed(form: &str) -> u64 {
    match form {
        "bailingmoe2" | "deepseek2" | "exaone-moe" | "glm4moe" | "hunyuan-moe" | "mimo2" => 8,
        "olmoe" | "qwen2moe" => 8,
        "llama:experts" => 10,
        "qwen35moe" => 11,
        "deepseek2:joint" | "qwen3next:old" => 12,
        _ => 7,
    }
}

struct Every<'a> {
    writer: Writer<'a>,
    architecture: &'a str,
    variant: &'a str,
    seed: u64,
    floats: bool,
}

impl Every<'_> {
    fn is(&self, list: &str) -> bool {
        list.split(' ').any(|name| name == self.architecture)
    }

    fn key(&mut self, key: &str, value: impl Into<MetaValue>) {
        self.writer.value(format!("{}.{key}", self.architecture), value);
    }

    fn size(&mut self, key: &str, value: u64) {
        self.key(key, value as u32);
    }

    fn sizes(&mut self, key: &str, values: &[u64]) {
        let values = values.iter().map(|&value| MetaValue::U32(value as u32));
        self.key(key, MetaValue::Array(ValueType::U32, values.collect()));
    }

    fn flags(&mut self, key: &str, values: &[bool]) {
        let values = values.iter().map(|&value| MetaValue::Bool(value));
        self.key(key, MetaValue::Array(ValueType::Bool, values.collect()));
    }

    fn next(&mut self) -> u64 {
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.seed >> 33
    }

    /// Floats, at most `spread` from `around`.
    fn floats(&mut self, name: &str, dims: &[u64], around: f32, spread: f32) {
        let count = dims.iter().product::<u64>();
        let unit = (1u64 << 30) as f32;
        let values = (0..count).map(|_| around + (self.next() as f32 / unit - 1.0) * spread);
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        self.writer.tensor(name, dims, TensorType::F32, bytes);
    }

    /// A matrix of codes up to 127 times `2^-scale`.
    fn scaled(&mut self, name: &str, dims: &[u64], scale: u32) {
        let count = dims.iter().product::<u64>();
        let codes = (0..count).map(|_| ((self.next() % 255) as i16 - 127) as i8);
        let codes: Vec<i8> = codes.collect();
        if self.floats {
            let unit = 0.5f32.powi(scale as i32);
            let bytes = codes.iter().flat_map(|&code| (f32::from(code) * unit).to_le_bytes());
            self.writer.tensor(name, dims, TensorType::F32, bytes.collect::<Vec<u8>>());
            return;
        }
        let mut bytes = Vec::new();
        for codes in codes.chunks_exact(32) {
            bytes.extend((((15 - scale) << 10) as u16).to_le_bytes());
            bytes.extend(codes.iter().map(|&code| code as u8));
        }
        self.writer.tensor(name, dims, TensorType::Weight(WeightType::Q8_0), bytes);
    }

    fn matrix(&mut self, name: &str, dims: &[u64]) {
        self.scaled(name, dims, SCALE);
    }

    fn norm(&mut self, name: &str, size: u64) {
        self.floats(&format!("{name}.weight"), &[size], 1.0, 0.5);
    }

    /// As many as heads where programs take no fewer.
    fn kv_heads(&self) -> u64 {
        if self.is("dots1 olmoe") { HEADS } else { KV_HEADS }
    }

    fn layers(&self) -> usize {
        match self.architecture {
            "gemma3" => 6,
            "llama4" | "afmoe" | "exaone-moe" | "qwen3next" | "qwen35moe" => 4,
            _ => 3,
        }
    }

    fn all(&mut self) {
        self.writer.value("general.architecture", self.architecture);
        self.writer.value("tokenizer.ggml.model", "none");
        self.keys();
        self.scaled("token_embd.weight", &[WIDTH, VOCAB], LARGE);
        let last = if self.is("lfm2moe") { "token_embd_norm" } else { "output_norm" };
        self.norm(last, WIDTH);
        if self.is("phimoe") {
            self.floats("output_norm.bias", &[WIDTH], 0.0, 0.3);
        }
        if !self.is("gemma3 lfm2moe") {
            self.matrix("output.weight", &[WIDTH, VOCAB]);
        }
        if self.is("phimoe") {
            self.floats("output.bias", &[VOCAB], 0.0, 1.0);
        }
        for block in 0..self.layers() {
            self.block(block);
        }
    }

    fn keys(&mut self) {
        let layers = self.layers();
        self.size("block_count", layers as u64);
        self.size("context_length", 200);
        self.size("embedding_length", WIDTH);
        self.size("vocab_size", VOCAB);
        self.size("attention.head_count", HEADS);
        match self.architecture {
            "lfm2moe" => self.sizes("attention.head_count_kv", &[0, KV_HEADS, 0]),
            "deepseek2" if self.variant.is_empty() => self.size("attention.head_count_kv", 1),
            "deepseek2" => self.size("attention.head_count_kv", HEADS),
            _ => self.size("attention.head_count_kv", self.kv_heads()),
        }
        self.key("attention.layer_norm_rms_epsilon", 1e-5f32);
        // Where experts are as wide as that says, it says so.
        let as_experts =
            self.is("olmoe granitemoe phimoe minimax-m2 hunyuan-moe") || self.variant == "experts";
        self.size("feed_forward_length", if as_experts { HIDDEN } else { FFN });
        self.key("rope.freq_base", 1000.0f32);
        let turned = match self.architecture {
            "glm4moe" | "bailingmoe2" | "minimax-m2" | "qwen3next" | "qwen35moe" | "deepseek2" => {
                16
            }
            _ => HEAD,
        };
        self.size("rope.dimension_count", turned);
        match self.architecture {
            "deepseek2" => self.mla_keys(),
            "mimo2" => {
                self.size("attention.key_length", 64);
                self.size("attention.value_length", HEAD);
            }
            _ => {
                self.size("attention.key_length", HEAD);
                self.size("attention.value_length", HEAD);
            }
        }
        if self.is("gpt-oss gemma3 exaone-moe afmoe mimo2") {
            self.size("attention.sliding_window", 8);
        }
        match self.architecture {
            "mimo2" => {
                self.flags("attention.sliding_window_pattern", &[true, false, true]);
                self.key("rope.freq_base_swa", 100.0f32);
                self.key("attention.value_scale", 0.7f32);
            }
            "gemma3" => self.key("final_logit_softcapping", 3.0f32),
            "granitemoe" => {
                self.key("embedding_scale", 3.0f32);
                self.key("residual_scale", 0.4f32);
                self.key("logit_scale", 2.0f32);
                self.key("attention.scale", 0.1f32);
            }
            "grok" => {
                self.key("embedding_scale", 6.0f32);
                self.key("logit_scale", 0.5f32);
                self.key("attention.output_scale", 0.3f32);
                self.key("attn_logit_softcapping", 5.0f32);
                self.key("final_logit_softcapping", 1.5f32);
            }
            "lfm2moe" => self.size("shortconv.l_cache", 3),
            "llama4" => self.size("interleave_moe_layer_step", 2),
            "ernie4_5-moe" => self.size("interleave_moe_layer_step", 1),
            "qwen3next" | "qwen35moe" => {
                self.size("full_attention_interval", 2);
                self.size("ssm.conv_kernel", 4);
                self.size("ssm.state_size", 32);
                self.size("ssm.group_count", 2);
                self.size("ssm.time_step_rank", 4);
                self.size("ssm.inner_size", 128);
            }
            _ => {}
        }
        if self.is("qwen35moe") {
            self.sizes("rope.dimension_sections", &[3, 3, 2, 0]);
        }
        if self.experts() {
            self.expert_keys();
        }
    }

    fn mla_keys(&mut self) {
        self.size("attention.q_lora_rank", 64);
        self.size("attention.kv_lora_rank", 64);
        if self.variant.is_empty() {
            self.size("attention.key_length", 80);
            self.size("attention.value_length", 64);
            self.size("attention.key_length_mla", 48);
            self.size("attention.value_length_mla", HEAD);
        } else {
            self.size("attention.key_length", 48);
            self.size("attention.value_length", HEAD);
        }
        self.key("rope.scaling.type", "yarn");
        self.key("rope.scaling.factor", 4.0f32);
        self.size("rope.scaling.original_context_length", 50);
        self.key("rope.scaling.yarn_log_multiplier", 0.1f32);
    }

    fn experts(&self) -> bool {
        !self.is("qwen2 qwen3 gemma3") && (!self.is("llama") || self.variant == "experts")
    }

    fn expert_keys(&mut self) {
        self.size("expert_count", EXPERTS);
        let used = if self.is("llama4") { 1 } else { 3 };
        self.size("expert_used_count", used);
        self.size("expert_feed_forward_length", HIDDEN);
        if self.is("glm4moe ernie4_5-moe deepseek2 bailingmoe2 dots1 lfm2moe afmoe exaone-moe") {
            self.size("leading_dense_block_count", 1);
        }
        if self.is("glm4moe deepseek2 bailingmoe2 dots1 afmoe exaone-moe") {
            self.size("expert_shared_count", 1);
            self.key("expert_weights_norm", true);
            // For these alone llama.cpp reads it; files of others do not have it.
            self.key("expert_weights_scale", 1.5f32);
        }
        if self.is("glm4moe deepseek2 bailingmoe2 dots1 afmoe exaone-moe lfm2moe minimax-m2") {
            self.size("expert_gating_func", 2);
        }
        if self.is("deepseek2 bailingmoe2") {
            self.size("expert_group_count", 4);
            self.size("expert_group_used_count", 2);
        }
        if self.is("bailingmoe2") {
            self.size("expert_shared_feed_forward_length", HIDDEN);
        }
        if self.is("qwen2moe qwen3next qwen35moe hunyuan-moe ernie4_5-moe granitemoe exaone-moe") {
            self.size("expert_shared_feed_forward_length", SHARED);
        }
    }

    fn block(&mut self, block: usize) {
        let name = |stem: &str| format!("blk.{block}.{stem}");
        self.norm(&name("attn_norm"), WIDTH);
        let biased = self.is("phimoe");
        if biased {
            self.floats(&name("attn_norm.bias"), &[WIDTH], 0.0, 0.3);
        }
        let recurrent = match self.architecture {
            "lfm2moe" => block != 1,
            "qwen3next" | "qwen35moe" => block.is_multiple_of(2),
            _ => false,
        };
        match self.architecture {
            "deepseek2" => self.mla(block),
            "lfm2moe" if recurrent => {
                self.floats(&name("shortconv.conv.weight"), &[3, WIDTH], 0.3, 0.7);
                self.matrix(&name("shortconv.in_proj.weight"), &[WIDTH, 3 * WIDTH]);
                self.matrix(&name("shortconv.out_proj.weight"), &[WIDTH, WIDTH]);
            }
            _ if recurrent => self.delta_net(block),
            _ => self.attention(block),
        }
        let ffn_norm = match self.is("gpt-oss glm4moe qwen3next qwen35moe") {
            true => "post_attention_norm",
            false => "ffn_norm",
        };
        self.norm(&name(ffn_norm), WIDTH);
        if biased {
            self.floats(&name("ffn_norm.bias"), &[WIDTH], 0.0, 0.3);
        }
        let behind: &[&str] = match self.architecture {
            "gemma3" | "afmoe" => &["post_attention_norm", "post_ffw_norm"],
            "grok" => &["attn_output_norm", "layer_output_norm"],
            _ => &[],
        };
        for stem in behind {
            self.norm(&name(stem), WIDTH);
        }
        let leading = self
            .is("glm4moe ernie4_5-moe deepseek2 bailingmoe2 dots1 lfm2moe afmoe exaone-moe mimo2");
        let dense = match self.architecture {
            "llama4" => block.is_multiple_of(2),
            _ => leading && block == 0,
        };
        match self.experts() && !dense {
            true => self.moe(block),
            false => self.dense(block, "", FFN),
        }
    }

    fn dense(&mut self, block: usize, suffix: &str, ffn: u64) {
        let name = |stem: &str| format!("blk.{block}.ffn_{stem}{suffix}.weight");
        self.matrix(&name("gate"), &[WIDTH, ffn]);
        self.matrix(&name("up"), &[WIDTH, ffn]);
        self.matrix(&name("down"), &[ffn, WIDTH]);
    }

    fn moe(&mut self, block: usize) {
        let name = |stem: &str| format!("blk.{block}.{stem}");
        self.floats(&name("ffn_gate_inp.weight"), &[WIDTH, EXPERTS], 0.0, 0.25);
        match self.is("qwen3next qwen35moe") {
            true => self.matrix(&name("ffn_gate_up_exps.weight"), &[WIDTH, 2 * HIDDEN, EXPERTS]),
            false => {
                self.matrix(&name("ffn_gate_exps.weight"), &[WIDTH, HIDDEN, EXPERTS]);
                self.matrix(&name("ffn_up_exps.weight"), &[WIDTH, HIDDEN, EXPERTS]);
            }
        }
        self.matrix(&name("ffn_down_exps.weight"), &[HIDDEN, WIDTH, EXPERTS]);
        if self.is("gpt-oss") {
            self.floats(&name("ffn_gate_inp.bias"), &[EXPERTS], 0.0, 0.5);
            self.floats(&name("ffn_gate_exps.bias"), &[HIDDEN, EXPERTS], 0.0, 0.5);
            self.floats(&name("ffn_up_exps.bias"), &[HIDDEN, EXPERTS], 0.0, 0.5);
            self.floats(&name("ffn_down_exps.bias"), &[WIDTH, EXPERTS], 0.0, 0.5);
        }
        let chosen_by_bias = "glm4moe minimax-m2 bailingmoe2 dots1 lfm2moe afmoe exaone-moe deepseek2 mimo2 \
                              ernie4_5-moe";
        if self.is(chosen_by_bias) {
            self.floats(&name("exp_probs_b.bias"), &[EXPERTS], 0.0, 0.3);
        }
        if self.is("glm4moe deepseek2 bailingmoe2 dots1 afmoe llama4") {
            self.dense(block, "_shexp", HIDDEN);
        }
        if self.is("qwen2moe qwen3next qwen35moe hunyuan-moe ernie4_5-moe granitemoe exaone-moe") {
            self.dense(block, "_shexp", SHARED);
        }
        if self.is("qwen2moe qwen3next qwen35moe") {
            self.floats(&name("ffn_gate_inp_shexp.weight"), &[WIDTH], 0.0, 0.2);
        }
    }

    fn attention(&mut self, block: usize) {
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let key = if self.is("mimo2") { 64 } else { HEAD };
        let kv_heads = self.kv_heads();
        let (q, k, v) = (HEADS * key, kv_heads * key, kv_heads * HEAD);
        let gated = self.is("qwen3next qwen35moe");
        if self.is("bailingmoe2") {
            self.matrix(&name("attn_qkv.weight"), &[WIDTH, q + k + v]);
        } else {
            for (stem, rows) in [("q", if gated { 2 * q } else { q }), ("k", k), ("v", v)] {
                self.matrix(&name(&format!("attn_{stem}.weight")), &[WIDTH, rows]);
                if self.is("qwen2 qwen2moe phimoe gpt-oss glm4moe") {
                    self.floats(&name(&format!("attn_{stem}.bias")), &[rows], 0.0, 1.0);
                }
            }
        }
        self.matrix(&name("attn_output.weight"), &[HEADS * HEAD, WIDTH]);
        if self.is("phimoe gpt-oss") {
            self.floats(&name("attn_output.bias"), &[WIDTH], 0.0, 0.5);
        }
        let of_heads = "qwen3 qwen3moe glm4moe bailingmoe2 dots1 lfm2moe hunyuan-moe gemma3 qwen3next qwen35moe afmoe \
                        exaone-moe";
        let norms = match self.architecture {
            "olmoe" | "minimax-m2" => Some([q, k]),
            _ if self.is(of_heads) => Some([key; 2]),
            _ => None,
        };
        for (stem, size) in
            ["attn_q_norm", "attn_k_norm"].into_iter().zip(norms.into_iter().flatten())
        {
            self.norm(&name(stem), size);
        }
        if self.is("gpt-oss mimo2") {
            self.floats(&name("attn_sinks.weight"), &[HEADS], 0.0, 2.0);
        }
        if self.is("afmoe") {
            self.matrix(&name("attn_gate.weight"), &[WIDTH, HEADS * HEAD]);
        }
    }

    fn mla(&mut self, block: usize) {
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let (rank, turned, plain) = (64, 16, 32);
        self.matrix(&name("attn_q_a.weight"), &[WIDTH, 64]);
        self.norm(&name("attn_q_a_norm"), 64);
        self.matrix(&name("attn_q_b.weight"), &[64, HEADS * (plain + turned)]);
        self.matrix(&name("attn_kv_a_mqa.weight"), &[WIDTH, rank + turned]);
        self.norm(&name("attn_kv_a_norm"), rank);
        match self.variant {
            "" => {
                self.matrix(&name("attn_k_b.weight"), &[plain, rank, HEADS]);
                self.matrix(&name("attn_v_b.weight"), &[rank, HEAD, HEADS]);
            }
            _ => self.matrix(&name("attn_kv_b.weight"), &[rank, HEADS * (plain + HEAD)]),
        }
        self.matrix(&name("attn_output.weight"), &[HEADS * HEAD, WIDTH]);
    }

    fn delta_net(&mut self, block: usize) {
        let name = |stem: &str| format!("blk.{block}.{stem}");
        let (keys, values, heads) = (64, 128, 4);
        match self.variant {
            "old" => self.matrix(&name("ssm_in.weight"), &[WIDTH, 2 * keys + 2 * values]),
            _ => {
                self.matrix(&name("attn_qkv.weight"), &[WIDTH, 2 * keys + values]);
                self.matrix(&name("attn_gate.weight"), &[WIDTH, values]);
            }
        }
        match self.is("qwen3next") {
            true => self.matrix(&name("ssm_ba.weight"), &[WIDTH, 2 * heads]),
            false => {
                self.matrix(&name("ssm_beta.weight"), &[WIDTH, heads]);
                self.matrix(&name("ssm_alpha.weight"), &[WIDTH, heads]);
            }
        }
        self.floats(&name("ssm_conv1d.weight"), &[4, 2 * keys + values], 0.2, 0.6);
        self.floats(&name("ssm_dt.bias"), &[heads], 0.0, 1.0);
        self.floats(&name("ssm_a"), &[heads], -0.4, 0.3);
        self.norm(&name("ssm_norm"), 32);
        self.matrix(&name("ssm_out.weight"), &[values, WIDTH]);
    }
}
