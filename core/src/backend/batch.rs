//! Where the tokens of a call stand, and the cache of their keys and values, on a device.

use super::indices::Indices;
use super::{Backend, Buffer, Slice, SliceMut};
use crate::attention::{PAGE, PageLayout};
use crate::error::agree;
use crate::{Error, Result};

/// What the numbers of a [`TokenBatch`] stay below.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchLimits {
    /// Token ids.
    pub vocabulary: usize,
    /// Sequences.
    pub sequences: usize,
    /// Pages of one sequence: its positions are below 64 times as many.
    pub pages_per_sequence: usize,
    /// Pages of the cache.
    pub pages: usize,
}

/// Up to `capacity` tokens: their ids, sequences and positions, and the pages of each sequence.
///
/// Everything was checked on the host when it was set: kernels index by it.
#[derive(Debug)]
pub struct TokenBatch {
    /// Ids, sequences, positions, pages.
    numbers: Indices<u32, 4>,
    /// What is in them, as the host knows it.
    host_sequences: Vec<u32>,
    host_positions: Vec<u32>,
    host_pages: Vec<u32>,
    limits: BatchLimits,
}

/// The arrays of a batch.
const IDS: usize = 0;
const SEQUENCES: usize = 1;
const POSITIONS: usize = 2;
const PAGES: usize = 3;

impl TokenBatch {
    /// Room for `capacity` tokens; holds none yet, and every page is 0.
    ///
    /// # Errors
    /// [`Error::Invalid`] where a limit is 0 or 2^31 or more; [`Error::OutOfMemory`].
    pub fn with_capacity(
        backend: &dyn Backend,
        capacity: usize,
        limits: BatchLimits,
    ) -> Result<Self> {
        let most = i32::MAX as usize;
        let positions = limits.pages_per_sequence.saturating_mul(PAGE);
        let table = limits.pages_per_sequence.saturating_mul(limits.sequences);
        for (what, n) in [
            ("vocabulary", limits.vocabulary),
            ("sequences", limits.sequences),
            ("positions of a sequence", positions),
            ("pages of all sequences", table),
            ("pages", limits.pages),
            ("tokens", capacity.max(1)),
        ] {
            if n == 0 || n > most {
                return Err(Error::invalid(format!("batch: {what}"), n, "1 to 2^31 - 1"));
            }
        }
        let arrays = [
            ("batch: id", capacity, limits.vocabulary),
            ("batch: sequence", capacity, limits.sequences),
            ("batch: position", capacity, positions),
            ("batch: page", table, limits.pages),
        ];
        let mut numbers = Indices::new(backend, arrays)?;
        numbers.fill(backend, PAGES, 0)?;
        Ok(Self {
            numbers,
            host_sequences: Vec::new(),
            host_positions: Vec::new(),
            host_pages: vec![0; table],
            limits,
        })
    }

    /// Sets the page of each 64 positions of each sequence: `pages[s * pages_per_sequence + b]`. Entries of positions
    /// that no token has yet may be any page. Forgets the tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the length or a page is not as the limits say, [`Error::OtherStream`],
    /// and those of the backend.
    pub fn set_pages(&mut self, backend: &dyn Backend, pages: &[u32]) -> Result<()> {
        agree("batch: pages of all sequences", pages.len(), self.host_pages.len())?;
        let on_device = self.numbers.within(PAGES, pages)?;
        self.forget();
        self.numbers.write("batch", backend)?;
        self.numbers.upload(backend, on_device)?;
        self.host_pages.copy_from_slice(pages);
        self.numbers.written();
        Ok(())
    }

