//! The steps of a whole model around its products.

use std::ops::Range;

use strata_core::Result;
use strata_core::attention::Pairs;
use strata_core::backend::ops::{
    AddNorm, AppendKv, Attend, By, Convolve, DeltaNet, Embed, FloatProduct, Matrix, MatrixMut,
    Norm, NormKind, Pointwise, Rope, Table,
};
use strata_core::backend::{Checked, ModelOps, TokenBatch};
use strata_core::floats::FloatType;
use strata_core::format::dequantize;
use strata_core::numerics::canonical;

use crate::CpuBackend;
use crate::attention::{self, Places};
use crate::exp::{sigmoid, silu, tanh};
use crate::isa::Work;
use crate::memory::{self, Parts};
use crate::quantize::Input;
use crate::recurrent;
use crate::router::{MOST_TOKENS, ScoreWeights, Scores, TILE};

/// Rows of a task.
const TASK_ROWS: usize = 16;

/// The tasks that `rows` rows are cut into, and the rows of one.
fn tasks(rows: usize) -> (usize, impl Fn(usize) -> Range<usize>) {
    (rows.div_ceil(TASK_ROWS), move |task| task * TASK_ROWS..rows.min((task + 1) * TASK_ROWS))
}

fn input(m: Matrix<'_>) -> Input<'_> {
    Input { values: memory::values(m.data()), stride: m.stride(), cols: m.cols() }
}

/// Rows that several threads write, each its own.
struct RowsMut<'a> {
    parts: Parts<'a, f32>,
    stride: usize,
    cols: usize,
}

impl RowsMut<'_> {
    /// # Safety
    /// While the row lives, nobody else may have it.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)] // what the safety contract is about
    unsafe fn row(&self, row: usize) -> &mut [f32] {
        // SAFETY: the caller's.
        unsafe { self.parts.part(row * self.stride, self.cols) }
    }
}

/// Calls `f` with the rows of a matrix.
fn with_rows<R>(m: &mut MatrixMut<'_>, f: impl FnOnce(RowsMut<'_>) -> R) -> Result<R> {
    let (stride, cols) = (m.stride(), m.cols());
    let mut data = m.data();
    let parts = Parts::new(memory::values_mut(&mut data)?);
    Ok(f(RowsMut { parts, stride, cols }))
}

fn places(batch: &TokenBatch) -> Places<'_> {
    Places {
        sequences: memory::values(batch.sequences()),
        positions: memory::values(batch.positions()),
        pages: memory::values(batch.pages()),
        per_sequence: batch.limits().pages_per_sequence,
    }
}

impl ModelOps for CpuBackend {
    fn embed(&self, op: &mut Checked<Embed<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (table, scale) = (op.table(), op.scale());
        let (ids, bytes) = (memory::values(op.ids()), memory::values(table.data()));
        let (count, rows) = tasks(ids.len());
        with_rows(op.out(), |out| {
            host.parallel(count, |task| {
                for row in rows(task) {
                    // SAFETY: every row belongs to one task.
                    let out = unsafe { out.row(row) };
                    let id = ids[row] as usize;
                    match table {
                        Table::Quantized(w) => {
                            let len = w.cols() / w.ty().block_values() * w.ty().block_bytes();
                            dequantize(w.ty(), &bytes[id * w.row_stride()..][..len], out)
                                .expect("whole blocks, as core has checked");
                        }
                        Table::Floats(m) => {
                            let len = m.cols() * m.ty().bytes();
                            m.ty().widen_to(&bytes[id * len..][..len], out);
                        }
                    }
                    for v in out {
                        *v = canonical(scale.map_or(*v, |scale| *v * scale));
                    }
                }
            });
        })
    }

    fn norm(&self, op: &mut Checked<Norm<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (x, kind, group, eps) = (op.x(), kind(op.kind()), op.group(), op.eps());
        let (x, (count, rows)) = (input(x), tasks(x.rows()));
        with_rows(op.out(), |out| {
            host.parallel(count, |task| {
                for row in rows(task) {
                    // SAFETY: every row belongs to one task.
                    let out = unsafe { out.row(row) };
                    host.cpu.run(NormRow { x: x.row(row), kind, group, eps, out });
                }
            });
        })
    }

