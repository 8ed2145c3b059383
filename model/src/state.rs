//! A sequence as bytes: taken out of a session, and into one of another process, backend or placement.
//!
//! One form for all, little-endian, whatever pages and planes a backend has:
//!
//! | what | as |
//! |---|---|
//! | `STRATAKV`, version | 8 bytes, u32 |
//! | the model's [fingerprint](Model::fingerprint) | 32 bytes |
//! | random numbers drawn | u64 |
//! | tokens | u64, then an id each, u32 |
//! | logits behind the last token, if they were asked for | u32 (0 or the vocabulary), then f32 each |
//! | blocks | u32 |
//! | for each block: heads, values of a key, values of a value | u32 each, 0 where it keeps none |
//! | for each token of a block, each head | high and low digits of the key, its scale; the same of the value |
//! | where a block has states, and there are tokens: each state | f32 each |
//! | SHA-256 of all that | 32 bytes |

use sha2::{Digest, Sha256};
use strata_core::attention::{PAGE, PageLayout};
use strata_core::backend::Backend;
use strata_core::{Error, Result, host_vec};

use crate::mixer::Kept;
use crate::model::Model;
use crate::session::Session;

const MAGIC: &[u8; 8] = b"STRATAKV";
/// Goes up with the form, and with every change of numerics that changes what is kept.
const VERSION: u32 = 1;
const DIGEST: usize = 32;

/// A saved sequence, whose bytes are known to be whole.
#[derive(Debug, Clone)]
pub struct State<'a> {
    fingerprint: &'a [u8],
    drawn: u64,
    ids: Vec<u32>,
    logits: Vec<f32>,
    blocks: &'a [u8],
}

impl<'a> State<'a> {
    /// Reads what [`Session::save`] wrote.
    ///
    /// # Errors
    /// [`Error::Invalid`] for bytes that are no saved state, are not whole, or are of another
    /// version.
    pub fn read(bytes: &'a [u8]) -> Result<Self> {
        let mut from = Reader { rest: whole(bytes)? };
        let fingerprint = from.take(DIGEST)?;
        let drawn = from.u64()?;
        let tokens = usize::try_from(from.u64()?).map_err(|_| cut_short())?;
        let ids = from.words(tokens)?;
        let logits = from.u32()? as usize;
        let logits = from.words(logits)?.into_iter().map(f32::from_bits).collect();
        Ok(Self { fingerprint, drawn, ids, logits, blocks: from.rest })
    }

    /// The sequence's tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.ids
    }

    /// Random numbers drawn, as was said when it was saved.
    pub fn drawn(&self) -> u64 {
        self.drawn
    }
}

impl Session {
    /// A sequence as bytes, for [`State::read`]: its tokens, what the blocks keep of them, and the
    /// logits behind the last one where they were asked for. `drawn` is handed back as it is:
    /// random numbers that the sequence has used, where tokens are drawn.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a sequence that there is not; [`Error::OutOfMemory`]; those of the
    /// backend.
    pub fn save(
        &self,
        backend: &dyn Backend,
        model: &Model,
        sequence: usize,
        drawn: u64,
    ) -> Result<Vec<u8>> {
        let ids = self.tokens(sequence)?;
        let logits = self.logits(sequence).unwrap_or_default();
        let layouts: Vec<PageLayout> = self.kept.iter().map(Kept::layout).collect();
        let states = self.state_bytes(ids.len());
        let all = size(&layouts, ids.len(), logits.len()).and_then(|all| all.checked_add(states?));
        let mut out = host_vec::<u8>(all.ok_or_else(|| too_long(ids.len()))?)?;
        let mut to = Writer { out: &mut out, at: 0 };
        to.put(MAGIC);
        to.put(&VERSION.to_le_bytes());
        to.put(model.fingerprint());
        to.put(&drawn.to_le_bytes());
        to.put(&(ids.len() as u64).to_le_bytes());
        ids.iter().for_each(|id| to.put(&id.to_le_bytes()));
        to.put(&(logits.len() as u32).to_le_bytes());
        logits.iter().for_each(|logit| to.put(&logit.to_le_bytes()));
        to.put(&(layouts.len() as u32).to_le_bytes());
        for (kept, layout) in self.kept.iter().zip(&layouts) {
            for number in [layout.kv_heads, layout.key, layout.value] {
                to.put(&(number as u32).to_le_bytes());
            }
            if let Some(cache) = &kept.cache {
                let pages = self.pages_of(sequence, ids.len(), layout.bytes());
                let pages = backend.download(cache.data().slice(pages)?)?;
                for position in 0..ids.len() {
                    for head in 0..layout.kv_heads {
                        to.row(&pages, layout, position, head);
                    }
                }
            }
            for states in kept.states.iter().filter(|_| !ids.is_empty()) {
                if states.length(sequence).map(|length| length as usize) != Some(ids.len()) {
                    let given = "a sequence that a failed call has left half way";
                    return Err(invalid(given, "a whole one"));
                }
                let values = backend.download(states.slot(sequence)?)?;
                values.iter().for_each(|value| to.put(&value.to_le_bytes()));
            }
        }
        let digest = Sha256::digest(&to.out[..to.at]);
        to.put(&digest);
        Ok(out)
    }

