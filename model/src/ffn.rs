//! Feed-forward networks: dense, and mixtures of experts.

use strata_core::activation::Activation;
use strata_core::backend::Backend;
use strata_core::backend::ops::{CombineOptions, GateUp, GateUpOrder, Matrix, MatrixMut, SwiGlu};
use strata_core::gguf::TensorType;
use strata_core::prefill::{
    ExpertOptions, GateUpWeights, MoeLayer, Router, Routing, SharedExpert, Tensor, Workspace,
};
use strata_core::q8_1::Sums;
use strata_core::routing::{self, GroupScore, Groups, RouterOptions};
use strata_core::{Error, Result};

use crate::config::{self, ExpertProjection, Gating, Moe, Projection};
use crate::load::{Acts, Linear, Loader};
use crate::session::Space;

/// A feed-forward network on a device.
pub(crate) enum Ffn {
    Dense(Box<Dense>),
    Moe(Box<MoeLayer>),
}

/// Gate and up, SwiGLU, down.
pub(crate) struct Dense {
    gate: Linear,
    up: Linear,
    down: Linear,
    activation: Activation,
}

impl Ffn {
    pub fn load(loader: &mut Loader<'_>, ffn: &config::Ffn) -> Result<Self> {
        match ffn {
            config::Ffn::Dense(dense) => Ok(Self::Dense(Box::new(Dense {
                gate: loader.linear(&dense.gate)?,
                up: loader.linear(&dense.up)?,
                down: loader.linear(&dense.down)?,
                activation: activation(dense.activation),
            }))),
            config::Ffn::Moe(moe) => Ok(Self::Moe(Box::new(load_moe(loader, moe)?))),
        }
    }

    /// Hidden values of a dense network; 0 for experts, which have their own memory.
    pub fn hidden(&self) -> usize {
        match self {
            Self::Dense(dense) => dense.gate.rows(),
            Self::Moe(_) => 0,
        }
    }

    /// `out`: as `x`.
    pub fn apply(
        &self,
        backend: &dyn Backend,
        x: Matrix<'_>,
        space: &mut FfnSpace,
        mut out: MatrixMut<'_>,
    ) -> Result<()> {
        match self {
            Self::Moe(layer) => {
                let workspace = space.of(layer)?;
                layer.forward(backend, workspace, x, Routing::Router, &mut out)?;
                Ok(())
            }
            Self::Dense(dense) => {
                let (tokens, ffn) = (x.rows(), dense.gate.rows());
                let FfnSpace { acts, gate_up, hidden, .. } = space;
                acts.begin();
                for (at, linear) in [(0, &dense.gate), (ffn, &dense.up)] {
                    let half = gate_up.slice_mut(at..2 * ffn * tokens)?;
                    let half = MatrixMut::new("gate and up", half, tokens, ffn, 2 * ffn)?;
                    linear.apply(backend, x, acts, half)?;
                }
                let both = Matrix::dense("gate and up", &*gate_up, tokens, 2 * ffn)?;
                let both = GateUp::new(both, GateUpOrder::Split)?.activation(dense.activation)?;
                let inner = MatrixMut::dense("hidden", &mut *hidden, tokens, ffn)?;
                SwiGlu::new(both, inner)?.launch(backend)?;
                acts.begin();
                let inner = Matrix::dense("hidden", &*hidden, tokens, ffn)?;
                dense.down.apply(backend, inner, acts, out)
            }
        }
    }
}

/// Memory that feed-forward networks work in.
pub(crate) struct FfnSpace {
    pub acts: Acts,
    gate_up: strata_core::backend::Buffer<f32>,
    hidden: strata_core::backend::Buffer<f32>,
    moe: Vec<(Shape, Workspace)>,
}

/// What layers of experts have in common that share memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape([usize; 5]);

impl Shape {
    fn of(layer: &MoeLayer) -> Self {
        let shared = layer.shared().map_or(0, |shared| shared.down.cols());
        Self([layer.experts(), layer.k(), layer.width(), layer.ffn(), shared])
    }
}

