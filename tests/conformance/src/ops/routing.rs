//! Router scores, top-k, and the map.

use strata_core::Error;
use strata_core::backend::ops::{MapRoutes, RouterScores, TopK};
use strata_core::backend::{Backend, DeviceRoutes, Report, RoutingMap, Slice};
use strata_core::routing::RouterOptions;

use super::{InMatrix, report_output};
use crate::output::{Output, Shape};
use crate::poisoned::{OutMatrix, POISON};
use crate::values::{Routing, Values};
use crate::{Op, Outputs, Stage};

/// A map.
#[derive(Debug, Clone, Copy)]
pub struct MapCase {
    /// Tokens and experts.
    pub routing: Routing,
    /// Tokens the map has room for beyond these; their entries must not be touched.
    pub spare: usize,
    /// Launches on the same buffers.
    pub launches: usize,
    /// What everything follows from.
    pub seed: u64,
}

impl std::fmt::Display for MapCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "map/{}", self.routing)?;
        if self.spare > 0 {
            write!(f, ",spare={}", self.spare)?;
        }
        if self.launches > 1 {
            write!(f, "/launches={}", self.launches)?;
        }
        Ok(())
    }
}

fn words<T: bytemuck::Pod>(
    backend: &dyn Backend,
    what: &str,
    data: Slice<'_, T>,
    written: usize,
) -> Result<Output, Error> {
    let bytes = bytemuck::cast_slice(&backend.download(data)?).to_vec();
    let shape = Shape::Words { start: 0, len: written };
    Ok(Output { what: what.into(), bytes, shape, expected: None })
}

impl Op for MapCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Routing { experts, k, tokens, .. } = self.routing;
        let routes = DeviceRoutes::upload(backend, &self.routing.routes(self.seed))?;
        let mut map = RoutingMap::with_capacity(backend, tokens + self.spare, k, experts)?;
        map.wipe(backend, POISON)?;
        for _ in 0..self.launches {
            MapRoutes::new(routes.view(), &mut map)?.launch(backend)?;
        }
        let ([slot, src, bounds], rows) = (map.whole(), self.routing.rows());
        Ok(vec![
            words(backend, "slot", slot, rows)?,
            words(backend, "src", src, rows)?,
            words(backend, "bounds", bounds, experts + 1)?,
        ])
    }
}

/// What the scores of a top-k are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scores {
    /// Values of a kind.
    Values(Values),
    /// Few different values, both zeros among them: nearly everything ties.
    Ties,
    /// All equal.
    Equal,
    /// NaN, infinities and normal values in turns.
    Special,
}

impl Scores {
    fn fill(self, seed: u64, tokens: usize, experts: usize) -> Vec<f32> {
        let normal = Values::Normal.fill(seed, tokens, experts);
        let pick = |few: &[f32]| {
            let at = |v: &f32| (v.to_bits() >> 3) as usize % few.len();
            normal.iter().map(|v| few[at(v)]).collect()
        };
        match self {
            Self::Values(values) => values.fill(seed, tokens, experts),
            Self::Ties => pick(&[-1.0, -0.0, 0.0, 0.5, 2.0]),
            Self::Equal => vec![0.25; tokens * experts],
            Self::Special => {
                pick(&[f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -f32::NAN, 1.0, -3.0, 88.0])
            }
        }
    }
}

impl std::fmt::Display for Scores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Values(values) => write!(f, "{values}"),
            Self::Ties => f.write_str("ties"),
            Self::Equal => f.write_str("equal"),
            Self::Special => f.write_str("special"),
        }
    }
}

/// A top-k.
#[derive(Debug, Clone, Copy)]
pub struct TopKCase {
    /// Experts.
    pub experts: usize,
    /// Choices.
    pub k: usize,
    /// Tokens.
    pub tokens: usize,
    /// What the scores are.
    pub scores: Scores,
    /// How scores become experts and weights.
    pub options: RouterOptions,
    /// Whether the scores have a bias.
    pub score_bias: bool,
    /// Whether the choice has one.
    pub selection_bias: bool,
    /// Values between the rows of the scores.
    pub gap: usize,
}

impl std::fmt::Display for TopKCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { experts, k, tokens, scores, options, score_bias, selection_bias, gap } = self;
        write!(f, "top-k/E={experts},k={k}/T={tokens}/{scores}/by={options}")?;
        f.write_str(if *score_bias { ",score-bias" } else { "" })?;
        f.write_str(if *selection_bias { ",selection-bias" } else { "" })?;
        if *gap > 0 {
            write!(f, ",stride={}", experts + gap)?;
        }
        Ok(())
    }
}

impl Op for TopKCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        // Tokens there is room for beyond the scores': their routes must not be touched.
        const SPARE: usize = 3;
        let backend = stage.backend;
        let Self { experts, k, tokens, .. } = *self;
        let values = self.scores.fill(1, tokens, experts);
        let scores = InMatrix::new(backend, &values, tokens, experts, self.gap, 1)?;
        let mut routes = DeviceRoutes::with_capacity(backend, tokens + SPARE, k, experts)?;
        routes.wipe(backend, POISON)?;
        let mut report = Report::new(backend)?;
        let bias = |seed| Values::Normal.fill(seed, 1, experts);
        let (score, selection) = (backend.from_slice(&bias(31))?, backend.from_slice(&bias(32))?);
        TopK::new(scores.view()?, &self.options, &mut routes)?
            .bias(
                self.score_bias.then(|| score.view()),
                self.selection_bias.then(|| selection.view()),
            )?
            .report(Some(&mut report))
            .launch(backend)?;
        let (ids, weights) = routes.whole();
        Ok(vec![
            words(backend, "ids", ids, tokens * k)?,
            words(backend, "weights", weights, tokens * k)?,
            report_output(backend, &report)?,
        ])
    }
}

/// Router scores.
#[derive(Debug, Clone, Copy)]
pub struct RouterCase {
    /// Tokens.
    pub tokens: usize,
    /// Experts.
    pub experts: usize,
    /// Columns.
    pub width: usize,
    /// What the tokens hold.
    pub values: Values,
    /// Values between rows of the input, the weights and the scores.
    pub gap: usize,
    /// Values before each.
    pub offset: usize,
}

impl std::fmt::Display for RouterCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { tokens, experts, width, values, gap, offset } = self;
        write!(f, "router/E={experts}/T={tokens}/width={width}")?;
        if gap + offset > 0 {
            write!(f, ",gap={gap},offset={offset}")?;
        }
        write!(f, "/{values}")
    }
}

impl Op for RouterCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { tokens, experts, width, gap, offset, .. } = *self;
        let x = self.values.fill(1, tokens, width);
        let x = InMatrix::new(backend, &x, tokens, width, gap, offset)?;
        let weights = Values::Normal.fill(2, experts, width);
        let weights = InMatrix::new(backend, &weights, experts, width, gap, offset)?;
        let mut out = OutMatrix::new(backend, tokens, experts, experts + gap, offset)?;
        RouterScores::new(x.view()?, weights.view()?, out.view()?)?.launch(backend)?;
        Ok(vec![out.read(backend, "scores")?])
    }
}
