//! One answer: the logits behind a prompt and the greedy text after it, whatever way they are computed.
//!
//! `cargo test -p strata-model --test one_answer -- --ignored --nocapture` runs the long ones, which
//! print what they found; `STRATA_SMOLLM2` is the real model (`scripts/fetch-smollm2.sh`).

mod made;

use std::time::Instant;

use made::{CONTEXT, ids, made, with_context};
use sha2::{Digest, Sha256};
use strata_core::backend::Backend;
use strata_core::gguf::Gguf;
use strata_core::prefill::QuantMode;
use strata_cpu::{CpuBackend, CpuOptions, Isa};
use strata_model::sample::{Options, Sampler};
use strata_model::{Model, Session, Space, State, Token};

/// New tokens of an answer.
const NEW: usize = 32;
/// Sequences where there are others.
const SEQUENCES: usize = 8;

/// How an answer is computed.
#[derive(Debug, Clone, Copy)]
struct Way {
    chunk: usize,
    threads: usize,
    isa: Option<Isa>,
    quant: QuantMode,
    /// Seven other sequences go through the model with it, a token of each in turn.
    others: bool,
    /// The prompt is read in two parts, the second from a saved state and in another session.
    resumed: bool,
}

const PLAIN: Way = Way {
    chunk: usize::MAX,
    threads: 2,
    isa: None,
    quant: QuantMode::Scatter,
    others: false,
    resumed: false,
};

/// What is the same for all: the checksum of the first new token's logits, and the tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    checksum: String,
    tokens: Vec<u32>,
}

fn answer(gguf: &Gguf, prompt: &[u32], way: Way) -> Answer {
    let options = CpuOptions { threads: Some(way.threads), isa: way.isa };
    let backend: &dyn Backend = &CpuBackend::new(options).unwrap();
    let model = Model::load(gguf, None, backend, &mut |_| ()).unwrap();
    let session = || {
        let context = prompt.len() + NEW;
        let mut space = Space::new(context).in_chunks_of(way.chunk.min(context));
        space.options.quant = way.quant;
        space.sequences = if way.others { SEQUENCES } else { 1 };
        Session::new(backend, &model, space).unwrap()
    };
    let own = if way.others { 3 } else { 0 };
    let token = |id: u32, logits| Token { id, sequence: own, logits };
    let mut now = session();
    let read: Vec<Token> = prompt[..prompt.len() - 1].iter().map(|&id| token(id, false)).collect();
    let last = token(prompt[prompt.len() - 1], true);
    if way.resumed {
        let (first, second) = read.split_at(read.len() / 2);
        now.append(backend, &model, first).unwrap();
        let bytes = now.save(backend, &model, own, 0).unwrap();
        now = session();
        now.restore(backend, &model, own, &State::read(&bytes).unwrap()).unwrap();
        now.append(backend, &model, second).unwrap();
    } else if way.others {
        // Others of all lengths: some end soon, one begins when half of this one is read.
        let mut all = Vec::new();
        for (at, &own) in read.iter().enumerate() {
            for sequence in (0..SEQUENCES).filter(|&sequence| sequence != 3) {
                let from = if sequence == 7 { prompt.len() / 2 } else { 0 };
                let to = prompt.len() / (1 + sequence);
                if (from..to.max(from + 5)).contains(&at) {
                    let id = prompt[(at * 3 + sequence * 7) % prompt.len()];
                    all.push(Token { id, sequence, logits: at % 50 == sequence });
                }
            }
            all.push(own);
        }
        now.append(backend, &model, &all).unwrap();
    } else {
        now.append(backend, &model, &read).unwrap();
    }
    let mut logits = now.append(backend, &model, &[last]).unwrap().pop().unwrap();
    let checksum = Sha256::digest(bytemuck::cast_slice(&logits));
    let checksum = checksum.iter().map(|byte| format!("{byte:02x}")).collect();
    let sampler = Sampler::new(Options::default()).unwrap();
    let mut tokens = Vec::new();
    while tokens.len() < NEW {
        let id = sampler.choose(&logits, |_| true, prompt.len() + tokens.len(), 0).unwrap();
        tokens.push(id);
        let mut step = vec![token(id, true)];
        if way.others {
            // A short neighbour goes on beside it.
            step.insert(0, Token { id: prompt[tokens.len()], sequence: 6, logits: true });
        }
        logits = now.append(backend, &model, &step).unwrap().pop().unwrap();
    }
    Answer { checksum, tokens }
}

