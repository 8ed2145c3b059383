//! Hidden values from the gate and up values of a row.

use strata_core::activation::Activation;
use strata_core::backend::ops::{GateUp, GateUpOrder, Matrix};
use strata_core::numerics::canonical;

use crate::exp;
use crate::memory;
use crate::quantize::Input;

/// A matrix of values per expert.
pub(crate) fn per_expert(matrix: Matrix<'_>) -> Input<'_> {
    Input { values: memory::values(matrix.data()), stride: matrix.stride(), cols: matrix.cols() }
}

/// Scales and biases of experts; one of them at least.
#[derive(Clone, Copy)]
pub(crate) struct Affine<'a> {
    pub(crate) scale: Option<Input<'a>>,
    pub(crate) bias: Option<Input<'a>>,
}

impl Affine<'_> {
    /// `fma(v, scale, bias)` of the values from column `from`, which are of one part.
    #[inline(always)]
    pub(crate) fn apply(&self, expert: usize, part: usize, from: usize, values: &mut [f32]) {
        let scale = self.scale.map_or(1.0, |scale| scale.row(expert)[part]);
        match self.bias {
            Some(bias) => {
                for (v, b) in values.iter_mut().zip(&bias.row(expert)[from..]) {
                    *v = v.mul_add(scale, *b);
                }
            }
            None => values.iter_mut().for_each(|v| *v = v.mul_add(scale, 0.0)),
        }
    }
}

/// Gate and up values, and how hidden values come from them.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    x: Input<'a>,
    order: GateUpOrder,
    activation: Activation,
    affine: Option<Affine<'a>>,
    /// `bounds[e]..bounds[e + 1]`: rows of expert e; without it all are of expert 0.
    bounds: Option<&'a [u32]>,
}

impl<'a> Source<'a> {
    pub(crate) fn new(x: Input<'a>, gate_up: &GateUp<'a>) -> Self {
        let per = gate_up.affine();
        Self {
            x,
            order: gate_up.order(),
            activation: gate_up.function(),
            affine: per.map(|per| Affine {
                scale: per.scale.map(per_expert),
                bias: per.bias.map(per_expert),
            }),
            bounds: per.and_then(|per| per.map).map(|map| memory::values(map.bounds())),
        }
    }

    /// Hidden values of a row.
    #[inline(always)]
    pub(crate) fn ffn(&self) -> usize {
        self.x.cols / self.order.parts()
    }

    fn expert(&self, row: usize) -> usize {
        let Some(bounds) = self.bounds else { return 0 };
        // The last bound that is not past the row; empty experts stand before it.
        bounds.partition_point(|&bound| bound as usize <= row) - 1
    }

    /// Hidden values `from..from + out.len()` of a row; at most a block of them.
    #[inline(always)]
    pub(crate) fn hidden(&self, row: usize, from: usize, out: &mut [f32]) {
        let values = self.x.row(row);
        if self.affine.is_some() || self.activation != Activation::SwiGlu {
            return self.any(row, values, from, out);
        }
        match self.order {
            GateUpOrder::Split => {
                let (gate, up) = values.split_at(values.len() / 2);
                let (gate, up) = (&gate[from..][..out.len()], &up[from..][..out.len()]);
                for ((out, g), u) in out.iter_mut().zip(gate).zip(up) {
                    *out = exp::swiglu(*g, *u);
                }
            }
            GateUpOrder::Interleaved => {
                let pairs = &values.as_chunks::<2>().0[from..][..out.len()];
                for (out, [g, u]) in out.iter_mut().zip(pairs) {
                    *out = exp::swiglu(*g, *u);
                }
            }
            GateUpOrder::UpOnly => {
                for (out, u) in out.iter_mut().zip(&values[from..]) {
                    *out = canonical(exp::silu(*u));
                }
            }
        }
    }

