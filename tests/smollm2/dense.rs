//! A dense network in f64, from weights decoded to f32.

use strata::Result;
use strata::gguf::Gguf;
use strata::prefill::tensor_f32;

/// Gate, up and down, row after row.
pub struct Ffn {
    gate: Vec<f32>,
    up: Vec<f32>,
    down: Vec<f32>,
    width: usize,
    ffn: usize,
}

impl Ffn {
    pub fn new(gguf: &Gguf, layer: usize) -> Result<Self> {
        let dense = gguf.dense(layer)?;
        Ok(Self {
            gate: tensor_f32(gguf, &dense.gate.tensor)?,
            up: tensor_f32(gguf, &dense.up.tensor)?,
            down: tensor_f32(gguf, &dense.down.tensor)?,
            width: dense.width,
            ffn: dense.ffn,
        })
    }

    /// `down * (silu(gate * x) * (up * x))` for each token.
    pub fn forward(&self, x: &[f32]) -> Vec<f64> {
        let mut out = Vec::with_capacity(x.len());
        for token in x.chunks_exact(self.width) {
            let token: Vec<f64> = token.iter().map(|&v| f64::from(v)).collect();
            let gate = product(&self.gate, &token, self.ffn);
            let up = product(&self.up, &token, self.ffn);
            let hidden: Vec<f64> =
                gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            out.extend(product(&self.down, &hidden, self.width));
        }
        out
    }
}

fn product(weights: &[f32], x: &[f64], rows: usize) -> Vec<f64> {
    let row = |row: &[f32]| row.iter().zip(x).map(|(&w, x)| f64::from(w) * x).sum();
    let out: Vec<f64> = weights.chunks_exact(x.len()).map(row).collect();
    assert_eq!(out.len(), rows);
    out
}
