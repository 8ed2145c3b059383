//! Words that are cut out of a text before anything else: control tokens and user-defined ones.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use strata_core::{Error, Result};

use super::vocab::{Kind, Vocab};

/// Finds special words: leftmost first, of those at one place the longest.
pub(super) struct Specials {
    /// All of them.
    all: Option<AhoCorasick>,
    /// The user-defined ones.
    plain: Option<AhoCorasick>,
    /// Text and id, longest first: for the rare place where the longest is not allowed.
    words: Vec<(Box<[u8]>, u32, bool)>,
    all_ids: Vec<u32>,
    plain_ids: Vec<u32>,
}

/// A part of a text: a special word, or what lies between two.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'t> {
    Word(u32),
    Text(&'t str),
}

impl Specials {
    pub fn new(vocab: &Vocab) -> Result<Self> {
        let mut words: Vec<(Box<[u8]>, u32, bool)> = Vec::new();
        for (id, (text, kind)) in (0..).zip(vocab.texts.iter().zip(&vocab.kinds)) {
            let control = match kind {
                Kind::Control | Kind::Unknown => true,
                Kind::UserDefined => false,
                _ => continue,
            };
            if !text.is_empty() {
                words.push((text.clone(), id, control));
            }
        }
        words.sort_by_key(|word| std::cmp::Reverse(word.0.len()));
        let build = |control: bool| -> Result<(Option<AhoCorasick>, Vec<u32>)> {
            let of = || words.iter().filter(move |word| control || !word.2);
            let ids: Vec<u32> = of().map(|word| word.1).collect();
            if ids.is_empty() {
                return Ok((None, ids));
            }
            let finder = AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .build(of().map(|word| &word.0))
                .map_err(|error| {
                    Error::invalid("tokenizer.ggml.tokens: special words", error, "fewer of them")
                })?;
            Ok((Some(finder), ids))
        };
        let (all, all_ids) = build(true)?;
        let (plain, plain_ids) = build(false)?;
        Ok(Self { all, plain, all_ids, plain_ids, words })
    }

    /// Texts of the control tokens.
    pub fn controls(&self) -> impl Iterator<Item = &[u8]> {
        self.words.iter().filter(|word| word.2).map(|word| &*word.0)
    }

    /// Cuts a text. With `control`, control tokens are cut out too, except across a guard: a
    /// place, in bytes, that no control token may have inside of it. Guards ascend.
    pub fn parts<'t>(&self, text: &'t str, control: bool, guards: &[usize]) -> Vec<Part<'t>> {
        let (finder, ids) = match control {
            true => (&self.all, &self.all_ids),
            false => (&self.plain, &self.plain_ids),
        };
        let mut parts = Vec::new();
        let (mut done, mut at) = (0, 0);
        while let Some(found) = finder
            .as_ref()
            .and_then(|finder| finder.find(aho_corasick::Input::new(text).range(at..)))
        {
            let id = ids[found.pattern().as_usize()];
            let mut word = Some((id, found.range()));
            if control && guarded(guards, &found.range()) && self.is_control(id) {
                word = self.allowed(text, found.start(), guards);
            }
            // Words that are no UTF-8 may match within a character: they are no text then.
            let whole = |range: &Range<usize>| {
                text.is_char_boundary(range.start) && text.is_char_boundary(range.end)
            };
            match word.filter(|(_, range)| whole(range)) {
                Some((id, range)) => {
                    if range.start > done {
                        parts.push(Part::Text(&text[done..range.start]));
                    }
                    parts.push(Part::Word(id));
                    (done, at) = (range.end, range.end);
                }
                None => at = found.start() + 1,
            }
        }
        if done < text.len() {
            parts.push(Part::Text(&text[done..]));
        }
        parts
    }

    fn is_control(&self, id: u32) -> bool {
        self.words.iter().any(|word| word.1 == id && word.2)
    }

    /// The longest word at a place that no guard forbids.
    fn allowed(&self, text: &str, start: usize, guards: &[usize]) -> Option<(u32, Range<usize>)> {
        let bytes = text.as_bytes().get(start..)?;
        self.words.iter().find_map(|(word, id, control)| {
            let range = start..start + word.len();
            let fits = bytes.starts_with(word) && !(*control && guarded(guards, &range));
            fits.then_some((*id, range))
        })
    }
}

/// Whether a guard lies inside of a range.
fn guarded(guards: &[usize], range: &Range<usize>) -> bool {
    let next = guards.partition_point(|&guard| guard <= range.start);
    guards.get(next).is_some_and(|&guard| guard < range.end)
}
