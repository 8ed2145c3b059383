//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{
    Combine, GateUp, GateUpOrder, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK,
};
use strata_core::backend::{Checked, MoeOps};
use strata_core::routing::RouterNorm;
use strata_kernels_hip::{args, shapes};

use crate::HipBackend;
use crate::module::Launch;
use crate::operand::{self, Rows, at, at_mut};

/// The source of the scores, the choice of experts and the combination.
const ROUTER: &str = "router";
/// The source of SwiGLU, alone and fused.
const SWIGLU: &str = "swiglu";

/// The fused kernels, by layout.
const SWIGLU_QUANTIZE: [&str; 3] =
    ["strata_swiglu_quantize_D4", "strata_swiglu_quantize_DS4", "strata_swiglu_quantize_D2S6"];

fn interleaved(gate_up: GateUp<'_>) -> u32 {
    (gate_up.order() == GateUpOrder::Interleaved).into()
}

impl MoeOps for HipBackend {
    fn router_scores(&self, op: &mut Checked<RouterScores<'_>>) -> Result<()> {
        let (x, weights) = (Rows::from(op.x()), Rows::from(op.weights()));
        let out = Rows::from(op.out());
        if out.rows == 0 || out.cols == 0 {
            return Ok(());
        }
        let args = args::Scores {
            x: x.address,
            weights: weights.address,
            out: out.address,
            tokens: x.rows as i64,
            experts: weights.rows as i64,
            width: x.cols as i64,
            x_stride: x.stride as i64,
            weights_stride: weights.stride as i64,
            out_stride: out.stride as i64,
        };
        let tiles = |[_, tokens, experts]: [u32; 3]| {
            let (rows, cols) = (x.rows as u64, weights.rows as u64);
            rows.div_ceil(tokens.into()) * cols.div_ceil(experts.into())
        };
        let mut shape = self.shape(ROUTER, shapes::SCORES)?;
        let mut name = "strata_router_scores";
        if tiles(shape) < 2 * u64::from(self.gpu().info.units) {
            shape = self.shape(ROUTER, shapes::FEW_SCORES)?;
            name = "strata_router_few_scores";
        }
        let launch = Launch::row(self.blocks(tiles(shape), 1), shape[0]);
        // SAFETY: core has checked the operands; the kernels take one of these.
        unsafe { self.launch(ROUTER, name, launch, &args) }
    }

    fn top_k(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        let scores = Rows::from(op.scores());
        if scores.rows == 0 {
            return Ok(());
        }
        let (k, over_all, scale) = (op.k(), op.norm() == RouterNorm::All, op.scale());
        let report = operand::report(op.report_to());
        let (ids, weights) = op.out();
        let args = args::TopK {
            scores: scores.address,
            ids: at_mut(ids),
            weights: at_mut(weights),
            report,
            tokens: scores.rows as i64,
            stride: scores.stride as i64,
            experts: scores.cols as u32,
            k: k as u32,
            over_all: over_all.into(),
            scale,
        };
        let [threads, tokens_at_once] = self.shape(ROUTER, shapes::TOP_K)?;
        let launch = Launch::row(self.blocks(scores.rows as u64, tokens_at_once), threads);
        // SAFETY: core has checked the operands: the routes have room for the tokens and
        // k is at most the experts; the kernel takes one of these.
        unsafe { self.launch(ROUTER, "strata_top_k", launch, &args) }
    }

    fn map_routes(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        self.launch_map(op)
    }

    fn swiglu(&self, op: &mut Checked<SwiGlu<'_>>) -> Result<()> {
        let (gate_up, out) = (op.gate_up(), Rows::from(op.out()));
        let rows = Rows::from(gate_up.matrix());
        let work = rows.rows as u64 * gate_up.ffn() as u64;
        if work == 0 {
            return Ok(());
        }
        let args = args::SwiGlu {
            gate_up: rows.address,
            out: out.address,
            rows: rows.rows as i64,
            ffn: gate_up.ffn() as i64,
            stride: rows.stride as i64,
            out_stride: out.stride as i64,
            interleaved: interleaved(gate_up),
        };
        let [threads, _] = self.shape(SWIGLU, shapes::SWIGLU)?;
        let launch = Launch::row(self.blocks(work, threads), threads);
        // SAFETY: core has checked the operands; the kernel takes one of these.
        unsafe { self.launch(SWIGLU, "strata_swiglu", launch, &args) }
    }

    fn swiglu_quantize(&self, op: &mut Checked<SwiGluQuantize<'_>>) -> Result<()> {
        let gate_up = op.gate_up();
        let (rows, ffn) = (Rows::from(gate_up.matrix()), gate_up.ffn());
        let tokens = operand::at_or_null(op.tokens());
        let report = operand::report(op.report_to());
        let out = op.out();
        let (layout, k_blocks) = (out.layout(), out.k_blocks());
        let work = rows.rows as u64 * k_blocks as u64;
        if work == 0 {
            return Ok(());
        }
        let out = at_mut(out.data());
        let args = args::SwiGluQuantize {
            gate_up: rows.address,
            tokens,
            out,
            report,
            rows: rows.rows as i64,
            ffn: ffn as i64,
            stride: rows.stride as i64,
            k_blocks: k_blocks as u32,
            interleaved: interleaved(gate_up),
            vector: (rows.aligned() && ffn.is_multiple_of(4)).into(),
            aligned: operand::aligned(out).into(),
        };
        let [threads, blocks] = self.shape(SWIGLU, shapes::SWIGLU)?;
        let launch = Launch::row(self.blocks(work, blocks), threads);
        let name = operand::of_layout(layout, SWIGLU_QUANTIZE);
        // SAFETY: core has checked the operands; the kernels take one of these.
        unsafe { self.launch(SWIGLU, name, launch, &args) }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let y = Rows::from(op.y());
        let shared = op.shared();
        let shared_y = shared.map(|s| Rows::from(s.y));
        let score = shared.and_then(|s| s.score).map(Rows::from);
        let (slot, weights) = (at(op.map().slot()), at(op.routes().weights()));
        let k = op.map().k();
        let report = operand::report(op.report_to());
        let out = Rows::from(op.out());
        let work = out.rows as u64 * out.cols as u64;
        if work == 0 {
            return Ok(());
        }
        let vector = out.cols.is_multiple_of(4)
            && [Some(y), shared_y, Some(out)].iter().flatten().all(Rows::aligned);
        let args = args::Combine {
            y: y.address,
            slot,
            weights,
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
        };
        let [threads] = self.shape(ROUTER, shapes::COMBINE)?;
        let work = if vector { work / 4 } else { work };
        let launch = Launch::row(self.blocks(work, threads), threads);
        // SAFETY: core has checked the operands: every slot is a row of y; the kernel
        // takes one of these.
        unsafe { self.launch(ROUTER, "strata_combine", launch, &args) }
    }
}
