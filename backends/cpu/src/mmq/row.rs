//! One routed row: weights are multiplied as they are decoded, and read once.

use std::marker::PhantomData;

use super::activations::RoutedRows;
use super::lanes::{Lanes, Rows, To};
use super::tile::Shape;
use super::weights::TileRows;
use super::{SLAB, VECTORS};
use crate::isa::Work;
use crate::simd::{MOST_LANES, Simd, prefetch};

/// Bytes of a row from what is decoded to what is asked for, at most: with those of all rows of a vector, what
/// the memory brings in the time that it takes to answer.
const AHEAD: usize = 1024;

/// The most rows of a tile.
pub(super) const MOST_ROWS: usize = VECTORS * MOST_LANES;

/// The products of one type with one routed row.
pub(super) struct OneRow<S> {
    /// What routed rows are spread for.
    pub shape: Shape,
    multiply: fn(S, &TileRows<S>, &RoutedRows, usize, &mut [f32; MOST_ROWS]),
}

impl<S: Simd> OneRow<S> {
    pub(super) fn of<F: Lanes>() -> Self {
        Self {
            shape: Shape::one::<S, F>(),
            multiply: |simd, weights, row, cols, acc| {
                let rows = weights.at[..weights.vectors].iter();
                for (at, acc) in rows.zip(acc.chunks_exact_mut(S::LANES)) {
                    simd.run(Multiply::<S, F> { at, weights, row, cols, acc, types: PhantomData });
                }
            },
        }
    }

    /// The sums of `cols` values, a multiple of the block, of the rows of a tile.
    pub(super) fn run(
        &self,
        simd: S,
        weights: &TileRows<S>,
        row: &RoutedRows,
        cols: usize,
        acc: &mut [f32; MOST_ROWS],
    ) {
        (self.multiply)(simd, weights, row, cols, acc);
    }
}

struct Multiply<'a, S, F> {
    at: &'a [*const u8; MOST_LANES],
    weights: &'a TileRows<S>,
    row: &'a RoutedRows,
    cols: usize,
    acc: &'a mut [f32],
    types: PhantomData<F>,
}

impl<S: Simd, F: Lanes> Work for Multiply<'_, S, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { at, weights, row, cols, acc, .. } = self;
        let shape = const { Shape::one::<S, F>() };
        let (blocks, slabs) = (cols / F::BLOCK, cols.div_ceil(SLAB));
        assert!(blocks * F::BYTES <= weights.bytes && row.count == 1 && acc.len() == S::LANES);
        assert!(row.codes.len() >= slabs * SLAB / 4 && row.starts.len() >= slabs * shape.starts());
        assert!(row.scales.len() >= slabs * SLAB / 32 && row.sums.len() >= slabs * shape.sums());
        let (codes, starts) = (row.codes.as_ptr(), row.starts.as_ptr());
        let (scales, sums) = (row.scales.as_ptr(), row.sums.as_ptr());
        let long = const { F::BYTES >= 128 };
        // At most a row: what follows its end is the row of the same lane in the next vector.
        let reach = AHEAD.min(weights.bytes);
        // SAFETY: inside a `run` of S. Rows have the blocks and `row` what belongs to them, as asserted;
        // arrays have a vector for all that a block of 256 values can have of each.
        unsafe {
            let mut isums = [S::zero_i(); SLAB / 16];
            let mut subs = [S::zero_i(); SLAB / 16];
            let (mut dw, mut dm) = ([S::zero(); SLAB / 16], [S::zero(); 1]);
            let mut mn = [S::zero(); SLAB / 16];
            let to = To::<S, F, true> {
                words: isums.as_mut_ptr().cast(),
                codes,
                dw: dw.as_mut_ptr().cast(),
                sub: subs.as_mut_ptr().cast(),
                mn: mn.as_mut_ptr().cast(),
                dm: dm.as_mut_ptr().cast(),
                stride: S::LANES,
                types: PhantomData,
            };
            let mut sum = S::zero();
            for block in 0..blocks {
                let (from, value) = (block * F::BYTES, block * F::BLOCK);
                let ahead = match from + reach < weights.bytes {
                    true => reach,
                    false => (weights.vector + reach).wrapping_sub(weights.bytes),
                };
                if !long {
                    let half = S::LANES / 2;
                    let (first, count) = match F::BYTES {
                        ..32 => (block % 2 * half, half),
                        _ => (0, S::LANES),
                    };
                    for row in &at[first..first + count] {
                        for line in (0..F::BYTES).step_by(64) {
                            prefetch(row.wrapping_add(from + ahead + line));
                        }
                    }
                }
                for run in 0..F::BLOCK / shape.run {
                    let start = S::splat_i(*starts.add(value / shape.run + run));
                    S::store_i(to.words.add(run * S::LANES), start);
                }
                let to = To::<S, F, true> { codes: codes.add(value / 4), ..to };
                F::lanes(&Rows { at, from, ahead: long.then_some(ahead) }, &to);
                let vector = |at: *mut f32, i: usize| S::load(at.add(i * S::LANES));
                let ones = S::splat_i(0x0001_0001);
                let mut t = S::zero();
                for first in (0..F::BLOCK).step_by(32) {
                    let d = S::splat(*scales.add((value + first) / 32));
                    let mut total = S::zero();
                    let mut ints = S::zero_i();
                    for run in first / shape.run..(first + 32) / shape.run {
                        let isum = S::load_i(to.words.add(run * S::LANES));
                        let sub = to.sub.add(match shape.sub {
                            0 => 0,
                            values => run * shape.run / values * S::LANES,
                        });
                        if shape.halves {
                            let scale = if shape.sub > 0 { S::load_i(sub) } else { ones };
                            ints = S::dot_end(ints, isum, scale);
                            total = S::convert(ints);
                        } else if shape.sub > 0 {
                            total = S::fma(S::convert(isum), S::load(sub.cast()), total);
                        } else {
                            total = S::convert(isum);
                        }
                        if shape.group == 16 {
                            let t = S::fma(total, d, S::zero());
                            sum = S::fma(t, vector(to.dw, run), sum);
                            (total, ints) = (S::zero(), S::zero_i());
                        }
                    }
                    if shape.group == 16 {
                        continue;
                    }
                    let before = if first % shape.group == 0 { S::zero() } else { t };
                    t = S::fma(total, d, before);
                    if (first + 32) % shape.group != 0 {
                        continue;
                    }
                    let g = first / shape.group;
                    sum = S::fma(t, vector(to.dw, g), sum);
                    if let Some(per_group) = shape.group.checked_div(shape.min) {
                        let mut u = S::zero();
                        for m in g * per_group..(g + 1) * per_group {
                            let x = S::splat(*sums.add(value / shape.min + m));
                            u = S::fma(vector(to.mn, m), x, u);
                        }
                        sum = S::fma(u, vector(to.dm, g), sum);
                    }
                }
            }
            S::store(acc.as_mut_ptr(), sum);
        }
    }
}
