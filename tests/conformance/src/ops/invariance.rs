//! Batch invariance: a row alone and among others.

use strata_core::WeightType;
use strata_core::backend::Backend;
use strata_core::backend::ops::{Product, Q8Rows, Q8RowsMut, QuantizeRows, Rows, Weights};

use super::InMatrix;
use crate::output::Output;
use crate::poisoned::OutMatrix;
use crate::values::{Values, WeightValues};
use crate::{Op, Outputs, Stage, Stop};

/// One row, quantized and multiplied in batches of several sizes: its outputs
/// must be those of the row alone.
#[derive(Debug, Clone, Copy)]
pub struct InvarianceCase {
    /// Weight type.
    pub ty: WeightType,
    /// Weight rows.
    pub m: usize,
    /// Columns.
    pub cols: usize,
    /// Rows of each batch.
    pub batches: &'static [usize],
}

impl std::fmt::Display for InvarianceCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let batches: Vec<String> = self.batches.iter().map(usize::to_string).collect();
        write!(f, "invariance/{}/T={}/m={},K={}", self.ty, batches.join("+"), self.m, self.cols)
    }
}

impl Op for InvarianceCase {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        let no = !backend.supports(self.ty);
        no.then(|| format!("{} does not multiply {}", backend.id(), self.ty))
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { ty, m, cols, .. } = *self;
        let blocks = WeightValues::Random.blocks(ty, 3, m * cols / ty.block_values());
        let weights = backend.import(blocks.into())?;
        let weights = Weights::dense("weights", &weights, ty, 1, m, cols)?;
        let row = Values::Normal.fill(4, 1, cols);
        let product = |values: &[f32]| -> Result<Output, Stop> {
            let rows = values.len() / cols;
            let x = InMatrix::dense(backend, values, rows, cols)?;
            let mut q8 = backend.alloc::<u8>(strata_core::q8_1::bytes(rows, cols)?)?;
            let to = Q8RowsMut::new(&mut q8, ty.layout(), rows, cols)?;
            QuantizeRows::new(x.view()?, to)?.launch(backend)?;
            let act = Q8Rows::new(&q8, ty.layout(), rows, cols)?;
            let mut out = OutMatrix::new(backend, rows, m, m, 0)?;
            Product::new(weights, act, Rows::Dense, out.view()?)?.launch(backend)?;
            Ok(out.read(backend, "product")?)
        };
        let alone = product(&row)?;
        if stage.plain {
            return Ok(vec![alone]);
        }
        let expected = alone.written();
        for &batch in self.batches {
            // First, last, and somewhere between: another lane, tile and block each.
            for place in [0, batch / 2, batch - 1] {
                let mut values = Values::Normal.fill(batch as u64, batch, cols);
                values[place * cols..][..cols].copy_from_slice(&row);
                let given = product(&values)?.written();
                if given[place * 4 * m..][..4 * m] != expected {
                    let what = format!("row {place} of {batch} differs from the row alone");
                    return Err(Stop::Differs(what));
                }
            }
        }
        Ok(vec![alone])
    }
}
