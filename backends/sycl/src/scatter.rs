//! q8_1 of tokens, each once, to all its rows.

use strata_core::Result;
use strata_core::backend::Scatter;
use strata_core::backend::ops::QuantizeScatter;
use strata_kernels_sycl::Unit;
use sycl_bindgen::Arg;

use crate::SyclBackend;
use crate::launch::{read, write};
use crate::quantize::{Step, size};

impl Scatter for SyclBackend {
    fn quantize_scatter(&self, op: &mut QuantizeScatter<'_>) -> Result<()> {
        let built = self.unit(Unit::Layer)?;
        let (x, map) = (op.x(), op.map());
        let out = op.out();
        let step = Step {
            stride: x.stride() as u64,
            rows: size(out.rows()),
            cols: size(out.cols()),
            k_blocks: size(out.k_blocks()),
            tokens: size(map.tokens()),
            k: size(map.k()),
            layout: out.layout() as u32,
            ..Step::default()
        };
        let total = map.tokens() as u64 * out.k_blocks() as u64;
        let to = write(out.data());
        let (step, word) = step.reporting(op.report_to());
        let args = [read(x.data()), read(map.slot()), to, word, Arg::value(&step)];
        // SAFETY: the arguments of `quantize_scatter`; every slot is a row of the output.
        unsafe { self.share(&built, "quantize_scatter", &args, total) }
    }
}
