//! Layers that keep a state of each sequence: see `docs/numerics.md`.
//!
//! Lanes are columns: of a convolution its own, of a delta net those of a head's values. A task has
//! some of them, of every sequence in turn; no sum is over columns.

use strata_core::backend::Runs;
use strata_core::backend::ops::{DeltaShape, MOST_DELTA, MOST_TAPS};
use strata_core::numerics::{canonical, exp, sigmoid, softplus};

use crate::device::Shared;
use crate::exp::silu;
use crate::isa::Work;
use crate::memory::Parts;
use crate::quantize::Input;

/// Columns of a convolution's task.
const COLUMNS: usize = 64;
/// Columns of a delta net's task.
const VALUES: usize = 16;
/// Partial sums of a delta net's products.
const SUMS: usize = 8;

/// A causal convolution of each column.
#[derive(Clone, Copy)]
pub(crate) struct Convolve<'a> {
    pub(crate) x: Input<'a>,
    pub(crate) taps: Input<'a>,
    pub(crate) silu: bool,
    pub(crate) runs: &'a Runs,
    pub(crate) states: Parts<'a, f32>,
    pub(crate) out: Parts<'a, f32>,
    pub(crate) out_stride: usize,
}

impl Convolve<'_> {
    /// Runs it on all threads.
    pub(crate) fn run(&self, shared: &Shared) {
        shared.parallel(self.x.cols.div_ceil(COLUMNS), |task| {
            shared.cpu.run(Columns { of: self, first: task * COLUMNS });
        });
    }
}

/// Some columns of all rows.
struct Columns<'a, 'b> {
    of: &'a Convolve<'b>,
    first: usize,
}

impl Work for Columns<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { of, first } = self;
        let (cols, before) = (of.x.cols, of.taps.cols - 1);
        let n = COLUMNS.min(cols - first);
        // Rows of one tap each, and the rows that came before.
        let mut taps = [[0.0f32; COLUMNS]; MOST_TAPS];
        for c in 0..n {
            for (taps, tap) in taps.iter_mut().zip(of.taps.row(first + c)) {
                taps[c] = *tap;
            }
        }
        let mut last = [[0.0f32; COLUMNS]; MOST_TAPS];
        for (sequence, fresh, rows) in of.runs.iter() {
            let at = |j: usize| (sequence * before + j) * cols + first;
            for (j, last) in last[..before].iter_mut().enumerate() {
                last.fill(0.0);
                if !fresh {
                    // SAFETY: these columns of this state belong to this task.
                    last[..n].copy_from_slice(unsafe { of.states.part(at(j), n) });
                }
            }
            for row in rows.iter().map(|row| *row as usize) {
                last[before][..n].copy_from_slice(&of.x.row(row)[first..first + n]);
                let mut sum = [0.0f32; COLUMNS];
                for (taps, last) in taps[..=before].iter().zip(&last) {
                    for c in 0..COLUMNS {
                        sum[c] = taps[c].mul_add(last[c], sum[c]);
                    }
                }
                if of.silu {
                    sum.iter_mut().for_each(|sum| *sum = silu(*sum));
                }
                // SAFETY: these columns of this row belong to this task.
                let out = unsafe { of.out.part(row * of.out_stride + first, n) };
                for (out, sum) in out.iter_mut().zip(&sum) {
                    *out = canonical(*sum);
                }
                for j in 0..before {
                    last[j] = last[j + 1];
                }
            }
            for (j, last) in last[..before].iter().enumerate() {
                // SAFETY: as above.
                unsafe { of.states.part(at(j), n) }.copy_from_slice(&last[..n]);
            }
        }
    }
}

/// A gated delta net.
#[derive(Clone, Copy)]
pub(crate) struct DeltaNet<'a> {
    pub(crate) shape: DeltaShape,
    pub(crate) queries: Input<'a>,
    pub(crate) keys: Input<'a>,
    pub(crate) values: Input<'a>,
    pub(crate) beta: Input<'a>,
    pub(crate) alpha: Input<'a>,
    pub(crate) decay_bias: &'a [f32],
    pub(crate) decay: &'a [f32],
    pub(crate) runs: &'a Runs,
    pub(crate) states: Parts<'a, f32>,
    pub(crate) out: Parts<'a, f32>,
    pub(crate) out_stride: usize,
}

