//! q8_1 of rows, in place or gathered.

use strata_core::Result;
use strata_core::backend::ops::QuantizeRows;
use strata_core::backend::{Checked, Quantize};
use strata_core::q8_1::Headers;

use crate::args::{Address, Arguments, Layout, ReportTo, arguments};
use crate::backend::GpuBackend;
use crate::driver::Driver;
use crate::operand::{self, Rows};
use crate::stream::{Grid, TURNS};

/// The source of these kernels.
const UNIT: &str = "quantize";

/// Threads of a block, 128-value blocks they make at a time.
const SHAPE: &str = "strata_quantize_shape";

/// The kernels, by layout.
const NAMES: [&str; 3] = ["strata_quantize_D4", "strata_quantize_DS4", "strata_quantize_D2S6"];

pub(super) const LAYOUTS: &[Layout] = &[ReportTo::LAYOUT, QuantizeArgs::LAYOUT];

arguments! {
    /// `quantize`: `strata_quantize_{layout}`, `strata_quantize_scatter_{layout}`.
    QuantizeArgs in "quantize.cu" {
        /// f32 rows.
        x: Address,
        /// Input row of each output row; null: the same.
        src: Address,
        /// Token of each input row; null: the same.
        tokens: Address,
        /// Scatter: the `k` output rows of each input row.
        slot: Address,
        /// q8_1 blocks.
        out: Address,
        /// Report.
        report: ReportTo,
        /// Rows to quantize: output rows, or input rows of a scatter.
        items: i64,
        /// Rows of the output.
        out_rows: i64,
        /// Columns of x.
        cols: i64,
        /// Values from row to row of x.
        stride: i64,
        /// Scatter: output rows per input row.
        k: u32,
        /// Blocks along k.
        k_blocks: u32,
        /// 1 where every row of x is 16-aligned.
        vector: u32,
        /// 1 where `out` is 16-aligned.
        aligned: u32,
        /// 1 where sums are of the codes, 0 where they are of the values.
        of_codes: u32,
    }
}

impl<D: Driver> Quantize for GpuBackend<D> {
    fn quantize(&self, op: &mut Checked<QuantizeRows<'_>>) -> Result<()> {
        let x = Rows::from(op.x());
        let (src, tokens) = (operand::at_or_null(op.src()), operand::at_or_null(op.tokens()));
        let report = operand::report(op.report_to());
        let out = op.out();
        let (Headers { layout, sums }, rows, k_blocks) =
            (out.headers(), out.rows(), out.k_blocks());
        let out = operand::at_mut(out.data());
        let args = QuantizeArgs {
            x: x.address,
            src,
            tokens,
            slot: 0,
            out,
            report,
            items: rows as i64,
            out_rows: rows as i64,
            cols: x.cols as i64,
            stride: x.stride as i64,
            k: 1,
            k_blocks: k_blocks as u32,
            vector: x.aligned().into(),
            aligned: operand::aligned(out).into(),
            of_codes: sums as u32,
        };
        // SAFETY: the operands were checked: `rows` rows of q8_1 blocks, and x has
        // the rows that `src` names; all of it lives until the call returns.
        unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) }
    }
}

impl<D: Driver> GpuBackend<D> {
    /// Launches one of the kernels that quantize.
    ///
    /// # Safety
    /// What `args` says holds.
    pub(super) unsafe fn launch_quantize(
        &self,
        name: &'static str,
        args: &QuantizeArgs,
    ) -> Result<()> {
        let [threads, blocks] = self.shape(UNIT, SHAPE)?;
        let kernel = self.kernel(UNIT, name, threads)?;
        let work = args.items as u64 * u64::from(args.k_blocks);
        let grid = Grid::UpTo(work.div_ceil(blocks.into()), TURNS);
        // SAFETY: the kernels of this unit take one of these.
        unsafe { self.stream.launch(&kernel, grid, args) }
    }
}
