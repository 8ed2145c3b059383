//! The whole layer: the pipeline of core over a backend.

use strata_core::backend::ops::{GateUpOrder, MatrixMut};
use strata_core::backend::{Backend, DeviceRoutes};
use strata_core::numerics::f16_to_f32;
use strata_core::prefill::{
    Chunk, GateUpWeights, MoeLayer, Options, QuantMode, Router, Routing as From, SharedExpert,
    Tensor, Workspace,
};
use strata_core::q8_1::Sums;
use strata_core::routing::{RouterOptions, Routes};
use strata_core::{Result, WeightType};

use super::InMatrix;
use super::form::{Form, Operand};
use super::host_layer::{Part, shared_parts};
use crate::output::Output;
use crate::poisoned::OutMatrix;
use crate::values::{Choice, Routing, Values};
use crate::{Op, Outputs, Stage};

/// The experts of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LayerShape {
    /// Experts.
    pub experts: usize,
    /// Experts each token uses.
    pub k: usize,
    /// Values of a token.
    pub width: usize,
    /// Hidden values of an expert.
    pub ffn: usize,
    /// Type of gate (and of up, where they are one tensor).
    pub gate: WeightType,
    /// Type of up, where it is a tensor of its own.
    pub up: Option<WeightType>,
    /// Type of down.
    pub down: WeightType,
    /// The order of a merged tensor's rows.
    pub order: GateUpOrder,
}

/// A shared expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedCase {
    /// Its hidden values.
    pub ffn: usize,
    /// The type of its tensors.
    pub ty: WeightType,
    /// Whether a gate's sigmoid weighs it.
    pub gated: bool,
}

/// Where a layer's routes come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// The layer's router.
    Router,
    /// Scores of the caller's.
    Scores,
    /// Routes of the caller's.
    Routes(Choice),
}

/// A token that the checked call must name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Trouble {
    /// One value of this token's input is this.
    Input(usize, f32),
    /// Every value of this token's input is this.
    Row(usize, f32),
    /// One score of this token is this.
    Score(usize, f32),
    /// The first block of this tensor of Q8_0, of its first expert, has a scale of these f16 bits.
    Weights(&'static str, u16),
    /// The first value of this operand is this.
    Operand(Operand, f32),
    /// One value of this token's input of the router is this, where it has one of its own.
    RouterInput(usize, f32),
}

impl std::fmt::Display for Trouble {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Input(token, value) => write!(f, "input-{token}={value}"),
            Self::Row(token, value) => write!(f, "row-{token}={value:e}"),
            Self::Score(token, value) => write!(f, "score-{token}={value}"),
            Self::Weights(what, scale) => {
                write!(f, "{}={}", what.replace(' ', "-"), f16_to_f32(*scale))
            }
            Self::Operand(operand, value) => match value.abs() > 1e9 && value.is_finite() {
                true => write!(f, "{}={value:e}", operand.name()),
                false => write!(f, "{}={value}", operand.name()),
            },
            Self::RouterInput(token, value) => write!(f, "router-input-{token}={value}"),
        }
    }
}

/// A call of a layer.
#[derive(Debug, Clone, Copy)]
pub struct LayerCase {
    /// The experts.
    pub shape: LayerShape,
    /// The shared expert.
    pub shared: Option<SharedCase>,
    /// Where the routes come from.
    pub source: Source,
    /// How scores become experts and weights.
    pub router: RouterOptions,
    /// What it has beside plain experts and router.
    pub form: Form,
    /// Tokens.
    pub tokens: usize,
    /// What they hold.
    pub values: Values,
    /// Values between tokens, in and out.
    pub gap: usize,
    /// How tokens reach their rows.
    pub mode: QuantMode,
    /// Tokens at once.
    pub chunk: Chunk,
    /// Whether SwiGLU and quantization are one step.
    pub fused: bool,
    /// What the sums of quantized activations are of.
    pub sums: Sums,
    /// Whether non-finite values are errors.
    pub checked: bool,
    /// Calls in a row, in one workspace.
    pub calls: usize,
    /// Tokens that spoil it, and the error that the call must end in.
    pub trouble: Option<(&'static [Trouble], &'static str)>,
}

