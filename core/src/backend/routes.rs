//! Routes and the map made from them, on a device.

use std::ops::Range;

use super::indices::Indices;
use super::order::LastUse;
use super::{Backend, Buffer, DeviceId, Slice, SliceMut};
use crate::error::same_device;
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
    ids: Indices<i32, 1>,
    weights: Buffer<f32>,
    tokens: usize,
    k: usize,
    experts: usize,
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
        let ids = Indices::new(backend, [("routes: id", capacity * k, experts)])?;
        Ok(Self { ids, weights: backend.alloc(capacity * k)?, tokens: 0, k, experts })
    }

    /// Uploads routes that were checked on the host.
    ///
    /// # Errors
    /// As [`with_capacity`](Self::with_capacity).
    pub fn upload(backend: &dyn Backend, routes: &Routes) -> Result<Self> {
        let mut this = Self::with_capacity(backend, routes.tokens(), routes.k(), routes.experts())?;
        let ids = this.ids.within(0, routes.ids())?;
        this.ids.write("routes", backend)?;
        this.ids.upload(backend, ids)?;
        backend.upload(&mut this.weights, routes.weights())?;
        this.written(routes.tokens());
        Ok(this)
    }

    /// Tokens there is room for.
    pub fn capacity(&self) -> usize {
        self.ids.len() / self.k
    }

    /// All tokens' routes.
    pub fn view(&self) -> RoutesView<'_> {
        RoutesView {
            ids: self.ids.all(0),
            weights: self.weights.view(),
            tokens: self.tokens,
            k: self.k,
            experts: self.experts,
            last_use: self.ids.last_use(),
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
            ids: self.ids.slice(0, rows.clone())?,
            weights: self.weights.slice(rows)?,
            tokens: range.len(),
            k: self.k,
            experts: self.experts,
            last_use: self.ids.last_use(),
        })
    }

    /// Forgets all tokens, and sets every byte of ids and weights.
    ///
    /// # Errors
    /// [`Error::OtherStream`] and those of the backend.
    pub fn wipe(&mut self, backend: &dyn Backend, byte: u8) -> Result<()> {
        self.forget();
        self.write("routes", backend)?;
        self.ids.fill(backend, 0, byte)?;
        backend.fill(&mut self.weights, byte)?;
        self.written(0);
        Ok(())
    }

    /// Ids and weights of the whole capacity, also where they are of no token.
    pub fn whole(&self) -> (Slice<'_, i32>, Slice<'_, f32>) {
        (self.ids.all(0), self.weights.view())
    }

    pub(super) fn device(&self) -> DeviceId {
        self.ids.device()
    }

    pub(super) fn forget(&mut self) {
        self.tokens = 0;
    }

    /// Before a launch that writes them.
    pub(super) fn write(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        self.ids.write(what, backend)
    }

    /// After it: they hold the routes of so many tokens.
    pub(super) fn written(&mut self, tokens: usize) {
        self.ids.written();
        self.tokens = tokens;
    }

    pub(super) fn parts_mut(&mut self) -> (SliceMut<'_, i32>, SliceMut<'_, f32>) {
        let [ids] = self.ids.all_mut();
        (ids, self.weights.view_mut())
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
    /// `slot`, `src`, `bounds`.
    indices: Indices<u32, 3>,
    capacity: usize,
    tokens: usize,
    k: usize,
    experts: usize,
}

/// The arrays of a map.
const SLOT: usize = 0;
const SRC: usize = 1;
const BOUNDS: usize = 2;

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
        let rows = capacity * k;
        let arrays = [
            ("map: slot", rows, rows),
            ("map: src", rows, capacity),
            ("map: bounds", experts + 1, rows + 1),
        ];
        let mut indices = Indices::new(backend, arrays)?;
        indices.fill(backend, BOUNDS, 0)?;
        Ok(Self { indices, capacity, tokens: 0, k, experts })
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
        self.indices.slice(SLOT, ..self.rows()).expect("rows within capacity")
    }

    /// `src[row]`: token, in `0..tokens`.
    pub fn src(&self) -> Slice<'_, u32> {
        self.indices.slice(SRC, ..self.rows()).expect("rows within capacity")
    }

    /// `bounds[e]..bounds[e + 1]`: rows of expert `e`; `experts + 1` values.
    pub fn bounds(&self) -> Slice<'_, u32> {
        self.indices.all(BOUNDS)
    }

    /// Forgets all tokens, and sets every byte of `slot`, `src` and `bounds`.
    ///
    /// # Errors
    /// [`Error::OtherStream`] and those of the backend.
    pub fn wipe(&mut self, backend: &dyn Backend, byte: u8) -> Result<()> {
        self.forget();
        self.write("map", backend)?;
        for array in [SLOT, SRC, BOUNDS] {
            self.indices.fill(backend, array, byte)?;
        }
        self.written(0);
        Ok(())
    }

    /// `slot`, `src` and `bounds` of the whole capacity, also where they map no token.
    pub fn whole(&self) -> [Slice<'_, u32>; 3] {
        [SLOT, SRC, BOUNDS].map(|array| self.indices.all(array))
    }

    pub(super) fn device(&self) -> DeviceId {
        self.indices.device()
    }

    pub(super) fn forget(&mut self) {
        self.tokens = 0;
    }

    /// Before a launch that reads it.
    pub(super) fn read(&self, what: &str, backend: &dyn Backend) -> Result<()> {
        self.indices.read(what, backend)
    }

    /// Before a launch that writes it.
    pub(super) fn write(&mut self, what: &str, backend: &dyn Backend) -> Result<()> {
        self.indices.write(what, backend)
    }

    /// After it: it maps so many tokens.
    pub(super) fn written(&mut self, tokens: usize) {
        self.indices.written();
        self.tokens = tokens;
    }

    pub(super) fn parts_mut(
        &mut self,
        rows: usize,
    ) -> (SliceMut<'_, u32>, SliceMut<'_, u32>, SliceMut<'_, u32>) {
        let within = "rows within capacity";
        let [slot, src, bounds] = self.indices.all_mut();
        (slot.slice(..rows).expect(within), src.slice(..rows).expect(within), bounds)
    }
}