impl DeltaNet<'_> {
    /// Runs it on all threads.
    pub(crate) fn run(&self, shared: &Shared) {
        let tiles = self.shape.value.div_ceil(VALUES);
        shared.parallel(self.shape.value_heads * tiles, |task| {
            let (head, first) = (task / tiles, task % tiles * VALUES);
            shared.cpu.run(Values { of: self, head, first });
        });
    }
}

/// Some columns of a head of values, of all rows.
struct Values<'a, 'b> {
    of: &'a DeltaNet<'b>,
    head: usize,
    first: usize,
}

/// Columns of a state times x, in [`SUMS`] partial sums, then halves; `change` comes before each.
#[inline(always)]
fn columns(
    state: &mut [[f32; VALUES]],
    x: &[f32],
    change: impl Fn(usize, &mut [f32; VALUES]),
) -> [f32; VALUES] {
    let mut p = [[0.0f32; VALUES]; SUMS];
    let whole = state.len() / SUMS * SUMS;
    for i in (0..whole).step_by(SUMS) {
        for l in 0..SUMS {
            let row = &mut state[i + l];
            change(i + l, row);
            for c in 0..VALUES {
                p[l][c] = row[c].mul_add(x[i + l], p[l][c]);
            }
        }
    }
    for i in whole..state.len() {
        let row = &mut state[i];
        change(i, row);
        for c in 0..VALUES {
            p[i - whole][c] = row[c].mul_add(x[i], p[i - whole][c]);
        }
    }
    for half in [4, 2, 1] {
        let (lower, upper) = p.split_at_mut(half);
        for (lower, upper) in lower.iter_mut().zip(upper) {
            for (p, q) in lower.iter_mut().zip(upper) {
                *p += *q;
            }
        }
    }
    p[0]
}

impl Work for Values<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { of, head, first } = self;
        let DeltaShape { key, value, scale, .. } = of.shape;
        let n = VALUES.min(value - first);
        let keys = of.shape.key_head(head) * key;
        let each = of.shape.value_heads * key * value;
        // A state's columns, row after row; those past the last are 0.
        let mut columns_of = [[0.0f32; VALUES]; MOST_DELTA];
        let state = &mut columns_of[..key];
        for (sequence, fresh, rows) in of.runs.iter() {
            let at = |i: usize| sequence * each + (head * key + i) * value + first;
            for (i, row) in state.iter_mut().enumerate() {
                row.fill(0.0);
                if !fresh {
                    // SAFETY: these columns of this state belong to this task.
                    row[..n].copy_from_slice(unsafe { of.states.part(at(i), n) });
                }
            }
            for token in rows.iter().map(|row| *row as usize) {
                let q = &of.queries.row(token)[keys..][..key];
                let k = &of.keys.row(token)[keys..][..key];
                let mut v = [0.0f32; VALUES];
                let from = head * value + first;
                v[..n].copy_from_slice(&of.values.row(token)[from..from + n]);
                let taken = sigmoid(of.beta.row(token)[head]);
                let rate = softplus(of.alpha.row(token)[head] + of.decay_bias[head]);
                let left = exp(of.decay[head] * rate);

                let known = columns(state, k, |_, row| row.iter_mut().for_each(|s| *s *= left));
                let mut d = [0.0f32; VALUES];
                for c in 0..VALUES {
                    d[c] = (v[c] - known[c]) * taken;
                }
                let answer = columns(state, q, |i, row| {
                    for c in 0..VALUES {
                        row[c] = k[i].mul_add(d[c], row[c]);
                    }
                });
                // SAFETY: these columns of this row belong to this task.
                let out = unsafe { of.out.part(token * of.out_stride + from, n) };
                for (out, answer) in out.iter_mut().zip(&answer) {
                    *out = canonical(*answer * scale);
                }
            }
            for (i, row) in state.iter().enumerate() {
                // SAFETY: as above.
                let to = unsafe { of.states.part(at(i), n) };
                for (to, s) in to.iter_mut().zip(row) {
                    *to = canonical(*s);
                }
            }
        }
    }
}
