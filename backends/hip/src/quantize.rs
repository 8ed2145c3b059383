//! q8_1 quantization of rows, in place or gathered.

use strata_core::Result;
use strata_core::backend::ops::{Matrix, QuantizeRows};
use strata_core::backend::{Checked, Quantize};

use crate::HipBackend;
use crate::memory::{of, of_mut, of_option};
use crate::module::{Launch, ReportArgs};

/// The source of these kernels.
pub(crate) const UNIT: &str = "quantize";

/// `QuantizeArgs` of `quantize.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct QuantizeArgs {
    pub(crate) x: u64,
    pub(crate) src: u64,
    pub(crate) tokens: u64,
    pub(crate) slot: u64,
    pub(crate) out: u64,
    pub(crate) report: ReportArgs,
    pub(crate) items: i64,
    pub(crate) out_rows: i64,
    pub(crate) cols: i64,
    pub(crate) stride: i64,
    pub(crate) k: u32,
    pub(crate) k_blocks: u32,
    pub(crate) vector: u32,
    pub(crate) aligned: u32,
}

/// Whether every row starts at a multiple of 16 bytes.
pub(crate) fn rows_aligned(matrix: Matrix<'_>) -> bool {
    of(matrix.data()).is_multiple_of(16) && matrix.stride().is_multiple_of(4)
}

impl HipBackend {
    /// Launches one of the quantization kernels.
    pub(crate) fn launch_quantize(&self, name: &str, args: &QuantizeArgs) -> Result<()> {
        let work = args.items as u64 * u64::from(args.k_blocks);
        if work == 0 {
            return Ok(());
        }
        let module = self.module(UNIT)?;
        let [threads, groups] = module.shape(&self.stream, "strata_quantize_shape")?;
        let launch = Launch::row(self.blocks(work, groups), threads);
        // SAFETY: the arguments are `QuantizeArgs`, made of views that core has checked.
        unsafe { module.launch(&self.stream, name, launch, args) }
    }
}

impl Quantize for HipBackend {
    fn quantize(&self, op: &mut Checked<QuantizeRows<'_>>) -> Result<()> {
        let x = op.x();
        let (src, tokens) = (of_option(op.src()), of_option(op.tokens()));
        let report = ReportArgs::new(op.report_to());
        let out = op.out();
        let (rows, k_blocks, layout) = (out.rows(), out.k_blocks(), out.layout());
        let data = of_mut(out.data());
        let args = QuantizeArgs {
            x: of(x.data()),
            src,
            tokens,
            slot: 0,
            out: data,
            report,
            items: rows as i64,
            out_rows: rows as i64,
            cols: x.cols() as i64,
            stride: x.stride() as i64,
            k: 1,
            k_blocks: k_blocks as u32,
            vector: rows_aligned(x).into(),
            aligned: data.is_multiple_of(16).into(),
        };
        self.launch_quantize(&format!("strata_quantize_{layout}"), &args)
    }
}
