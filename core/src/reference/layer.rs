//! The steps around the products.

use crate::backend::ops::GateUpOrder;
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

/// Rows of `2 * ffn` gate and up values to rows of `ffn`.
pub fn swiglu(gate_up: &[f32], ffn: usize, order: GateUpOrder) -> Vec<f32> {
    let mut out = Vec::with_capacity(gate_up.len() / 2);
    for row in gate_up.chunks_exact(2 * ffn) {
        for c in 0..ffn {
            let (gate, up) = match order {
                GateUpOrder::Split => (row[c], row[ffn + c]),
                GateUpOrder::Interleaved => (row[2 * c], row[2 * c + 1]),
            };
            out.push(numerics::swiglu(gate, up));
        }
    }
    out
}

/// `weights[t*k+j]` times row `slot[t*k+j]` of `y`, summed over j, then the
/// shared expert: its rows, and the scores whose sigmoid weighs them.
pub fn combine(
    y: &[f32],
    width: usize,
    slot: &[u32],
    weights: &[f32],
    k: usize,
    shared: Option<(&[f32], Option<&[f32]>)>,
) -> Vec<f32> {
    let mut out = Vec::new();
    for (t, (slot, weights)) in slot.chunks_exact(k).zip(weights.chunks_exact(k)).enumerate() {
        for c in 0..width {
            let mut acc = 0.0f32;
            for (row, weight) in slot.iter().zip(weights) {
                acc = weight.mul_add(y[*row as usize * width + c], acc);
            }
            if let Some((shared, score)) = shared {
                let weight = score.map_or(1.0, |score| numerics::sigmoid(score[t]));
                acc = weight.mul_add(shared[t * width + c], acc);
            }
            out.push(canonical(acc));
        }
    }
    out
}
