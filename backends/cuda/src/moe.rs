//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{Combine, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK};
use strata_core::backend::{Checked, MoeOps};
use strata_core::routing::Gating;
use strata_gpu::{args, shapes};

use crate::backend::CudaBackend;
use crate::operand::{self, Rows, at_mut};
use crate::stream::{Grid, TURNS};

/// The fused kernels, by layout.
const SWIGLU_QUANTIZE: [&str; 3] =
    ["strata_swiglu_quantize_D4", "strata_swiglu_quantize_DS4", "strata_swiglu_quantize_D2S6"];

/// The same by any activation, with scales and biases of experts.
const HIDDEN_QUANTIZE: [&str; 3] =
    ["strata_hidden_quantize_D4", "strata_hidden_quantize_DS4", "strata_hidden_quantize_D2S6"];

impl MoeOps for CudaBackend {
    fn router_scores(&self, op: &mut Checked<RouterScores<'_>>) -> Result<()> {
        let (x, weights) = (Rows::from(op.x()), Rows::from(op.weights()));
        let out = Rows::from(op.out());
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
        let mut shape = self.shape("router", shapes::SCORES)?;
        let mut name = "strata_router_scores";
        if tiles(shape) < 2 * u64::from(self.gpu().limits.units) {
            shape = self.shape("router", shapes::FEW_SCORES)?;
            name = "strata_router_few_scores";
        }
        let kernel = self.kernel("router", name, shape[0])?;
        // SAFETY: the operands were checked; the kernels take one of these.
        unsafe { self.stream.launch(&kernel, Grid::UpTo(tiles(shape), 1), &args) }
    }

    fn top_k(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        if !op.is_plain() {
            let [threads, tokens_at_once] = self.shape("choose", shapes::CHOOSE)?;
            let kernel = self.kernel("choose", "strata_choose", threads)?;
            let args = operand::choose(op);
            let grid = Grid::UpTo((args.tokens as u64).div_ceil(tokens_at_once.into()), TURNS);
            // SAFETY: as below; the options were checked against experts and k.
            return unsafe { self.stream.launch(&kernel, grid, &args) };
        }
        let [threads, tokens_at_once] = self.shape("router", shapes::TOP_K)?;
        let kernel = self.kernel("router", "strata_top_k", threads)?;
        let scores = Rows::from(op.scores());
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
        let grid = Grid::UpTo((scores.rows as u64).div_ceil(tokens_at_once.into()), TURNS);
        // SAFETY: the operands were checked: the routes have room for the tokens
        // and k is at most the experts; the kernel takes one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }

    fn map_routes(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        self.launch_map(op)
    }

    fn swiglu(&self, op: &mut Checked<SwiGlu<'_>>) -> Result<()> {
        let [threads, _] = self.shape("swiglu", shapes::SWIGLU)?;
        let (gate_up, out) = (op.gate_up(), Rows::from(op.out()));
        let (experts, any) = operand::experts(gate_up);
        let name = if any { "strata_hidden" } else { "strata_swiglu" };
        let kernel = self.kernel("swiglu", name, threads)?;
        let rows = Rows::from(gate_up.matrix());
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
        let values = rows.rows as u64 * gate_up.ffn() as u64;
        let grid = Grid::UpTo(values.div_ceil(threads.into()), TURNS);
        // SAFETY: the operands were checked; the kernel takes one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }

    fn swiglu_quantize(&self, op: &mut Checked<SwiGluQuantize<'_>>) -> Result<()> {
        let [threads, blocks] = self.shape("swiglu", shapes::SWIGLU)?;
        let gate_up = op.gate_up();
        let (rows, ffn) = (Rows::from(gate_up.matrix()), gate_up.ffn());
        let tokens = operand::at_or_null(op.tokens());
        let report = operand::report(op.report_to());
        let out = op.out();
        let (layout, k_blocks) = (out.layout(), out.k_blocks());
        let out = at_mut(out.data());
        let (experts, any) = operand::experts(gate_up);
        let names = if any { HIDDEN_QUANTIZE } else { SWIGLU_QUANTIZE };
        let kernel = self.kernel("swiglu", operand::of_layout(layout, names), threads)?;
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
        let work = rows.rows as u64 * k_blocks as u64;
        let grid = Grid::UpTo(work.div_ceil(blocks.into()), TURNS);
        // SAFETY: the operands were checked; the kernels take one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let [threads] = self.shape("router", shapes::COMBINE)?;
        let (args, any) = operand::combine(op);
        let name = if any { "strata_combine_any" } else { "strata_combine" };
        let kernel = self.kernel("router", name, threads)?;
        let each = if args.vector == 1 { 4 } else { 1 };
        let parts = args.tokens as u64 * (args.width as u64).div_ceil(each);
        let grid = Grid::UpTo(parts.div_ceil(threads.into()), TURNS);
        // SAFETY: the operands were checked: every slot is a row of y; the kernel
        // takes one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }
}
