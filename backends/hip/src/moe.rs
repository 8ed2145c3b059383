//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{
    Combine, GateUp, GateUpOrder, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK,
};
use strata_core::backend::{Checked, MoeOps};
use strata_core::routing::RouterNorm;

use crate::HipBackend;
use crate::memory::{of, of_mut, of_option};
use crate::module::{Launch, ReportArgs};
use crate::quantize::rows_aligned;

/// The source of the scores, the choice of experts and the combination.
const ROUTER: &str = "router";
/// The source of SwiGLU, alone and fused.
const SWIGLU: &str = "swiglu";

/// `ScoresArgs` of `router.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct ScoresArgs {
    x: u64,
    weights: u64,
    out: u64,
    tokens: i64,
    experts: i64,
    width: i64,
    x_stride: i64,
    weights_stride: i64,
    out_stride: i64,
}

/// `TopKArgs` of `router.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TopKArgs {
    scores: u64,
    ids: u64,
    weights: u64,
    report: ReportArgs,
    tokens: i64,
    stride: i64,
    experts: u32,
    k: u32,
    over_all: u32,
    scale: f32,
}

/// `CombineArgs` of `router.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct CombineArgs {
    y: u64,
    slot: u64,
    weights: u64,
    shared: u64,
    shared_score: u64,
    out: u64,
    tokens: i64,
    width: i64,
    y_stride: i64,
    shared_stride: i64,
    score_stride: i64,
    out_stride: i64,
    k: u32,
    vector: u32,
}

/// `SwiGluArgs` of `swiglu.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SwiGluArgs {
    gate_up: u64,
    out: u64,
    rows: i64,
    ffn: i64,
    stride: i64,
    out_stride: i64,
    interleaved: u32,
}

/// `SwiGluQuantizeArgs` of `swiglu.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct SwiGluQuantizeArgs {
    gate_up: u64,
    tokens: u64,
    out: u64,
    report: ReportArgs,
    rows: i64,
    ffn: i64,
    stride: i64,
    k_blocks: u32,
    interleaved: u32,
    vector: u32,
    aligned: u32,
}

fn interleaved(gate_up: GateUp<'_>) -> u32 {
    (gate_up.order() == GateUpOrder::Interleaved).into()
}

impl MoeOps for HipBackend {
    fn router_scores(&self, op: &mut Checked<RouterScores<'_>>) -> Result<()> {
        let (x, weights) = (op.x(), op.weights());
        let out = op.out();
        if out.rows() == 0 || out.cols() == 0 {
            return Ok(());
        }
        let args = ScoresArgs {
            x: of(x.data()),
            weights: of(weights.data()),
            out: of_mut(out.data()),
            tokens: x.rows() as i64,
            experts: weights.rows() as i64,
            width: x.cols() as i64,
            x_stride: x.stride() as i64,
            weights_stride: weights.stride() as i64,
            out_stride: out.stride() as i64,
        };
        let module = self.module(ROUTER)?;
        let [threads, tokens, experts] =
            module.shape(&self.stream, "strata_router_scores_shape")?;
        let tiles = (x.rows() as u64).div_ceil(tokens.into())
            * (weights.rows() as u64).div_ceil(experts.into());
        let launch = Launch::row(self.blocks(tiles, 1), threads);
        // SAFETY: the arguments are `ScoresArgs`, made of views that core has checked.
        unsafe { module.launch(&self.stream, "strata_router_scores", launch, &args) }
    }

    fn top_k(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        let scores = op.scores();
        if scores.rows() == 0 {
            return Ok(());
        }
        let (k, over_all, scale) = (op.k(), op.norm() == RouterNorm::All, op.scale());
        let report = ReportArgs::new(op.report_to());
        let (ids, weights) = op.out();
        let args = TopKArgs {
            scores: of(scores.data()),
            ids: of_mut(ids),
            weights: of_mut(weights),
            report,
            tokens: scores.rows() as i64,
            stride: scores.stride() as i64,
            experts: scores.cols() as u32,
            k: k as u32,
            over_all: over_all.into(),
            scale,
        };
        let module = self.module(ROUTER)?;
        let [threads, waves] = module.shape(&self.stream, "strata_top_k_shape")?;
        let launch = Launch::row(self.blocks(scores.rows() as u64, waves), threads);
        // SAFETY: the arguments are `TopKArgs`, made of views that core has checked.
        unsafe { module.launch(&self.stream, "strata_top_k", launch, &args) }
    }

