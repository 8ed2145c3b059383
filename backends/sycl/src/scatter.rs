//! q8_1 of tokens, each once, to all its rows.

use strata_core::Result;
use strata_core::backend::ops::QuantizeScatter;
use strata_core::backend::{Checked, Scatter};
use strata_core::q8_1::BLOCK_BYTES;
use strata_kernels_sycl::Unit;
use strata_kernels_sycl::args::Step;
use sycl_bindgen::{Arg, Range};

use crate::SyclBackend;
use crate::launch::{read, write};
use crate::quantize::{reporting, size};

/// Work-items for each thread of a CPU device: some, should one be held up.
const PER_UNIT: u64 = 2;

impl Scatter for SyclBackend {
    fn quantize_scatter(&self, op: &mut Checked<QuantizeScatter<'_>>) -> Result<()> {
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
            of_codes: out.headers().sums as u32,
            ..Step::default()
        };
        let on_cpu = self.shared.form.lanes > 1;
        let k_blocks = out.k_blocks() as u64;
        // The CPU form has a work-item for some k_blocks, with blocks of all tokens of its own.
        let items = k_blocks.min(PER_UNIT * u64::from(self.shared.device.compute_units.max(1)));
        let aside = match on_cpu {
            true => self.scratch("aside", items as usize * map.tokens() * BLOCK_BYTES)?,
            false => Arg::pointer(std::ptr::null()),
        };
        let to = write(out.data());
        let (step, word) = reporting(step, op.report_to());
        let args =
            [read(x.data()), read(map.slot()), read(map.src()), aside, to, word, Arg::value(&step)];
        // SAFETY: the arguments of `quantize_scatter`; every slot is a row of the output, every
        // source a token, and each of the CPU form's work-items has its part of `aside`.
        unsafe {
            match on_cpu && items > 0 && map.tokens() > 0 {
                true => self.groups(&built, "quantize_scatter", &args, Range::linear(items, 1)),
                false => {
                    let total = map.tokens() as u64 * k_blocks;
                    self.share(&built, "quantize_scatter", &args, total)
                }
            }
        }
    }
}