    /// Makes a sequence what it was when it was [saved](Self::save). What the sequence held before
    /// is gone, unless this fails.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a state of another model, or of more tokens than the context: the
    /// sequence is then as before. After any other error it is empty.
    pub fn restore(
        &mut self,
        backend: &dyn Backend,
        model: &Model,
        sequence: usize,
        state: &State<'_>,
    ) -> Result<()> {
        self.tokens(sequence)?;
        let State { fingerprint, ids, logits, blocks, .. } = state;
        if *fingerprint != model.fingerprint() {
            return Err(invalid("one of another model", "one of this model"));
        }
        let (tokens, context) = (ids.len(), self.space().context);
        if tokens > context {
            let given = format!("{tokens} tokens");
            return Err(invalid(given, format!("at most {context}, the context")));
        }
        let vocab = model.config().vocab;
        if let Some(id) = ids.iter().find(|&&id| id as usize >= vocab) {
            let most = format!("ids below {vocab}, the vocabulary");
            return Err(invalid(format!("id {id}"), most));
        }
        if !logits.is_empty() && logits.len() != vocab {
            let expected = format!("{vocab}, the vocabulary");
            return Err(invalid(format!("{} logits", logits.len()), expected));
        }
        let mut from = Reader { rest: blocks };
        let layouts: Vec<PageLayout> = self.kept.iter().map(Kept::layout).collect();
        let count = from.u32()? as usize;
        let states = self.state_bytes(tokens).ok_or_else(|| too_long(tokens))?;
        let rows = layouts.iter().try_fold(states, |all, layout| {
            all.checked_add(12)?.checked_add(row_bytes(layout).checked_mul(tokens)?)
        });
        if count != layouts.len() || rows != Some(from.rest.len()) {
            return Err(invalid("blocks of other sizes", "those of this model"));
        }
        self.truncate(sequence, 0)?;
        for (at, layout) in layouts.iter().enumerate() {
            for number in [layout.kv_heads, layout.key, layout.value] {
                if from.u32()? as usize != number {
                    return Err(invalid("heads of other sizes", "those of this model"));
                }
            }
            let range = self.pages_of(sequence, tokens, layout.bytes());
            // Zeros where no token is: nothing reads it, and nothing should be left to chance.
            let mut pages = host_vec::<u8>(range.len())?;
            for position in 0..tokens {
                for head in 0..layout.kv_heads {
                    from.row(&mut pages, layout, position, head)?;
                }
            }
            let kept = &mut self.kept[at];
            if let Some(cache) = &mut kept.cache {
                backend.upload(cache.data_mut().slice(range)?, &pages)?;
            }
            for states in kept.states.iter_mut().filter(|_| tokens > 0) {
                let values = from.words(states.values())?;
                let values: Vec<f32> = values.into_iter().map(f32::from_bits).collect();
                states.set(backend, sequence, &values, tokens as u32)?;
            }
        }
        self.set(sequence, ids.clone(), logits.clone());
        Ok(())
    }
}

impl Session {
    /// Bytes of the states of a sequence of so many tokens.
    fn state_bytes(&self, tokens: usize) -> Option<usize> {
        let values = self.kept.iter().map(Kept::state_values).sum::<usize>();
        if tokens > 0 { values.checked_mul(4) } else { Some(0) }
    }
}

/// Bytes of one token in a block.
fn row_bytes(layout: &PageLayout) -> usize {
    layout.kv_heads * (2 * (layout.key + layout.value) + 8)
}

/// Bytes of a state; None where they do not fit.
fn size(layouts: &[PageLayout], tokens: usize, logits: usize) -> Option<usize> {
    let head = MAGIC.len() + 4 + DIGEST + 8 + 8 + 4 + 4 + 4 * logits + DIGEST;
    layouts.iter().try_fold(tokens.checked_mul(4)?.checked_add(head)?, |all, layout| {
        all.checked_add(12)?.checked_add(row_bytes(layout).checked_mul(tokens)?)
    })
}

