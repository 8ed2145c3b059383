//! q8_1 of tokens, each quantized once and written to all its rows.

use strata_core::Result;
use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_gpu::chunks::{Chunks, IN_ORDER_FROM};
use strata_gpu::shapes::{self, ScatterShape};

use crate::HipBackend;
use crate::module::Launch;
use crate::operand;

/// The kernels that write a token's rows at once, by layout.
const NAMES: [&str; 3] =
    ["strata_quantize_scatter_D4", "strata_quantize_scatter_DS4", "strata_quantize_scatter_D2S6"];

/// The source of the kernels that write in the order of the output.
const IN_ORDER: &str = "scatter";

/// These kernels, by layout.
const IN_ORDER_NAMES: [&str; 3] =
    ["strata_scatter_D4", "strata_scatter_DS4", "strata_scatter_D2S6"];

impl Scatter for HipBackend {
    fn quantize_scatter(&self, op: &mut Checked<QuantizeScatter<'_>>) -> Result<()> {
        let (tokens, k) = (op.x().rows(), op.map().k());
        let out = op.out();
        let (layout, k_blocks, bytes) = (out.layout(), out.k_blocks(), out.data().len());
        let from = self.options.scatter_in_order_from.unwrap_or(IN_ORDER_FROM);
        let in_order = match bytes >= from && k > 1 {
            true => self.scatter_in_order(tokens, k, k_blocks)?,
            false => None,
        };
        if let Some((launch, chunks)) = in_order {
            let args = operand::scatter_in_order(op, chunks);
            let name = operand::of_layout(layout, IN_ORDER_NAMES);
            // SAFETY: core has checked the operands: the rows of a map are as many as the
            // bounds say, ascending in their tokens, which are rows of x; a chunk fits
            // the shared memory that the kernel is launched with.
            return unsafe { self.launch(IN_ORDER, name, launch, &args) };
        }
        let args = operand::scatter(op);
        // SAFETY: core has checked the operands: a map gives every token k rows below
        // `out_rows`, which `out` has.
        unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) }
    }
}

impl HipBackend {
    /// The launch that writes in the order of the output, and the chunks of its
    /// tokens; none where shared memory is too small for a chunk worth it.
    fn scatter_in_order(
        &self,
        tokens: usize,
        k: usize,
        k_blocks: usize,
    ) -> Result<Option<(Launch, Chunks)>> {
        let shape = ScatterShape::from(self.shape(IN_ORDER, shapes::SCATTER)?);
        // A block's shared memory may be all that a unit has: one of each runs at once.
        let units = u64::from(self.gpu().info.units);
        let chunks = Chunks::within(self.shared_bytes(), shape, tokens, k, k_blocks, units);
        Ok(chunks.map(|chunks| {
            let pairs = u64::from(chunks.count) * k_blocks as u64;
            let grid = [pairs.min(units) as u32, 1];
            let shared = chunks.shared_bytes(shape, k);
            (Launch { grid, threads: shape.threads, shared }, chunks)
        }))
    }
}
