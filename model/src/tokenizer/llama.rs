//! Byte-pair encoding over characters by scores, as SentencePiece does it.

use std::collections::HashMap;

use strata_core::gguf::Gguf;
use strata_core::{Error, Result};

use super::merge::Merger;
use super::vocab::{Kind, Vocab, array, key};
use super::{SPACE, uncovered};

/// Byte-pair encoding over characters, by scores.
pub(super) struct Llama {
    /// Word and rank of a text; the smaller rank is the higher score.
    words: HashMap<Box<[u8]>, (u32, i64)>,
    /// The most bytes of a word.
    longest: u32,
    bytes: [Option<u32>; 256],
}

/// A symbol of a llama text that is no word.
const NO_WORD: u32 = u32::MAX;

impl Llama {
    /// Reads the words; returns the bytes of each too.
    pub fn load(gguf: &Gguf, vocab: &Vocab) -> Result<(Self, Vec<Box<[u8]>>)> {
        let scores_key = key("scores");
        let scores = array(gguf, &scores_key, "f32", |value| value.as_f32())?;
        let scores = scores.unwrap_or_else(|| vec![0.0; vocab.texts.len()]);
        if scores.len() != vocab.texts.len() {
            let expected = format!("{}, one for each word", vocab.texts.len());
            return Err(Error::invalid(scores_key, scores.len(), expected));
        }
        if let Some(at) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::invalid(format!("{scores_key}[{at}]"), "NaN", "a number"));
        }
        let mut words = HashMap::with_capacity(vocab.texts.len());
        let mut pieces = Vec::with_capacity(vocab.texts.len());
        let mut bytes = [None; 256];
        let mut longest = 0;
        for (id, (text, kind)) in (0u32..).zip(vocab.texts.iter().zip(&vocab.kinds)) {
            let at = id as usize;
            let mut piece: Box<[u8]> = Box::default();
            match kind {
                Kind::Normal | Kind::UserDefined => {
                    piece = match std::str::from_utf8(text) {
                        Ok(text) => text.replace(SPACE, " ").into_bytes().into(),
                        Err(_) => text.clone(),
                    };
                    if !text.is_empty() {
                        // Ranks ascend as scores descend; -0 is 0.
                        let rank = -i64::from(ordered(scores[at] + 0.0));
                        words.insert(text.clone(), (id, rank));
                        longest = longest.max(text.len() as u32);
                    }
                }
                Kind::Byte => {
                    if let Some(byte) = vocab.byte(id) {
                        piece = [byte].into();
                        bytes[usize::from(byte)] = Some(id);
                    }
                }
                Kind::Unknown | Kind::Control | Kind::Unused => {}
            }
            pieces.push(piece);
        }
        Ok((Self { words, longest, bytes }, pieces))
    }

    /// Appends the ids of a text without special words.
    pub fn encode(&self, text: &str, vocab: &Vocab, out: &mut Vec<u32>) -> Result<()> {
        let bytes = text.as_bytes();
        let word = |text: &[u8]| self.words.get(text).copied();
        let mut merger = Merger::<i64>::new();
        for (at, character) in text.char_indices() {
            let len = character.len_utf8();
            let id = word(&bytes[at..at + len]).map_or(NO_WORD, |(id, _)| id);
            merger.push(id, at, len);
        }
        merger.run(|left, right| {
            if left.len + right.len > self.longest {
                return None;
            }
            let (id, rank) = word(&bytes[left.range().start..right.range().end])?;
            Some((rank, id))
        });
        for symbol in merger.rest() {
            if symbol.id != NO_WORD {
                out.push(symbol.id);
                continue;
            }
            // One character that is no word: its bytes, or one unknown word for all of them.
            let character = &bytes[symbol.range()];
            let ids: Option<Vec<u32>> =
                character.iter().map(|&byte| self.bytes[usize::from(byte)]).collect();
            match (ids, vocab.unknown) {
                (Some(ids), _) => out.extend(ids),
                (None, Some(unknown)) => out.push(unknown),
                (None, None) => {
                    let missing = |byte: &&u8| self.bytes[usize::from(**byte)].is_none();
                    let byte = character.iter().find(missing).copied().unwrap_or_default();
                    return Err(uncovered(byte));
                }
            }
        }
        Ok(())
    }
}

/// A float's place in the order of all floats that are no NaN.
fn ordered(x: f32) -> i32 {
    let bits = x.to_bits() as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}
