//! Operands as the shared kernels take them: addresses, sizes, and what they are
//! aligned to. The HIP backend has this file, too.

use strata_core::Layout;
use strata_core::backend::ops::{
    Combine, CombineOptions, GateUp, GateUpOrder, Matrix, MatrixMut, PerExpert, QuantizeScatter,
    ReportTo, TopK,
};
use strata_core::backend::{Checked, Slice, SliceMut};
use strata_core::routing::{GroupScore, Norm};

use crate::memory::{address, address_mut};
use strata_gpu::args;
use strata_gpu::chunks::Chunks;

/// Where values to be read are.
pub(crate) fn at<T: bytemuck::Pod>(slice: Slice<'_, T>) -> u64 {
    address(slice.raw())
}

/// Where values to be written are.
pub(crate) fn at_mut<T: bytemuck::Pod>(mut slice: SliceMut<'_, T>) -> u64 {
    address_mut(&slice.raw_mut())
}

/// Where values to be read are; null where there are none.
pub(crate) fn at_or_null<T: bytemuck::Pod>(slice: Option<Slice<'_, T>>) -> u64 {
    slice.map_or(0, at)
}

/// Where to report; null where nobody asks.
pub(crate) fn report(to: Option<&mut ReportTo<'_>>) -> args::ReportTo {
    to.map_or_else(args::ReportTo::default, |to| args::ReportTo {
        value_kind: to.value_kind(),
        header_kind: to.header_kind(),
        word: at_mut(to.word()),
    })
}

/// Rows as kernels take them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) address: u64,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) stride: usize,
}

impl Rows {
    /// Whether every row begins at a multiple of 16 bytes.
    pub(crate) fn aligned(&self) -> bool {
        aligned(self.address) && self.stride.is_multiple_of(4)
    }
}

impl From<Matrix<'_>> for Rows {
    fn from(m: Matrix<'_>) -> Self {
        Self { address: at(m.data()), rows: m.rows(), cols: m.cols(), stride: m.stride() }
    }
}

impl From<&mut MatrixMut<'_>> for Rows {
    fn from(m: &mut MatrixMut<'_>) -> Self {
        let (rows, cols, stride) = (m.rows(), m.cols(), m.stride());
        Self { address: at_mut(m.data()), rows, cols, stride }
    }
}

/// What experts do between their products, and whether that is more than SwiGLU.
pub(crate) fn experts(gate_up: GateUp<'_>) -> (args::Experts, bool) {
    let (kind, limit, alpha) = gate_up.function().parameters();
    let affine = gate_up.affine();
    let PerExpert { scale, bias, map } = affine.unwrap_or_default();
    let experts = args::Experts {
        scale: scale.map_or(0, |m| at(m.data())),
        bias: bias.map_or(0, |m| at(m.data())),
        bounds: map.map_or(0, |map| at(map.bounds())),
        scale_stride: scale.map_or(0, |m| m.stride() as i64),
        bias_stride: bias.map_or(0, |m| m.stride() as i64),
        experts: map.map_or(1, |map| map.experts() as u32),
        kind,
        limit,
        alpha,
    };
    (experts, kind != 0 || affine.is_some() || gate_up.order() == GateUpOrder::UpOnly)
}

/// The number of an order of gate and up.
pub(crate) fn order(gate_up: GateUp<'_>) -> u32 {
    match gate_up.order() {
        GateUpOrder::Split => 0,
        GateUpOrder::Interleaved => 1,
        GateUpOrder::UpOnly => 2,
    }
}

/// The arguments of the choice of experts by any router.
pub(crate) fn choose(op: &mut Checked<TopK<'_>>) -> args::Choose {
    let scores = Rows::from(op.scores());
    let (k, options) = (op.k(), *op.options());
    let (score_bias, selection_bias) =
        (at_or_null(op.score_bias()), at_or_null(op.selection_bias()));
    let report = report(op.report_to());
    let (ids, weights) = op.out();
    let (gating, near) = options.gating_parameters();
    let groups = options.groups;
    let (normalised, epsilon, least) = match options.norm {
        Norm::None => (0, 0.0, 0.0),
        Norm::Sum { epsilon, least } => (1, epsilon, least),
    };
    args::Choose {
        scores: scores.address,
        score_bias,
        selection_bias,
        ids: at_mut(ids),
        weights: at_mut(weights),
        report,
        tokens: scores.rows as i64,
        stride: scores.stride as i64,
        experts: scores.cols as u32,
        k: k as u32,
        gating,
        near,
        softcap: options.softcap,
        groups: groups.map_or(0, |g| g.count as u32),
        groups_used: groups.map_or(0, |g| g.used as u32),
        top_two: groups.is_some_and(|g| g.score == GroupScore::TopTwo).into(),
        normalised,
        epsilon,
        least,
        scale: options.scale,
    }
}

/// The arguments of a combine, and whether it is more than a weighted sum.
pub(crate) fn combine(op: &mut Checked<Combine<'_>>) -> (args::Combine, bool) {
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
    let args = args::Combine {
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

/// Whether an address is a multiple of 16.
pub(crate) fn aligned(address: u64) -> bool {
    address.is_multiple_of(16)
}

/// The kernel of a layout.
pub(crate) fn of_layout(layout: Layout, names: [&'static str; 3]) -> &'static str {
    let [d4, ds4, d2s6] = names;
    match layout {
        Layout::D4 => d4,
        Layout::DS4 => ds4,
        Layout::D2S6 => d2s6,
    }
}

/// The arguments of the scatter that writes a token's rows at once.
pub(crate) fn scatter(op: &mut Checked<QuantizeScatter<'_>>) -> args::Quantize {
    let x = Rows::from(op.x());
    let map = op.map();
    let report = report(op.report_to());
    let out = op.out();
    let (out_rows, k_blocks) = (out.rows(), out.k_blocks());
    let out = at_mut(out.data());
    args::Quantize {
        x: x.address,
        src: 0,
        tokens: 0,
        slot: at(map.slot()),
        out,
        report,
        items: x.rows as i64,
        out_rows: out_rows as i64,
        cols: x.cols as i64,
        stride: x.stride as i64,
        k: map.k() as u32,
        k_blocks: k_blocks as u32,
        vector: x.aligned().into(),
        aligned: aligned(out).into(),
    }
}

/// The arguments of the scatter that writes in the order of the output.
pub(crate) fn scatter_in_order(
    op: &mut Checked<QuantizeScatter<'_>>,
    chunks: Chunks,
) -> args::Scatter {
    let map = op.map();
    let direct = scatter(op);
    args::Scatter {
        x: direct.x,
        src: at(map.src()),
        bounds: at(map.bounds()),
        out: direct.out,
        report: direct.report,
        out_rows: direct.out_rows,
        cols: direct.cols,
        stride: direct.stride,
        tokens: direct.items as u32,
        k: direct.k,
        experts: map.experts() as u32,
        k_blocks: direct.k_blocks,
        chunks: chunks.count,
        chunk_tokens: chunks.tokens,
        vector: direct.vector,
        aligned: direct.aligned,
    }
}
