//! What recurrent layers keep of each sequence, on a device.

use super::{Backend, Buffer, Slice, SliceMut, TokenBatch};
use crate::error::agree;
use crate::{Error, Result};

/// A state of the same size in each of some slots, and how many tokens each is of.
///
/// Sequence s of a batch has slot s; the slots of another can keep copies to go back to. A sequence's
/// tokens come in order: an operation refuses a token that the state is not right in front of. The
/// token at position 0 meets a state of zeros, whatever the slot holds.
#[derive(Debug)]
pub struct States {
    data: Buffer<f32>,
    values: usize,
    /// Tokens that a slot's state is of, if that is known.
    lengths: Vec<Option<u32>>,
}

impl States {
    /// Room for `slots` states of `values` values, each of no token yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] where there are 2^31 values or more in a state, or 2^31 states;
    /// [`Error::OutOfMemory`].
    pub fn new(backend: &dyn Backend, values: usize, slots: usize) -> Result<Self> {
        for (what, n) in [("values", values), ("slots", slots)] {
            if n > i32::MAX as usize {
                return Err(Error::invalid(format!("states: {what}"), n, "below 2^31"));
            }
        }
        let all = values.checked_mul(slots);
        let all = all.ok_or_else(|| Error::invalid("states: slots", slots, "less"))?;
        Ok(Self { data: backend.alloc(all)?, values, lengths: vec![Some(0); slots] })
    }

    /// Values of a state.
    pub fn values(&self) -> usize {
        self.values
    }

    /// States there are.
    pub fn slots(&self) -> usize {
        self.lengths.len()
    }

    /// Tokens that a slot's state is of; `None` where a launch failed that was to write it, and for
    /// a slot that there is not.
    pub fn length(&self, slot: usize) -> Option<u32> {
        self.lengths.get(slot).copied().flatten()
    }

    /// Makes a slot one of no token.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a slot that there is not.
    pub fn clear(&mut self, slot: usize) -> Result<()> {
        self.there(slot)?;
        self.lengths[slot] = Some(0);
        Ok(())
    }

    /// Puts the state of a slot of another into a slot, in stream order.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a slot that there is not, and where states are of another size; and
    /// those of the backend.
    pub fn copy_from(
        &mut self,
        backend: &dyn Backend,
        slot: usize,
        other: &Self,
        from: usize,
    ) -> Result<()> {
        self.there(slot)?;
        other.there(from)?;
        agree("states: values", other.values, self.values)?;
        self.lengths[slot] = None;
        let to = slot * self.values..(slot + 1) * self.values;
        backend.copy(self.data.slice_mut(to)?, other.slot(from)?)?;
        self.lengths[slot] = other.lengths[from];
        Ok(())
    }

    /// Puts a state of `tokens` tokens into a slot.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a slot that there is not, and for another number of values; and those
    /// of the backend.
    pub fn set(
        &mut self,
        backend: &dyn Backend,
        slot: usize,
        values: &[f32],
        tokens: u32,
    ) -> Result<()> {
        self.there(slot)?;
        agree("states: values", values.len(), self.values)?;
        self.lengths[slot] = None;
        let to = slot * self.values..(slot + 1) * self.values;
        backend.upload(self.data.slice_mut(to)?, values)?;
        self.lengths[slot] = Some(tokens);
        Ok(())
    }

    /// The state in a slot.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a slot that there is not.
    pub fn slot(&self, slot: usize) -> Result<Slice<'_, f32>> {
        self.there(slot)?;
        self.data.slice(slot * self.values..(slot + 1) * self.values)
    }

    /// All states, slot after slot.
    pub fn data(&self) -> Slice<'_, f32> {
        self.data.view()
    }

    /// The values, and what is known of them, for an operation.
    pub(super) fn parts(&mut self) -> (SliceMut<'_, f32>, &mut [Option<u32>]) {
        (self.data.view_mut(), &mut self.lengths)
    }

    fn there(&self, slot: usize) -> Result<()> {
        match slot < self.slots() {
            true => Ok(()),
            false => Err(Error::invalid("states: slot", slot, format!("below {}", self.slots()))),
        }
    }
}

/// The rows of a batch by sequence: those of each in the order of their positions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runs {
    rows: Vec<u32>,
    /// Sequence, first of `rows`, first position.
    starts: Vec<(u32, usize, u32)>,
}

impl Runs {
    /// Of a batch whose sequences go on from where `lengths` say that they are, or begin anew.
    pub(super) fn new(what: &str, batch: &TokenBatch, lengths: &[Option<u32>]) -> Result<Self> {
        let (sequences, positions) = batch.on_host();
        let mut rows: Vec<u32> = (0..sequences.len() as u32).collect();
        rows.sort_by_key(|row| sequences[*row as usize]);
        let mut starts = Vec::new();
        let mut next = None;
        for (at, &row) in rows.iter().enumerate() {
            let (sequence, position) = (sequences[row as usize], positions[row as usize]);
            let known = lengths.get(sequence as usize).ok_or_else(|| {
                let most = format!("below {}, the states there are", lengths.len());
                Error::invalid(format!("{what}: sequence of token {row}"), sequence, most)
            })?;
            let expected = match next {
                Some((of, next)) if of == sequence => Some(next),
                _ => {
                    starts.push((sequence, at, position));
                    known.filter(|_| position > 0).or((position == 0).then_some(0))
                }
            };
            if expected != Some(position) {
                let given = format!("{position} of sequence {sequence}");
                let expected = expected.map_or_else(
                    || "0, as it is not known what the state is of".to_owned(),
                    |expected| format!("{expected}, where the state is"),
                );
                let what = format!("{what}: position of token {row}");
                return Err(Error::invalid(what, given, expected));
            }
            next = Some((sequence, position + 1));
        }
        Ok(Self { rows, starts })
    }

    /// Each sequence that has rows: the sequence, whether it begins with them, and the rows.
    pub fn iter(&self) -> impl Iterator<Item = (usize, bool, &[u32])> {
        (0..self.starts.len()).map(|at| {
            let (sequence, start, position) = self.starts[at];
            let end = self.starts.get(at + 1).map_or(self.rows.len(), |next| next.1);
            (sequence as usize, position == 0, &self.rows[start..end])
        })
    }

    /// What the states are of behind all rows.
    pub(super) fn ends(&self) -> impl Iterator<Item = (usize, u32)> {
        self.iter()
            .zip(&self.starts)
            .map(|((sequence, _, rows), start)| (sequence, start.2 + rows.len() as u32))
    }

    /// Sequences that have rows.
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
