//! The weighted sum of each token's rows, with the shared expert's.

use strata_core::Result;
use strata_core::backend::Checked;
use strata_core::backend::ops::{Combine, CombineOptions};

use crate::args::{Address, Arguments, Layout, ReportTo, arguments};
use crate::backend::GpuBackend;
use crate::driver::Driver;
use crate::operand::{Rows, at, report};
use crate::stream::{Grid, TURNS};

/// The source of these kernels.
const UNIT: &str = "router";

/// Threads of a block.
const SHAPE: &str = "strata_combine_shape";

pub(super) const LAYOUTS: &[Layout] = &[CombineArgs::LAYOUT];

arguments! {
    /// `router`: `strata_combine`, `strata_combine_any`.
    CombineArgs in "router.cu" {
        /// Expert outputs, in expert order.
        y: Address,
        /// Rows of each token.
        slot: Address,
        /// Router weights.
        weights: Address,
        /// Output of the shared expert; null where there is none.
        shared: Address,
        /// Scores of its gate; null: weight 1.
        shared_score: Address,
        /// Output.
        out: Address,
        /// Where to report: of a value the output, and the shared expert's score as of a header.
        report: ReportTo,
        /// Tokens.
        tokens: i64,
        /// Columns.
        width: i64,
        /// Values from row to row of y.
        y_stride: i64,
        /// Values from row to row of the shared expert's output.
        shared_stride: i64,
        /// Values from row to row of its scores.
        score_stride: i64,
        /// Values from row to row of the output.
        out_stride: i64,
        /// Rows per token.
        k: u32,
        /// 1 where all rows are 16-aligned and the width is a multiple of 4.
        vector: u32,
        /// Experts of each token; this and what follows of `strata_combine_any` alone.
        ids: Address,
        /// A scale per expert; null: 1.
        scale: Address,
        /// A row of biases per expert; null: +0.
        bias: Address,
        /// Values from scale to scale.
        scale_stride: i64,
        /// Values from row to row of the biases.
        bias_stride: i64,
        /// Multiplies the shared expert's weight.
        shared_factor: f32,
        /// Multiplies the sum.
        sum_factor: f32,
    }
}

impl<D: Driver> GpuBackend<D> {
    pub(super) fn launch_combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let [threads] = self.shape(UNIT, SHAPE)?;
        let (args, any) = arguments_of(op);
        let name = if any { "strata_combine_any" } else { "strata_combine" };
        let kernel = self.kernel(UNIT, name, threads)?;
        let each = if args.vector == 1 { 4 } else { 1 };
        let parts = args.tokens as u64 * (args.width as u64).div_ceil(each);
        let grid = Grid::UpTo(parts.div_ceil(threads.into()), TURNS);
        // SAFETY: the operands were checked: every slot is a row of y; the kernel
        // takes one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }
}

/// The arguments, and whether they are of more than a weighted sum.
fn arguments_of(op: &mut Checked<Combine<'_>>) -> (CombineArgs, bool) {
    let report = report(op.report_to());
    let y = Rows::from(op.y());
    let shared = op.shared();
    let shared_y = shared.map(|s| Rows::from(s.y));
    let score = shared.and_then(|s| s.score).map(Rows::from);
    let (slot, routes, k) = (at(op.map().slot()), op.routes(), op.map().k());
    let (factors, affine) = (op.factors(), op.affine());
    let (scale, bias) = affine.unwrap_or_default();
    let out = Rows::from(op.out());
    let vector = out.cols.is_multiple_of(4)
        && [Some(y), shared_y, Some(out)].iter().flatten().all(Rows::aligned);
    let args = CombineArgs {
        y: y.address,
        slot,
        weights: if factors.weighed { at(routes.weights()) } else { 0 },
        shared: shared_y.map_or(0, |s| s.address),
        shared_score: score.map_or(0, |s| s.address),
        out: out.address,
        report,
        tokens: out.rows as i64,
        width: out.cols as i64,
        y_stride: y.stride as i64,
        shared_stride: shared_y.map_or(0, |s| s.stride as i64),
        score_stride: score.map_or(0, |s| s.stride as i64),
        out_stride: out.stride as i64,
        k: k as u32,
        vector: vector.into(),
        ids: at(routes.ids()),
        scale: scale.map_or(0, |m| at(m.data())),
        bias: bias.map_or(0, |m| at(m.data())),
        scale_stride: scale.map_or(0, |m| m.stride() as i64),
        bias_stride: bias.map_or(0, |m| m.stride() as i64),
        shared_factor: factors.shared,
        sum_factor: factors.sum,
    };
    (args, affine.is_some() || factors != CombineOptions::default())
}
