//! The kernel: a tile of weight rows times some routed rows, over one slab.

use std::marker::PhantomData;

use strata_core::Layout;
use strata_core::numerics::canonical;

use super::activations::{RoutedRows, SCALES, WORDS};
use super::lanes::{Codes, Lanes};
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
    /// Values per sum of integers: 32, or 16 where scales or sub-scales are of so many.
    pub run: usize,
    /// Values per integer sub-scale; 0 for none.
    pub sub: usize,
    /// Values per minimum; 0 for none.
    pub min: usize,
    /// What stored codes are more than the integers.
    pub offset: i32,
    /// See [`Lanes::STEP`].
    pub step: usize,
    /// Values whose products are summed from one start on: a run, or what fits two i16.
    pub part: usize,
    /// Whether sums start as two i16.
    pub halves: bool,
    /// The most routed rows at a time: sums of runs and sums over them, both in registers.
    pub rows: usize,
}

impl Shape {
    pub(super) const fn of<S: Simd, F: Lanes>() -> Self {
        let sub = match F::SUB_SCALE {
            Some(values) => values,
            None => 0,
        };
        let run = if F::GROUP == 16 || sub == 16 { 16 } else { 32 };
        Self {
            layout: F::LAYOUT,
            group: F::GROUP,
            run,
            sub,
            min: match F::MIN_GROUP {
                Some(values) => values,
                None => 0,
            },
            offset: Codes::<F>::offset::<S>(),
            step: F::STEP,
            part: 4 * Codes::<F>::words::<S>(run),
            halves: S::HALVES && F::MOST.is_some(),
            rows: match Codes::<F>::words::<S>(run) {
                ..8 if S::HALVES && F::MOST.is_some() => S::ROWS - 1,
                ..8 if S::BYTES => S::ROWS - 2,
                _ => S::ROWS,
            },
        }
    }

    /// The same where one routed row meets blocks as they are decoded: sums start once for each run.
    pub(super) const fn one<S: Simd, F: Lanes>() -> Self {
        let shape = Self::of::<S, F>();
        Self { part: shape.run, halves: shape.halves && shape.part == shape.run, ..shape }
    }

    /// Sub-scales in a slab of one row.
    pub(super) const fn subs(self) -> usize {
        match self.sub {
            0 => 0,
            values => SLAB / values,
        }
    }

    /// Minimums, and sums of activations, in a slab of one row.
    pub(super) const fn sums(self) -> usize {
        match self.min {
            0 => 0,
            values => SLAB / values,
        }
    }

    /// Starts of sums of integers in a slab of one row.
    pub(super) const fn starts(self) -> usize {
        SLAB / self.part
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
    pub(super) fn of<F: Lanes>() -> Self {
        fn call<S: Simd, F: Lanes, const N: usize>(simd: S, args: Args<'_>) {
            simd.run(Kernel::<S, F, N> { args, types: PhantomData });
        }
        let by_count = [
            call::<S, F, 1>,
            call::<S, F, 2>,
            call::<S, F, 3>,
            call::<S, F, 4>,
            call::<S, F, 5>,
            call::<S, F, 6>,
        ];
        Self { shape: Shape::of::<S, F>(), by_count }
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
        let steps = count.div_ceil(shape.rows);
        let (size, larger) = (count / steps, count % steps);
        let mut first = 0;
        for step in 0..steps {
            let n = size + usize::from(step < larger);
            let at = slab * count + first;
            let args = Args {
                weights,
                codes: &rows.codes[at * WORDS..][..n * WORDS],
                scales: &rows.scales[at * SCALES..][..n * SCALES],
                starts: &rows.starts[at * shape.starts()..][..n * shape.starts()],
                sums: &rows.sums[at * shape.sums()..][..n * shape.sums()],
                values,
                run_words: shape.run / 4,
                acc: &mut acc[first * tile_rows..][..n * tile_rows],
            };
            (self.by_count[n - 1])(simd, args);
            first += n;
        }
    }
}

/// What a kernel is called with; slices are as long as its rows need.
struct Args<'a> {
    weights: &'a WeightTile,
    codes: &'a [u32],
    scales: &'a [f32],
    starts: &'a [u32],
    sums: &'a [f32],
    /// Values of this slab: 256, or fewer in the last.
    values: usize,
    /// Words of a run. The kernel could know; but with sixteen registers a loop of known length is
    /// unrolled whole, and its operands spilled.
    run_words: usize,
    acc: &'a mut [f32],
}

/// `N` routed rows times `VECTORS` vectors of weight rows.
struct Kernel<'a, S, F, const N: usize> {
    args: Args<'a>,
    types: PhantomData<(S, F)>,
}

