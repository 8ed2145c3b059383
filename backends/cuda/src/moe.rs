//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{
    Combine, GateUpOrder, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK,
};
use strata_core::backend::{Checked, MoeOps};
use strata_core::routing::RouterNorm;
use strata_kernels_cuda::{args, shapes};

use crate::backend::CudaBackend;
use crate::operand::{self, Rows, at, at_mut};
use crate::stream::{Grid, TURNS};

/// The fused kernels, by layout.
const SWIGLU_QUANTIZE: [&str; 3] =
    ["strata_swiglu_quantize_D4", "strata_swiglu_quantize_DS4", "strata_swiglu_quantize_D2S6"];

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
        let [threads, tokens_at_once] = self.shape("router", shapes::TOP_K)?;
        let kernel = self.kernel("router", "strata_top_k", threads)?;
        let scores = Rows::from(op.scores());
        let (k, scale, over_all) = (op.k(), op.scale(), op.norm() == RouterNorm::All);
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
        let kernel = self.kernel("swiglu", "strata_swiglu", threads)?;
        let (gate_up, out) = (op.gate_up(), Rows::from(op.out()));
        let rows = Rows::from(gate_up.matrix());
        let args = args::SwiGlu {
            gate_up: rows.address,
            out: out.address,
            rows: rows.rows as i64,
            ffn: gate_up.ffn() as i64,
            stride: rows.stride as i64,
            out_stride: out.stride as i64,
            interleaved: (gate_up.order() == GateUpOrder::Interleaved).into(),
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
        let kernel = self.kernel("swiglu", operand::of_layout(layout, SWIGLU_QUANTIZE), threads)?;
        let args = args::SwiGluQuantize {
            gate_up: rows.address,
            tokens,
            out,
            report,
            rows: rows.rows as i64,
            ffn: ffn as i64,
            stride: rows.stride as i64,
            k_blocks: k_blocks as u32,
            interleaved: (gate_up.order() == GateUpOrder::Interleaved).into(),
            vector: (rows.aligned() && ffn.is_multiple_of(4)).into(),
            aligned: operand::aligned(out).into(),
        };
        let work = rows.rows as u64 * k_blocks as u64;
        let grid = Grid::UpTo(work.div_ceil(blocks.into()), TURNS);
        // SAFETY: the operands were checked; the kernels take one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let [threads] = self.shape("router", shapes::COMBINE)?;
        let kernel = self.kernel("router", "strata_combine", threads)?;
        let y = Rows::from(op.y());
        let shared = op.shared();
        let shared_y = shared.map(|s| Rows::from(s.y));
        let score = shared.and_then(|s| s.score).map(Rows::from);
        let (slot, weights) = (at(op.map().slot()), at(op.routes().weights()));
        let k = op.map().k();
        let report = operand::report(op.report_to());
        let out = Rows::from(op.out());
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
        let parts = out.rows as u64 * (out.cols as u64).div_ceil(if vector { 4 } else { 1 });
        let grid = Grid::UpTo(parts.div_ceil(threads.into()), TURNS);
        // SAFETY: the operands were checked: every slot is a row of y; the kernel
        // takes one of these.
        unsafe { self.stream.launch(&kernel, grid, &args) }
    }
}
