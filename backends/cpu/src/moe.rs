//! The steps between the products.

use std::ops::Range;

use strata_core::Result;
use strata_core::backend::ops::{
    Combine, CombineOptions, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK,
};
use strata_core::backend::{Checked, MoeOps};
use strata_core::numerics::canonical;
use strata_core::q8_1::{BLOCK_BYTES, BLOCK_VALUES, Headers, k_blocks};
use strata_core::routing::{ChooseSpace, RouterBias, choose};

use crate::CpuBackend;
use crate::exp;
use crate::hidden::{Affine, Source, per_expert};
use crate::isa::Work;
use crate::memory::{self, Parts};
use crate::q8::{self, Reporter};
use crate::quantize::Input;
use crate::router::{MOST_TOKENS, ScoreWeights, Scores, TILE};
use crate::simd::{Simd, SimdWork};

/// Rows of a task.
const TASK_ROWS: usize = 16;

/// The tasks that `rows` rows are cut into, and the rows of one.
fn tasks(rows: usize) -> (usize, impl Fn(usize) -> Range<usize>) {
    (rows.div_ceil(TASK_ROWS), move |task| task * TASK_ROWS..rows.min((task + 1) * TASK_ROWS))
}

impl MoeOps for CpuBackend {
    fn router_scores(&self, op: &mut Checked<RouterScores<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (x, weights, stride) = (op.x(), op.weights(), op.out().stride());
        let (tokens, experts) = (x.rows(), weights.rows());
        let input = |m: strata_core::backend::ops::Matrix<'_>| (m.stride(), m.cols());
        let ((x_stride, cols), (w_stride, _)) = (input(x), input(weights));
        let x = Input { values: memory::values(x.data()), stride: x_stride, cols };
        let weights = Input { values: memory::values(weights.data()), stride: w_stride, cols };
        let weights = ScoreWeights::Floats(weights);
        {
            let mut out = op.out().data();
            let out = memory::values_mut(&mut out)?;
            let out = Parts::new(out);
            let tiles = experts.div_ceil(TILE);
            host.parallel(tiles * tokens.div_ceil(MOST_TOKENS), |task| {
                let (t, e) = (task / tiles * MOST_TOKENS, task % tiles * TILE);
                host.cpu.run(Scores {
                    x,
                    weights,
                    experts: e..experts.min(e + TILE),
                    tokens: t..tokens.min(t + MOST_TOKENS),
                    out,
                    stride,
                });
            });
        }
        Ok(())
    }

    fn top_k(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        let host = &*self.shared;
        let reporter = op.report_to().map(|to| Reporter::new(to));
        let (scores, k, options) = (op.scores(), op.k(), *op.options());
        let bias = RouterBias {
            score: op.score_bias().map(memory::values),
            selection: op.selection_bias().map(memory::values),
        };
        let (count, rows) = tasks(scores.rows());
        let x = Input {
            values: memory::values(scores.data()),
            stride: scores.stride(),
            cols: scores.cols(),
        };
        let (mut ids, mut weights) = op.out();
        let ids = Parts::new(memory::values_mut(&mut ids)?);
        let weights = Parts::new(memory::values_mut(&mut weights)?);
        host.parallel(count, |task| {
            let mut space = ChooseSpace::default();
            for token in rows(task) {
                // SAFETY: every token belongs to one task.
                let (ids, weights) =
                    unsafe { (ids.part(token * k, k), weights.part(token * k, k)) };
                let finite = choose(x.row(token), bias, &options, &mut space, ids, weights);
                if let Some(reporter) = &reporter
                    && !finite
                {
                    reporter.value(token);
                }
            }
        });
        match (reporter, op.report_to()) {
            (Some(reporter), Some(to)) => reporter.finish(to),
            _ => Ok(()),
        }
    }

    fn map_routes(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        self.map(op)
    }