impl FfnSpace {
    pub fn new(backend: &dyn Backend, ffns: &[&Ffn], width: usize, space: &Space) -> Result<Self> {
        let tokens = space.chunk;
        let ffn = ffns.iter().map(|ffn| ffn.hidden()).max().unwrap_or(0);
        let values = |n: usize| -> Result<usize> {
            n.checked_mul(tokens).ok_or_else(|| Error::invalid("chunk", tokens, "less"))
        };
        let mut moe: Vec<(Shape, Workspace)> = Vec::new();
        for ffn in ffns {
            if let Ffn::Moe(layer) = ffn
                && !moe.iter().any(|(shape, _)| *shape == Shape::of(layer))
            {
                let workspace = Workspace::new(backend, layer, tokens, space.options.clone())?;
                moe.push((Shape::of(layer), workspace));
            }
        }
        Ok(Self {
            acts: Acts::new(backend, tokens, width.max(ffn))?,
            gate_up: backend.alloc(values(2 * ffn)?)?,
            hidden: backend.alloc(values(ffn)?)?,
            moe,
        })
    }

    fn of(&mut self, layer: &MoeLayer) -> Result<&mut Workspace> {
        let shape = Shape::of(layer);
        let found = self.moe.iter_mut().find(|(known, _)| *known == shape);
        found.map(|(_, workspace)| workspace).ok_or_else(|| {
            Error::invalid("session", format!("{shape:?}"), "one made for this model")
        })
    }
}

fn activation(of: config::Activation) -> Activation {
    match of {
        config::Activation::SwiGlu => Activation::SwiGlu,
        config::Activation::SwiGluOai => Activation::SwiGluOai { alpha: 1.702, limit: 7.0 },
        config::Activation::GeluGated => Activation::GeluTanh,
    }
}

/// How scores become weights.
fn router_options(moe: &Moe) -> RouterOptions {
    let normalised = match moe.normalised {
        // The smallest sum that is divided by: 2^-14, as the files' programs have it.
        true => routing::Norm::Sum { epsilon: 0.0, least: 6.103_515_6e-5 },
        false => routing::Norm::None,
    };
    let (gating, norm) = match (moe.gating, moe.normalised) {
        // Softmax over all, then brought to a sum of 1, is softmax over the chosen.
        (Gating::Softmax, true) if moe.choice_bias.is_none() && moe.groups.is_none() => {
            (routing::Gating::SoftmaxOfChosen, routing::Norm::None)
        }
        (Gating::SoftmaxOfChosen, _) => (routing::Gating::SoftmaxOfChosen, routing::Norm::None),
        (Gating::Softmax, _) => (routing::Gating::Softmax, normalised),
        (Gating::Sigmoid, _) => (routing::Gating::Sigmoid, normalised),
    };
    RouterOptions {
        gating,
        softcap: 0.0,
        groups: moe.groups.map(|[count, used]| Groups { count, used, score: GroupScore::TopTwo }),
        norm,
        scale: moe.weights_scale.unwrap_or(1.0),
    }
}

