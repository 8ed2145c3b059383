//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{
    Combine, GateUpOrder, MapRoutes, RouterScores, SwiGlu, SwiGluQuantize, TopK,
};
use strata_core::backend::{Checked, MoeOps};
use strata_core::routing::RouterNorm;
use strata_kernels_sycl::Unit;
use sycl_bindgen::Arg;

use crate::SyclBackend;
use crate::launch::{read, read_or_null, write};
use crate::quantize::{Step, size};

impl SyclBackend {
    /// Units of work of rows of columns: as many columns at once as the
    /// source's COLUMNS.
    fn column_units(&self, cols: usize) -> u64 {
        let each = match self.shared.form.lanes {
            1 => 1,
            lanes => 4 * lanes as usize,
        };
        cols.div_ceil(each) as u64
    }
}

impl MoeOps for SyclBackend {
    fn router_scores(&self, op: &mut Checked<RouterScores<'_>>) -> Result<()> {
        let built = self.unit(Unit::Layer)?;
        let (x, weights) = (op.x(), op.weights());
        let out = op.out();
        let step = Step {
            stride: x.stride() as u64,
            out_stride: out.stride() as u64,
            rows: size(out.rows()),
            cols: size(out.cols()),
            ..Step::default()
        };
        let lanes = self.shared.form.lanes as usize;
        // Tokens that share a tile of router rows: the source's SCORE_TOKENS.
        let tokens = if lanes > 1 { 16 } else { 1 };
        let total = out.rows().div_ceil(tokens) as u64 * out.cols().div_ceil(lanes) as u64;
        let to = write(out.data());
        let (stride, width) = (weights.stride() as u64, size(x.cols()));
        let args = [
            read(x.data()),
            read(weights.data()),
            to,
            Arg::value(&stride),
            Arg::value(&width),
            Arg::value(&step),
        ];
        // SAFETY: the arguments of `router_scores`, whose shapes core has checked.
        unsafe { self.share(&built, "router_scores", &args, total) }
    }

    fn top_k(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        let built = self.unit(Unit::Routing)?;
        let scores = op.scores();
        let stride = scores.stride() as u64;
        let [tokens, experts, k] = [scores.rows(), scores.cols(), op.k()].map(size);
        let all = u32::from(op.norm() == RouterNorm::All);
        let scale = op.scale();
        let (step, word) = Step::default().reporting(op.report_to());
        let (ids, weights) = op.out();
        let args = [
            read(scores.data()),
            write(ids),
            write(weights),
            word,
            Arg::value(&stride),
            Arg::value(&tokens),
            Arg::value(&experts),
            Arg::value(&k),
            Arg::value(&all),
            Arg::value(&scale),
            Arg::value(&step.value_kind),
        ];
        // SAFETY: the arguments of `top_k`; the routes have room for the tokens.
        unsafe { self.share(&built, "top_k", &args, scores.rows() as u64) }
    }

    fn map_routes(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        self.map(op)
    }

    fn swiglu(&self, op: &mut Checked<SwiGlu<'_>>) -> Result<()> {
        let built = self.unit(Unit::Layer)?;
        let gate_up = op.gate_up();
        let out = op.out();
        let step = Step {
            stride: gate_up.matrix().stride() as u64,
            out_stride: out.stride() as u64,
            rows: size(out.rows()),
            cols: size(out.cols()),
            interleaved: u32::from(gate_up.order() == GateUpOrder::Interleaved),
            ..Step::default()
        };
        let total = out.rows() as u64 * self.column_units(out.cols());
        let args = [read(gate_up.matrix().data()), write(out.data()), Arg::value(&step)];
        // SAFETY: the arguments of `swiglu_rows`, whose shapes core has checked.
        unsafe { self.share(&built, "swiglu_rows", &args, total) }
    }

    fn swiglu_quantize(&self, op: &mut Checked<SwiGluQuantize<'_>>) -> Result<()> {
        let built = self.unit(Unit::Layer)?;
        let (gate_up, tokens) = (op.gate_up(), op.tokens());
        let out = op.out();
        let step = Step {
            stride: gate_up.matrix().stride() as u64,
            rows: size(out.rows()),
            cols: size(out.cols()),
            k_blocks: size(out.k_blocks()),
            layout: out.layout() as u32,
            interleaved: u32::from(gate_up.order() == GateUpOrder::Interleaved),
            ..Step::default()
        };
        let total = self.block_units(out.rows(), out.k_blocks());
        let to = write(out.data());
        let (step, word) = step.reporting(op.report_to());
        let args =
            [read(gate_up.matrix().data()), read_or_null(tokens), to, word, Arg::value(&step)];
        // SAFETY: the arguments of `swiglu_quantize`, whose shapes core has checked.
        unsafe { self.share(&built, "swiglu_quantize", &args, total) }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let built = self.unit(Unit::Layer)?;
        let (y, map, routes, shared) = (op.y(), op.map(), op.routes(), op.shared());
        let (reporting, word) = Step::default().reporting(op.report_to());
        let out = op.out();
        let step = Step {
            stride: y.stride() as u64,
            out_stride: out.stride() as u64,
            cols: size(out.cols()),
            tokens: size(out.rows()),
            k: size(map.k()),
            ..reporting
        };
        let total = out.rows() as u64 * self.column_units(out.cols());
        let score = shared.and_then(|s| s.score);
        let shared_stride = shared.map_or(0, |s| s.y.stride() as u64);
        let score_stride = score.map_or(0, |s| s.stride() as u64);
        let args = [
            read(y.data()),
            read(map.slot()),
            read(routes.weights()),
            read_or_null(shared.map(|s| s.y.data())),
            read_or_null(score.map(|s| s.data())),
            write(out.data()),
            word,
            Arg::value(&shared_stride),
            Arg::value(&score_stride),
            Arg::value(&step),
        ];
        // SAFETY: the arguments of `combine`; every slot is a row of `y`.
        unsafe { self.share(&built, "combine", &args, total) }
    }
}
