//! q8_1 of tokens, each quantized once and written to all its rows.

use strata_core::Result;
use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_kernels_hip::chunks::{Chunks, IN_ORDER_FROM};
use strata_kernels_hip::shapes::ScatterShape;
use strata_kernels_hip::{args, shapes};

use crate::HipBackend;
use crate::module::Launch;
use crate::operand::{self, Rows};

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
        let x = Rows::from(op.x());
        let map = op.map();
        let report = operand::report(op.report_to());
        let out = op.out();
        let (layout, out_rows, k_blocks) = (out.layout(), out.rows(), out.k_blocks());
        let out = out.data();
        let bytes = out.len();
        let out = operand::at_mut(out);
        let from = self.options.scatter_in_order_from.unwrap_or(IN_ORDER_FROM);
        let in_order = match bytes >= from && map.k() > 1 {
            true => self.scatter_in_order(x.rows, map.k(), k_blocks)?,
            false => None,
        };
        if let Some((launch, chunks)) = in_order {
            let args = args::Scatter {
                x: x.address,
                src: operand::at(map.src()),
                bounds: operand::at(map.bounds()),
                out,
                report,
                out_rows: out_rows as i64,
                cols: x.cols as i64,
                stride: x.stride as i64,
                tokens: x.rows as u32,
                k: map.k() as u32,
                experts: map.experts() as u32,
                k_blocks: k_blocks as u32,
                chunks: chunks.count,
                chunk_tokens: chunks.tokens,
                vector: x.aligned().into(),
                aligned: operand::aligned(out).into(),
            };
            let name = operand::of_layout(layout, IN_ORDER_NAMES);
            // SAFETY: core has checked the operands: the rows of a map are as many as the
            // bounds say, ascending in their tokens, which are rows of x; a chunk fits
            // the shared memory that the kernel is launched with.
            return unsafe { self.launch(IN_ORDER, name, launch, &args) };
        }
        let args = args::Quantize {
            x: x.address,
            src: 0,
            tokens: 0,
            slot: operand::at(map.slot()),
            out,
            report,
            items: x.rows as i64,
            out_rows: out_rows as i64,
            cols: x.cols as i64,
            stride: x.stride as i64,
            k: map.k() as u32,
            k_blocks: k_blocks as u32,
            vector: x.aligned().into(),
            aligned: operand::aligned(out).into(),
        };
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
