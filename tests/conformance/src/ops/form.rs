//! What a layer has beside plain SwiGLU experts and a plain router.

use strata_core::Result;
use strata_core::activation::Activation;
use strata_core::backend::Backend;
use strata_core::backend::ops::CombineOptions;
use strata_core::prefill::{ExpertOptions, MoeLayer, Router};

use super::layer::{LayerCase, Trouble};
use crate::values::Values;

/// The operands of a layer besides its products' weights.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operand {
    /// The router's weights.
    Router,
    /// The bias of its scores.
    ScoreBias,
    /// The bias that only the choice sees.
    SelectionBias,
    /// Factors of the gate and up products.
    Scale,
    /// Their biases.
    Bias,
    /// Factors of the down products.
    DownScale,
    /// Their biases.
    DownBias,
    /// Factors of the shared expert's gate and up products.
    SharedScale,
    /// Their biases.
    SharedBias,
    /// The shared expert's gate.
    SharedGate,
}

impl Operand {
    /// Its name in a case's.
    pub fn name(self) -> &'static str {
        match self {
            Self::Router => "router",
            Self::ScoreBias => "score-bias",
            Self::SelectionBias => "bias-of-choice",
            Self::Scale => "scale",
            Self::Bias => "bias",
            Self::DownScale => "down-scale",
            Self::DownBias => "down-bias",
            Self::SharedScale => "shared-scale",
            Self::SharedBias => "shared-bias",
            Self::SharedGate => "shared-gate-weight",
        }
    }
}

/// The form of a layer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Form {
    /// Hidden values from gate and up, of the experts and of the shared one.
    pub activation: Activation,
    /// Whether there are no gates.
    pub up_only: bool,
    /// Whether products have scales per expert.
    pub scaled: bool,
    /// Whether they have biases.
    pub biased: bool,
    /// Whether the router's scores have a bias.
    pub score_bias: bool,
    /// Whether the choice has one.
    pub selection_bias: bool,
    /// Whether the router reads an input of its own.
    pub own_input: bool,
    /// Factors of the sum; weights on the experts' inputs.
    pub factors: CombineOptions,
}

impl Form {
    /// SwiGLU alone.
    pub const PLAIN: Self = Self {
        activation: Activation::SwiGlu,
        up_only: false,
        scaled: false,
        biased: false,
        score_bias: false,
        selection_bias: false,
        own_input: false,
        factors: CombineOptions { weighed: true, shared: 1.0, sum: 1.0 },
    };
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { activation, factors, .. } = self;
        if *activation != Activation::SwiGlu {
            write!(f, "/{activation}")?;
        }
        for (is, name) in [
            (self.up_only, "up-only"),
            (self.scaled, "scales"),
            (self.biased, "biases"),
            (self.score_bias, "score-bias"),
            (self.selection_bias, "bias-of-choice"),
            (self.own_input, "own-input"),
            (!factors.weighed, "weights-on-inputs"),
        ] {
            if is {
                write!(f, "/{name}")?;
            }
        }
        if factors.shared != 1.0 || factors.sum != 1.0 {
            write!(f, "/factors={},{}", factors.shared, factors.sum)?;
        }
        Ok(())
    }
}

impl LayerCase {
    /// The values of an operand of so many, with the case's trouble in the first.
    pub(super) fn operand(&self, operand: Operand, count: usize) -> Vec<f32> {
        let LayerCase { shape, .. } = self;
        let mut values = match operand {
            Operand::Router => {
                let scale = 1.0 / (shape.width as f32).sqrt();
                let values = Values::Normal.fill(8, count / shape.width, shape.width);
                values.into_iter().map(|v| v * scale).collect()
            }
            Operand::SharedGate => Values::Normal.fill(15, 1, count),
            other => Values::Normal.fill(40 + other as u64, 1, count),
        };
        for trouble in self.troubles() {
            if let Trouble::Operand(spoiled, value) = *trouble
                && spoiled == operand
            {
                values[0] = value;
            }
        }
        values
    }

    /// What the experts compute beside their products, `experts` of `ffn` hidden values: the
    /// routed ones or the shared one.
    pub(super) fn expert_options(&self, experts: usize, ffn: usize, shared: bool) -> ExpertOptions {
        let Form { activation, up_only, scaled, biased, .. } = self.form;
        let parts = if up_only { 1 } else { 2 };
        let of = |is: bool, operand, count| is.then(|| self.operand(operand, count));
        let (scale, bias) = match shared {
            false => (Operand::Scale, Operand::Bias),
            true => (Operand::SharedScale, Operand::SharedBias),
        };
        ExpertOptions {
            activation,
            scale: of(scaled, scale, experts * parts),
            bias: of(biased, bias, experts * parts * ffn),
            down_scale: of(scaled && !shared, Operand::DownScale, experts),
            down_bias: of(biased && !shared, Operand::DownBias, experts * self.shape.width),
        }
    }

    /// The biases of scores and choice.
    pub(super) fn router_biases(&self) -> [Option<Vec<f32>>; 2] {
        let experts = self.shape.experts;
        let of = |is: bool, operand| is.then(|| self.operand(operand, experts));
        [
            of(self.form.score_bias, Operand::ScoreBias),
            of(self.form.selection_bias, Operand::SelectionBias),
        ]
    }

    /// The router's weights, experts x width.
    pub(super) fn router_weights(&self) -> Vec<f32> {
        self.operand(Operand::Router, self.shape.experts * self.shape.width)
    }

    pub(super) fn router_of(&self, backend: &dyn Backend) -> Result<Router> {
        let (experts, width) = (self.shape.experts, self.shape.width);
        let [score, selection] = self.router_biases();
        let router = Router::new(backend, &self.router_weights(), experts, width)?;
        let router = match score.is_some() || selection.is_some() {
            true => router.biased(backend, score.as_deref(), selection.as_deref())?,
            false => router,
        };
        Ok(if self.form.own_input { router.with_own_input() } else { router })
    }

    /// The layer with what its form adds.
    pub(super) fn formed(&self, backend: &dyn Backend, layer: MoeLayer) -> Result<MoeLayer> {
        if self.form == Form::PLAIN {
            return Ok(layer);
        }
        let options = self.expert_options(self.shape.experts, self.shape.ffn, false);
        let layer = layer.with_experts(backend, &options)?.with_factors(self.form.factors);
        match self.shared {
            Some(shared) => {
                let options = self.expert_options(1, shared.ffn, true);
                layer.with_shared_options(backend, &options)
            }
            None => Ok(layer),
        }
    }
}
