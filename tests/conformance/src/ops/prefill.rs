//! The change this project grew from: quantize once and scatter, instead of gathering.

use strata_core::backend::Backend;
use strata_core::backend::ops::{Product, Q8Rows, QuantizeRows, QuantizeScatter, Rows, Weights};
use strata_core::{WeightType, q8_1};

use super::{InMatrix, Mapped};
use crate::poisoned::{OutMatrix, OutQ8};
use crate::values::{Choice, Routing, Values, WeightValues};
use crate::{Op, Outputs, Stage};

/// Scatter, gather and indexed for one prompt of the 512-expert model: the
/// q8_1 buffers, and the products that read them.
#[derive(Debug, Clone, Copy)]
pub struct PrefillCase {
    /// Weight type; it says which layout.
    pub ty: WeightType,
    /// Tokens; one in the middle is all zeros.
    pub tokens: usize,
}

impl PrefillCase {
    const COLS: usize = 2560;
    /// Weight rows of the product: few, as the buffers are the point.
    const M: usize = 3;

    const fn routing(&self) -> Routing {
        Routing::new(512, 10, self.tokens, Choice::Random)
    }
}

impl std::fmt::Display for PrefillCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (ty, layout, routing) = (self.ty, self.ty.layout(), self.routing());
        write!(f, "prefill_mmq_scatter/{ty},{layout}/{routing}/cols={}", Self::COLS)
    }
}

impl Op for PrefillCase {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        let no = !backend.supports(self.ty);
        no.then(|| format!("{} does not multiply {}", backend.id(), self.ty))
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let (backend, routing, tokens) = (stage.backend, self.routing(), self.tokens);
        let (ty, layout, cols, m) = (self.ty, self.ty.layout(), Self::COLS, Self::M);
        let values = Values::ZeroRow.fill(1, tokens, cols);
        let x = InMatrix::dense(backend, &values, tokens, cols)?;
        let mapped = Mapped::new(backend, &routing.routes(2))?;
        let rows = routing.rows();

        let mut gathered = OutQ8::new(backend, layout, rows, cols)?;
        QuantizeRows::gather(x.view()?, &mapped.map, gathered.view()?)?.launch(backend)?;
        let blocks =
            WeightValues::Random.blocks(ty, 3, routing.experts * m * cols / ty.block_values());
        let weights = backend.import(blocks.into())?;
        let weights = Weights::dense("weights", &weights, ty, routing.experts, m, cols)?;
        let product = |act: Q8Rows<'_>, rows_of| -> Result<_, crate::Stop> {
            let mut out = OutMatrix::new(backend, rows, m, m, 0)?;
            Product::new(weights, act, rows_of, out.view()?)?.launch(backend)?;
            Ok(out.read(backend, "product")?)
        };
        if stage.plain {
            // Everything must be what gather gives.
            let act = gathered.memory.view();
            let act = Q8Rows::new(act.as_slice(), layout, rows, cols)?;
            let product = product(act, Rows::Experts(&mapped.map))?;
            let gathered = gathered.read(backend, "gathered")?;
            return Ok(vec![gathered.clone(), gathered, product.clone(), product]);
        }
        let mut scattered = OutQ8::new(backend, layout, rows, cols)?;
        QuantizeScatter::new(x.view()?, &mapped.map, scattered.view()?)?.launch(backend)?;
        let mut indexed = backend.alloc::<u8>(q8_1::bytes(tokens, cols)?)?;
        let to = strata_core::backend::ops::Q8RowsMut::new(&mut indexed, layout, tokens, cols)?;
        QuantizeRows::new(x.view()?, to)?.launch(backend)?;

        let act = scattered.memory.view();
        let act = Q8Rows::new(act.as_slice(), layout, rows, cols)?;
        let through_rows = product(act, Rows::Experts(&mapped.map))?;
        let act = Q8Rows::new(&indexed, layout, tokens, cols)?;
        let mut through_src = product(act, Rows::Indexed(&mapped.map))?;
        through_src.what = "product through src".into();
        Ok(vec![
            gathered.read(backend, "gathered")?,
            scattered.read(backend, "scattered")?,
            through_rows,
            through_src,
        ])
    }
}
