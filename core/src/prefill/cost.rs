//! What the products of a layer must move and compute at least.

use super::layer::{SharedExpert, Tensor};
use crate::{Result, q8_1};

/// Bytes and operations of a step.
#[derive(Debug, Clone, Copy)]
pub(super) struct Cost {
    pub(super) bytes: usize,
    pub(super) ops: usize,
}

impl Cost {
    /// A product: weights and `act_rows` activation rows read once, `rows` rows written once.
    pub(super) fn product(tensor: &Tensor, rows: usize, act_rows: usize) -> Result<Self> {
        let activations = q8_1::bytes(act_rows, tensor.cols())?;
        Ok(Self {
            bytes: tensor.bytes() + activations + 4 * rows * tensor.rows(),
            ops: 2 * rows * tensor.rows() * tensor.cols(),
        })
    }

    /// The products of a shared expert over `tokens` tokens.
    pub(super) fn shared(expert: &SharedExpert, tokens: usize) -> Result<Self> {
        let mut sum = Self::product(&expert.down, tokens, tokens)?;
        for (_, tensor) in expert.gate_up.parts() {
            let one = Self::product(tensor, tokens, tokens)?;
            sum = Self { bytes: sum.bytes + one.bytes, ops: sum.ops + one.ops };
        }
        Ok(sum)
    }
}
