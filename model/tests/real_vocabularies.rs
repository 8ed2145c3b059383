//! Ids of real vocabularies, equal to llama.cpp's (`tests/vectors`: llama-cpp-python 0.3.36).
//!
//! `STRATA_SMOLLM2` and `STRATA_GEMMA3` name the models; `scripts/fetch-smollm2.sh` and
//! `scripts/fetch-gemma3.sh` fetch them.

use strata_core::gguf::Gguf;
use strata_model::tokenizer::{Kind, Tokenizer};

fn tokenizer(variable: &str, script: &str) -> Option<Tokenizer> {
    match std::env::var(variable).ok().filter(|path| !path.is_empty()) {
        Some(path) => {
            let gguf = Gguf::open(path).expect("the model opens");
            Some(Tokenizer::load(&gguf).expect("the tokenizer is read"))
        }
        None => {
            println!("skipped: {variable} is not set; {script} fetches the model");
            None
        }
    }
}

fn ids(value: &serde_json::Value) -> Vec<u32> {
    let ids = value.as_array().expect("ids");
    ids.iter().map(|id| id.as_u64().expect("an id") as u32).collect()
}

fn equal_to_vectors(tokenizer: &Tokenizer, vectors: &str) {
    let vectors: serde_json::Value = serde_json::from_str(vectors).expect("vectors");
    let vectors = vectors.as_array().expect("a list");
    assert!(vectors.len() >= 10);
    for vector in vectors {
        let text = vector["text"].as_str().expect("a text");
        let plain = tokenizer.encode(text, false).expect("ids");
        let special = tokenizer.encode(text, true).expect("ids");
        assert_eq!(special, ids(&vector["special"]), "{text:?}");
        assert_eq!(plain, ids(&vector["ids"]), "{text:?}");
        assert_eq!(tokenizer.decode(&plain), text);
        let control = |id: &u32| tokenizer.kind(*id) == Some(Kind::Control);
        assert!(!plain.iter().any(control), "{text:?}: {plain:?}");
    }
}

#[test]
fn smollm2() {
    let Some(tokenizer) = tokenizer("STRATA_SMOLLM2", "scripts/fetch-smollm2.sh") else { return };
    equal_to_vectors(&tokenizer, include_str!("vectors/smollm2.json"));
    assert!(!tokenizer.adds_bos());
    assert!(tokenizer.is_end(tokenizer.id("<|im_end|>").expect("a word")));
}

#[test]
fn gemma3() {
    let Some(tokenizer) = tokenizer("STRATA_GEMMA3", "scripts/fetch-gemma3.sh") else { return };
    equal_to_vectors(&tokenizer, include_str!("vectors/gemma3.json"));
    assert!(tokenizer.adds_bos());
    assert!(tokenizer.is_end(tokenizer.id("<end_of_turn>").expect("a word")));
    assert!(!tokenizer.selectable(tokenizer.id("<unused0>").expect("a word")));
}
