//! Whole models that are written here, on the CPU: what a token's logits depend on, and what not.

use strata_core::backend::Backend;
use strata_core::format::random::random_blocks;
use strata_core::gguf::{Gguf, GgufFile, TensorType, Writer};
use strata_core::{Result, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_model::{Model, Session, Space, Token};

const WIDTH: u64 = 256;
const VOCAB: u64 = 60;
const CONTEXT: u32 = 200;

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
fn made(architecture: &'static str) -> Gguf {
    let mut made = Made { writer: Writer::new(), architecture, seed: 1 };
    made.writer.value("general.architecture", architecture);
    made.key("block_count", 3u32);
    made.key("embedding_length", WIDTH as u32);
    made.key("context_length", CONTEXT);
    made.key("attention.head_count", 4u32);
    made.key("attention.head_count_kv", 2u32);
    made.key("attention.layer_norm_rms_epsilon", 1e-5f32);
    made.weights("token_embd.weight", &[WIDTH, VOCAB]);
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

fn cpu(threads: usize) -> Box<dyn Backend> {
    Box::new(CpuBackend::new(CpuOptions { threads: Some(threads), isa: None }).unwrap())
}

fn load(architecture: &'static str, backend: &dyn Backend) -> Model {
    Model::load(&made(architecture), None, backend, &mut |_| ()).unwrap()
}

fn ids(count: usize, seed: usize) -> Vec<u32> {
    (0..count).map(|at| ((at * 7 + at * at * 3 + seed * 11) % VOCAB as usize) as u32).collect()
}

fn tokens(ids: &[u32], sequence: usize) -> Vec<Token> {
    ids.iter().map(|&id| Token { id, sequence, logits: true }).collect()
}

fn bits(rows: &[Vec<f32>]) -> Vec<u32> {
    rows.iter().flatten().map(|value| value.to_bits()).collect()
}

fn space(chunk: usize) -> Space {
    Space::new(CONTEXT as usize).in_chunks_of(chunk)
}

const ALL: [&str; 3] = ["llama", "gemma3", "qwen3moe"];

#[test]
fn chunks_threads_and_cuts_change_no_byte() {
    let ids = ids(150, 0);
    for architecture in ALL {
        let mut first: Option<Vec<u32>> = None;
        for (chunk, threads) in [(512, 1), (1, 2), (7, 1), (63, 2), (64, 2), (65, 3)] {
            let backend = cpu(threads);
            let model = load(architecture, &*backend);
            let mut session = Session::new(&*backend, &model, space(chunk)).unwrap();
            let logits = session.append(&*backend, &model, &tokens(&ids, 0)).unwrap();
            assert_eq!(logits.len(), ids.len());
            assert!(logits.iter().flatten().all(|value| value.is_finite()), "{architecture}");
            let bits = bits(&logits);
            assert_eq!(
                first.get_or_insert(bits.clone()),
                &bits,
                "{architecture}: {chunk}, {threads}"
            );
        }
        let backend = cpu(2);
        let model = load(architecture, &*backend);
        for cut in [1, 19, 20, 21, 63, 64, 65, 149] {
            let mut session = Session::new(&*backend, &model, space(512)).unwrap();
            let mut logits = session.append(&*backend, &model, &tokens(&ids[..cut], 0)).unwrap();
            logits.extend(session.append(&*backend, &model, &tokens(&ids[cut..], 0)).unwrap());
            assert_eq!(first.as_ref(), Some(&bits(&logits)), "{architecture}: cut at {cut}");
        }
    }
}

#[test]
fn a_token_depends_on_those_before_it_alone() {
    let backend = cpu(2);
    for architecture in ALL {
        let model = load(architecture, &*backend);
        let run = |ids: &[u32]| -> Vec<Vec<f32>> {
            let mut session = Session::new(&*backend, &model, space(512)).unwrap();
            session.append(&*backend, &model, &tokens(ids, 0)).unwrap()
        };
        let base = ids(90, 0);
        let logits = run(&base);
        let mut other = base.clone();
        other[40] = (other[40] + 1) % VOCAB as u32;
        let changed = run(&other);
        assert_eq!(bits(&logits[..40]), bits(&changed[..40]), "{architecture}");
        for at in 40..90 {
            // Two blocks with a window of 20 and a full one between: all that follow see it.
            assert_ne!(bits(&logits[at..=at]), bits(&changed[at..=at]), "{architecture}: {at}");
        }
    }
}

#[test]
fn sequences_are_as_if_alone() {
    let backend = cpu(2);
    for architecture in ALL {
        let model = load(architecture, &*backend);
        let texts = [ids(40, 1), ids(3, 2), ids(70, 3)];
        let alone: Vec<Vec<u32>> = texts
            .iter()
            .map(|text| {
                let mut session = Session::new(&*backend, &model, space(512)).unwrap();
                bits(&session.append(&*backend, &model, &tokens(text, 0)).unwrap())
            })
            .collect();
        let mut session =
            Session::new(&*backend, &model, Space { sequences: 3, ..space(16) }).unwrap();
        // One token of each in turn; only every second one's logits of the last text.
        let mut all = Vec::new();
        for at in 0..70 {
            for (sequence, text) in texts.iter().enumerate() {
                if let Some(&id) = text.get(at) {
                    all.push(Token { id, sequence, logits: sequence < 2 || at % 2 == 0 });
                }
            }
        }
        let mut logits = session.append(&*backend, &model, &all).unwrap().into_iter();
        let mut mixed = [Vec::new(), Vec::new(), Vec::new()];
        for token in all.iter().filter(|token| token.logits) {
            mixed[token.sequence].extend(bits(&[logits.next().unwrap()]));
        }
        assert_eq!(mixed[..2], alone[..2], "{architecture}");
        let vocab = VOCAB as usize;
        let rows = alone[2].chunks(vocab).step_by(2).flatten().copied();
        assert!(rows.eq(mixed[2].iter().copied()), "{architecture}");
        assert_eq!([0, 1, 2].map(|sequence| session.len(sequence)), [40, 3, 70]);
    }
}

#[test]
fn a_sequence_cut_back_goes_on_as_a_fresh_one() {
    let backend = cpu(2);
    for architecture in ALL {
        let model = load(architecture, &*backend);
        let (text, tail) = (ids(130, 1), ids(30, 5));
        for keep in [0, 1, 20, 64, 100] {
            let mut session = Session::new(&*backend, &model, space(512)).unwrap();
            session.append(&*backend, &model, &tokens(&text, 0)).unwrap();
            session.truncate(0, keep).unwrap();
            let logits = session.append(&*backend, &model, &tokens(&tail, 0)).unwrap();
            let mut fresh = Session::new(&*backend, &model, space(512)).unwrap();
            fresh.append(&*backend, &model, &tokens(&text[..keep], 0)).unwrap();
            let expected = fresh.append(&*backend, &model, &tokens(&tail, 0)).unwrap();
            assert_eq!(bits(&logits), bits(&expected), "{architecture}: {keep}");
        }
    }
}

#[test]
fn what_a_session_refuses_changes_nothing() {
    let backend = cpu(1);
    let model = load("llama", &*backend);
    let text = |result: Result<Vec<Vec<f32>>>| result.unwrap_err().to_string();
    let small = Space { context: 10, ..space(4) };
    let mut session = Session::new(&*backend, &model, small).unwrap();
    session.append(&*backend, &model, &tokens(&ids(8, 0), 0)).unwrap();
    let past = tokens(&ids(3, 1), 0);
    let message = text(session.append(&*backend, &model, &past));
    assert!(message.contains("given 11, expected at most 10, the context"), "{message}");
    let message = text(session.append(&*backend, &model, &tokens(&[VOCAB as u32], 0)));
    assert!(message.starts_with("token 0: id: given 60, expected less than 60"), "{message}");
    let message = text(session.append(&*backend, &model, &tokens(&[1], 1)));
    assert!(message.starts_with("token 0: sequence: given 1, expected less than 1"), "{message}");
    assert!(session.truncate(0, 9).is_err() && session.truncate(1, 0).is_err());
    assert_eq!(session.len(0), 8);
    // Up to the last place.
    session.append(&*backend, &model, &past[..2]).unwrap();
    assert_eq!(session.len(0), 10);
    for bad in [Space { context: 0, ..space(4) }, Space { context: 201, ..space(4) }] {
        assert!(Session::new(&*backend, &model, bad).is_err());
    }
    assert!(Session::new(&*backend, &model, Space { sequences: 0, ..space(4) }).is_err());
}