fn load_moe(loader: &mut Loader<'_>, moe: &Moe) -> Result<MoeLayer> {
    let gate_up = match &moe.gate_up {
        config::GateUp::Split { gate, up } => GateUpWeights::Separate {
            gate: experts(loader, gate, moe.experts)?,
            up: experts(loader, up, moe.experts)?,
        },
        config::GateUp::Merged(both) => GateUpWeights::Merged {
            tensor: experts(loader, both, moe.experts)?,
            order: GateUpOrder::Split,
        },
    };
    let layer = MoeLayer::new(gate_up, experts(loader, &moe.down, moe.experts)?, moe.used)?;
    let options = expert_options(loader, moe)?;
    let layer = layer.with_experts(loader.backend, &options)?.with_sums(Sums::Codes);
    let router = loader.floats(&moe.router.weight)?;
    let router = Router::new(loader.backend, &router, moe.experts, moe.router.cols)?;
    let mut floats =
        |name: &Option<String>| name.as_deref().map(|name| loader.floats(name)).transpose();
    let (bias, choice) = (floats(&moe.router.bias)?, floats(&moe.choice_bias)?);
    let router = router.biased(loader.backend, bias.as_deref(), choice.as_deref())?;
    let layer = layer.with_router(router, &router_options(moe))?;
    let mut factors = CombineOptions { weighed: !moe.on_input, ..CombineOptions::default() };
    // A dense network beside the experts is one that all tokens use, and the sum of both is halved
    // in power.
    if moe.beside.is_some() {
        factors.sum = std::f32::consts::FRAC_1_SQRT_2;
    }
    let Some(shared) = moe.shared.as_ref().or(moe.beside.as_ref()) else {
        return Ok(layer.with_factors(factors));
    };
    let mut scale = |part: &Projection| match &part.scale {
        None => Ok(1.0),
        Some(name) => loader.floats(name).map(|values| values.first().copied().unwrap_or(1.0)),
    };
    let (gate, up, down) = (scale(&shared.gate)?, scale(&shared.up)?, scale(&shared.down)?);
    factors.shared = down;
    let options = ExpertOptions {
        activation: activation(shared.activation),
        scale: (gate != 1.0 || up != 1.0).then(|| vec![gate, up]),
        ..ExpertOptions::default()
    };
    let [gate, up, down] =
        [&shared.gate, &shared.up, &shared.down].map(|part| single(loader, part));
    let router = match &moe.shared_gate {
        None => None,
        Some(name) => {
            let values = loader.floats(name)?;
            Some(Router::new(loader.backend, &values, 1, moe.router.cols)?)
        }
    };
    let gate_up = GateUpWeights::Separate { gate: gate?, up: up? };
    layer
        .with_factors(factors)
        .with_shared(SharedExpert { gate_up, down: down?, gate: router })?
        .with_shared_options(loader.backend, &options)
}

/// Scales and biases of experts.
fn expert_options(loader: &mut Loader<'_>, moe: &Moe) -> Result<ExpertOptions> {
    let mut floats =
        |name: &Option<String>| name.as_deref().map(|name| loader.floats(name)).transpose();
    let (scale, bias) = match &moe.gate_up {
        config::GateUp::Merged(both) => {
            let scale = floats(&both.scale)?;
            (scale.map(|scale| scale.iter().flat_map(|&s| [s, s]).collect()), floats(&both.bias)?)
        }
        config::GateUp::Split { gate, up } => {
            let ones = || vec![1.0; moe.experts];
            let scale = match (floats(&gate.scale)?, floats(&up.scale)?) {
                (None, None) => None,
                (gate, up) => {
                    let pairs = gate.unwrap_or_else(ones).into_iter().zip(up.unwrap_or_else(ones));
                    Some(pairs.flat_map(|(gate, up)| [gate, up]).collect())
                }
            };
            let bias = match (floats(&gate.bias)?, floats(&up.bias)?) {
                (Some(gate), Some(up)) => {
                    let pairs = gate.chunks(moe.ffn).zip(up.chunks(moe.ffn));
                    Some(pairs.flat_map(|(gate, up)| [gate, up].concat()).collect())
                }
                _ => None,
            };
            (scale, bias)
        }
    };
    Ok(ExpertOptions {
        activation: activation(moe.activation),
        scale,
        bias,
        down_scale: floats(&moe.down.scale)?,
        down_bias: floats(&moe.down.bias)?,
    })
}

fn single(loader: &mut Loader<'_>, projection: &Projection) -> Result<Tensor> {
    quantized(loader, &projection.weight, 1, projection.rows, projection.cols)
}

fn experts(loader: &mut Loader<'_>, of: &ExpertProjection, experts: usize) -> Result<Tensor> {
    quantized(loader, &of.weight, experts, of.rows, of.cols)
}

fn quantized(
    loader: &mut Loader<'_>,
    name: &str,
    experts: usize,
    rows: usize,
    cols: usize,
) -> Result<Tensor> {
    let tensor = loader.tensor(name)?;
    let TensorType::Weight(ty) = tensor.tensor_type() else {
        let what = format!("tensor {name}: type");
        return Err(Error::invalid(what, tensor.tensor_type(), "a quantized weight type"));
    };
    let bytes = loader.bytes(tensor)?;
    let loaded = Tensor::dense(loader.backend, name, bytes, ty, experts, rows, cols)?;
    loader.told(tensor);
    Ok(loaded)
}
