//! q8_1 of rows, in place or gathered.

use strata_core::Result;
use strata_core::backend::ops::QuantizeRows;
use strata_core::backend::{Checked, Quantize};
use strata_gpu::{args, shapes};

use crate::HipBackend;
use crate::module::Launch;
use crate::operand::{self, Rows};

/// The source of these kernels.
const UNIT: &str = "quantize";

/// The kernels, by layout.
const NAMES: [&str; 3] = ["strata_quantize_D4", "strata_quantize_DS4", "strata_quantize_D2S6"];

impl Quantize for HipBackend {
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
        // SAFETY: core has checked the operands: `rows` rows of q8_1 blocks, and x has
        // the rows that `src` names.
        unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) }
    }
}

impl HipBackend {
    /// Launches one of the kernels that quantize.
    ///
    /// # Safety
    /// What `args` says holds.
    pub(crate) unsafe fn launch_quantize(&self, name: &str, args: &args::Quantize) -> Result<()> {
        let work = args.items as u64 * u64::from(args.k_blocks);
        if work == 0 {
            return Ok(());
        }
        let [threads, blocks] = self.shape(UNIT, shapes::QUANTIZE)?;
        let launch = Launch::row(self.blocks(work, blocks), threads);
        // SAFETY: the kernels of this source take one of these.
        unsafe { self.launch(UNIT, name, launch, args) }
    }
}
