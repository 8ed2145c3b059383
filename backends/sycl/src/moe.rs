//! The steps between the products.

use strata_core::Result;
use strata_core::backend::ops::{
    Combine, GateUp, GateUpOrder, MapRoutes, PerExpert, RouterScores, SwiGlu, SwiGluQuantize, TopK,
};
use strata_core::backend::{Checked, MoeOps};
use strata_core::routing::{Gating, GroupScore, Norm};
use strata_kernels_sycl::Unit;
use strata_kernels_sycl::args::{ChooseHow, CombineHow, ExpertsHow, Step};
use sycl_bindgen::Arg;

use crate::SyclBackend;
use crate::launch::{read, read_or_null, write};
use crate::quantize::{reporting, size};

impl SyclBackend {
    /// Units of work of a row of columns.
    fn column_units(&self, cols: usize) -> u64 {
        cols.div_ceil(self.shared.form.columns() as usize) as u64
    }
}

/// The number of an order of gate and up.
fn order(gate_up: GateUp<'_>) -> u32 {
    match gate_up.order() {
        GateUpOrder::Split => 0,
        GateUpOrder::Interleaved => 1,
        GateUpOrder::UpOnly => 2,
    }
}

/// What is done between the products, and the scales, biases and bounds of experts.
fn experts<'a>(gate_up: GateUp<'a>) -> (ExpertsHow, [Arg<'a>; 3]) {
    let (kind, limit, alpha) = gate_up.function().parameters();
    let affine = gate_up.affine();
    let PerExpert { scale, bias, map } = affine.unwrap_or_default();
    let any = kind != 0 || affine.is_some() || gate_up.order() == GateUpOrder::UpOnly;
    let how = ExpertsHow {
        scale_stride: scale.map_or(0, |m| m.stride() as u64),
        bias_stride: bias.map_or(0, |m| m.stride() as u64),
        experts: map.map_or(1, |map| size(map.experts())),
        kind,
        any: any.into(),
        limit,
        alpha,
        end: 0,
    };
    let args = [
        read_or_null(scale.map(|m| m.data())),
        read_or_null(bias.map(|m| m.data())),
        read_or_null(map.map(|map| map.bounds())),
    ];
    (how, args)
}

impl SyclBackend {
    /// The choice of experts by any router.
    fn choose(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        let built = self.unit(Unit::Routing)?;
        let (scores, options) = (op.scores(), *op.options());
        let (gating, near) = options.gating_parameters();
        let groups = options.groups;
        let (normalised, epsilon, least) = match options.norm {
            Norm::None => (0, 0.0, 0.0),
            Norm::Sum { epsilon, least } => (1, epsilon, least),
        };
        let mut how = ChooseHow {
            stride: scores.stride() as u64,
            tokens: size(scores.rows()),
            experts: size(scores.cols()),
            k: size(op.k()),
            gating,
            near,
            softcap: options.softcap,
            groups: groups.map_or(0, |g| size(g.count)),
            groups_used: groups.map_or(0, |g| size(g.used)),
            top_two: groups.is_some_and(|g| g.score == GroupScore::TopTwo).into(),
            normalised,
            epsilon,
            least,
            scale: options.scale,
            kind: 0,
        };
        let (score_bias, selection_bias) = (op.score_bias(), op.selection_bias());
        let (step, word) = reporting(Step::default(), op.report_to());
        how.kind = step.value_kind;
        let (ids, weights) = op.out();
        let args = [
            read(scores.data()),
            read_or_null(score_bias),
            read_or_null(selection_bias),
            write(ids),
            write(weights),
            word,
            Arg::value(&how),
        ];
        // SAFETY: the arguments of `choose_experts`; the routes have room for the tokens, and
        // core has checked the options against experts and k.
        unsafe { self.share(&built, "choose_experts", &args, scores.rows() as u64) }
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
        let form = &self.shared.form;
        let (lanes, tokens) = (form.lanes as usize, form.score_tokens() as usize);
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
        if !op.is_plain() {
            return self.choose(op);
        }
        let built = self.unit(Unit::Routing)?;
        let scores = op.scores();
        let stride = scores.stride() as u64;
        let [tokens, experts, k] = [scores.rows(), scores.cols(), op.k()].map(size);
        let all = u32::from(op.options().gating == Gating::Softmax);
        let scale = op.options().scale;
        let (step, word) = reporting(Step::default(), op.report_to());
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
            interleaved: order(gate_up),
            ..Step::default()
        };
        let total = out.rows() as u64 * self.column_units(out.cols());
        let (how, [scale, bias, bounds]) = experts(gate_up);
        let args = [
            read(gate_up.matrix().data()),
            scale,
            bias,
            bounds,
            write(out.data()),
            Arg::value(&how),
            Arg::value(&step),
        ];
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
            of_codes: out.headers().sums as u32,
            interleaved: order(gate_up),
            ..Step::default()
        };
        let total = self.block_units(out.rows(), out.k_blocks());
        let to = write(out.data());
        let (step, word) = reporting(step, op.report_to());
        let (how, [scale, bias, bounds]) = experts(gate_up);
        let args = [
            read(gate_up.matrix().data()),
            scale,
            bias,
            bounds,
            read_or_null(tokens),
            to,
            word,
            Arg::value(&how),
            Arg::value(&step),
        ];
        // SAFETY: the arguments of `swiglu_quantize`, whose shapes core has checked.
        unsafe { self.share(&built, "swiglu_quantize", &args, total) }
    }

    fn combine(&self, op: &mut Checked<Combine<'_>>) -> Result<()> {
        let built = self.unit(Unit::Layer)?;
        let (y, map, routes, shared) = (op.y(), op.map(), op.routes(), op.shared());
        let (reports, word) = reporting(Step::default(), op.report_to());
        let out = op.out();
        let step = Step {
            stride: y.stride() as u64,
            out_stride: out.stride() as u64,
            cols: size(out.cols()),
            tokens: size(out.rows()),
            k: size(map.k()),
            ..reports
        };
        let total = out.rows() as u64 * self.column_units(out.cols());
        let score = shared.and_then(|s| s.score);
        let shared_stride = shared.map_or(0, |s| s.y.stride() as u64);
        let score_stride = score.map_or(0, |s| s.stride() as u64);
        let to = write(out.data());
        let (scale, bias) = op.affine().unwrap_or_default();
        let factors = op.factors();
        let how = CombineHow {
            scale_stride: scale.map_or(0, |m| m.stride() as u64),
            bias_stride: bias.map_or(0, |m| m.stride() as u64),
            weighed: factors.weighed.into(),
            shared_factor: factors.shared,
            sum_factor: factors.sum,
            end: 0,
        };
        let args = [
            read(y.data()),
            read(map.slot()),
            read(routes.weights()),
            read_or_null(shared.map(|s| s.y.data())),
            read_or_null(score.map(|s| s.data())),
            read(routes.ids()),
            read_or_null(scale.map(|m| m.data())),
            read_or_null(bias.map(|m| m.data())),
            to,
            word,
            Arg::value(&shared_stride),
            Arg::value(&score_stride),
            Arg::value(&how),
            Arg::value(&step),
        ];
        // SAFETY: the arguments of `combine`; every slot is a row of `y`.
        unsafe { self.share(&built, "combine", &args, total) }
    }
}
