//! Router scores: a product of f32 rows, one accumulator per score.

use std::ops::Range;

use strata_core::floats::FloatType;
use strata_core::numerics::canonical;

use crate::isa::Work;
use crate::memory::Parts;
use crate::quantize::Input;

/// Experts whose scores are computed side by side, one per lane.
pub(crate) const TILE: usize = 16;
/// Tokens at a time.
const TOKENS: usize = 4;
/// Values of k that a tile of experts is turned for at a time.
const SLAB: usize = 256;

/// Rows that tokens are multiplied with.
#[derive(Clone, Copy)]
pub(crate) enum ScoreWeights<'a> {
    Floats(Input<'a>),
    /// Rows without gaps, to be widened.
    Bytes {
        bytes: &'a [u8],
        ty: FloatType,
        cols: usize,
    },
}

/// The scores of some tokens with `TILE` experts from `first`.
pub(crate) struct Scores<'a> {
    pub(crate) x: Input<'a>,
    pub(crate) weights: ScoreWeights<'a>,
    pub(crate) experts: Range<usize>,
    pub(crate) tokens: Range<usize>,
    pub(crate) out: Parts<'a, f32>,
    pub(crate) stride: usize,
}

impl Work for Scores<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut turned = [[0.0f32; TILE]; SLAB];
        let mut wide = [0.0f32; SLAB];
        let mut acc = [[0.0f32; TILE]; MOST_TOKENS];
        let count = self.tokens.len();
        assert!(count <= MOST_TOKENS && self.experts.len() <= TILE);
        for start in (0..self.x.cols).step_by(SLAB) {
            let k = start..self.x.cols.min(start + SLAB);
            for (lane, e) in self.experts.clone().enumerate() {
                let row = match self.weights {
                    ScoreWeights::Floats(weights) => &weights.row(e)[k.clone()],
                    ScoreWeights::Bytes { bytes, ty, cols } => {
                        let row = &bytes[(e * cols + start) * ty.bytes()..];
                        ty.widen_to(row, &mut wide[..k.len()]);
                        &wide[..k.len()]
                    }
                };
                for (to, w) in turned.iter_mut().zip(row) {
                    to[lane] = *w;
                }
            }
            let turned = &turned[..k.len()];
            let row = |t: usize| &self.x.row(self.tokens.start + t)[k.clone()];
            let mut t = 0;
            while t + TOKENS <= count {
                let x: [&[f32]; TOKENS] = std::array::from_fn(|n| row(t + n));
                let acc = acc[t..].first_chunk_mut().expect("tokens left");
                add(turned, x, acc);
                t += TOKENS;
            }
            for t in t..count {
                add(turned, [row(t)], acc[t..].first_chunk_mut().expect("a token left"));
            }
        }
        for (t, acc) in self.tokens.clone().zip(&acc) {
            // SAFETY: every token and tile of experts belongs to one task.
            let out =
                unsafe { self.out.part(t * self.stride + self.experts.start, self.experts.len()) };
            for (to, acc) in out.iter_mut().zip(acc) {
                *to = canonical(*acc);
            }
        }
    }
}

/// The most tokens of a task.
pub(crate) const MOST_TOKENS: usize = 64;

/// Ascending k for every score of `N` tokens.
#[inline(always)]
fn add<const N: usize>(turned: &[[f32; TILE]], x: [&[f32]; N], acc: &mut [[f32; TILE]; N]) {
    let x = x.map(|x| &x[..turned.len()]);
    let mut sums = *acc;
    for (k, w) in turned.iter().enumerate() {
        for n in 0..N {
            let x = x[n][k];
            for lane in 0..TILE {
                sums[n][lane] = x.mul_add(w[lane], sums[n][lane]);
            }
        }
    }
    *acc = sums;
}
