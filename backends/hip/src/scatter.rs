//! q8_1 quantization of tokens, each once, written to all its rows.

use strata_core::Result;
use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};

use crate::HipBackend;
use crate::memory::{of, of_mut};
use crate::module::ReportArgs;
use crate::quantize::{QuantizeArgs, rows_aligned};

impl Scatter for HipBackend {
    fn quantize_scatter(&self, op: &mut Checked<QuantizeScatter<'_>>) -> Result<()> {
        let (x, map) = (op.x(), op.map());
        let report = ReportArgs::new(op.report_to());
        let out = op.out();
        let (rows, k_blocks, layout) = (out.rows(), out.k_blocks(), out.layout());
        let data = of_mut(out.data());
        let args = QuantizeArgs {
            x: of(x.data()),
            src: 0,
            tokens: 0,
            slot: of(map.slot()),
            out: data,
            report,
            items: x.rows() as i64,
            out_rows: rows as i64,
            cols: x.cols() as i64,
            stride: x.stride() as i64,
            k: map.k() as u32,
            k_blocks: k_blocks as u32,
            vector: rows_aligned(x).into(),
            aligned: data.is_multiple_of(16).into(),
        };
        self.launch_quantize(&format!("strata_quantize_scatter_{layout}"), &args)
    }
}
