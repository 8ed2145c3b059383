//! Routes, the map made from them, and the report of the checked call, on a device.

use std::ops::Range;

use super::order::LastUse;
use super::{Backend, Buffer, DeviceId, Slice, SliceMut};
use crate::error::{NonFinite, same_device};
use crate::routing::Routes;
use crate::{Error, Result};

/// Largest number of tokens one launch may have: a report keeps three bits beside the token.
pub const MAX_TOKENS: usize = (1 << 29) - 1;

/// Checks tokens, choices and experts once for every structure made of them.
fn check_sizes(tokens: usize, k: usize, experts: usize) -> Result<()> {
    if experts == 0 || experts > i32::MAX as usize {
        return Err(Error::invalid("experts", experts, "1 to 2^31 - 1"));
    }
    if k == 0 {
        return Err(Error::invalid("experts per token (k)", k, "at least 1"));
    }
    if tokens > MAX_TOKENS || tokens.checked_mul(k).is_none_or(|r| r > i32::MAX as usize) {
        return Err(Error::invalid(
            "routed rows (tokens x k)",
            format!("{tokens} x {k}"),
            "below 2^29 tokens and 2^31 rows",
        ));
    }
    Ok(())
}

/// The experts and weights of up to `capacity` tokens, on a device.
///
/// Ids are known to lie in `0..experts`: they were checked on the host or
/// chosen by a top-k.
#[derive(Debug)]
pub struct DeviceRoutes {
    ids: Buffer<i32>,
    weights: Buffer<f32>,
    tokens: usize,
    k: usize,
    experts: usize,
    last_use: LastUse,
}

impl DeviceRoutes {
    /// Room for the routes of `capacity` tokens; holds none yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] where k or experts are 0, or a size is past 2^31 (a capacity of 0 holds
    /// the routes of no tokens); [`Error::OutOfMemory`].
    pub fn with_capacity(
        backend: &dyn Backend,
        capacity: usize,
        k: usize,
        experts: usize,
    ) -> Result<Self> {
        check_sizes(capacity, k, experts)?;
        let (ids, weights) = (backend.alloc(capacity * k)?, backend.alloc(capacity * k)?);
        Ok(Self { ids, weights, tokens: 0, k, experts, last_use: LastUse::written_by(backend) })
    }

    /// Uploads routes that were checked on the host.
    ///
    /// # Errors
    /// As [`with_capacity`](Self::with_capacity).
    pub fn upload(backend: &dyn Backend, routes: &Routes) -> Result<Self> {
        let mut this = Self::with_capacity(backend, routes.tokens(), routes.k(), routes.experts())?;
        backend.upload(&mut this.ids, routes.ids())?;
        backend.upload(&mut this.weights, routes.weights())?;
        this.tokens = routes.tokens();
        Ok(this)
    }

    /// Tokens there is room for.
    pub fn capacity(&self) -> usize {
        self.ids.len() / self.k
    }

    /// All tokens' routes.
    pub fn view(&self) -> RoutesView<'_> {
        RoutesView {
            ids: self.ids.view(),
            weights: self.weights.view(),
            tokens: self.tokens,
            k: self.k,
            experts: self.experts,
            last_use: &self.last_use,
        }
        .clipped()
    }

    /// The routes of some tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the range is not inside the tokens there are.
    pub fn tokens(&self, range: Range<usize>) -> Result<RoutesView<'_>> {
        if range.start > range.end || range.end > self.tokens {
            return Err(Error::invalid(
                "tokens of the routes",
                format!("{range:?}"),
                format!("a range inside 0..{}", self.tokens),
            ));
        }
        let rows = range.start * self.k..range.end * self.k;
        Ok(RoutesView {
            ids: self.ids.slice(rows.clone())?,
            weights: self.weights.slice(rows)?,
            tokens: range.len(),
            k: self.k,
            experts: self.experts,
            last_use: &self.last_use,
        })
    }

    /// Forgets all tokens, and sets every byte of ids and weights.
    ///
    /// # Errors
    /// [`Error::OtherStream`] and those of the backend.
    pub fn wipe(&mut self, backend: &dyn Backend, byte: u8) -> Result<()> {
        self.forget();
        self.write("routes", backend)?;
        backend.fill(&mut self.ids, byte)?;
        backend.fill(&mut self.weights, byte)?;
        self.written(0);
        Ok(())
    }

    /// Ids and weights of the whole capacity, also where they are of no token.
    pub fn whole(&self) -> (Slice<'_, i32>, Slice<'_, f32>) {
        (self.ids.view(), self.weights.view())
    }

    pub(super) fn device(&self) -> DeviceId {
        self.ids.device()
    }

    pub(super) fn forget(&mut self) {
        self.tokens = 0;
    }

    /// Before a launch that writes them.
    pub(super) fn write(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        self.last_use.write(what, backend)
    }

    /// After it: they hold the routes of so many tokens.
    pub(super) fn written(&mut self, tokens: usize) {
        self.last_use.written();
        self.tokens = tokens;
    }

    pub(super) fn parts_mut(&mut self) -> (SliceMut<'_, i32>, SliceMut<'_, f32>) {
        (self.ids.view_mut(), self.weights.view_mut())
    }

    /// Chosen experts per token.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Experts to choose from.
    pub fn experts(&self) -> usize {
        self.experts
    }
}

