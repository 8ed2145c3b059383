//! Small models that tests write themselves, and what tests do with them.
#![allow(dead_code)] // not every test uses all of it

pub mod every;

use strata_core::WeightType;
use strata_core::backend::Backend;
use strata_core::format::random::random_blocks;
use strata_core::gguf::{Gguf, GgufFile, TensorType, Writer};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_model::{Model, Space, Token};

pub const WIDTH: u64 = 256;
pub const VOCAB: u64 = 60;
pub const CONTEXT: u32 = 200;

struct Made<'a> {
    writer: Writer<'a>,
    architecture: &'static str,
    seed: u64,
}

impl Made<'_> {
    fn key(&mut self, key: &str, value: impl Into<strata_core::gguf::MetaValue>) {
        self.writer.value(format!("{}.{key}", self.architecture), value);
    }

    fn number(&mut self) -> f32 {
        self.seed = self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (self.seed >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    }

    fn floats(&mut self, name: &str, dims: &[u64], around: f32) {
        let count = dims.iter().product::<u64>();
        let values = (0..count).map(|_| around + self.number());
        let bytes: Vec<u8> = values.flat_map(f32::to_le_bytes).collect();
        self.writer.tensor(name, dims, TensorType::F32, bytes);
    }

    fn weights(&mut self, name: &str, dims: &[u64]) {
        self.seed += 1;
        let ty = WeightType::Q8_0;
        let blocks = dims.iter().product::<u64>() as usize / ty.block_values();
        let mut bytes = random_blocks(ty, self.seed, blocks);
        // Scales of about 1/1000: products of some hundred codes stay near 1.
        for block in bytes.chunks_exact_mut(ty.block_bytes()) {
            block[..2].copy_from_slice(&0x1419u16.to_le_bytes());
        }
        self.writer.tensor(name, dims, TensorType::Weight(ty), bytes);
    }
}

/// Three blocks: dense, or of experts; with a window in some blocks where the architecture has one.
pub fn made(architecture: &'static str) -> Gguf {
    seeded(architecture, 1)
}

/// The same of other weights.
pub fn seeded(architecture: &'static str, seed: u64) -> Gguf {
    with_context(architecture, seed, CONTEXT)
}

/// The same for texts of so many tokens.
pub fn with_context(architecture: &'static str, seed: u64, context: u32) -> Gguf {
    build(architecture, seed, context, false)
}

/// The same as [`made`], with a head of its own that is a copy of the embedding.
pub fn untied(architecture: &'static str) -> Gguf {
    build(architecture, 1, CONTEXT, true)
}

fn build(architecture: &'static str, seed: u64, context: u32, untied: bool) -> Gguf {
    if OTHERS.contains(&architecture) {
        let file = GgufFile::from_bytes("memory", every::write(architecture, false)).unwrap();
        return Gguf::from_parts(vec![file]).unwrap();
    }
    let mut made = Made { writer: Writer::new(), architecture, seed };
    made.writer.value("general.architecture", architecture);
    made.key("block_count", 3u32);
    made.key("embedding_length", WIDTH as u32);
    made.key("context_length", context);
    made.key("attention.head_count", 4u32);
    made.key("attention.head_count_kv", 2u32);
    made.key("attention.layer_norm_rms_epsilon", 1e-5f32);
    made.weights("token_embd.weight", &[WIDTH, VOCAB]);
    if untied {
        made.seed -= 1;
        made.weights("output.weight", &[WIDTH, VOCAB]);
    }
    made.floats("output_norm.weight", &[WIDTH], 1.0);
    let gemma = architecture == "gemma3";
    let experts = architecture == "qwen3moe";
    if gemma {
        made.key("attention.sliding_window", 20u32);
        made.key("attention.sliding_window_pattern", 2u32);
    }
    if experts {
        made.key("expert_count", 8u32);
        made.key("expert_used_count", 2u32);
    }
    for block in 0..3 {
        let name = |stem: &str| format!("blk.{block}.{stem}.weight");
        made.floats(&name("attn_norm"), &[WIDTH], 1.0);
        made.weights(&name("attn_q"), &[WIDTH, 256]);
        made.weights(&name("attn_k"), &[WIDTH, 128]);
        made.weights(&name("attn_v"), &[WIDTH, 128]);
        made.weights(&name("attn_output"), &[256, WIDTH]);
        made.floats(&name("ffn_norm"), &[WIDTH], 1.0);
        if gemma || experts {
            made.floats(&name("attn_q_norm"), &[64], 1.0);
            made.floats(&name("attn_k_norm"), &[64], 1.0);
        }
        if gemma {
            made.floats(&name("post_attention_norm"), &[WIDTH], 1.0);
            made.floats(&name("post_ffw_norm"), &[WIDTH], 1.0);
        }
        if experts {
            made.floats(&name("ffn_gate_inp"), &[WIDTH, 8], 0.0);
            made.weights(&name("ffn_gate_exps"), &[WIDTH, 128, 8]);
            made.weights(&name("ffn_up_exps"), &[WIDTH, 128, 8]);
            made.weights(&name("ffn_down_exps"), &[128, WIDTH, 8]);
        } else {
            made.weights(&name("ffn_gate"), &[WIDTH, 384]);
            made.weights(&name("ffn_up"), &[WIDTH, 384]);
            made.weights(&name("ffn_down"), &[384, WIDTH]);
        }
    }
    let file = GgufFile::from_bytes("memory", made.writer.to_bytes().unwrap()).unwrap();
    Gguf::from_parts(vec![file]).unwrap()
}

pub fn cpu(threads: usize) -> Box<dyn Backend> {
    Box::new(CpuBackend::new(CpuOptions { threads: Some(threads), isa: None }).unwrap())
}

pub fn load(architecture: &'static str, backend: &dyn Backend) -> Model {
    Model::load(&made(architecture), None, backend, &mut |_| ()).unwrap()
}

pub fn ids(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|at| ((at * 7 + at * at * 3 + seed * 11) % VOCAB as usize) as u32).collect()
}

pub fn tokens(ids: &[u32], sequence: usize) -> Vec<Token> {
    ids.iter().map(|&id| Token { id, sequence, logits: true }).collect()
}

pub fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|value| value.to_bits()).collect()
}

pub fn space(chunk: usize) -> Space {
    Space::new(CONTEXT as usize).in_chunks_of(chunk)
}

/// Architectures that are tried: dense; with a window in two of three blocks; of experts; over a compressed
/// row in both forms; and with states.
pub const ALL: [&str; 9] = [
    "llama", "gemma3", "qwen3moe", OTHERS[0], OTHERS[1], OTHERS[2], OTHERS[3], OTHERS[4], OTHERS[5],
];

/// Those of them that are written as [`every`] writes them.
const OTHERS: [&str; 6] =
    ["deepseek2", "deepseek2:joint", "lfm2moe", "qwen3next", "qwen3next:old", "qwen35moe"];

/// Whether blocks keep a state of all tokens, and no more of each than that.
pub fn has_states(architecture: &str) -> bool {
    OTHERS[2..].contains(&architecture)
}
