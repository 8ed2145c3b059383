//! Feed-forward networks: dense, and mixtures of experts.

use strata_core::activation::Activation;
use strata_core::backend::Backend;
use strata_core::backend::ops::{GateUp, GateUpOrder, Matrix, MatrixMut, SwiGlu};
use strata_core::prefill::{MoeLayer, Routing, Workspace, load_planned};
use strata_core::q8_1::Sums;
use strata_core::{Error, Result};

use crate::config;
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
                activation: dense.activation,
            }))),
            config::Ffn::Moe(moe) => {
                let plan = moe.plan(loader.gguf)?;
                let (gguf, backend) = (loader.gguf, loader.backend);
                let layer = load_planned(gguf, &plan, backend, &mut |at| loader.part(at))?;
                let layer = layer.with_sums(Sums::Codes);
                Ok(Self::Moe(Box::new(layer)))
            }
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
