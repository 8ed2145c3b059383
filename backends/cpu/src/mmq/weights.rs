//! A slab of a tile of weight rows, decoded.

use std::marker::PhantomData;

use super::lanes::{Lanes, Rows, To};
use super::tile::Shape;
use super::{SLAB, VECTORS};
use crate::isa::Work;
use crate::scratch::Bytes;
use crate::simd::{MOST_LANES, Simd, prefetch};

/// One slab of a tile of rows. `R` rows stand next to each other in every
/// array; rows that the matrix does not have hold what others left.
#[derive(Default)]
pub(super) struct WeightTile {
    /// `R` words for every four values of k.
    pub words: Vec<u32>,
    /// `R` scales per group.
    pub dw: Vec<f32>,
    /// `R` sub-scales for each run of values that has one: f32, or two i16.
    pub sub: Vec<u32>,
    /// `R` minimums per group of them.
    pub mn: Vec<f32>,
    /// `R` scales of minimums per group.
    pub dm: Vec<f32>,
}

impl Bytes for WeightTile {
    fn bytes(&self) -> usize {
        let scales = self.dw.bytes() + self.sub.bytes() + self.mn.bytes() + self.dm.bytes();
        self.words.bytes() + scales
    }
}

/// The rows of a tile.
pub(super) struct TileRows<S> {
    /// The beginning of each; lanes past the last row have the last row again.
    pub at: [[*const u8; MOST_LANES]; VECTORS],
    /// Vectors with rows.
    pub vectors: usize,
    /// Bytes from a row to that of the same lane in the next vector.
    pub vector: usize,
    /// Bytes of a row.
    pub bytes: usize,
    simd: PhantomData<S>,
}

impl<S: Simd> TileRows<S> {
    /// `count` rows of `row_bytes` bytes, `stride` bytes apart, the first of them at the beginning of `bytes`.
    pub(super) fn new(bytes: &[u8], stride: usize, row_bytes: usize, count: usize) -> Self {
        assert!(count > 0 && bytes.len() >= (count - 1) * stride + row_bytes);
        // SAFETY: rows below `count` lie inside, as asserted.
        let row = |r: usize| unsafe { bytes.as_ptr().add(r.min(count - 1) * stride) };
        Self {
            at: std::array::from_fn(|v| std::array::from_fn(|l| row(v * S::LANES + l))),
            vectors: count.div_ceil(S::LANES),
            vector: S::LANES * stride,
            bytes: row_bytes,
            simd: PhantomData,
        }
    }
}

/// The decoder of one type.
pub(super) struct Decoder<S> {
    decode: fn(S, &mut WeightTile, &TileRows<S>, usize, usize),
}

impl<S: Simd> Decoder<S> {
    pub(super) fn of<F: Lanes>() -> Self {
        Self {
            decode: |simd, tile, rows, slab, values| {
                simd.run(Decode::<S, F> { tile, rows, slab, values, types: PhantomData });
            },
        }
    }

    /// Takes over `values` values from slab `slab` of some rows; `tile` has the size of the type.
    pub(super) fn run(
        &self,
        simd: S,
        tile: &mut WeightTile,
        rows: &TileRows<S>,
        slab: usize,
        values: usize,
    ) {
        (self.decode)(simd, tile, rows, slab, values);
    }
}

struct Decode<'a, S, F> {
    tile: &'a mut WeightTile,
    rows: &'a TileRows<S>,
    slab: usize,
    values: usize,
    types: PhantomData<(S, F)>,
}

impl<S: Simd, F: Lanes> Work for Decode<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { tile, rows, slab, values, .. } = self;
        let stride = VECTORS * S::LANES;
        let shape = const { Shape::of::<S, F>() };
        let slab_bytes = const { SLAB / F::BLOCK * F::BYTES };
        let (from, blocks) = (slab * slab_bytes, values / F::BLOCK);
        assert!(values <= SLAB && from + blocks * F::BYTES <= rows.bytes);
        assert!(tile.has(stride, shape));
        // What is decoded next is on its way meanwhile. More rows than processors follow by
        // themselves; and all at once these lines would be waited for.
        let next = from + slab_bytes;
        let ahead = if next < rows.bytes { slab_bytes } else { VECTORS * rows.vector - from };
        let long = const { F::BYTES >= 128 };
        for (v, at) in rows.at[..rows.vectors].iter().enumerate() {
            let lane = v * S::LANES;
            for b in 0..blocks {
                let value = b * F::BLOCK;
                let to = |per: usize| value / per * stride + lane;
                // SAFETY: inside a `run` of S. Rows have the blocks and `tile` a slab of each array, as
                // asserted, and `value` is below one.
                unsafe {
                    let to = To::<S, F, false> {
                        words: tile.words.as_mut_ptr().add(to(4)),
                        dw: tile.dw.as_mut_ptr().add(to(F::GROUP)),
                        sub: tile.sub.as_mut_ptr().add(F::SUB_SCALE.map_or(0, to)),
                        mn: tile.mn.as_mut_ptr().add(F::MIN_GROUP.map_or(0, to)),
                        dm: tile.dm.as_mut_ptr().add(to(F::GROUP)),
                        codes: std::ptr::null(),
                        stride,
                        types: PhantomData,
                    };
                    let from = from + b * F::BYTES;
                    if !long {
                        let half = S::LANES / 2;
                        let (first, count) = match F::BYTES {
                            ..48 => (b % 2 * half, half),
                            _ => (0, S::LANES),
                        };
                        for row in &at[first..first + count] {
                            for line in (0..F::BYTES).step_by(64) {
                                prefetch(row.wrapping_add(from + ahead + line));
                            }
                        }
                    }
                    F::lanes(&Rows { at, from, ahead: long.then_some(ahead) }, &to);
                }
            }
        }
    }
}

impl WeightTile {
    /// Makes room for a tile.
    pub(super) fn size(&mut self, tile_rows: usize, shape: Shape) {
        let groups = SLAB / shape.group * tile_rows;
        self.words.resize(SLAB / 4 * tile_rows, 0);
        self.dw.resize(groups, 0.0);
        self.sub.resize(shape.subs() * tile_rows, 0);
        self.mn.resize(shape.sums() * tile_rows, 0.0);
        self.dm.resize(groups, 0.0);
    }

    /// Whether it has that room.
    pub(super) fn has(&self, tile_rows: usize, shape: Shape) -> bool {
        let groups = SLAB / shape.group * tile_rows;
        self.words.len() == SLAB / 4 * tile_rows
            && (self.dw.len(), self.dm.len()) == (groups, groups)
            && self.sub.len() == shape.subs() * tile_rows
            && self.mn.len() == shape.sums() * tile_rows
    }
}
