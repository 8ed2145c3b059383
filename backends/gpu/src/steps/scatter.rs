//! q8_1 of tokens, each quantized once and written to all its rows.

use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_core::{Layout as Q8Layout, Result};

use crate::args::{Address, Arguments, Layout, ReportTo, arguments};
use crate::backend::GpuBackend;
use crate::driver::Driver;
use crate::images::Kernel;
use crate::operand::{self, Rows, at, at_mut};
use crate::steps::chunks::{Chunks, IN_ORDER_FROM, ScatterShape};
use crate::steps::quantize::QuantizeArgs;
use crate::stream::Grid;

/// The kernels of `quantize` that write a token's rows at once, by layout.
const NAMES: [&str; 3] =
    ["strata_quantize_scatter_D4", "strata_quantize_scatter_DS4", "strata_quantize_scatter_D2S6"];

/// The source of the kernels that write in the order of the output.
const UNIT: &str = "scatter";

/// Threads of a block; bytes of shared memory that it takes, that a token of its chunk
/// takes beside it, and that each of the token's rows does.
const SHAPE: &str = "strata_scatter_shape";

/// These kernels, by layout.
const IN_ORDER: [&str; 3] = ["strata_scatter_D4", "strata_scatter_DS4", "strata_scatter_D2S6"];

pub(super) const LAYOUTS: &[Layout] = &[ScatterArgs::LAYOUT];

arguments! {
    /// `scatter`: `strata_scatter_{layout}`.
    ScatterArgs in "scatter.cu" {
        /// f32 rows of tokens.
        x: Address,
        /// Token of each output row.
        src: Address,
        /// The rows of each expert: `experts + 1` bounds.
        bounds: Address,
        /// q8_1 blocks.
        out: Address,
        /// Report.
        report: ReportTo,
        /// Rows of the output.
        out_rows: i64,
        /// Columns of x.
        cols: i64,
        /// Values from row to row of x.
        stride: i64,
        /// Rows of x.
        tokens: u32,
        /// Output rows per token.
        k: u32,
        /// Experts.
        experts: u32,
        /// Blocks along k.
        k_blocks: u32,
        /// Chunks that the tokens are cut into.
        chunks: u32,
        /// Tokens of a chunk.
        chunk_tokens: u32,
        /// 1 where every row of x is 16-aligned.
        vector: u32,
        /// 1 where `out` is 16-aligned.
        aligned: u32,
        /// 1 where sums are of the codes, 0 where they are of the values.
        of_codes: u32,
    }
}

impl<D: Driver> Scatter for GpuBackend<D> {
    fn quantize_scatter(&self, op: &mut Checked<QuantizeScatter<'_>>) -> Result<()> {
        let (tokens, k) = (op.x().rows(), op.map().k());
        let out = op.out();
        let (layout, k_blocks, bytes) = (out.layout(), out.k_blocks(), out.data().len());
        let from = self.options.scatter_in_order_from.unwrap_or(IN_ORDER_FROM);
        let in_order = match bytes >= from && k > 1 {
            true => self.scatter_in_order(layout, tokens, k, k_blocks)?,
            false => None,
        };
        let args = at_once(op);
        let Some((kernel, chunks)) = in_order else {
            // SAFETY: the operands were checked: a map gives every token k rows below
            // `out_rows`, which `out` has; all of it lives until the call returns.
            return unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) };
        };
        let map = op.map();
        let args = ScatterArgs {
            x: args.x,
            src: at(map.src()),
            bounds: at(map.bounds()),
            out: args.out,
            report: args.report,
            out_rows: args.out_rows,
            cols: args.cols,
            stride: args.stride,
            tokens: args.items as u32,
            k: args.k,
            experts: map.experts() as u32,
            k_blocks: args.k_blocks,
            chunks: chunks.count,
            chunk_tokens: chunks.tokens,
            vector: args.vector,
            aligned: args.aligned,
            of_codes: args.of_codes,
        };
        let grid = Grid::UpTo(u64::from(chunks.count) * k_blocks as u64, 1);
        // SAFETY: the operands were checked: the rows of a map are as many as the
        // bounds say, ascending in their tokens, which are rows of x; a chunk fits
        // the shared memory that the kernel is launched with.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }
}

/// The arguments of the kernel that writes a token's rows at once.
fn at_once(op: &mut Checked<QuantizeScatter<'_>>) -> QuantizeArgs {
    let (x, slot, k) = (Rows::from(op.x()), at(op.map().slot()), op.map().k());
    let report = operand::report(op.report_to());
    let out = op.out();
    let (out_rows, k_blocks) = (out.rows(), out.k_blocks());
    let of_codes = out.headers().sums as u32;
    let out = at_mut(out.data());
    QuantizeArgs {
        x: x.address,
        src: 0,
        tokens: 0,
        slot,
        out,
        report,
        items: x.rows as i64,
        out_rows: out_rows as i64,
        cols: x.cols as i64,
        stride: x.stride as i64,
        k: k as u32,
        k_blocks: k_blocks as u32,
        vector: x.aligned().into(),
        aligned: operand::aligned(out).into(),
        of_codes,
    }
}

impl<D: Driver> GpuBackend<D> {
    /// The kernel that writes in the order of the output, and the chunks of its
    /// tokens; none where shared memory is too small for a chunk worth it, or the
    /// driver does not give what the device said.
    fn scatter_in_order(
        &self,
        layout: Q8Layout,
        tokens: usize,
        k: usize,
        k_blocks: usize,
    ) -> Result<Option<(Kernel, Chunks)>> {
        let shape = ScatterShape::from(self.shape(UNIT, SHAPE)?);
        let (device, name) = (self.gpu(), operand::of_layout(layout, IN_ORDER));
        let most = device.shared;
        let Ok(kernel) = device.images.kernel(device, UNIT.into(), name, shape.threads, most)
        else {
            return Ok(None);
        };
        let room = self.shared_memory();
        let chunks = Chunks::within(room, shape, tokens, k, k_blocks, kernel.resident);
        // No more than a chunk takes: what is left caches the rows that are read.
        Ok(chunks.map(|chunks| {
            let shared = chunks.shared_bytes(shape, k);
            (Kernel { shared, ..kernel }, chunks)
        }))
    }
}
