//! q8_1 of rows, in place or gathered.

use strata_core::Result;
use strata_core::backend::ops::{QuantizeRows, ReportTo};
use strata_core::backend::{Checked, Quantize};
use strata_kernels_sycl::Unit;
use strata_kernels_sycl::args::Step;
use sycl_bindgen::Arg;

use crate::SyclBackend;
use crate::launch::{read, read_or_null, write};

/// A step with the kinds of a report, and its word or null.
pub(crate) fn reporting(step: Step, to: Option<&mut ReportTo<'_>>) -> (Step, Arg<'static>) {
    match to {
        None => (step, Arg::pointer(std::ptr::null())),
        Some(to) => {
            let kinds = Step { value_kind: to.value_kind(), header_kind: to.header_kind(), ..step };
            (kinds, write(to.word()))
        }
    }
}

/// Sizes that core has checked to be below 2^31.
pub(crate) fn size(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

impl SyclBackend {
    /// Units of work of rows of q8_1 blocks.
    pub(crate) fn block_units(&self, rows: usize, k_blocks: usize) -> u64 {
        rows.div_ceil(self.shared.form.unit_rows() as usize) as u64 * k_blocks as u64
    }
}

impl Quantize for SyclBackend {
    fn quantize(&self, op: &mut Checked<QuantizeRows<'_>>) -> Result<()> {
        let built = self.unit(Unit::Layer)?;
        let (x, src, tokens) = (op.x(), op.src(), op.tokens());
        let out = op.out();
        let step = Step {
            stride: x.stride() as u64,
            rows: size(out.rows()),
            cols: size(out.cols()),
            k_blocks: size(out.k_blocks()),
            layout: out.layout() as u32,
            of_codes: out.headers().sums as u32,
            ..Step::default()
        };
        let total = self.block_units(out.rows(), out.k_blocks());
        let to = write(out.data());
        let (step, word) = reporting(step, op.report_to());
        let args =
            [read(x.data()), read_or_null(src), read_or_null(tokens), to, word, Arg::value(&step)];
        // SAFETY: the arguments of `quantize`, whose shapes core has checked.
        unsafe { self.share(&built, "quantize", &args, total) }
    }
}