/// All ways give one answer, which is returned.
fn one(what: &str, gguf: &Gguf, prompt: &[u32], ways: &[Way]) -> Answer {
    let mut first: Option<Answer> = None;
    for &way in ways {
        let start = Instant::now();
        let found = answer(gguf, prompt, way);
        let seconds = start.elapsed().as_secs_f64();
        println!(
            "{what}, {} tokens: {} in {seconds:.1} s by {way:?}",
            prompt.len(),
            found.checksum
        );
        assert_eq!(first.get_or_insert(found.clone()), &found, "{what}: {way:?}");
    }
    let answer = first.unwrap();
    println!(
        "{what}, {} tokens: {} ways, one answer: {:?}",
        prompt.len(),
        ways.len(),
        answer.tokens
    );
    answer
}

fn chunks() -> impl Iterator<Item = Way> {
    [usize::MAX, 1, 7, 512].into_iter().map(|chunk| Way { chunk, ..PLAIN })
}

fn every_way() -> Vec<Way> {
    let mut ways: Vec<Way> = chunks().collect();
    ways.extend(QuantMode::ALL.map(|quant| Way { quant, chunk: 64, ..PLAIN }));
    ways.extend([1, 3].map(|threads| Way { threads, ..PLAIN }));
    ways.extend(Isa::supported().map(|isa| Way { isa: Some(isa), ..PLAIN }));
    ways.push(Way { others: true, ..PLAIN });
    ways.push(Way { others: true, chunk: 5, ..PLAIN });
    ways.push(Way { resumed: true, ..PLAIN });
    ways.push(Way { resumed: true, chunk: 7, quant: QuantMode::Gather, threads: 1, ..PLAIN });
    ways
}

#[test]
fn small_models_have_one_answer() {
    let mut answers = Vec::new();
    for architecture in made::ALL {
        let prompt = ids(CONTEXT as usize - NEW - 1, 4);
        answers.push(one(architecture, &made(architecture), &prompt, &every_way()));
    }
    assert!(answers[0] != answers[1] && answers[1] != answers[2] && answers[0] != answers[2]);
}

/// Tokens of some text in which words come again.
fn text(count: usize, vocab: usize) -> Vec<u32> {
    let mut state = 1u64;
    let mut next = move |end: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % end
    };
    let words: Vec<u32> = (0..300).map(|_| (100 + next(vocab - 100)) as u32).collect();
    (0..count).map(|_| words[next(300).min(next(300))]).collect()
}

fn smollm2() -> Option<Gguf> {
    let path = std::env::var_os("STRATA_SMOLLM2").filter(|path| !path.is_empty());
    if path.is_none() {
        println!("skipped: STRATA_SMOLLM2 is not set; scripts/fetch-smollm2.sh fetches the model");
    }
    path.map(|path| Gguf::open(path).unwrap())
}

#[test]
fn a_real_model_has_one_answer() {
    let Some(gguf) = smollm2() else { return };
    let ways = [
        PLAIN,
        Way { chunk: 7, ..PLAIN },
        Way { chunk: 16, threads: 1, ..PLAIN },
        Way { others: true, chunk: 64, ..PLAIN },
        Way { resumed: true, ..PLAIN },
    ];
    one("SmolLM2", &gguf, &text(70, 49152), &ways);
}

#[test]
#[ignore = "minutes to an hour: run by hand, docs/models.md has the results"]
fn a_real_model_has_one_answer_at_600_2000_and_8000_tokens() {
    let Some(gguf) = smollm2() else { return };
    for length in [600, 2000, 8000] {
        let mut ways = vec![Way { chunk: 512, ..PLAIN }, PLAIN];
        ways.push(Way { resumed: true, chunk: 512, ..PLAIN });
        ways.push(Way { threads: 1, chunk: 512, ..PLAIN });
        ways.push(Way { others: true, chunk: 512, ..PLAIN });
        // The plain code is many times slower, and attention grows with the square.
        let sets = Isa::supported().filter(|&isa| length < 8000 || isa != Isa::Plain);
        ways.extend(sets.map(|isa| Way { isa: Some(isa), chunk: 512, ..PLAIN }));
        ways.extend([7, 1].map(|chunk| Way { chunk, ..PLAIN }));
        one("SmolLM2", &gguf, &text(length, 49152), &ways);
    }
}

#[test]
#[ignore = "minutes: run by hand, docs/models.md has the results"]
fn a_small_model_has_one_answer_at_32000_tokens() {
    let gguf = with_context("qwen3moe", 1, 33_000);
    let mut ways = vec![Way { chunk: 512, ..PLAIN }, PLAIN];
    ways.extend([QuantMode::Gather, QuantMode::Indexed].map(|quant| Way {
        quant,
        chunk: 512,
        ..PLAIN
    }));
    ways.push(Way { resumed: true, chunk: 512, ..PLAIN });
    ways.push(Way { threads: 1, chunk: 512, ..PLAIN });
    ways.extend([7, 1].map(|chunk| Way { chunk, ..PLAIN }));
    one("a made-up qwen3moe", &gguf, &ids(32_000, 4), &ways);
}
