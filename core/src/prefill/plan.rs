//! What a block of experts is to compute, from its file and its architecture: one answer for the
//! loader and for whoever only asks.

use std::cell::RefCell;

use super::architectures::{self, Clamp, Normalised, Recipe};
use super::layer::ExpertOptions;
use super::load::{loaded_type, tensor_f32, unclamped};
use crate::activation::Activation;
use crate::backend::ops::CombineOptions;
use crate::format::WeightType;
use crate::gguf::{self, DenseTensors, FfnRole, Gguf, ModelMeta, MoeTensors, TensorType};
use crate::routing::{self, GroupScore, Groups, Norm, RouterOptions};
use crate::{Error, Result};

/// What a block of experts computes.
#[derive(Debug, Clone)]
pub struct MoePlan {
    /// Its tensors.
    pub tensors: MoeTensors,
    /// How scores become experts and weights.
    pub router: RouterOptions,
    /// Bias of the scores.
    pub score_bias: Option<Vec<f32>>,
    /// Bias of the choice.
    pub selection_bias: Option<Vec<f32>>,
    /// Factors of the router's input, value by value.
    pub router_scale: Option<Vec<f32>>,
    /// Whether the router reads another input than the experts.
    pub own_input: bool,
    /// What experts compute beside their products.
    pub experts: ExpertOptions,
    /// The same of the shared expert.
    pub shared: ExpertOptions,
    /// Factors of the sum.
    pub factors: CombineOptions,
    /// The names of all tensors that it is computed from.
    pub reads: Vec<String>,
}

/// What the experts of a block compute, or why they do not run.
///
/// # Errors
/// [`Error::Gguf`] naming the tensor or key that is missing or does not fit; [`Error::Invalid`]
/// for an architecture, a router or a tensor that the layer does not compute with.
pub fn plan_moe(gguf: &Gguf, block: usize) -> Result<MoePlan> {
    let meta = gguf.model_meta()?;
    let recipe = architectures::experts(&meta.architecture)?;
    let mut tensors = gguf.moe(block)?;
    if recipe.dense_beside && tensors.shared.is_none() && dense_is_there(gguf, block) {
        let dense = gguf.dense(block)?;
        tensors.shared = Some(gguf::SharedExpert {
            gate: Some(dense.gate),
            up: dense.up,
            ffn: dense.ffn,
            down: dense.down,
            router: None,
        });
    }
    let of = Of { gguf, block, meta: &meta, recipe, tensors: &tensors, read: RefCell::default() };
    of.others()?;
    of.gates()?;
    let (score_bias, selection_bias) = (of.score_bias()?, of.selection_bias()?);
    let router = of.router(selection_bias.is_some())?;
    let biased = score_bias.is_some() || selection_bias.is_some();
    router.check(tensors.experts, tensors.used, biased)?;
    let mut factors = CombineOptions { weighed: !recipe.weigh_input, shared: 1.0, sum: 1.0 };
    if let Some(shared) = &tensors.shared {
        if recipe.dense_beside {
            factors.sum = std::f32::consts::FRAC_1_SQRT_2;
        }
        if recipe.halved {
            factors.sum = 0.5;
        }
        if let Some(scale) = of.scale("ffn_down_shexp", &shared.down)? {
            factors.shared = scale[0];
        }
    }
    if tensors.router.is_none() {
        let router = format!("tensor {}", FfnRole::Router.name(block));
        return Err(Error::invalid(router, "nothing", "a router of [width, experts]"));
    }
    for matrix in tensors.matrices() {
        loaded_type(matrix)?;
    }
    let (experts, shared) = (of.experts()?, of.shared()?);
    let router_scale = of.values("ffn_gate_inp.scale", tensors.width)?.map(|scale| {
        let norm = 1.0 / (scale.len() as f32).sqrt();
        scale.into_iter().map(|s| s * norm).collect()
    });
    let own_input = recipe.own_input;
    let mut reads = of.read.take();
    let routers =
        [tensors.router.as_ref(), tensors.shared.as_ref().and_then(|s| s.router.as_ref())];
    let matrices = tensors.matrices().into_iter().chain(routers.into_iter().flatten());
    reads.extend(matrices.map(|matrix| matrix.tensor.name().to_owned()));
    Ok(MoePlan {
        router,
        score_bias,
        selection_bias,
        router_scale,
        own_input,
        experts,
        shared,
        factors,
        reads,
        tensors,
    })
}