/// The bytes between version and digest of a state that is whole.
fn whole(state: &[u8]) -> Result<&[u8]> {
    let Some(rest) = state.strip_prefix(MAGIC) else {
        return Err(invalid("bytes that do not begin as one", "one that this program wrote"));
    };
    let (version, rest) = rest.split_first_chunk::<4>().ok_or_else(cut_short)?;
    let version = u32::from_le_bytes(*version);
    if version != VERSION {
        return Err(invalid(format!("version {version}"), format!("version {VERSION}")));
    }
    let (rest, digest) = rest.split_last_chunk::<DIGEST>().ok_or_else(cut_short)?;
    let written = &state[..state.len() - DIGEST];
    match Sha256::digest(written).as_slice() == digest {
        true => Ok(rest),
        false => Err(cut_short()),
    }
}

fn invalid(given: impl Into<String>, expected: impl Into<String>) -> Error {
    Error::invalid("saved state", given.into(), expected.into())
}

fn cut_short() -> Error {
    invalid("bytes that do not fit their checksum", "all of them as they were written")
}

fn too_long(tokens: usize) -> Error {
    Error::invalid("saved state", format!("{tokens} tokens"), "less than 2^64 bytes of them")
}

/// Where the digits of a row stand in pages, and its scale: of a key, of a value.
fn places(layout: &PageLayout, position: usize, head: usize) -> [Place; 2] {
    let (at, slot) = (layout.head(position / PAGE, head), position % PAGE);
    let (values, scales) = (at + layout.values_at(), at + layout.scales_at() + 4 * slot);
    [
        Place {
            first: at + slot * layout.key,
            step: 1,
            count: layout.key,
            low: PAGE * layout.key,
            scale: scales,
        },
        Place {
            first: values + slot,
            step: PAGE,
            count: layout.value,
            low: PAGE * layout.value,
            scale: scales + 4 * PAGE,
        },
    ]
}

struct Place {
    /// The first high digit.
    first: usize,
    /// From one digit to the next.
    step: usize,
    count: usize,
    /// From a high digit to its low one.
    low: usize,
    scale: usize,
}

impl Place {
    /// Where its digits are, in the order of a state: high ones, then low ones.
    fn digits(&self) -> impl Iterator<Item = usize> {
        let Self { first, step, count, low, .. } = *self;
        [0, low]
            .into_iter()
            .flat_map(move |plane| (0..count).map(move |value| first + plane + step * value))
    }
}

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.out[self.at..self.at + bytes.len()].copy_from_slice(bytes);
        self.at += bytes.len();
    }

    fn row(&mut self, pages: &[u8], layout: &PageLayout, position: usize, head: usize) {
        for place in places(layout, position, head) {
            let to = &mut self.out[self.at..self.at + 2 * place.count];
            to.iter_mut().zip(place.digits()).for_each(|(to, at)| *to = pages[at]);
            self.at += 2 * place.count;
            self.put(&pages[place.scale..place.scale + 4]);
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, bytes: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or_else(cut_short)?;
        self.rest = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(self.take(4)?.iter().rev().fold(0, |all, &byte| all << 8 | u32::from(byte)))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from(self.u32()?) | u64::from(self.u32()?) << 32)
    }

    fn words(&mut self, count: usize) -> Result<Vec<u32>> {
        let bytes = self.take(count.checked_mul(4).ok_or_else(cut_short)?)?;
        Ok(bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect())
    }

    fn row(
        &mut self,
        pages: &mut [u8],
        layout: &PageLayout,
        position: usize,
        head: usize,
    ) -> Result<()> {
        for place in places(layout, position, head) {
            let digits = self.take(2 * place.count)?;
            digits.iter().zip(place.digits()).for_each(|(digit, at)| pages[at] = *digit);
            pages[place.scale..place.scale + 4].copy_from_slice(self.take(4)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_of_a_page_has_one_place() {
        let layout = PageLayout { kv_heads: 3, key: 8, value: 4 };
        let mut seen = vec![0; 2 * layout.bytes()];
        for position in 0..2 * PAGE {
            for head in 0..layout.kv_heads {
                for place in places(&layout, position, head) {
                    place.digits().for_each(|at| seen[at] += 1);
                    (place.scale..place.scale + 4).for_each(|at| seen[at] += 1);
                }
            }
        }
        assert!(seen.iter().all(|&times| times == 1));
        assert_eq!(row_bytes(&layout) * 2 * PAGE, seen.len());
    }
}
