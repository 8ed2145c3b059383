//! Scores of experts, and the choice of some.

use strata_core::Result;
use strata_core::backend::Checked;
use strata_core::backend::ops::{RouterScores, TopK};
use strata_core::routing::{Gating, GroupScore, Norm};

use crate::args::{Address, Arguments, Layout, ReportTo, arguments};
use crate::backend::GpuBackend;
use crate::driver::Driver;
use crate::operand::{self, Rows, at_mut, at_or_null};
use crate::stream::{Grid, TURNS};

/// The source of the scores and the plain choice.
const UNIT: &str = "router";
/// The source of the choice by any router.
const CHOOSE: &str = "choose";

/// Threads, tokens and experts of a tile of scores.
const SCORES_SHAPE: &str = "strata_router_scores_shape";
/// The same of `strata_router_few_scores`, for few tokens.
const FEW_SCORES_SHAPE: &str = "strata_router_few_scores_shape";
/// Threads of a block, tokens they choose for at a time.
const TOP_K_SHAPE: &str = "strata_top_k_shape";
/// The same of the choice by any router.
const CHOOSE_SHAPE: &str = "strata_choose_shape";

pub(super) const LAYOUTS: &[Layout] = &[ScoresArgs::LAYOUT, TopKArgs::LAYOUT, ChooseArgs::LAYOUT];

arguments! {
    /// `router`: `strata_router_scores`, `strata_router_few_scores`.
    ScoresArgs in "router.cu" {
        /// Tokens.
        x: Address,
        /// A row per expert.
        weights: Address,
        /// Scores.
        out: Address,
        /// Tokens.
        tokens: i64,
        /// Experts.
        experts: i64,
        /// Values of a token.
        width: i64,
        /// Values from row to row of x.
        x_stride: i64,
        /// Values from row to row of the weights.
        weights_stride: i64,
        /// Values from row to row of the scores.
        out_stride: i64,
    }
}

arguments! {
    /// `router`: `strata_top_k`.
    TopKArgs in "router.cu" {
        /// Scores.
        scores: Address,
        /// Chosen experts.
        ids: Address,
        /// Their weights.
        weights: Address,
        /// Report.
        report: ReportTo,
        /// Tokens.
        tokens: i64,
        /// Values from row to row of the scores.
        stride: i64,
        /// Experts.
        experts: u32,
        /// Chosen per token.
        k: u32,
        /// 1: weights are normalised over all experts.
        over_all: u32,
        /// What weights are multiplied by at the end.
        scale: f32,
    }
}

arguments! {
    /// `choose`: `strata_choose`.
    ChooseArgs in "choose.cu" {
        /// Scores.
        scores: Address,
        /// Added to them, a value per expert; null: nothing.
        score_bias: Address,
        /// Added where experts are chosen; null: nothing.
        selection_bias: Address,
        /// Chosen experts.
        ids: Address,
        /// Their weights.
        weights: Address,
        /// Report.
        report: ReportTo,
        /// Tokens.
        tokens: i64,
        /// Values from row to row of the scores.
        stride: i64,
        /// Experts.
        experts: u32,
        /// Chosen per token.
        k: u32,
        /// The gating's number.
        gating: u32,
        /// Its parameter.
        near: f32,
        /// Cap of the scores; 0: none.
        softcap: f32,
        /// Groups; 0: none.
        groups: u32,
        /// Groups that can be chosen from.
        groups_used: u32,
        /// 1: a group is worth its two best experts; 0: its best.
        top_two: u32,
        /// 1: weights are divided by their sum.
        normalised: u32,
        /// Added to the sum.
        epsilon: f32,
        /// The least that is divided by.
        least: f32,
        /// What weights are multiplied by at the end.
        scale: f32,
    }
}

impl<D: Driver> GpuBackend<D> {
    pub(super) fn launch_scores(&self, op: &mut Checked<RouterScores<'_>>) -> Result<()> {
        let (x, weights) = (Rows::from(op.x()), Rows::from(op.weights()));
        let out = Rows::from(op.out());
        let args = ScoresArgs {
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
        let mut shape = self.shape(UNIT, SCORES_SHAPE)?;
        let mut name = "strata_router_scores";
        if tiles(shape) < 2 * u64::from(self.gpu().units()) {
            shape = self.shape(UNIT, FEW_SCORES_SHAPE)?;
            name = "strata_router_few_scores";
        }
        let kernel = self.kernel(UNIT, name, shape[0])?;
        // SAFETY: the operands were checked; the kernels take one of these.
        unsafe { self.stream.launch(&kernel, Grid::UpTo(tiles(shape), 1), &args) }
    }

    pub(super) fn launch_top_k(&self, op: &mut Checked<TopK<'_>>) -> Result<()> {
        if !op.is_plain() {
            let [threads, tokens_at_once] = self.shape(CHOOSE, CHOOSE_SHAPE)?;
            let kernel = self.kernel(CHOOSE, "strata_choose", threads)?;
            let args = by_any_router(op);
            let grid = Grid::UpTo((args.tokens as u64).div_ceil(tokens_at_once.into()), TURNS);
            // SAFETY: as below; the options were checked against experts and k.
            return unsafe { self.stream.launch(&kernel, grid, &args) };
        }
        let [threads, tokens_at_once] = self.shape(UNIT, TOP_K_SHAPE)?;
        let kernel = self.kernel(UNIT, "strata_top_k", threads)?;
        let scores = Rows::from(op.scores());
        let (k, scale) = (op.k(), op.options().scale);
        let over_all = op.options().gating == Gating::Softmax;
        let report = operand::report(op.report_to());
        let (ids, weights) = op.out();
        let args = TopKArgs {
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
}

fn by_any_router(op: &mut Checked<TopK<'_>>) -> ChooseArgs {
    let scores = Rows::from(op.scores());
    let (k, options) = (op.k(), *op.options());
    let (score_bias, selection_bias) =
        (at_or_null(op.score_bias()), at_or_null(op.selection_bias()));
    let report = operand::report(op.report_to());
    let (ids, weights) = op.out();
    let (gating, near) = options.gating_parameters();
    let groups = options.groups;
    let (normalised, epsilon, least) = match options.norm {
        Norm::None => (0, 0.0, 0.0),
        Norm::Sum { epsilon, least } => (1, epsilon, least),
    };
    ChooseArgs {
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
