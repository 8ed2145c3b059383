//! Layers that keep a state of each sequence.

use crate::backend::ops::DeltaShape;
use crate::numerics::{canonical, exp, sigmoid, silu, softplus};

/// One row of a causal convolution: `state` holds the rows before it, the oldest first, and takes it.
pub fn convolve(x: &[f32], taps: &[f32], silu_after: bool, state: &mut [f32]) -> Vec<f32> {
    let (cols, count) = (x.len(), taps.len() / x.len());
    let out = (0..cols).map(|c| {
        let taps = &taps[c * count..][..count];
        let mut sum = 0.0f32;
        for (j, tap) in taps.iter().enumerate() {
            let value = if j + 1 < count { state[j * cols + c] } else { x[c] };
            sum = tap.mul_add(value, sum);
        }
        canonical(if silu_after { silu(sum) } else { sum })
    });
    let out = out.collect();
    if count > 1 {
        state.copy_within(cols.., 0);
        state[(count - 2) * cols..].copy_from_slice(x);
    }
    out
}

/// What a gated delta net reads of one token.
pub struct DeltaToken<'a> {
    /// Heads of queries.
    pub queries: &'a [f32],
    /// Heads of keys.
    pub keys: &'a [f32],
    /// Heads of values.
    pub values: &'a [f32],
    /// One for each head of values.
    pub beta: &'a [f32],
    /// One for each head of values.
    pub alpha: &'a [f32],
}

/// One token of a gated delta net: `state` is of the tokens before it, and takes it.
pub fn delta_net(
    shape: &DeltaShape,
    token: &DeltaToken<'_>,
    decay_bias: &[f32],
    decay: &[f32],
    state: &mut [f32],
) -> Vec<f32> {
    let (key, value) = (shape.key, shape.value);
    let mut out = Vec::with_capacity(shape.value_heads * value);
    for head in 0..shape.value_heads {
        let of = shape.key_head(head) * key;
        let (q, k) = (&token.queries[of..][..key], &token.keys[of..][..key]);
        let v = &token.values[head * value..][..value];
        let taken = sigmoid(token.beta[head]);
        let left = exp(decay[head] * softplus(token.alpha[head] + decay_bias[head]));
        let state = &mut state[head * key * value..][..key * value];
        for s in state.iter_mut() {
            *s *= left;
        }
        for c in 0..value {
            let d = (v[c] - column(state, value, c, k)) * taken;
            for (i, k) in k.iter().enumerate() {
                let s = &mut state[i * value + c];
                *s = canonical(k.mul_add(d, *s));
            }
            out.push(canonical(column(state, value, c, q) * shape.scale));
        }
    }
    out
}

/// Column c of a state times x: eight partial sums over rows i = l mod 8, then halves.
fn column(state: &[f32], value: usize, c: usize, x: &[f32]) -> f32 {
    let mut p = [0.0f32; 8];
    for (i, x) in x.iter().enumerate() {
        p[i % 8] = state[i * value + c].mul_add(*x, p[i % 8]);
    }
    for half in [4, 2, 1] {
        for l in 0..half {
            p[l] += p[l + half];
        }
    }
    p[0]
}