    fn add_norm(&self, op: &mut Checked<AddNorm<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (y, kind, eps) = (op.y(), kind(op.kind()), op.eps());
        let (y, (count, rows)) = (input(y), tasks(y.rows()));
        let (x, out) = op.parts();
        let all = with_rows(x, |x| {
            with_rows(out, |out| {
                host.parallel(count, |task| {
                    for row in rows(task) {
                        // SAFETY: every row belongs to one task.
                        let (x, out) = unsafe { (x.row(row), out.row(row)) };
                        host.cpu.run(PointwiseRow { x, by: RowBy::Add(y.row(row)) });
                        let group = x.len();
                        host.cpu.run(NormRow { x, kind, group, eps, out });
                    }
                });
            })
        });
        all?
    }

    fn pointwise(&self, op: &mut Checked<Pointwise<'_>>) -> Result<()> {
        let host = &*self.shared;
        let by = op.by();
        let operand = match by {
            By::Add(m) | By::Multiply(m) | By::Copy(m) | By::SigmoidGate(m) | By::SiluGate(m) => {
                Some(input(m))
            }
            By::Bias(_) | By::Scale(_) | By::Softcap(_) => None,
        };
        let bias = if let By::Bias(b) = by { memory::values(b) } else { &[] };
        let (count, rows) = tasks(op.x().rows());
        with_rows(op.x(), |x| {
            host.parallel(count, |task| {
                for row in rows(task) {
                    let by = match (by, &operand) {
                        (By::Add(_), Some(y)) => RowBy::Add(y.row(row)),
                        (By::Multiply(_), Some(y)) => RowBy::Multiply(y.row(row)),
                        (By::Copy(_), Some(y)) => RowBy::Copy(y.row(row)),
                        (By::SigmoidGate(_), Some(gate)) => RowBy::Gate(gate.row(row)),
                        (By::SiluGate(_), Some(gate)) => RowBy::SiluGate(gate.row(row)),
                        (By::Scale(factor), _) => RowBy::Scale(factor),
                        (By::Softcap(cap), _) => RowBy::Softcap(cap),
                        _ => RowBy::Add(bias),
                    };
                    // SAFETY: every row belongs to one task.
                    let x = unsafe { x.row(row) };
                    host.cpu.run(PointwiseRow { x, by });
                }
            });
        })
    }

    fn rope(&self, op: &mut Checked<Rope<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (head, pairs, (cos, sin)) = (op.head(), op.pairs(), op.tables());
        let (cos, sin, positions) = (input(cos), input(sin), memory::values(op.positions()));
        let (count, rows) = tasks(positions.len());
        with_rows(op.x(), |x| {
            host.parallel(count, |task| {
                for row in rows(task) {
                    let at = positions[row] as usize;
                    let (cos, sin) = (cos.row(at), sin.row(at));
                    // SAFETY: every row belongs to one task.
                    let x = unsafe { x.row(row) };
                    host.cpu.run(RopeRow { x, head, cos, sin, pairs });
                }
            });
        })
    }

    fn float_product(&self, op: &mut Checked<FloatProduct<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (x, weights) = (op.x(), op.weights());
        let (tokens, outputs) = (x.rows(), weights.rows());
        let (x, bytes) = (input(x), memory::values(weights.data()));
        let weights = match weights.ty() {
            // Aligned, unless a caller cut the buffer anywhere.
            FloatType::F32 if bytemuck::try_cast_slice::<u8, f32>(bytes).is_ok() => {
                let values = bytemuck::cast_slice(bytes);
                ScoreWeights::Floats(Input { values, stride: weights.cols(), cols: weights.cols() })
            }
            ty => ScoreWeights::Bytes { bytes, ty, cols: weights.cols() },
        };
        with_rows(op.out(), |out| {
            let tiles = outputs.div_ceil(TILE);
            host.parallel(tiles * tokens.div_ceil(MOST_TOKENS), |task| {
                let (t, e) = (task / tiles * MOST_TOKENS, task % tiles * TILE);
                host.cpu.run(Scores {
                    x,
                    weights,
                    experts: e..outputs.min(e + TILE),
                    tokens: t..tokens.min(t + MOST_TOKENS),
                    out: out.parts,
                    stride: out.stride,
                });
            });
        })
    }

