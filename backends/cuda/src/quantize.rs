//! q8_1 of rows, in place or gathered.

use strata_core::Result;
use strata_core::backend::ops::QuantizeRows;
use strata_core::backend::{Checked, Quantize};
use strata_gpu::{args, shapes};

use crate::backend::CudaBackend;
use crate::operand::{self, Rows};
use crate::stream::{Grid, TURNS};

/// The kernels, by layout.
pub(crate) const NAMES: [&str; 3] =
    ["strata_quantize_D4", "strata_quantize_DS4", "strata_quantize_D2S6"];

impl Quantize for CudaBackend {
    fn quantize(&self, op: &mut Checked<QuantizeRows<'_>>) -> Result<()> {
        let x = Rows::from(op.x());
        let (src, tokens) = (operand::at_or_null(op.src()), operand::at_or_null(op.tokens()));
        let report = operand::report(op.report_to());
        let out = op.out();
        let (layout, rows, k_blocks) = (out.layout(), out.rows(), out.k_blocks());
        let out = operand::at_mut(out.data());
        let args = args::Quantize {
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
        };
        // SAFETY: the operands were checked: `rows` rows of q8_1 blocks, and x has
        // the rows that `src` names; all of it lives until the call returns.
        unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) }
    }
}

impl CudaBackend {
    /// Launches one of the kernels that quantize.
    ///
    /// # Safety
    /// What `args` says holds.
    pub(crate) unsafe fn launch_quantize(
        &self,
        name: &'static str,
        args: &args::Quantize,
    ) -> Result<()> {
        let [threads, blocks] = self.shape("quantize", shapes::QUANTIZE)?;
        let kernel = self.kernel("quantize", name, threads)?;
        let work = args.items as u64 * u64::from(args.k_blocks);
        let grid = Grid::UpTo(work.div_ceil(blocks.into()), TURNS);
        // SAFETY: the kernels of this unit take one of these.
        unsafe { self.stream.launch(&kernel, grid, args) }
    }
}
