//! Small vocabularies, as GGUF files in memory.

use strata_core::gguf::{Gguf, GgufFile, MetaValue, ValueType, Writer};
use strata_model::tokenizer::Tokenizer;

/// The alphabet of byte-level vocabularies.
fn alphabet() -> Vec<String> {
    let printable = |byte: u32| matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff);
    let mut next = 0xff;
    let character = |byte| match printable(byte) {
        true => byte,
        false => {
            next += 1;
            next
        }
    };
    let codes: Vec<u32> = (0..256).map(character).collect();
    codes.into_iter().map(|code| char::from_u32(code).unwrap().to_string()).collect()
}

/// A vocabulary to be written.
pub struct Vocabulary {
    pub model: &'static str,
    pub pre: Option<&'static str>,
    pub words: Vec<(String, i32, f32)>,
    pub merges: Option<Vec<&'static str>>,
    pub values: Vec<(&'static str, MetaValue)>,
}

impl Vocabulary {
    /// All bytes, the merges and their words, then control tokens.
    pub fn gpt2(merges: &[&'static str], others: &[(&str, i32)]) -> Self {
        let mut words: Vec<_> = alphabet().into_iter().map(|text| (text, 1, 0.0)).collect();
        words.extend(merges.iter().map(|merge| (merge.replacen(' ', "", 1), 1, 0.0)));
        words.extend(others.iter().map(|(text, kind)| ((*text).to_owned(), *kind, 0.0)));
        let merges = Some(merges.to_vec());
        Self { model: "gpt2", pre: Some("gpt-2"), words, merges, values: Vec::new() }
    }

    /// `<unk>`, `<s>`, `</s>`, the bytes but those left out, then words by score.
    pub fn llama(but: &[u8], scored: &[(&str, f32)], others: &[(&str, i32)]) -> Self {
        let mut words: Vec<(String, i32, f32)> =
            [("<unk>", 2), ("<s>", 3), ("</s>", 3)].map(|(t, k)| (t.to_owned(), k, 0.0)).into();
        let bytes = (0..=255u8).filter(|byte| !but.contains(byte));
        words.extend(bytes.map(|byte| (format!("<0x{byte:02X}>"), 6, 0.0)));
        words.extend(scored.iter().map(|(text, score)| ((*text).to_owned(), 1, *score)));
        words.extend(others.iter().map(|(text, kind)| ((*text).to_owned(), *kind, 0.0)));
        Self { model: "llama", pre: None, words, merges: None, values: Vec::new() }
    }

    pub fn with(mut self, key: &'static str, value: impl Into<MetaValue>) -> Self {
        self.values.push((key, value.into()));
        self
    }

    pub fn gguf(&self) -> Gguf {
        let strings = |list: Vec<MetaValue>| MetaValue::Array(ValueType::String, list);
        let mut writer = Writer::new();
        writer.value("general.architecture", "llama");
        writer.value("tokenizer.ggml.model", self.model);
        if let Some(pre) = self.pre {
            writer.value("tokenizer.ggml.pre", pre);
        }
        let words = self.words.iter();
        writer.value(
            "tokenizer.ggml.tokens",
            strings(words.clone().map(|word| word.0.as_str().into()).collect()),
        );
        let kinds = words.clone().map(|word| MetaValue::I32(word.1)).collect();
        writer.value("tokenizer.ggml.token_type", MetaValue::Array(ValueType::I32, kinds));
        if self.model == "llama" {
            let scores = words.map(|word| word.2.into()).collect();
            writer.value("tokenizer.ggml.scores", MetaValue::Array(ValueType::F32, scores));
        }
        if let Some(merges) = &self.merges {
            let merges = merges.iter().map(|&merge| merge.into()).collect();
            writer.value("tokenizer.ggml.merges", strings(merges));
        }
        for (key, value) in &self.values {
            writer.value(*key, value.clone());
        }
        let bytes = writer.to_bytes().unwrap();
        Gguf::from_parts(vec![GgufFile::from_bytes("memory", bytes).unwrap()]).unwrap()
    }

    pub fn load(&self) -> strata_core::Result<Tokenizer> {
        Tokenizer::load(&self.gguf())
    }

    pub fn tokenizer(&self) -> Tokenizer {
        self.load().unwrap()
    }
}

/// The texts of ids, as the vocabulary has them.
pub fn texts(tokenizer: &Tokenizer, ids: &[u32]) -> Vec<String> {
    ids.iter().map(|&id| tokenizer.token(id).unwrap().into_owned()).collect()
}

/// A small generator for tests: numbers that only have to differ.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % end
    }
}
