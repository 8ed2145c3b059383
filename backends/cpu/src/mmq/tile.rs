//! The kernel: a tile of weight rows times some routed rows, over one slab.

use std::marker::PhantomData;

use strata_core::Layout;
use strata_core::format::Format;
use strata_core::numerics::canonical;

use super::activations::{RoutedRows, SCALES};
use super::weights::WeightTile;
use super::{SLAB, VECTORS};
use crate::isa::Work;
use crate::memory::Parts;
use crate::simd::Simd;

/// What the kernels need to know of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shape {
    pub layout: Layout,
    /// Values per scale of the weights.
    pub group: usize,
    /// Values per sum of integers: 32, or a whole group of 16.
    pub sub: usize,
    /// Values per minimum; 0 for none.
    pub min: usize,
    /// Whether words hold four bytes instead of two i16.
    pub narrow: bool,
}

impl Shape {
    pub(super) const fn of<S: Simd, F: Format>() -> Self {
        // Q8_0 reaches 128, but only as -128, which a byte holds.
        let bytes =
            F::MAX_IW <= S::NARROW || (F::MAX_IW == 128 && F::BYTES == 34 && S::NARROW == 127);
        Self {
            layout: F::LAYOUT,
            group: F::GROUP,
            sub: if F::GROUP < 32 { F::GROUP } else { 32 },
            min: match F::MIN_GROUP {
                Some(values) => values,
                None => 0,
            },
            narrow: bytes,
        }
    }

    /// Words of a slab of one row.
    pub(super) const fn words(self) -> usize {
        if self.narrow { SLAB / 4 } else { SLAB / 2 }
    }

    /// Minimums, and sums of activations, in a slab of one row.
    pub(super) const fn sums(self) -> usize {
        match self.min {
            0 => 0,
            values => SLAB / values,
        }
    }
}

