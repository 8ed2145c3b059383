//! The report of the checked call, on a device.

use super::{Backend, Buffer, SliceMut};
use crate::error::NonFinite;
use crate::{Error, Result};

/// Where kernels write the first token with a value that is not finite.
///
/// One word on the device: all ones, or `token << 3 | kind` with the kind of
/// [`NonFinite`]; kernels keep the minimum, so the answer does not depend on
/// the order in which they run.
#[derive(Debug)]
pub struct Report {
    word: Buffer<u32>,
}

impl Report {
    /// An empty report.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn new(backend: &dyn Backend) -> Result<Self> {
        let mut this = Self { word: backend.alloc(1)? };
        this.reset(backend)?;
        Ok(this)
    }

    /// Empties it, in stream order.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn reset(&mut self, backend: &dyn Backend) -> Result<()> {
        backend.fill(&mut self.word, 0xff)
    }

    /// Waits for the stream; an error if something was reported.
    /// `first_token` is added to the token, for chunks.
    ///
    /// # Errors
    /// [`Error::NonFinite`].
    pub fn check(&self, backend: &dyn Backend, first_token: usize) -> Result<()> {
        let mut word = [0u32];
        backend.download_to(&self.word, &mut word)?;
        Self::decode(word[0], first_token)
    }

    /// The meaning of a report's word.
    ///
    /// # Errors
    /// [`Error::NonFinite`] unless the word is all ones.
    pub fn decode(word: u32, first_token: usize) -> Result<()> {
        if word == u32::MAX {
            return Ok(());
        }
        let kind = NonFinite::ALL.iter().find(|&&kind| kind as u32 == word & 7);
        // Kernels are handed no other kinds; one that writes 7 found something all the same.
        let what = kind.copied().unwrap_or(NonFinite::Output);
        Err(Error::NonFinite { token: first_token.saturating_add((word >> 3) as usize), what })
    }

    pub(super) fn word(&mut self) -> SliceMut<'_, u32> {
        self.word.view_mut()
    }
}
