//! A dense network in f64: weights and activations as they are, or activations as
//! q8_1 holds them.

use strata::gguf::{Gguf, Matrix};
use strata::numerics::f16_to_f32;
use strata::prefill::tensor_f32;
use strata::q8_1::{BLOCK_BYTES, BLOCK_VALUES, HEADER_BYTES};
use strata::{Layout, Result, WeightType, reference};

/// What a product reads of its activations.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Activations {
    /// The values.
    Exact,
    /// Codes, scales and sums of q8_1, in which products are defined.
    Quantized,
}

/// Gate, up and down.
pub struct Ffn {
    gate: Weights,
    up: Weights,
    down: Weights,
}

impl Ffn {
    pub fn new(gguf: &Gguf, layer: usize) -> Result<Self> {
        let dense = gguf.dense(layer)?;
        Ok(Self {
            gate: Weights::new(gguf, &dense.gate)?,
            up: Weights::new(gguf, &dense.up)?,
            down: Weights::new(gguf, &dense.down)?,
        })
    }

    /// `down * (silu(gate * x) * (up * x))` for each token.
    pub fn forward(&self, x: &[f32], activations: Activations) -> Vec<f64> {
        let mut out = Vec::with_capacity(x.len());
        for token in x.chunks_exact(self.gate.cols) {
            let token: Vec<f64> = token.iter().map(|&v| f64::from(v)).collect();
            let gate = self.gate.product(&token, activations);
            let up = self.up.product(&token, activations);
            let hidden: Vec<f64> =
                gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect();
            out.extend(self.down.product(&hidden, activations));
        }
        out
    }
}

/// A matrix of Q4_1: a weight is a scaled code plus the minimum of its 32 values.
struct Weights {
    /// Scaled codes and minimums, by value.
    parts: Vec<(f64, f64)>,
    cols: usize,
}

impl Weights {
    fn new(gguf: &Gguf, matrix: &Matrix) -> Result<Self> {
        assert_eq!(matrix.weight_type()?, WeightType::Q4_1, "what this model has");
        let bytes = gguf.tensor_bytes(&matrix.tensor)?;
        let values = tensor_f32(gguf, &matrix.tensor)?;
        let minimum = |value: usize| {
            let block = &bytes[value / 32 * WeightType::Q4_1.block_bytes()..];
            f64::from(f16_to_f32(u16::from_le_bytes([block[2], block[3]])))
        };
        let parts = values
            .iter()
            .enumerate()
            .map(|(i, &value)| (f64::from(value) - minimum(i), minimum(i)))
            .collect();
        Ok(Self { parts, cols: matrix.cols })
    }

    fn product(&self, x: &[f64], activations: Activations) -> Vec<f64> {
        // What stands for a value, and what for its part of the sum of 32.
        let (values, sums) = match activations {
            Activations::Exact => (x.to_vec(), x.to_vec()),
            Activations::Quantized => quantized(x),
        };
        let row = |row: &[(f64, f64)]| {
            let terms = row.iter().zip(values.iter().zip(&sums));
            terms.map(|((code, minimum), (value, sum))| code * value + minimum * sum).sum()
        };
        self.parts.chunks_exact(self.cols).map(row).collect()
    }
}

/// Values as q8_1 holds them, and its sums spread over their 32 values.
fn quantized(x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let x: Vec<f32> = x.iter().map(|&v| v as f32).collect();
    let blocks = reference::quantize_row(&x, Layout::DS4);
    let at = |value: usize, half: usize| {
        let block = &blocks[value / BLOCK_VALUES * BLOCK_BYTES..];
        let at = value % BLOCK_VALUES / 32 * 4 + half * 2;
        f64::from(f16_to_f32(u16::from_le_bytes([block[at], block[at + 1]])))
    };
    let code = |value: usize| {
        let block = &blocks[value / BLOCK_VALUES * BLOCK_BYTES..];
        f64::from(block[HEADER_BYTES + value % BLOCK_VALUES] as i8)
    };
    (0..x.len()).map(|i| (code(i) * at(i, 0), at(i, 1) / 32.0)).unzip()
}