    fn append_kv(&self, op: &mut Checked<AppendKv<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (layout, keys, values) = (op.layout(), input(op.keys()), input(op.values()));
        let places = places(op.batch());
        let mut cache = op.cache();
        let cache = Parts::new(memory::values_mut(&mut cache)?);
        attention::Append { layout, keys, values, places, cache }.run(host);
        Ok(())
    }

    fn attend(&self, op: &mut Checked<Attend<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (shape, queries, places) = (op.shape(), input(op.queries()), places(op.batch()));
        let (cache, sinks) = (memory::values(op.cache()), op.sinks().map(memory::values));
        let ran = with_rows(op.out(), |out| {
            let (out, out_stride) = (out.parts, out.stride);
            attention::Attend { shape, queries, places, cache, sinks, out, out_stride }.run(host)
        });
        ran?
    }

    fn convolve(&self, op: &mut Checked<Convolve<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (x, taps, silu, runs) = (input(op.x()), input(op.taps()), op.silu(), op.runs().clone());
        let (out, mut states) = op.parts();
        let states = Parts::new(memory::values_mut(&mut states)?);
        with_rows(out, |out| {
            let (out, out_stride) = (out.parts, out.stride);
            recurrent::Convolve { x, taps, silu, runs: &runs, states, out, out_stride }.run(host);
        })
    }

    fn delta_net(&self, op: &mut Checked<DeltaNet<'_>>) -> Result<()> {
        let host = &*self.shared;
        let (shape, inputs, runs) = (op.shape(), op.inputs(), op.runs().clone());
        let (out, mut states) = op.parts();
        let states = Parts::new(memory::values_mut(&mut states)?);
        with_rows(out, |out| {
            recurrent::DeltaNet {
                shape,
                queries: input(inputs.queries),
                keys: input(inputs.keys),
                values: input(inputs.values),
                beta: input(inputs.beta),
                alpha: input(inputs.alpha),
                decay_bias: memory::values(inputs.decay_bias),
                decay: memory::values(inputs.decay),
                runs: &runs,
                states,
                out: out.parts,
                out_stride: out.stride,
            }
            .run(host);
        })
    }
}

/// [`NormKind`] over host memory.
#[derive(Clone, Copy)]
enum Kind<'a> {
    Rms(Option<&'a [f32]>),
    Layer(&'a [f32], &'a [f32]),
    L2,
}

fn kind(kind: NormKind<'_>) -> Kind<'_> {
    match kind {
        NormKind::Rms(weight) => Kind::Rms(weight.map(memory::values)),
        NormKind::Layer(weight, bias) => Kind::Layer(memory::values(weight), memory::values(bias)),
        NormKind::L2 => Kind::L2,
    }
}

/// One row's norms.
struct NormRow<'a> {
    x: &'a [f32],
    kind: Kind<'a>,
    group: usize,
    eps: f32,
    out: &'a mut [f32],
}

/// 256 partial sums over columns c = l mod 256, then halves.
#[inline(always)]
fn lanes(x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    let mut p = [0.0f32; 256];
    let (whole, rest) = x.as_chunks::<256>();
    for x in whole {
        for (p, x) in p.iter_mut().zip(x) {
            *p = add(*x, *p);
        }
    }
    for (p, x) in p.iter_mut().zip(rest) {
        *p = add(*x, *p);
    }
    let mut half = 128;
    while half > 0 {
        let (lower, upper) = p.split_at_mut(half);
        for (p, q) in lower.iter_mut().zip(upper) {
            *p += *q;
        }
        half /= 2;
    }
    p[0]
}

