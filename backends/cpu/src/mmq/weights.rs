//! A slab of a tile of weight rows, decoded.

use std::marker::PhantomData;

use super::lanes::{Lanes, Rows, To};
use super::tile::Shape;
use super::{SLAB, VECTORS};
use crate::isa::Work;
use crate::scratch::Bytes;
use crate::simd::{MOST_LANES, Simd};

/// One slab of a tile of rows. `R` rows stand next to each other in every
/// array; rows that the matrix does not have hold what others left.
#[derive(Default)]
pub(super) struct WeightTile {
    /// `R` words for every four values of k.
    pub words: Vec<u32>,
    /// `R` scales per group.
    pub dw: Vec<f32>,
    /// `R` sub-scales for each run of values that has one.
    pub sub: Vec<f32>,
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

/// The rows of a tile: `count` of them, `stride` bytes apart.
#[derive(Clone, Copy)]
pub(super) struct TileRows<'a> {
    pub bytes: &'a [u8],
    pub stride: usize,
    pub count: usize,
}

/// The decoder of one type.
#[derive(Clone, Copy)]
pub(super) struct Decoder<S> {
    decode: fn(S, &mut WeightTile, TileRows<'_>, usize, usize),
}

impl<S: Simd> Decoder<S> {
    pub(super) fn of<F: Lanes>() -> Self {
        Self {
            decode: |simd, tile, rows, slab, values| {
                simd.run(Decode::<S, F> { tile, rows, slab, values, types: PhantomData });
            },
        }
    }

    /// Takes over `values` values from slab `slab` of some rows.
    pub(super) fn run(
        self,
        simd: S,
        tile: &mut WeightTile,
        rows: TileRows<'_>,
        slab: usize,
        values: usize,
    ) {
        (self.decode)(simd, tile, rows, slab, values);
    }
}

struct Decode<'a, S, F> {
    tile: &'a mut WeightTile,
    rows: TileRows<'a>,
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
        let shape = Shape::of::<S, F>();
        tile.size(stride, shape);
        let from = slab * SLAB / F::BLOCK * F::BYTES;
        let blocks = values / F::BLOCK;
        for v in 0..rows.count.div_ceil(S::LANES) {
            // Lanes past the last row decode it again.
            let mut at = [rows.bytes.as_ptr(); MOST_LANES];
            for (l, at) in at.iter_mut().enumerate() {
                let row = (v * S::LANES + l).min(rows.count - 1);
                *at = rows.bytes[row * rows.stride + from..][..blocks * F::BYTES].as_ptr();
            }
            let mut rows = Rows { at };
            let lane = v * S::LANES;
            for b in 0..blocks {
                let value = b * F::BLOCK;
                let at = |per: usize| value / per * stride + lane;
                // SAFETY: inside a `run` of S. Every row was sliced for its blocks; `size` made room
                // for a slab of each array, and `value` is below one.
                unsafe {
                    let to = To::<S> {
                        words: tile.words.as_mut_ptr().add(at(4)),
                        dw: tile.dw.as_mut_ptr().add(at(F::GROUP)),
                        sub: tile.sub.as_mut_ptr().add(F::SUB_SCALE.map_or(0, at)),
                        mn: tile.mn.as_mut_ptr().add(F::MIN_GROUP.map_or(0, at)),
                        dm: tile.dm.as_mut_ptr().add(at(F::GROUP)),
                        stride,
                        simd: PhantomData,
                    };
                    F::lanes(&rows, &to);
                    if b + 1 < blocks {
                        rows.advance(F::BYTES);
                    }
                }
            }
        }
    }
}

impl WeightTile {
    #[inline(always)]
    fn size(&mut self, tile_rows: usize, shape: Shape) {
        let groups = SLAB / shape.group * tile_rows;
        self.words.resize(SLAB / 4 * tile_rows, 0);
        self.dw.resize(groups, 0.0);
        self.sub.resize(shape.subs() * tile_rows, 0.0);
        self.mn.resize(shape.sums() * tile_rows, 0.0);
        self.dm.resize(groups, 0.0);
    }
}
