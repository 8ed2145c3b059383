//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{Combine, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK};
use strata_core::backend::{Checked, MoeOps};
use strata_core::routing::Gating;
use strata_gpu::{args, shapes};

use crate::HipBackend;
use crate::module::Launch;
use crate::operand::{self, Rows, at_mut};

/// The source of the scores, the choice of experts and the combination.
const ROUTER: &str = "router";
/// The source of the choice of experts by any router.
const CHOOSE: &str = "choose";
/// The source of hidden values, alone and fused.
const SWIGLU: &str = "swiglu";

/// The fused kernels, by layout.
const SWIGLU_QUANTIZE: [&str; 3] =
    ["strata_swiglu_quantize_D4", "strata_swiglu_quantize_DS4", "strata_swiglu_quantize_D2S6"];

/// The same by any activation, with scales and biases of experts.
const HIDDEN_QUANTIZE: [&str; 3] =
    ["strata_hidden_quantize_D4", "strata_hidden_quantize_DS4", "strata_hidden_quantize_D2S6"];

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
        if !op.is_plain() {
            let [threads, tokens_at_once] = self.shape(CHOOSE, shapes::CHOOSE)?;
            let launch = Launch::row(self.blocks(scores.rows as u64, tokens_at_once), threads);
            let args = operand::choose(op);
            // SAFETY: as below; the options were checked against experts and k.
            return unsafe { self.launch(CHOOSE, "strata_choose", launch, &args) };
        }
        let (k, scale) = (op.k(), op.options().scale);
        let over_all = op.options().gating == Gating::Softmax;
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
        let (experts, any) = operand::experts(gate_up);
        let args = args::SwiGlu {
            gate_up: rows.address,
            out: out.address,
            rows: rows.rows as i64,
            ffn: gate_up.ffn() as i64,
            stride: rows.stride as i64,
            out_stride: out.stride as i64,
            interleaved: operand::order(gate_up),
            experts,
        };
        let [threads, _] = self.shape(SWIGLU, shapes::SWIGLU)?;
        let launch = Launch::row(self.blocks(work, threads), threads);
        let name = if any { "strata_hidden" } else { "strata_swiglu" };
        // SAFETY: core has checked the operands; the kernels take one of these.
        unsafe { self.launch(SWIGLU, name, launch, &args) }
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
        let (experts, any) = operand::experts(gate_up);
        let args = args::SwiGluQuantize {
            gate_up: rows.address,
            tokens,
            out,
            report,
            rows: rows.rows as i64,
            ffn: ffn as i64,
            stride: rows.stride as i64,
            k_blocks: k_blocks as u32,
            interleaved: operand::order(gate_up),
            vector: (rows.aligned() && ffn.is_multiple_of(4)).into(),
            aligned: operand::aligned(out).into(),
            experts,
        };
        let [threads, blocks] = self.shape(SWIGLU, shapes::SWIGLU)?;
        let launch = Launch::row(self.blocks(work, blocks), threads);
        let names = if any { HIDDEN_QUANTIZE } else { SWIGLU_QUANTIZE };
        let name = operand::of_layout(layout, names);
        // SAFETY: core has checked the operands; the kernels take one of these.
        unsafe { self.launch(SWIGLU, name, launch, &args) }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let (args, any) = operand::combine(op);
        let work = args.tokens as u64 * args.width as u64;
        if work == 0 {
            return Ok(());
        }
        let [threads] = self.shape(ROUTER, shapes::COMBINE)?;
        let work = if args.vector == 1 { work / 4 } else { work };
        let launch = Launch::row(self.blocks(work, threads), threads);
        let name = if any { "strata_combine_any" } else { "strata_combine" };
        // SAFETY: core has checked the operands: every slot is a row of y; the kernel
        // takes one of these.
        unsafe { self.launch(ROUTER, name, launch, &args) }
    }
}