/// The dense network of a block as what may be cut into experts, or why it does not run.
///
/// # Errors
/// As [`plan_moe`].
pub fn plan_dense(gguf: &Gguf, block: usize) -> Result<DenseTensors> {
    let meta = gguf.model_meta()?;
    architectures::dense(&meta.architecture)?;
    unclamped(gguf, &meta, block)?;
    let dense = gguf.dense(block)?;
    if !dense.others.is_empty() {
        return Err(Error::invalid(
            format!("block {block}"),
            dense.others.join(", "),
            "no tensors on the dense network but weights",
        ));
    }
    for matrix in [&dense.gate, &dense.up, &dense.down] {
        loaded_type(matrix)?;
    }
    Ok(dense)
}

fn dense_is_there(gguf: &Gguf, block: usize) -> bool {
    gguf.tensor(&FfnRole::Up.name(block)).is_some()
}

/// Tensors beside the matrices that are computed with, or that mean nothing to the layer.
const KNOWN: [&str; 15] = [
    "ffn_gate_inp.bias",
    "ffn_gate_inp.scale",
    "exp_probs_b.bias",
    "exp_probs_b",
    "ffn_gate_exps.bias",
    "ffn_up_exps.bias",
    "ffn_down_exps.bias",
    "ffn_gate_up_exps.bias",
    "ffn_gate_exps.scale",
    "ffn_up_exps.scale",
    "ffn_down_exps.scale",
    "ffn_gate_up_exps.scale",
    "ffn_gate_shexp.scale",
    "ffn_up_shexp.scale",
    "ffn_down_shexp.scale",
];

struct Of<'a> {
    gguf: &'a Gguf,
    block: usize,
    meta: &'a ModelMeta,
    recipe: Recipe,
    tensors: &'a MoeTensors,
    /// The small tensors that were read.
    read: RefCell<Vec<String>>,
}

