//! Byte-pair encoding over bytes, as GPT-2 does it.

use std::collections::HashMap;

use strata_core::gguf::Gguf;
use strata_core::{Error, Result};

use super::merge::Merger;
use super::split::{self, Splitter};
use super::vocab::{Kind, Vocab, array, key};
use super::{bytes, uncovered};

/// Byte-pair encoding over bytes.
pub(super) struct Gpt2 {
    splitter: Splitter,
    ignore_merges: bool,
    /// The symbol of every byte. Symbols below the number of words are words.
    symbols: [u32; 256],
    /// Rank and merged symbol of a pair of symbols.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Words by their bytes.
    words: HashMap<Box<[u8]>, u32>,
    count: u32,
}

impl Gpt2 {
    /// Reads the words; returns the bytes of each too.
    pub fn load(gguf: &Gguf, vocab: &Vocab, pre: split::Pre) -> Result<(Self, Vec<Box<[u8]>>)> {
        let alphabet = bytes::alphabet();
        let count = vocab.texts.len() as u32;
        let mut words = HashMap::with_capacity(vocab.texts.len());
        let mut pieces = Vec::with_capacity(vocab.texts.len());
        for (id, (text, kind)) in (0..count).zip(vocab.texts.iter().zip(&vocab.kinds)) {
            let (piece, reached) = match (kind, vocab.byte(id)) {
                (Kind::Byte, Some(byte)) => ([byte].into(), true),
                (Kind::Normal | Kind::Byte, _) => bytes::decode(text, &alphabet),
                (Kind::UserDefined, _) => (text.clone(), false),
                (Kind::Unknown | Kind::Control | Kind::Unused, _) => (Box::default(), false),
            };
            // A word in plain text is no result of a merge: it is shown, and never made.
            if reached && !piece.is_empty() {
                words.entry(piece.clone()).or_insert(id);
            }
            pieces.push(piece);
        }

        // Merges may pass through texts that are no words: those get symbols past the words.
        let mut others: HashMap<Box<[u8]>, u32> = HashMap::new();
        let mut symbol = |text: &[u8]| -> u32 {
            if let Some(&id) = words.get(text) {
                return id;
            }
            let next = count + others.len() as u32;
            *others.entry(text.into()).or_insert(next)
        };
        let symbols = std::array::from_fn(|byte| symbol(&[byte as u8]));
        let merges_key = key("merges");
        let list = array(gguf, &merges_key, "strings of UTF-8", |value| value.as_str())?
            .ok_or_else(|| {
                Error::invalid(&merges_key, "nothing", "the merges, which a gpt2 vocabulary needs")
            })?;
        let mut merges = HashMap::with_capacity(list.len());
        for (rank, text) in (0u32..).zip(list) {
            // The first space after the first character: a left part may begin with one.
            let first = text.chars().next().map_or(0, char::len_utf8);
            let cut = text[first..].find(' ').map(|at| at + first);
            let Some((left, right)) = cut.map(|at| (&text[..at], &text[at + 1..])) else {
                let field = format!("{merges_key}[{rank}]");
                return Err(Error::invalid(field, text.escape_debug(), "two parts and a space"));
            };
            let (left, _) = bytes::decode(left.as_bytes(), &alphabet);
            let (right, _) = bytes::decode(right.as_bytes(), &alphabet);
            let merged = symbol(&[&*left, &*right].concat());
            let pair = (symbol(&left), symbol(&right));
            merges.entry(pair).or_insert((rank, merged));
        }
        let splitter = Splitter::new(pre)?;
        let ignore_merges = pre.ignore_merges;
        Ok((Self { splitter, ignore_merges, symbols, merges, words, count }, pieces))
    }

    /// Appends the ids of a text without special words.
    pub fn encode(&self, text: &str, vocab: &Vocab, out: &mut Vec<u32>) -> Result<()> {
        let mut merger = Merger::<u32>::new();
        for piece in self.splitter.pieces(text) {
            let bytes = piece.as_bytes();
            if (self.ignore_merges || bytes.len() == 1)
                && let Some(&id) = self.words.get(bytes)
            {
                out.push(id);
                continue;
            }
            merger.clear();
            for (at, &byte) in bytes.iter().enumerate() {
                merger.push(self.symbols[usize::from(byte)], at, 1);
            }
            merger.run(|left, right| self.merges.get(&(left.id, right.id)).copied());
            for symbol in merger.rest() {
                if symbol.id < self.count {
                    out.push(symbol.id);
                    continue;
                }
                for &byte in &bytes[symbol.range()] {
                    let id = self.symbols[usize::from(byte)];
                    let id = Some(id).filter(|&id| id < self.count).or(vocab.unknown);
                    out.push(id.ok_or_else(|| uncovered(byte))?);
                }
            }
        }
        Ok(())
    }
}