/// The kernels of one type: entry n - 1 takes n routed rows.
pub(super) struct Kernels<S: Simd> {
    pub shape: Shape,
    by_count: [fn(S, Args<'_>); MOST],
}

/// The most routed rows that any instruction set takes at a time.
const MOST: usize = 6;

impl<S: Simd> Kernels<S> {
    pub(super) fn of<F: Format>() -> Self {
        let shape = Shape::of::<S, F>();
        let by_count = match (shape.group, shape.min, shape.narrow) {
            (16, 0, false) => by_count::<S, 16, 0, false>(),
            (32, 0, false) => by_count::<S, 32, 0, false>(),
            (32, 32, false) => by_count::<S, 32, 32, false>(),
            (64, 0, false) => by_count::<S, 64, 0, false>(),
            (128, 0, false) => by_count::<S, 128, 0, false>(),
            (256, 0, false) => by_count::<S, 256, 0, false>(),
            (256, 16, false) => by_count::<S, 256, 16, false>(),
            (256, 32, false) => by_count::<S, 256, 32, false>(),
            (16, 0, true) => by_count::<S, 16, 0, true>(),
            (32, 0, true) => by_count::<S, 32, 0, true>(),
            (32, 32, true) => by_count::<S, 32, 32, true>(),
            (64, 0, true) => by_count::<S, 64, 0, true>(),
            (128, 0, true) => by_count::<S, 128, 0, true>(),
            (256, 0, true) => by_count::<S, 256, 0, true>(),
            (256, 16, true) => by_count::<S, 256, 16, true>(),
            (256, 32, true) => by_count::<S, 256, 32, true>(),
            _ => unreachable!("no weight type has groups and minimums of {shape:?}"),
        };
        Self { shape, by_count }
    }

    /// Adds a slab to the sums of all routed rows.
    pub(super) fn run(
        &self,
        simd: S,
        weights: &WeightTile,
        rows: &RoutedRows,
        slab: usize,
        values: usize,
        acc: &mut [f32],
    ) {
        let (shape, count) = (self.shape, rows.count);
        let tile_rows = VECTORS * S::LANES;
        // As few steps as there can be, all of about one size.
        let most = if shape.narrow { S::NARROW_ROWS } else { S::WIDE_ROWS };
        let steps = count.div_ceil(most);
        let (size, larger) = (count / steps, count % steps);
        let mut first = 0;
        for step in 0..steps {
            let n = size + usize::from(step < larger);
            let at = slab * count + first;
            let args = Args {
                weights,
                codes: &rows.codes[at * shape.words()..][..n * shape.words()],
                scales: &rows.scales[at * SCALES..][..n * SCALES],
                sums: &rows.sums[at * shape.sums()..][..n * shape.sums()],
                values,
                sub_words: shape.words() * shape.sub / SLAB,
                acc: &mut acc[first * tile_rows..][..n * tile_rows],
            };
            (self.by_count[n - 1])(simd, args);
            first += n;
        }
    }
}

/// What a kernel is called with; slices are as long as its rows need.
pub(super) struct Args<'a> {
    weights: &'a WeightTile,
    codes: &'a [u32],
    scales: &'a [f32],
    sums: &'a [f32],
    /// Values of this slab: 256, or fewer in the last.
    values: usize,
    /// Words of a sub-block of one row. The kernel could know; but a loop over
    /// narrow words of known length is unrolled whole, and its operands spilled.
    sub_words: usize,
    acc: &'a mut [f32],
}

fn by_count<S: Simd, const GROUP: usize, const MIN: usize, const NARROW: bool>()
-> [fn(S, Args<'_>); MOST] {
    fn call<S: Simd, const N: usize, const GROUP: usize, const MIN: usize, const NARROW: bool>(
        simd: S,
        args: Args<'_>,
    ) {
        simd.run(Kernel::<S, N, GROUP, MIN, NARROW> { args, simd: PhantomData });
    }
    [
        call::<S, 1, GROUP, MIN, NARROW>,
        call::<S, 2, GROUP, MIN, NARROW>,
        call::<S, 3, GROUP, MIN, NARROW>,
        call::<S, 4, GROUP, MIN, NARROW>,
        call::<S, 5, GROUP, MIN, NARROW>,
        call::<S, 6, GROUP, MIN, NARROW>,
    ]
}

/// `N` routed rows times `VECTORS` vectors of weight rows.
struct Kernel<'a, S, const N: usize, const GROUP: usize, const MIN: usize, const NARROW: bool> {
    args: Args<'a>,
    simd: PhantomData<S>,
}

impl<S: Simd, const N: usize, const GROUP: usize, const MIN: usize, const NARROW: bool> Work
    for Kernel<'_, S, N, GROUP, MIN, NARROW>
{
    type Output = ();

    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // n and v index registers and memory alike
    fn run(self) {
        let Args { weights, codes, scales, sums, values, sub_words, acc } = self.args;
        let rows = VECTORS * S::LANES;
        let sub = if GROUP < 32 { GROUP } else { 32 };
        let step = if NARROW { 4 } else { 2 };
        let row_words = SLAB / step;
        let row_sums = match MIN {
            0 => 0,
            values => SLAB / values,
        };
        assert!(values <= SLAB && values.is_multiple_of(sub) && sub_words <= sub / step);
        assert!(weights.words.len() == rows * row_words);
        assert!(!NARROW || weights.start.len() >= rows * (SLAB / sub));
        assert!(weights.dw.len() == rows * (SLAB / GROUP));
        assert!(weights.mn.len() == rows * row_sums && weights.dm.len() >= weights.dw.len());
        assert!(codes.len() == N * row_words && scales.len() == N * SCALES);
        assert!(sums.len() == N * row_sums && acc.len() == N * rows);
        let (words, start) = (weights.words.as_ptr(), weights.start.as_ptr());
        let (dw, mn, dm) = (weights.dw.as_ptr(), weights.mn.as_ptr(), weights.dm.as_ptr());
        let (codes, scales, sums) = (codes.as_ptr(), scales.as_ptr(), sums.as_ptr());
        let acc = acc.as_mut_ptr();

        // SAFETY: this is inside a `run` of S. Every pointer below stays inside its slice: sub-blocks
        // s < values / sub <= SLAB / sub, groups and minimums follow from s, rows v * LANES end at
        // `rows`, routed rows n < N, and the assertions above say how long each slice is.
        unsafe {
            let mut t = [[S::zero(); VECTORS]; N];
            for s in 0..values / sub {
                let mut isum = [[S::zero_i(); VECTORS]; N];
                if NARROW {
                    for v in 0..VECTORS {
                        let first = S::load_i(start.add(s * rows + v * S::LANES).cast());
                        for isum in &mut isum {
                            isum[v] = first;
                        }
                    }
                }
                if NARROW {
                    for pair in s * sub_words / 2..(s + 1) * sub_words / 2 {
                        let word = 2 * pair;
                        let mut w = [[S::zero_i(); 2]; VECTORS];
                        for v in 0..VECTORS {
                            let at = words.add(word * rows + v * S::LANES);
                            w[v] = [S::load_i(at), S::load_i(at.add(rows))];
                        }
                        for n in 0..N {
                            let at = codes.add(n * row_words + word);
                            let x = [S::splat_i(*at), S::splat_i(*at.add(1))];
                            for v in 0..VECTORS {
                                isum[n][v] = S::dot_narrow(isum[n][v], w[v], x);
                            }
                        }
                    }
                } else {
                    for word in s * sub / 2..(s + 1) * sub / 2 {
                        let mut w = [S::zero_i(); VECTORS];
                        for v in 0..VECTORS {
                            w[v] = S::load_i(words.add(word * rows + v * S::LANES));
                        }
                        for n in 0..N {
                            let x = S::splat_i(*codes.add(n * row_words + word));
                            for v in 0..VECTORS {
                                isum[n][v] = S::dot_wide(isum[n][v], w[v], x);
                            }
                        }
                    }
                }
                let first_of_group = (s * sub) % GROUP == 0;
                for n in 0..N {
                    let d = S::splat(*scales.add(n * SCALES + s * sub / 32));
                    for v in 0..VECTORS {
                        let before = if first_of_group { S::zero() } else { t[n][v] };
                        t[n][v] = S::fma(S::convert(isum[n][v]), d, before);
                    }
                }
                if ((s + 1) * sub) % GROUP != 0 {
                    continue;
                }
                let g = s * sub / GROUP;
                for v in 0..VECTORS {
                    let lane = v * S::LANES;
                    let scale = S::load(dw.add(g * rows + lane));
                    for n in 0..N {
                        let to = acc.add(n * rows + lane);
                        let mut sum = S::fma(t[n][v], scale, S::load(to));
                        if let Some(per_group) = GROUP.checked_div(MIN) {
                            let mut u = S::zero();
                            for m in g * per_group..(g + 1) * per_group {
                                let minimum = S::load(mn.add(m * rows + lane));
                                u = S::fma(minimum, S::splat(*sums.add(n * row_sums + m)), u);
                            }
                            sum = S::fma(u, S::load(dm.add(g * rows + lane)), sum);
                        }
                        S::store(to, sum);
                    }
                }
            }
        }
    }
}

/// Writes the sums of a tile to the output, `count` of each `tile_rows`.
pub(super) struct StoreTile<'a> {
    pub acc: &'a [f32],
    pub tile_rows: usize,
    pub count: usize,
    pub dst: Parts<'a, f32>,
    pub at: usize,
    pub stride: usize,
}

impl Work for StoreTile<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (n, acc) in self.acc.chunks_exact(self.tile_rows).enumerate() {
            // SAFETY: every unit writes its own routed rows and weight rows, and no two units have
            // the same of both.
            let to = unsafe { self.dst.part(self.at + n * self.stride, self.count) };
            for (to, acc) in to.iter_mut().zip(acc) {
                *to = canonical(*acc);
            }
        }
    }
}