    fn swiglu(&self, op: &mut Checked<SwiGlu<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (gate_up, stride) = (op.gate_up(), op.out().stride());
        let matrix = gate_up.matrix();
        let x = Input {
            values: memory::values(matrix.data()),
            stride: matrix.stride(),
            cols: matrix.cols(),
        };
        {
            let mut out = op.out().data();
            let out = memory::values_mut(&mut out)?;
            let out = Parts::new(out);
            let (count, rows) = tasks(matrix.rows());
            let source = Source::new(x, &gate_up);
            host.parallel(count, |task| {
                host.cpu.run(Hidden { source, out, stride, rows: rows(task) });
            });
        }
        Ok(())
    }

    fn swiglu_quantize(&self, op: &mut Checked<SwiGluQuantize<'_>>) -> Result<()> {
        let host = &*self.shared;
        let reporter = op.report_to().map(|to| Reporter::new(to));
        let (gate_up, tokens) = (op.gate_up(), op.tokens().map(memory::values));
        let (out_rows, headers) = (op.out().rows(), op.out().headers());
        let matrix = gate_up.matrix();
        let x = Input {
            values: memory::values(matrix.data()),
            stride: matrix.stride(),
            cols: matrix.cols(),
        };
        {
            let mut out = op.out().data();
            let out = memory::values_mut(&mut out)?;
            let out = Parts::new(out);
            let (count, rows) = tasks(out_rows);
            let source = Source::new(x, &gate_up);
            host.parallel(count, |task| {
                host.cpu.run_simd(QuantizedHidden {
                    source,
                    tokens,
                    out,
                    out_rows,
                    headers,
                    rows: rows(task),
                    reporter: reporter.as_ref(),
                });
            });
        }
        match (reporter, op.report_to()) {
            (Some(reporter), Some(to)) => reporter.finish(to),
            _ => Ok(()),
        }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let host = &*self.shared;
        let reporter = op.report_to().map(|to| Reporter::new(to));
        let (y, map, routes, shared) = (op.y(), op.map(), op.routes(), op.shared());
        let stride = op.out().stride();
        let input = |m: strata_core::backend::ops::Matrix<'_>| (m.stride(), m.cols());
        let (y_stride, cols) = input(y);
        let y = Input { values: memory::values(y.data()), stride: y_stride, cols };
        let (slot, weights) = (memory::values(map.slot()), memory::values(routes.weights()));
        let ids = memory::values(routes.ids());
        let affine = op.affine().map(|(scale, bias)| Affine {
            scale: scale.map(per_expert),
            bias: bias.map(per_expert),
        });
        let factors = op.factors();
        let shared_y = shared.as_ref().map(|s| Input {
            values: memory::values(s.y.data()),
            stride: s.y.stride(),
            cols,
        });
        let score = shared.as_ref().and_then(|s| s.score).map(|score| Input {
            values: memory::values(score.data()),
            stride: score.stride(),
            cols: 1,
        });
        {
            let mut out = op.out().data();
            let out = memory::values_mut(&mut out)?;
            let out = Parts::new(out);
            let (count, tokens) = tasks(map.tokens());
            host.parallel(count, |task| {
                host.cpu.run(Combined {
                    y,
                    slot,
                    weights,
                    ids,
                    affine,
                    factors,
                    k: map.k(),
                    shared: shared_y,
                    score,
                    out,
                    stride,
                    tokens: tokens(task),
                    reporter: reporter.as_ref(),
                });
            });
        }
        match (reporter, op.report_to()) {
            (Some(reporter), Some(to)) => reporter.finish(to),
            _ => Ok(()),
        }
    }
}

struct Hidden<'a> {
    source: Source<'a>,
    out: Parts<'a, f32>,
    stride: usize,
    rows: Range<usize>,
}

impl Work for Hidden<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for row in self.rows {
            // SAFETY: every row belongs to one task.
            let out = unsafe { self.out.part(row * self.stride, self.source.ffn()) };
            for (i, out) in out.chunks_mut(BLOCK_VALUES).enumerate() {
                self.source.hidden(row, i * BLOCK_VALUES, out);
            }
        }
    }
}

struct QuantizedHidden<'a> {
    source: Source<'a>,
    tokens: Option<&'a [u32]>,
    out: Parts<'a, u8>,
    out_rows: usize,
    headers: Headers,
    rows: Range<usize>,
    reporter: Option<&'a Reporter>,
}

