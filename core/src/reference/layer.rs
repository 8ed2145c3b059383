//! The steps around the products.

use crate::activation::Activation;
use crate::backend::ops::{CombineOptions, GateUpOrder};
use crate::numerics::{self, canonical};

/// `scores[t][e]`: fma over ascending k from +0.
pub fn router_scores(x: &[f32], weights: &[f32], width: usize) -> Vec<f32> {
    let mut scores = Vec::new();
    for x in x.chunks_exact(width) {
        for w in weights.chunks_exact(width) {
            scores.push(canonical(x.iter().zip(w).fold(0.0f32, |acc, (x, w)| x.mul_add(*w, acc))));
        }
    }
    scores
}

/// What is done to the values of a row before they are used, by the row's expert: see
/// [`PerExpert`](crate::backend::ops::PerExpert).
#[derive(Debug, Clone, Default)]
pub struct Affine {
    /// Expert of each row.
    pub expert: Vec<usize>,
    /// Factors, `parts` of each expert.
    pub scale: Option<Vec<f32>>,
    /// Values of one row for each expert.
    pub bias: Option<Vec<f32>>,
}

impl Affine {
    /// Value v of column c, which is of part p of `parts`, in a row of `cols`.
    fn of(&self, v: f32, row: usize, [c, cols]: [usize; 2], [p, parts]: [usize; 2]) -> f32 {
        if self.scale.is_none() && self.bias.is_none() {
            return v;
        }
        let expert = self.expert[row];
        let scale = self.scale.as_ref().map_or(1.0, |scale| scale[expert * parts + p]);
        let bias = self.bias.as_ref().map_or(0.0, |bias| bias[expert * cols + c]);
        v.mul_add(scale, bias)
    }
}

/// Rows of gate and up values to rows of `ffn` hidden ones.
pub fn hidden(
    gate_up: &[f32],
    ffn: usize,
    order: GateUpOrder,
    activation: Activation,
    affine: &Affine,
) -> Vec<f32> {
    let (parts, cols) = (order.parts(), order.parts() * ffn);
    let mut out = Vec::with_capacity(gate_up.len() / parts);
    for (r, row) in gate_up.chunks_exact(cols).enumerate() {
        let value = |c: usize, part: usize| affine.of(row[c], r, [c, cols], [part, parts]);
        for c in 0..ffn {
            out.push(match order {
                GateUpOrder::Split => activation.of(value(c, 0), value(ffn + c, 1)),
                GateUpOrder::Interleaved => activation.of(value(2 * c, 0), value(2 * c + 1, 1)),
                GateUpOrder::UpOnly => activation.of_up(value(c, 0)),
            });
        }
    }
    out
}

/// SwiGLU alone.
pub fn swiglu(gate_up: &[f32], ffn: usize, order: GateUpOrder) -> Vec<f32> {
    hidden(gate_up, ffn, order, Activation::SwiGlu, &Affine::default())
}

/// What combine does beside the weighted sum of rows.
#[derive(Debug, Clone, Default)]
pub struct CombineWith<'a> {
    /// The shared expert: its rows, and the scores whose sigmoid weighs them.
    pub shared: Option<(&'a [f32], Option<&'a [f32]>)>,
    /// Of the experts' rows: one scale, `width` biases.
    pub affine: Affine,
    /// Factors.
    pub options: CombineOptions,
}

/// `weights[t*k+j]` times row `slot[t*k+j]` of `y`, summed over j, then the shared expert.
pub fn combine(
    y: &[f32],
    width: usize,
    slot: &[u32],
    weights: &[f32],
    k: usize,
    with: &CombineWith<'_>,
) -> Vec<f32> {
    let options = with.options;
    let mut out = Vec::new();
    for (t, (slot, weights)) in slot.chunks_exact(k).zip(weights.chunks_exact(k)).enumerate() {
        for c in 0..width {
            let mut acc = 0.0f32;
            for (&row, &weight) in slot.iter().zip(weights) {
                let row = row as usize;
                let value = with.affine.of(y[row * width + c], row, [c, width], [0, 1]);
                acc = if options.weighed { weight } else { 1.0 }.mul_add(value, acc);
            }
            if let Some((shared, score)) = with.shared {
                let weight = score.map_or(1.0, |score| numerics::sigmoid(score[t]));
                acc = (weight * options.shared).mul_add(shared[t * width + c], acc);
            }
            out.push(canonical(acc * options.sum));
        }
    }
    out
}