impl Of<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.meta.architecture)
    }

    fn name(&self, rest: &str) -> String {
        format!("blk.{}.{rest}", self.block)
    }

    /// Refuses tensors that act on experts and are not computed with.
    fn others(&self) -> Result<()> {
        let known = |name: &str| {
            let rest = name.strip_prefix(&self.name("")).unwrap_or(name);
            KNOWN.contains(&rest) || rest.ends_with(".input_scale")
        };
        let mut others: Vec<&str> =
            self.tensors.others.iter().map(String::as_str).filter(|name| !known(name)).collect();
        let latent = self.name("ffn_latent_down.weight");
        if self.gguf.tensor(&latent).is_some() {
            others.push(&latent);
        }
        let hashed = self.name("ffn_gate_tid2eid.weight");
        if self.gguf.tensor(&hashed).is_some() {
            others.push(&hashed);
        }
        match others.is_empty() {
            true => Ok(()),
            false => Err(Error::invalid(
                format!("{}: block {}", self.gguf.head().name(), self.block),
                others.join(", "),
                "no tensors on experts or router but weights, biases and scales",
            )),
        }
    }

    /// Refuses gates that are absent, or there, where the architecture has it otherwise.
    fn gates(&self) -> Result<()> {
        let up_only = matches!(self.tensors.gate_up, gguf::GateUp::UpOnly(_));
        let shared = self.tensors.shared.as_ref();
        let expected = |role: FfnRole| {
            let (given, expected) = match self.recipe.gates {
                true => ("nothing", "the gates of the experts"),
                false => ("gates", "experts without gates in this architecture"),
            };
            let file = self.gguf.head().name();
            let tensor = format!("{file}: tensor {}", role.name(self.block));
            Err(Error::invalid(tensor, given, expected))
        };
        if up_only == self.recipe.gates {
            return expected(FfnRole::GateExps);
        }
        match shared.is_some_and(|shared| shared.gate.is_some() != self.recipe.gates) {
            true => expected(FfnRole::SharedGate),
            false => Ok(()),
        }
    }

    /// The values of a small tensor of this block, if it is there.
    fn values(&self, rest: &str, expected: usize) -> Result<Option<Vec<f32>>> {
        let name = self.name(rest);
        let Some(tensor) = self.gguf.tensor(&name) else { return Ok(None) };
        let values = tensor_f32(self.gguf, tensor)?;
        match values.len() == expected {
            true => {
                self.read.borrow_mut().push(name);
                Ok(Some(values))
            }
            false => Err(Error::invalid(
                format!("tensor {name}"),
                format!("{} values", values.len()),
                format!("{expected}"),
            )),
        }
    }

    /// The `.scale` beside a matrix, where it counts.
    fn scale(&self, stem: &str, matrix: &gguf::Matrix) -> Result<Option<Vec<f32>>> {
        let nvfp4 = TensorType::Weight(WeightType::NVFP4);
        match self.recipe.scaled || matrix.tensor.tensor_type() == nvfp4 {
            true => self.values(&format!("{stem}.scale"), matrix.count),
            false => Ok(None),
        }
    }

    fn score_bias(&self) -> Result<Option<Vec<f32>>> {
        self.values("ffn_gate_inp.bias", self.tensors.experts)
    }

    fn selection_bias(&self) -> Result<Option<Vec<f32>>> {
        match self.values("exp_probs_b.bias", self.tensors.experts)? {
            Some(bias) => Ok(Some(bias)),
            None => self.values("exp_probs_b", self.tensors.experts),
        }
    }

    /// A number of this block, if the file has it.
    fn number(&self, name: &str) -> Result<Option<f32>> {
        let key = self.key(name);
        let Some(value) = self.gguf.value(&key) else { return Ok(None) };
        let number = match value.as_array() {
            Some(values) => values.get(self.block).and_then(|value| value.as_f32()),
            None => value.as_f32(),
        };
        match number.filter(|number| number.is_finite()) {
            Some(number) => Ok(Some(number)),
            None => Err(Error::invalid(
                format!("{key} of block {}", self.block),
                "no finite number",
                "a finite number",
            )),
        }
    }

    fn router(&self, selection_bias: bool) -> Result<RouterOptions> {
        let recipe = self.recipe;
        let gating = match self.meta.gating.filter(|_| recipe.gating_key) {
            Some(gguf::Gating::Softmax) => routing::Gating::Softmax,
            Some(gguf::Gating::Sigmoid) => routing::Gating::Sigmoid,
            Some(gguf::Gating::SoftmaxOfChosen) => routing::Gating::SoftmaxOfChosen,
            Some(gguf::Gating::SqrtSoftplus) => routing::Gating::SqrtSoftplus,
            None => recipe.gating,
        };
        let normalised = match recipe.normalised {
            Normalised::Key(otherwise) => self.meta.weights_norm.unwrap_or(otherwise),
            Normalised::Fixed(normalised) => normalised,
        };
        let own = matches!(
            gating,
            routing::Gating::SoftmaxOfChosen | routing::Gating::Sparsemixer { .. }
        );
        let groups = self.groups(gating)?;
        let softcap = match recipe.softcap {
            true => self.number("router_logit_softcapping")?.unwrap_or(0.0).max(0.0),
            false => 0.0,
        };
        // Files of models without a factor may carry a zero.
        let scale = self.number("expert_weights_scale")?.filter(|&scale| scale != 0.0);
        let scale = scale.unwrap_or(1.0);
        let (gating, norm) = match (normalised, gating) {
            // Softmax over all, then brought to a sum of 1, is softmax over the chosen.
            (true, routing::Gating::Softmax) if groups.is_none() && !selection_bias => {
                (routing::Gating::SoftmaxOfChosen, Norm::None)
            }
            (true, gating) if !own => (gating, recipe.sum),
            (_, gating) => (gating, Norm::None),
        };
        Ok(RouterOptions { gating, softcap, groups, norm, scale })
    }

    fn groups(&self, gating: routing::Gating) -> Result<Option<Groups>> {
        let head = self.gguf.head();
        let number = |name: &str| head.u64_of_block(&self.key(name), self.block);
        let count = number("expert_group_count")?.unwrap_or(1);
        let used = number("expert_group_used_count")?;
        if count <= 1 || used == Some(count) {
            return Ok(None);
        }
        let small = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let used = used.ok_or_else(|| {
            Error::invalid(self.key("expert_group_used_count"), "nothing", "beside the groups")
        })?;
        // Those with softmax score a group by its best expert, those with sigmoid by two.
        let score = match gating {
            routing::Gating::Softmax if !self.recipe.groups_by_two => GroupScore::Max,
            _ => GroupScore::TopTwo,
        };
        Ok(Some(Groups { count: small(count), used: small(used), score }))
    }

    fn activation(&self, limit: &str) -> Result<Activation> {
        // Writers mean no limit by zero, and by what is as good as zero.
        let limit = self.number(limit)?.filter(|&limit| limit > 1e-6);
        match (limit, self.recipe.activation, self.recipe.clamp) {
            (Some(limit), Activation::SwiGlu, Clamp::Behind) => {
                Ok(Activation::SwiGluClamped { limit })
            }
            (Some(limit), Activation::SwiGlu, Clamp::Before) => {
                Ok(Activation::SwiGluLimited { limit })
            }
            (_, activation, _) => Ok(activation),
        }
    }

    fn experts(&self) -> Result<ExpertOptions> {
        let MoeTensors { experts, width, ffn, gate_up, down, .. } = self.tensors;
        let (experts, width, ffn) = (*experts, *width, *ffn);
        let rows = experts * ffn;
        let bias_of = |stem: &str, expected| self.values(&format!("{stem}.bias"), expected);
        let (bias, scale) = match gate_up {
            gguf::GateUp::Merged(merged) => (
                bias_of("ffn_gate_up_exps", 2 * rows)?,
                both(
                    self.scale("ffn_gate_up_exps", merged)?.or(self.scale("ffn_up_exps", merged)?),
                ),
            ),
            gguf::GateUp::Separate { gate, up } => (
                in_turns(bias_of("ffn_gate_exps", rows)?, bias_of("ffn_up_exps", rows)?, ffn, 0.0),
                in_turns(
                    self.scale("ffn_gate_exps", gate)?,
                    self.scale("ffn_up_exps", up)?,
                    1,
                    1.0,
                ),
            ),
            gguf::GateUp::UpOnly(up) => {
                (bias_of("ffn_up_exps", rows)?, self.scale("ffn_up_exps", up)?)
            }
        };
        Ok(ExpertOptions {
            activation: self.activation("swiglu_clamp_exp")?,
            scale,
            bias,
            down_scale: self.scale("ffn_down_exps", down)?,
            down_bias: bias_of("ffn_down_exps", experts * width)?,
        })
    }

    fn shared(&self) -> Result<ExpertOptions> {
        let Some(shared) = &self.tensors.shared else { return Ok(ExpertOptions::default()) };
        let gate = match &shared.gate {
            Some(gate) => self.scale("ffn_gate_shexp", gate)?,
            None => None,
        };
        let up = self.scale("ffn_up_shexp", &shared.up)?;
        // One key says both where the files of an architecture have but one.
        let limit = match self.gguf.value(&self.key("swiglu_clamp_shexp")).is_none()
            && self.recipe.one_limit
        {
            true => "swiglu_clamp_exp",
            false => "swiglu_clamp_shexp",
        };
        Ok(ExpertOptions {
            activation: self.activation(limit)?,
            scale: if shared.gate.is_some() { in_turns(gate, up, 1, 1.0) } else { up },
            ..ExpertOptions::default()
        })
    }
}

/// Each value twice: one scale for gate and up.
fn both(values: Option<Vec<f32>>) -> Option<Vec<f32>> {
    values.map(|values| values.into_iter().flat_map(|v| [v, v]).collect())
}

/// Runs of `each` values of gate and of up in turns; `neutral` where one has none.
fn in_turns(
    gate: Option<Vec<f32>>,
    up: Option<Vec<f32>>,
    each: usize,
    neutral: f32,
) -> Option<Vec<f32>> {
    let len = gate.as_ref().or(up.as_ref())?.len();
    let (gate, up) =
        (gate.unwrap_or_else(|| vec![neutral; len]), up.unwrap_or_else(|| vec![neutral; len]));
    let pairs = gate.chunks_exact(each).zip(up.chunks_exact(each));
    Some(pairs.flat_map(|(gate, up)| [gate, up].concat()).collect())
}