/// Routes of some tokens: `ids[t * k + j]` and `weights[t * k + j]`.
#[derive(Clone, Copy)]
pub struct RoutesView<'a> {
    ids: Slice<'a, i32>,
    weights: Slice<'a, f32>,
    tokens: usize,
    k: usize,
    experts: usize,
    last_use: &'a LastUse,
}

impl<'a> RoutesView<'a> {
    fn clipped(self) -> Self {
        let rows = self.tokens * self.k;
        let ids = self.ids.slice(..rows).expect("tokens within capacity");
        let weights = self.weights.slice(..rows).expect("tokens within capacity");
        Self { ids, weights, ..self }
    }

    /// Before a launch that reads them.
    pub(super) fn read(&self, what: &str, backend: &dyn Backend) -> Result<()> {
        same_device(what, self.ids.device(), backend.id())?;
        self.last_use.read(what, backend)
    }

    /// Each choice as a token of its own: `tokens * k` tokens of one expert.
    #[must_use]
    pub fn each(self) -> Self {
        Self { tokens: self.tokens * self.k, k: 1, ..self }
    }

    /// Expert ids, each in `0..experts`.
    pub fn ids(&self) -> Slice<'a, i32> {
        self.ids
    }

    /// Router weights.
    pub fn weights(&self) -> Slice<'a, f32> {
        self.weights
    }

    /// Tokens.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Chosen experts per token.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Experts to choose from.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Rows they route to: `tokens * k`.
    pub fn rows(&self) -> usize {
        self.tokens * self.k
    }
}

/// Which row of the expert order each choice of each token got.
///
/// `slot[t * k + j]` is the row, `src[row]` the token, and
/// `bounds[e]..bounds[e + 1]` the rows of expert `e`; its content comes from
/// [`ops::MapRoutes`](super::ops::MapRoutes) alone, so every entry is in range.
#[derive(Debug)]
pub struct RoutingMap {
    slot: Buffer<u32>,
    src: Buffer<u32>,
    bounds: Buffer<u32>,
    capacity: usize,
    tokens: usize,
    k: usize,
    experts: usize,
    last_use: LastUse,
}

impl RoutingMap {
    /// Room for the map of `capacity` tokens; maps none yet.
    ///
    /// # Errors
    /// [`Error::Invalid`] where k or experts are 0, or a size is past 2^31; [`Error::OutOfMemory`].
    pub fn with_capacity(
        backend: &dyn Backend,
        capacity: usize,
        k: usize,
        experts: usize,
    ) -> Result<Self> {
        check_sizes(capacity, k, experts)?;
        let mut bounds = backend.alloc(experts + 1)?;
        backend.fill(&mut bounds, 0)?;
        let (slot, src) = (backend.alloc(capacity * k)?, backend.alloc(capacity * k)?);
        let last_use = LastUse::written_by(backend);
        Ok(Self { slot, src, bounds, capacity, tokens: 0, k, experts, last_use })
    }

    /// Tokens there is room for.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Tokens it maps.
    pub fn tokens(&self) -> usize {
        self.tokens
    }

    /// Chosen experts per token.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Experts.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Rows it maps to: `tokens * k`.
    pub fn rows(&self) -> usize {
        self.tokens * self.k
    }

    /// `slot[t * k + j]`: row of the expert order, in `0..rows`.
    pub fn slot(&self) -> Slice<'_, u32> {
        self.slot.slice(..self.rows()).expect("rows within capacity")
    }

    /// `src[row]`: token, in `0..tokens`.
    pub fn src(&self) -> Slice<'_, u32> {
        self.src.slice(..self.rows()).expect("rows within capacity")
    }

    /// `bounds[e]..bounds[e + 1]`: rows of expert `e`; `experts + 1` values.
    pub fn bounds(&self) -> Slice<'_, u32> {
        self.bounds.view()
    }

    /// Forgets all tokens, and sets every byte of `slot`, `src` and `bounds`.
    ///
    /// # Errors
    /// [`Error::OtherStream`] and those of the backend.
    pub fn wipe(&mut self, backend: &dyn Backend, byte: u8) -> Result<()> {
        self.forget();
        self.write("map", backend)?;
        for buffer in [&mut self.slot, &mut self.src, &mut self.bounds] {
            backend.fill(buffer, byte)?;
        }
        self.written(0);
        Ok(())
    }

    /// `slot`, `src` and `bounds` of the whole capacity, also where they map no token.
    pub fn whole(&self) -> [Slice<'_, u32>; 3] {
        [self.slot.view(), self.src.view(), self.bounds.view()]
    }

    pub(super) fn device(&self) -> DeviceId {
        self.slot.device()
    }

    pub(super) fn forget(&mut self) {
        self.tokens = 0;
    }

    /// Before a launch that reads it.
    pub(super) fn read(&self, what: &str, backend: &dyn Backend) -> Result<()> {
        same_device(what, self.device(), backend.id())?;
        self.last_use.read(what, backend)
    }

    /// Before a launch that writes it.
    pub(super) fn write(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        self.last_use.write(what, backend)
    }

    /// After it: it maps so many tokens.
    pub(super) fn written(&mut self, tokens: usize) {
        self.last_use.written();
        self.tokens = tokens;
    }

    pub(super) fn parts_mut(
        &mut self,
        rows: usize,
    ) -> (SliceMut<'_, u32>, SliceMut<'_, u32>, SliceMut<'_, u32>) {
        let within = "rows within capacity";
        (
            self.slot.slice_mut(..rows).expect(within),
            self.src.slice_mut(..rows).expect(within),
            self.bounds.view_mut(),
        )
    }
}

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