impl LayerCase {
    /// `tokens` tokens of normal values, by the layer's router, as the options' defaults are.
    pub const fn new(shape: LayerShape, tokens: usize) -> Self {
        Self {
            shape,
            shared: None,
            source: Source::Router,
            router: RouterOptions::SOFTMAX_OF_CHOSEN,
            form: Form::PLAIN,
            tokens,
            values: Values::Normal,
            gap: 0,
            mode: QuantMode::Scatter,
            chunk: Chunk::Tokens(8192),
            fused: true,
            sums: Sums::Values,
            checked: true,
            calls: 1,
            trouble: None,
        }
    }

    fn options(&self, plain: bool) -> Options {
        // Never from the environment: STRATA_QUANT_GATHER must not change what is tested.
        let (quant, chunk, fused, checked) = match plain {
            true => (QuantMode::Gather, Chunk::Tokens(usize::MAX), false, false),
            false => (self.mode, self.chunk, self.fused, self.checked),
        };
        Options { quant, chunk, checked, fused, timed: false }
    }

    /// What spoils it.
    pub(super) fn troubles(&self) -> &'static [Trouble] {
        self.trouble.map_or(&[], |(list, _)| list)
    }

    pub(super) fn input(&self) -> Vec<f32> {
        let mut x = self.values.fill(5, self.tokens, self.shape.width);
        for trouble in self.troubles() {
            match *trouble {
                Trouble::Input(token, value) => x[token * self.shape.width + 3] = value,
                Trouble::Row(token, value) => {
                    x[token * self.shape.width..][..self.shape.width].fill(value);
                }
                _ => {}
            }
        }
        x
    }

    /// What the router reads where that is an input of its own.
    pub(super) fn own_input(&self) -> Vec<f32> {
        let mut x = self.values.fill(16, self.tokens, self.shape.width);
        for trouble in self.troubles() {
            if let Trouble::RouterInput(token, value) = *trouble {
                x[token * self.shape.width + 2] = value;
            }
        }
        x
    }

    pub(super) fn scores(&self) -> Vec<f32> {
        let mut scores = Values::Normal.fill(6, self.tokens, self.shape.experts);
        for trouble in self.troubles() {
            if let Trouble::Score(token, value) = *trouble {
                scores[token * self.shape.experts + 1] = value;
            }
        }
        scores
    }

    pub(super) fn routes(&self, choice: Choice) -> Routes {
        let LayerShape { experts, k, .. } = self.shape;
        Routing::new(experts, k, self.tokens, choice).routes(7)
    }

    /// The layer on a device.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn layer(&self, backend: &dyn Backend) -> Result<MoeLayer> {
        let LayerShape { k, width, .. } = self.shape;
        let tensor = |part: &Part| {
            let &Part { ty, experts, rows, cols, .. } = part;
            let mut blocks = part.blocks();
            for trouble in self.troubles() {
                if let Trouble::Weights(what, scale) = *trouble
                    && what == part.what
                {
                    blocks[..2].copy_from_slice(&scale.to_le_bytes());
                }
            }
            Tensor::dense(backend, part.what, blocks.into(), ty, experts, rows, cols)
        };
        let gate_up = |parts: &[Part], order| -> Result<GateUpWeights> {
            Ok(match parts {
                [gate, up] => GateUpWeights::Separate { gate: tensor(gate)?, up: tensor(up)? },
                [up] if self.form.up_only => GateUpWeights::UpOnly { up: tensor(up)? },
                merged => GateUpWeights::Merged { tensor: tensor(&merged[0])?, order },
            })
        };
        let (parts, down, order) = self.parts();
        let mut layer =
            MoeLayer::new(gate_up(&parts, order)?, tensor(&down)?, k)?.with_sums(self.sums);
        if self.source == Source::Router {
            layer = layer.with_router(self.router_of(backend)?, &self.router)?;
        }
        if let Some(shared) = &self.shared {
            let (parts, down) = shared_parts(shared, self);
            let gate = match shared.gated {
                true => {
                    let gate = self.operand(Operand::SharedGate, width);
                    Some(Router::new(backend, &gate, 1, width)?)
                }
                false => None,
            };
            let gate_up = gate_up(&parts, GateUpOrder::Split)?;
            layer = layer.with_shared(SharedExpert { gate_up, down: tensor(&down)?, gate })?;
        }
        self.formed(backend, layer)
    }

    /// What a call needs besides the layer, on a device.
    pub(super) fn prepare(&self, backend: &dyn Backend) -> Result<Call> {
        let Self { tokens, shape: LayerShape { experts, width, .. }, .. } = *self;
        let routes = match self.source {
            Source::Routes(choice) => Some(DeviceRoutes::upload(backend, &self.routes(choice))?),
            Source::Router | Source::Scores => None,
        };
        let own_input = match self.form.own_input {
            true => Some(InMatrix::dense(backend, &self.own_input(), tokens, width)?),
            false => None,
        };
        Ok(Call {
            own_input,
            x: InMatrix::new(backend, &self.input(), tokens, width, self.gap, self.gap % 2)?,
            scores: InMatrix::dense(backend, &self.scores(), tokens, experts)?,
            routes,
            out: OutMatrix::new(backend, tokens, width, width + self.gap, self.gap % 2)?,
        })
    }
}