    /// The same with scales, biases and any activation, by way of gates and ups apart.
    #[inline(always)]
    fn any(&self, row: usize, values: &[f32], from: usize, out: &mut [f32]) {
        const BLOCK: usize = strata_core::q8_1::BLOCK_VALUES;
        let (mut gate, mut up) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        let (gate, up) = (&mut gate[..out.len()], &mut up[..out.len()]);
        let ffn = self.ffn();
        match self.order {
            GateUpOrder::Split => {
                gate.copy_from_slice(&values[from..][..out.len()]);
                up.copy_from_slice(&values[ffn + from..][..out.len()]);
            }
            GateUpOrder::Interleaved => {
                for (i, [g, u]) in values.as_chunks::<2>().0[from..][..out.len()].iter().enumerate()
                {
                    (gate[i], up[i]) = (*g, *u);
                }
            }
            GateUpOrder::UpOnly => up.copy_from_slice(&values[from..][..out.len()]),
        }
        if let Some(affine) = &self.affine {
            let expert = self.expert(row);
            match self.order {
                GateUpOrder::Split => {
                    affine.apply(expert, 0, from, gate);
                    affine.apply(expert, 1, ffn + from, up);
                }
                GateUpOrder::UpOnly => affine.apply(expert, 0, from, up),
                GateUpOrder::Interleaved => {
                    let part = |p: usize| affine.scale.map_or(1.0, |scale| scale.row(expert)[p]);
                    let bias = |c: usize| affine.bias.map_or(0.0, |bias| bias.row(expert)[c]);
                    let scale = [part(0), part(1)];
                    for (i, (g, u)) in gate.iter_mut().zip(up.iter_mut()).enumerate() {
                        *g = g.mul_add(scale[0], bias(2 * (from + i)));
                        *u = u.mul_add(scale[1], bias(2 * (from + i) + 1));
                    }
                }
            }
        }
        self.activate(gate, up, out);
    }

    #[inline(always)]
    fn activate(&self, gate: &[f32], up: &[f32], out: &mut [f32]) {
        if self.order == GateUpOrder::UpOnly {
            match self.activation {
                Activation::SwiGlu => each_up(up, out, exp::silu),
                Activation::GeluTanh => each_up(up, out, exp::gelu),
                Activation::ReluSquared => each_up(up, out, |u| or_nan(u, relu(u) * relu(u))),
                other => each_up(up, out, |u| other.of_up(u)),
            }
            return;
        }
        match self.activation {
            Activation::SwiGlu => each(gate, up, out, |g, u| exp::silu(g) * u),
            Activation::SwiGluClamped { limit } => {
                bounded(gate, up, out, |g, u| at_most(exp::silu(g), limit) * within(u, limit))
            }
            Activation::SwiGluLimited { limit } => {
                bounded(gate, up, out, |g, u| exp::silu(at_most(g, limit)) * within(u, limit))
            }
            Activation::SwiGluOai { alpha, limit } => bounded(gate, up, out, |g, u| {
                let (g, u) = (at_most(g, limit), within(u, limit));
                g / (1.0 + exp::exp(-(alpha * g))) * (u + 1.0)
            }),
            Activation::GeluTanh => each(gate, up, out, |g, u| exp::gelu(g) * u),
            Activation::Relu => bounded(gate, up, out, |g, u| relu(g) * u),
            Activation::ReluSquared => bounded(gate, up, out, |g, u| relu(g) * relu(g) * u),
            // These have branches: one value after the other.
            other => each(gate, up, out, |g, u| other.of(g, u)),
        }
    }
}

#[inline(always)]
fn each(gate: &[f32], up: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((out, g), u) in out.iter_mut().zip(gate).zip(up) {
        *out = canonical(f(*g, *u));
    }
}

#[inline(always)]
fn each_up(up: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32) {
    for (out, u) in out.iter_mut().zip(up) {
        *out = canonical(f(*u));
    }
}

/// The same, NaN where a gate or an up value is not finite: bounds would hide it.
#[inline(always)]
fn bounded(gate: &[f32], up: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    each(gate, up, out, |g, u| or_nan(g, or_nan(u, f(g, u))));
}

/// `value`, or NaN where x is not finite.
#[inline(always)]
fn or_nan(x: f32, value: f32) -> f32 {
    if x.is_finite() { value } else { f32::NAN }
}

/// `min(x, limit)`.
#[inline(always)]
fn at_most(x: f32, limit: f32) -> f32 {
    if x > limit { limit } else { x }
}

/// x clamped to `-limit..=limit`.
#[inline(always)]
fn within(x: f32, limit: f32) -> f32 {
    if x < -limit { -limit } else { at_most(x, limit) }
}

/// 0 for what is below it; -0 stays.
#[inline(always)]
fn relu(x: f32) -> f32 {
    if x < 0.0 { 0.0 } else { x }
}