impl Work for NormRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let n = self.group as f32;
        let heads = self.x.chunks_exact(self.group).zip(self.out.chunks_exact_mut(self.group));
        for (x, out) in heads {
            match self.kind {
                Kind::Rms(weight) => {
                    let mean = lanes(x, |x, p| x.mul_add(x, p)) / n;
                    let r = 1.0 / (mean + self.eps).sqrt();
                    match weight {
                        Some(weight) => {
                            for ((out, x), w) in out.iter_mut().zip(x).zip(weight) {
                                *out = canonical((x * r) * w);
                            }
                        }
                        None => {
                            for (out, x) in out.iter_mut().zip(x) {
                                *out = canonical(x * r);
                            }
                        }
                    }
                }
                Kind::L2 => {
                    let length = lanes(x, |x, p| x.mul_add(x, p)).sqrt();
                    let r = 1.0 / if length > self.eps { length } else { self.eps };
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = canonical(x * r);
                    }
                }
                Kind::Layer(weight, bias) => {
                    let mean = lanes(x, |x, p| p + x) / n;
                    for (out, x) in out.iter_mut().zip(x) {
                        *out = x - mean;
                    }
                    let r = 1.0 / (lanes(out, |d, p| d.mul_add(d, p)) / n + self.eps).sqrt();
                    for ((out, w), b) in out.iter_mut().zip(weight).zip(bias) {
                        *out = canonical((*out * r).mul_add(*w, *b));
                    }
                }
            }
        }
    }
}

/// [`By`] for one row.
#[derive(Clone, Copy)]
enum RowBy<'a> {
    Add(&'a [f32]),
    Scale(f32),
    Softcap(f32),
    Multiply(&'a [f32]),
    Copy(&'a [f32]),
    Gate(&'a [f32]),
    SiluGate(&'a [f32]),
}

struct PointwiseRow<'a> {
    x: &'a mut [f32],
    by: RowBy<'a>,
}

impl Work for PointwiseRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let x = self.x;
        match self.by {
            RowBy::Add(y) => x.iter_mut().zip(y).for_each(|(x, y)| *x = canonical(*x + y)),
            RowBy::Scale(factor) => x.iter_mut().for_each(|x| *x = canonical(*x * factor)),
            RowBy::Softcap(cap) => x.iter_mut().for_each(|x| *x = canonical(cap * tanh(*x / cap))),
            RowBy::Multiply(y) => x.iter_mut().zip(y).for_each(|(x, y)| *x = canonical(*x * y)),
            RowBy::Copy(y) => x.copy_from_slice(y),
            RowBy::Gate(gate) => gated(x, gate, sigmoid),
            RowBy::SiluGate(gate) => gated(x, gate, silu),
        }
    }
}

/// Each value times what `of` makes of its gate; a gate is of as many values in a row as are needed.
#[inline(always)]
fn gated(x: &mut [f32], gate: &[f32], of: impl Fn(f32) -> f32) {
    if gate.len() == x.len() {
        x.iter_mut().zip(gate).for_each(|(x, g)| *x = canonical(*x * of(*g)));
        return;
    }
    for (x, g) in x.chunks_exact_mut(x.len() / gate.len()).zip(gate) {
        let g = of(*g);
        x.iter_mut().for_each(|x| *x = canonical(*x * g));
    }
}

/// One row's heads.
struct RopeRow<'a> {
    x: &'a mut [f32],
    head: usize,
    cos: &'a [f32],
    sin: &'a [f32],
    pairs: Pairs,
}

impl Work for RopeRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { x, head, cos, sin, pairs } = self;
        let n = cos.len();
        let turn = |a: &mut f32, b: &mut f32, c: f32, s: f32| {
            let (x0, x1) = (*a, *b);
            *a = canonical(x0.mul_add(c, -(x1 * s)));
            *b = canonical(x0.mul_add(s, x1 * c));
        };
        for x in x.chunks_exact_mut(head) {
            match pairs {
                Pairs::Interleaved => {
                    for ((x, c), s) in x.as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                        let [a, b] = x;
                        turn(a, b, *c, *s);
                    }
                }
                Pairs::Halves => {
                    let (a, b) = x.split_at_mut(n);
                    for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                        turn(a, b, *c, *s);
                    }
                }
            }
        }
    }
}