    /// Sets the tokens of the next call, in place of those before.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the lengths differ or are past the capacity, where an id, a sequence or a
    /// position is not below its limit (the error says which token), or where two tokens have one place
    /// in the cache; [`Error::OtherStream`]; and those of the backend.
    pub fn set(
        &mut self,
        backend: &dyn Backend,
        ids: &[u32],
        sequences: &[u32],
        positions: &[u32],
    ) -> Result<()> {
        agree("batch: sequences", sequences.len(), ids.len())?;
        agree("batch: positions", positions.len(), ids.len())?;
        if ids.len() > self.capacity() {
            let most = format!("at most {}, the capacity", self.capacity());
            return Err(Error::invalid("batch: tokens", ids.len(), most));
        }
        let on_device = [
            self.numbers.within(IDS, ids)?,
            self.numbers.within(SEQUENCES, sequences)?,
            self.numbers.within(POSITIONS, positions)?,
        ];
        let mut places: Vec<(u32, u32, usize)> = (0..ids.len())
            .map(|t| {
                let block = positions[t] as usize / PAGE;
                let row = sequences[t] as usize * self.limits.pages_per_sequence;
                (self.host_pages[row + block], positions[t] % PAGE as u32, t)
            })
            .collect();
        places.sort_unstable();
        if let Some(pair) = places.windows(2).find(|p| (p[0].0, p[0].1) == (p[1].0, p[1].1)) {
            return Err(Error::invalid(
                format!("batch: token {}", pair[1].2),
                format!("the place in the cache of token {}", pair[0].2),
                "one of its own",
            ));
        }
        self.forget();
        self.numbers.write("batch", backend)?;
        for values in on_device {
            self.numbers.upload(backend, values)?;
        }
        self.host_sequences.extend_from_slice(sequences);
        self.host_positions.extend_from_slice(positions);
        self.numbers.written();
        Ok(())
    }

    fn forget(&mut self) {
        self.host_sequences.clear();
        self.host_positions.clear();
    }

    /// Tokens there are.
    pub fn tokens(&self) -> usize {
        self.host_positions.len()
    }

    /// Tokens there is room for.
    pub fn capacity(&self) -> usize {
        self.numbers.len()
    }

    /// What its numbers stay below.
    pub fn limits(&self) -> BatchLimits {
        self.limits
    }

    /// The id of each token.
    pub fn ids(&self) -> Slice<'_, u32> {
        self.numbers.slice(IDS, ..self.tokens()).expect("tokens within capacity")
    }

    /// The sequence of each token.
    pub fn sequences(&self) -> Slice<'_, u32> {
        self.numbers.slice(SEQUENCES, ..self.tokens()).expect("tokens within capacity")
    }

    /// The position of each token in its sequence.
    pub fn positions(&self) -> Slice<'_, u32> {
        self.numbers.slice(POSITIONS, ..self.tokens()).expect("tokens within capacity")
    }

    /// `pages[s * pages_per_sequence + b]` holds positions 64 b to 64 b + 63 of sequence s.
    pub fn pages(&self) -> Slice<'_, u32> {
        self.numbers.all(PAGES)
    }

    /// Sequences and positions as the host knows them, for a backend to cut its work by.
    pub fn on_host(&self) -> (&[u32], &[u32]) {
        (&self.host_sequences, &self.host_positions)
    }

    /// Before a launch that reads it.
    pub(super) fn read(&self, what: &str, backend: &dyn Backend) -> Result<()> {
        self.numbers.read(what, backend)
    }
}

/// Keys and values of one layer as digits, in pages: see [`crate::attention`].
#[derive(Debug)]
pub struct KvCache {
    data: Buffer<u8>,
    layout: PageLayout,
    pages: usize,
}

impl KvCache {
    /// Room for `pages` pages. What is in them is not specified until tokens are appended.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the layout or the number of pages cannot be; [`Error::OutOfMemory`].
    pub fn new(backend: &dyn Backend, layout: PageLayout, pages: usize) -> Result<Self> {
        layout.check()?;
        let bytes = layout.bytes().checked_mul(pages).filter(|_| pages <= i32::MAX as usize);
        let bytes =
            bytes.ok_or_else(|| Error::invalid("cache: pages", pages, "below 2^63 bytes"))?;
        Ok(Self { data: backend.alloc(bytes)?, layout, pages })
    }

    /// How its pages are laid out.
    pub fn layout(&self) -> PageLayout {
        self.layout
    }

    /// Pages there are.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The bytes of all pages.
    pub fn data(&self) -> Slice<'_, u8> {
        self.data.view()
    }

    /// The same, to be written: a saved state goes back this way.
    pub fn data_mut(&mut self) -> SliceMut<'_, u8> {
        self.data.view_mut()
    }
}
