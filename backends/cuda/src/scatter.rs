//! q8_1 of tokens, each quantized once and written to all its rows.

use strata_core::Result;
use strata_core::backend::Scatter;
use strata_core::backend::ops::QuantizeScatter;
use strata_kernels_cuda::args;

use crate::backend::CudaBackend;
use crate::operand::{self, Rows};

/// The kernels, by layout.
const NAMES: [&str; 3] =
    ["strata_quantize_scatter_D4", "strata_quantize_scatter_DS4", "strata_quantize_scatter_D2S6"];

impl Scatter for CudaBackend {
    fn quantize_scatter(&self, op: &mut QuantizeScatter<'_>) -> Result<()> {
        let x = Rows::from(op.x());
        let (k, slot) = (op.map().k(), operand::at(op.map().slot()));
        let report = operand::report(op.report_to());
        let out = op.out();
        let (layout, out_rows, k_blocks) = (out.layout(), out.rows(), out.k_blocks());
        let out = operand::at_mut(out.data());
        let args = args::Quantize {
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
        };
        // SAFETY: the operands were checked: a map gives every token k rows below
        // `out_rows`, which `out` has; all of it lives until the call returns.
        unsafe { self.launch_quantize(operand::of_layout(layout, NAMES), &args) }
    }
}