    fn map_routes(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        self.map_launches(op)
    }

    fn swiglu(&self, op: &mut Checked<SwiGlu<'_>>) -> Result<()> {
        let gate_up = op.gate_up();
        let matrix = gate_up.matrix();
        let out = op.out();
        let work = matrix.rows() as u64 * gate_up.ffn() as u64;
        if work == 0 {
            return Ok(());
        }
        let args = SwiGluArgs {
            gate_up: of(matrix.data()),
            out: of_mut(out.data()),
            rows: matrix.rows() as i64,
            ffn: gate_up.ffn() as i64,
            stride: matrix.stride() as i64,
            out_stride: out.stride() as i64,
            interleaved: interleaved(gate_up),
        };
        let module = self.module(SWIGLU)?;
        let [threads, _] = module.shape(&self.stream, "strata_swiglu_shape")?;
        let launch = Launch::row(self.blocks(work, threads), threads);
        // SAFETY: the arguments are `SwiGluArgs`, made of views that core has checked.
        unsafe { module.launch(&self.stream, "strata_swiglu", launch, &args) }
    }

    fn swiglu_quantize(&self, op: &mut Checked<SwiGluQuantize<'_>>) -> Result<()> {
        let gate_up = op.gate_up();
        let matrix = gate_up.matrix();
        let tokens = of_option(op.tokens());
        let report = ReportArgs::new(op.report_to());
        let out = op.out();
        let (k_blocks, layout) = (out.k_blocks(), out.layout());
        let work = matrix.rows() as u64 * k_blocks as u64;
        if work == 0 {
            return Ok(());
        }
        let data = of_mut(out.data());
        let args = SwiGluQuantizeArgs {
            gate_up: of(matrix.data()),
            tokens,
            out: data,
            report,
            rows: matrix.rows() as i64,
            ffn: gate_up.ffn() as i64,
            stride: matrix.stride() as i64,
            k_blocks: k_blocks as u32,
            interleaved: interleaved(gate_up),
            vector: (rows_aligned(matrix) && gate_up.ffn().is_multiple_of(4)).into(),
            aligned: data.is_multiple_of(16).into(),
        };
        let module = self.module(SWIGLU)?;
        let [threads, groups] = module.shape(&self.stream, "strata_swiglu_shape")?;
        let launch = Launch::row(self.blocks(work, groups), threads);
        let name = format!("strata_swiglu_quantize_{layout}");
        // SAFETY: the arguments are `SwiGluQuantizeArgs`, made of views that core has checked.
        unsafe { module.launch(&self.stream, &name, launch, &args) }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let (y, map, routes, shared) = (op.y(), op.map(), op.routes(), op.shared());
        let score = shared.and_then(|s| s.score);
        let out = op.out();
        let work = out.rows() as u64 * out.cols() as u64;
        if work == 0 {
            return Ok(());
        }
        let data = of_mut(out.data());
        let vector = y.cols().is_multiple_of(4)
            && rows_aligned(y)
            && shared.is_none_or(|s| rows_aligned(s.y))
            && data.is_multiple_of(16)
            && out.stride().is_multiple_of(4);
        let args = CombineArgs {
            y: of(y.data()),
            slot: of(map.slot()),
            weights: of(routes.weights()),
            shared: shared.map_or(0, |s| of(s.y.data())),
            shared_score: score.map_or(0, |s| of(s.data())),
            out: data,
            tokens: out.rows() as i64,
            width: out.cols() as i64,
            y_stride: y.stride() as i64,
            shared_stride: shared.map_or(0, |s| s.y.stride() as i64),
            score_stride: score.map_or(0, |s| s.stride() as i64),
            out_stride: out.stride() as i64,
            k: map.k() as u32,
            vector: vector.into(),
        };
        let module = self.module(ROUTER)?;
        let [threads] = module.shape(&self.stream, "strata_combine_shape")?;
        let work = if vector { work / 4 } else { work };
        let launch = Launch::row(self.blocks(work, threads), threads);
        // SAFETY: the arguments are `CombineArgs`, made of views that core has checked.
        unsafe { module.launch(&self.stream, "strata_combine", launch, &args) }
    }
}
