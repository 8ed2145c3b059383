//! The steps of a whole model around its products and its attention.

use crate::attention::Pairs;
use crate::floats::FloatType;
use crate::numerics::{self, canonical, sigmoid};

/// The sum of `f(x[c])` as norms take it: 256 partial sums over columns c = l mod 256, then halves.
fn lanes(x: &[f32], add: impl Fn(f32, f32) -> f32) -> f32 {
    let mut p = [0.0f32; 256];
    for (c, x) in x.iter().enumerate() {
        p[c % 256] = add(*x, p[c % 256]);
    }
    let mut half = 128;
    while half > 0 {
        for l in 0..half {
            p[l] += p[l + half];
        }
        half /= 2;
    }
    p[0]
}

/// `x / sqrt(mean of squares + eps)`, times `weight` where there is one.
pub fn rms_norm(x: &[f32], weight: Option<&[f32]>, eps: f32) -> Vec<f32> {
    let mean = lanes(x, |x, p| x.mul_add(x, p)) / x.len() as f32;
    let r = 1.0 / (mean + eps).sqrt();
    let one = |c: usize| match weight {
        Some(w) => (x[c] * r) * w[c],
        None => x[c] * r,
    };
    (0..x.len()).map(|c| canonical(one(c))).collect()
}

/// `(x - mean) / sqrt(variance + eps) * weight + bias`.
pub fn layer_norm(x: &[f32], weight: &[f32], bias: &[f32], eps: f32) -> Vec<f32> {
    let n = x.len() as f32;
    let mean = lanes(x, |x, p| p + x) / n;
    let d: Vec<f32> = x.iter().map(|x| x - mean).collect();
    let r = 1.0 / (lanes(&d, |d, p| d.mul_add(d, p)) / n + eps).sqrt();
    d.iter().zip(weight).zip(bias).map(|((d, w), b)| canonical((d * r).mul_add(*w, *b))).collect()
}

/// `x / max(length, least)`.
pub fn l2_norm(x: &[f32], least: f32) -> Vec<f32> {
    let length = lanes(x, |x, p| x.mul_add(x, p)).sqrt();
    let r = 1.0 / if length > least { length } else { least };
    x.iter().map(|x| canonical(x * r)).collect()
}

/// Turns the first `2 * cos.len()` values of a head.
pub fn rope(x: &mut [f32], cos: &[f32], sin: &[f32], pairs: Pairs) {
    let n = cos.len();
    for i in 0..n {
        let (a, b) = match pairs {
            Pairs::Interleaved => (2 * i, 2 * i + 1),
            Pairs::Halves => (i, i + n),
        };
        let (x0, x1, c, s) = (x[a], x[b], cos[i], sin[i]);
        x[a] = canonical(x0.mul_add(c, -(x1 * s)));
        x[b] = canonical(x0.mul_add(s, x1 * c));
    }
}

/// Rows of a table, times a scale where there is one.
pub fn embed(table: &[f32], cols: usize, ids: &[u32], scale: Option<f32>) -> Vec<f32> {
    let row = |id: &u32| &table[*id as usize * cols..][..cols];
    let one = |x: &f32| canonical(scale.map_or(*x, |scale| x * scale));
    ids.iter().flat_map(row).map(one).collect()
}

/// `x + y`.
pub fn add(x: f32, y: f32) -> f32 {
    canonical(x + y)
}

/// `x * y`.
pub fn multiply(x: f32, y: f32) -> f32 {
    canonical(x * y)
}

/// `x * factor`.
pub fn scale(x: f32, factor: f32) -> f32 {
    canonical(x * factor)
}

/// `cap * tanh(x / cap)`.
pub fn softcap(x: f32, cap: f32) -> f32 {
    canonical(numerics::softcap(x, cap))
}

/// `x * (1 / (1 + exp(-gate)))`.
pub fn gate(x: f32, gate: f32) -> f32 {
    canonical(x * sigmoid(gate))
}

/// `x * (gate / (1 + exp(-gate)))`.
pub fn silu_gate(x: f32, gate: f32) -> f32 {
    canonical(x * numerics::silu(gate))
}

/// `out[r][i]`: fma over ascending k from +0, weights widened first.
pub fn float_product(x: &[f32], weights: &[u8], ty: FloatType, width: usize) -> Vec<f32> {
    super::router_scores(x, &ty.widen(weights), width)
}