impl SimdWork for QuantizedHidden<'_> {
    #[inline(always)]
    fn run<S: Simd>(self) {
        let ffn = self.source.ffn();
        for row in self.rows {
            for k_block in 0..k_blocks(ffn) {
                let from = (k_block * BLOCK_VALUES).min(ffn);
                let mut values = [0.0; BLOCK_VALUES];
                self.source.hidden(row, from, &mut values[..BLOCK_VALUES.min(ffn - from)]);
                let at = (k_block * self.out_rows + row) * BLOCK_BYTES;
                // SAFETY: every block belongs to one row, and every row to one task.
                let out = unsafe { self.out.part(at, BLOCK_BYTES) };
                let out = out.as_mut_array().expect("a part as long as a block");
                // SAFETY: inside a `run` of S.
                let seen = unsafe { q8::block::<S>(&values, self.headers, out) };
                if let Some(reporter) = self.reporter {
                    reporter.block(self.tokens.map_or(row, |tokens| tokens[row] as usize), seen);
                }
            }
        }
    }
}

struct Combined<'a> {
    y: Input<'a>,
    slot: &'a [u32],
    weights: &'a [f32],
    ids: &'a [i32],
    affine: Option<Affine<'a>>,
    factors: CombineOptions,
    k: usize,
    shared: Option<Input<'a>>,
    score: Option<Input<'a>>,
    out: Parts<'a, f32>,
    stride: usize,
    tokens: Range<usize>,
    reporter: Option<&'a Reporter>,
}

/// Columns that are summed side by side.
const COLUMNS: usize = 32;

impl Work for Combined<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for token in self.tokens {
            let slot = &self.slot[token * self.k..][..self.k];
            let weights = &self.weights[token * self.k..][..self.k];
            let ids = &self.ids[token * self.k..][..self.k];
            let score = self.score.map(|score| score.row(token)[0]);
            let weight = score.map_or(1.0, exp::sigmoid) * self.factors.shared;
            let shared = self.shared.map(|y| (y.row(token), weight));
            let mut finite = true;
            // SAFETY: every token belongs to one task.
            let out = unsafe { self.out.part(token * self.stride, self.y.cols) };
            for (i, out) in out.chunks_mut(COLUMNS).enumerate() {
                let from = i * COLUMNS;
                let mut acc = [0.0f32; COLUMNS];
                for ((&row, &weight), &id) in slot.iter().zip(weights).zip(ids) {
                    let y = &self.y.row(row as usize)[from..];
                    let weight = if self.factors.weighed { weight } else { 1.0 };
                    match &self.affine {
                        None => add(y, weight, &mut acc),
                        Some(affine) => {
                            let mut values = [0.0; COLUMNS];
                            let values = &mut values[..out.len()];
                            values.copy_from_slice(&y[..out.len()]);
                            affine.apply(id as usize, 0, from, values);
                            add(values, weight, &mut acc);
                        }
                    }
                }
                if let Some((y, weight)) = shared {
                    add(&y[from..], weight, &mut acc);
                }
                for (out, acc) in out.iter_mut().zip(acc) {
                    let sum = acc * self.factors.sum;
                    *out = canonical(sum);
                    finite &= sum.is_finite();
                }
            }
            if let Some(reporter) = self.reporter {
                if score.is_some_and(|score| !score.is_finite()) {
                    reporter.header(token);
                }
                if !finite {
                    reporter.value(token);
                }
            }
        }
    }
}

#[inline(always)]
fn add(y: &[f32], weight: f32, acc: &mut [f32; COLUMNS]) {
    match y.first_chunk::<COLUMNS>() {
        Some(y) => {
            for (acc, y) in acc.iter_mut().zip(y) {
                *acc = weight.mul_add(*y, *acc);
            }
        }
        None => {
            for (acc, y) in acc.iter_mut().zip(y) {
                *acc = weight.mul_add(*y, *acc);
            }
        }
    }
}