impl<S: Simd, F: Lanes, const N: usize> Work for Kernel<'_, S, F, N> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // n and v index registers and memory alike
    fn run(self) {
        let Args { weights, codes, scales, starts, sums, values, run_words, acc } = self.args;
        let shape = const { Shape::of::<S, F>() };
        let rows = VECTORS * S::LANES;
        let run_words = if S::HALVES { run_words } else { shape.run / 4 };
        assert!(run_words <= shape.run / 4);
        assert!(values <= SLAB && values.is_multiple_of(32) && weights.has(rows, shape));
        assert!(codes.len() == N * WORDS && scales.len() == N * SCALES);
        assert!(starts.len() == N * shape.starts() && sums.len() == N * shape.sums());
        assert!(acc.len() == N * rows);
        let (words, codes) = (weights.words.as_ptr(), codes.as_ptr());
        let (dw, sub) = (weights.dw.as_ptr(), weights.sub.as_ptr());
        let (mn, dm) = (weights.mn.as_ptr(), weights.dm.as_ptr());
        let (scales, sums, starts) = (scales.as_ptr(), sums.as_ptr(), starts.as_ptr());
        let acc = acc.as_mut_ptr();

        // SAFETY: this is inside a `run` of S. Every pointer below stays inside its slice: values
        // below SLAB have their words, runs, scales, groups and minimums by the assertions above,
        // rows v * LANES end at `rows`, and there are N routed rows.
        unsafe {
            let mut t = [[S::zero(); VECTORS]; N];
            for value in (0..values).step_by(32) {
                let mut total = [[S::zero(); VECTORS]; N];
                let mut isum = [[S::zero_i(); VECTORS]; N];
                for run in value / shape.run..(value + 32) / shape.run {
                    // Sums of halves are multiplied by sub-scales on their way to i32.
                    let sub_at = |v: usize| run * shape.run / shape.sub * rows + v * S::LANES;
                    let mut scale = [S::splat_i(0x0001_0001); VECTORS];
                    if S::HALVES && shape.sub > 0 {
                        for v in 0..VECTORS {
                            scale[v] = S::load_i(sub.add(sub_at(v)));
                        }
                    }
                    if !S::HALVES || shape.group == 16 {
                        isum = [[S::zero_i(); VECTORS]; N];
                    }
                    let first = run * shape.run / 4;
                    let start = |n: usize, word: usize| {
                        S::splat_i(*starts.add(n * shape.starts() + 4 * word / shape.part))
                    };
                    if Codes::<F>::signed::<S>() {
                        for word in first..first + run_words {
                            for v in 0..VECTORS {
                                let w = S::load_i(words.add(word * rows + v * S::LANES));
                                for n in 0..N {
                                    let x = S::splat_i(*codes.add(n * WORDS + word));
                                    isum[n][v] = S::dot_signed(isum[n][v], w, x, scale[v]);
                                }
                            }
                        }
                    } else if shape.part == shape.run {
                        let mut s = [[S::zero_i(); VECTORS]; N];
                        for n in 0..N {
                            s[n] = [start(n, first); VECTORS];
                        }
                        for word in first..first + run_words {
                            let mut w = [S::zero_i(); VECTORS];
                            for v in 0..VECTORS {
                                w[v] = S::load_i(words.add(word * rows + v * S::LANES));
                            }
                            for n in 0..N {
                                let x = S::splat_i(*codes.add(n * WORDS + word));
                                for v in 0..VECTORS {
                                    s[n][v] = S::dot_add(s[n][v], w[v], x);
                                }
                            }
                        }
                        for n in 0..N {
                            for v in 0..VECTORS {
                                isum[n][v] = S::dot_end(isum[n][v], s[n][v], scale[v]);
                            }
                        }
                    } else {
                        // Two words at a time, or the sums of all parts would not fit the registers.
                        for first in (first..first + run_words).step_by(2) {
                            let mut w = [[S::zero_i(); 2]; VECTORS];
                            for v in 0..VECTORS {
                                let at = words.add(first * rows + v * S::LANES);
                                w[v] = [S::load_i(at), S::load_i(at.add(rows))];
                            }
                            for n in 0..N {
                                let x = codes.add(n * WORDS + first);
                                let x = [S::splat_i(*x), S::splat_i(*x.add(1))];
                                let from = start(n, first);
                                for v in 0..VECTORS {
                                    let one = S::dot_add(from, w[v][0], x[0]);
                                    let s = S::dot_add(one, w[v][1], x[1]);
                                    isum[n][v] = S::dot_end(isum[n][v], s, scale[v]);
                                }
                            }
                        }
                    }
                    for v in 0..VECTORS {
                        // Products and sums of integers below 2^24: exact.
                        if !S::HALVES && shape.sub > 0 {
                            let scale = S::load(sub.add(sub_at(v)).cast());
                            for n in 0..N {
                                let sum = S::convert(isum[n][v]);
                                total[n][v] = S::fma(sum, scale, total[n][v]);
                            }
                        } else {
                            for n in 0..N {
                                total[n][v] = S::convert(isum[n][v]);
                            }
                        }
                    }
                    if shape.group == 16 {
                        for n in 0..N {
                            let d = S::splat(*scales.add(n * SCALES + value / 32));
                            for v in 0..VECTORS {
                                let to = acc.add(n * rows + v * S::LANES);
                                let scale = S::load(dw.add(run * rows + v * S::LANES));
                                let t = S::fma(total[n][v], d, S::zero());
                                S::store(to, S::fma(t, scale, S::load(to)));
                            }
                        }
                    }
                }
                if shape.group == 16 {
                    continue;
                }
                let first_of_group = value % shape.group == 0;
                for n in 0..N {
                    let d = S::splat(*scales.add(n * SCALES + value / 32));
                    for v in 0..VECTORS {
                        let before = if first_of_group { S::zero() } else { t[n][v] };
                        t[n][v] = S::fma(total[n][v], d, before);
                    }
                }
                if (value + 32) % shape.group != 0 {
                    continue;
                }
                let g = value / shape.group;
                for v in 0..VECTORS {
                    let lane = v * S::LANES;
                    let scale = S::load(dw.add(g * rows + lane));
                    for n in 0..N {
                        let to = acc.add(n * rows + lane);
                        let mut sum = S::fma(t[n][v], scale, S::load(to));
                        if let Some(per_group) = shape.group.checked_div(shape.min) {
                            let mut u = S::zero();
                            for m in g * per_group..(g + 1) * per_group {
                                let minimum = S::load(mn.add(m * rows + lane));
                                u = S::fma(minimum, S::splat(*sums.add(n * shape.sums() + m)), u);
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