/// Inputs and outputs of a call.
pub(super) struct Call {
    x: InMatrix,
    own_input: Option<InMatrix>,
    scores: InMatrix,
    routes: Option<DeviceRoutes>,
    pub(super) out: OutMatrix,
}

impl Call {
    pub(super) fn forward(
        &mut self,
        case: &LayerCase,
        backend: &dyn Backend,
        layer: &MoeLayer,
        workspace: &mut Workspace,
    ) -> Result<()> {
        let source = match (&self.routes, case.source) {
            (Some(routes), _) => From::Routes(routes),
            (None, Source::Scores) => From::Scores(self.scores.view()?),
            (None, _) => match &self.own_input {
                Some(input) => From::Input(input.view()?),
                None => From::Router,
            },
        };
        let mut out: MatrixMut<'_> = self.out.view()?;
        layer.forward(backend, workspace, self.x.view()?, source, &mut out).map(drop)
    }
}

impl std::fmt::Display for LayerCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let LayerShape { experts, k, width, ffn, gate, up, down, order } = self.shape;
        write!(f, "layer/{gate}")?;
        if let Some(up) = up {
            write!(f, "+{up}")?;
        } else if order == GateUpOrder::Interleaved {
            f.write_str(",interleaved")?;
        }
        write!(f, ",{down}/E={experts},k={k}/T={}/width={width},ffn={ffn}", self.tokens)?;
        if let Some(SharedCase { ffn, ty, gated }) = self.shared {
            write!(f, "/shared={ty},ffn={ffn}{}", if gated { ",gated" } else { "" })?;
        }
        match self.source {
            Source::Router => {}
            Source::Scores => f.write_str("/scores")?,
            Source::Routes(choice) => write!(f, "/routes={choice:?}")?,
        }
        if self.router != RouterOptions::SOFTMAX_OF_CHOSEN {
            write!(f, "/by={}", self.router)?;
        }
        write!(f, "{}", self.form)?;
        write!(f, "/{}/{}/chunk={}", self.values, self.mode.name(), self.chunk)?;
        f.write_str(if self.fused { "/fused" } else { "/unfused" })?;
        if self.sums == Sums::Codes {
            f.write_str("/sums-of-codes")?;
        }
        f.write_str(if self.checked { "/checked" } else { "/unchecked" })?;
        if self.gap > 0 {
            write!(f, "/stride={}", width + self.gap)?;
        }
        if self.calls > 1 {
            write!(f, "/calls={}", self.calls)?;
        }
        if let Some((_, error)) = self.trouble {
            write!(f, "/error={}", error.replace(' ', "-").replace(':', ""))?;
        }
        Ok(())
    }
}

impl Op for LayerCase {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        let LayerShape { gate, up, down, .. } = self.shape;
        let types = [Some(gate), up, Some(down), self.shared.map(|s| s.ty)];
        let ty = types.into_iter().flatten().find(|&ty| !backend.supports(ty))?;
        Some(format!("{} does not multiply {ty}", backend.id()))
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let layer = self.layer(backend)?;
        let mut workspace =
            Workspace::new(backend, &layer, self.tokens, self.options(stage.plain))?;
        let mut call = self.prepare(backend)?;
        for _ in 0..self.calls {
            let result = call.forward(self, backend, &layer, &mut workspace);
            if let Some((_, expected)) = self.trouble {
                let given = result.err().map_or("no error".into(), |e| e.to_string());
                return Ok(vec![Output::text("error", &given, expected)]);
            }
            result?;
        }
        Ok(vec![call.out.read(backend, "tokens")?])
    }

    fn yardstick_key(&self) -> Option<String> {
        let (mode, chunk) = (QuantMode::Gather, Chunk::Tokens(usize::MAX));
        let plain = Self { mode, chunk, fused: false, checked: false, calls: 1, ..*self };
        Some(format!("{plain:?}"))
    }
}
