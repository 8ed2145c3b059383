//! A layer of a GGUF model, on a device.
//!
//! Weights are handed to the backend as they stand in the mapped file: a CPU
//! multiplies from there, a device with memory of its own copies once. Only
//! routers, a few rows each, are decoded to f32.

use super::architectures;
use super::layer::{GateUpWeights, MoeLayer, Router, SharedExpert, Tensor};
use crate::backend::ops::{GateUpOrder, Strides};
use crate::backend::{Backend, HostBytes};
use crate::format::dequantize;
use crate::gguf::{self, ExpertView, FfnRole, Gating, Gguf, ModelMeta, TensorInfo, TensorType};
use crate::routing::RouterOptions;
use crate::{Error, Result};

/// How far a layer is on its way to the device.
#[derive(Debug, Clone, Copy)]
pub struct LoadProgress<'a> {
    /// The tensor that was put there last.
    pub tensor: &'a str,
    /// Bytes there so far.
    pub done: u64,
    /// Bytes of all tensors.
    pub total: u64,
}

/// Puts the experts of a block on a device, with their router and shared expert.
///
/// `progress` is called after each tensor.
///
/// # Errors
/// [`Error::Gguf`] naming the tensor or key that is missing or does not fit;
/// [`Error::Invalid`] for a gating function, a weight type or a tensor that the
/// layer does not compute with; [`Error::OutOfMemory`] before anything is
/// copied, where the device has not enough free memory for all of it.
pub fn load_moe(
    gguf: &Gguf,
    block: usize,
    backend: &dyn Backend,
    progress: &mut dyn FnMut(LoadProgress<'_>),
) -> Result<MoeLayer> {
    let meta = gguf.model_meta()?;
    let options = weighting(&meta)?;
    unclamped(gguf, &meta, block)?;
    let moe = gguf.moe(block)?;
    if !moe.others.is_empty() {
        return Err(Error::invalid(
            format!("block {block}"),
            moe.others.join(", "),
            "no tensors on experts or router but weights",
        ));
    }
    ungrouped(gguf, &meta)?;
    let router = moe.router.as_ref().ok_or_else(|| {
        Error::invalid(
            format!("tensor {}", FfnRole::Router.name(block)),
            "nothing",
            "a router of [width, experts]",
        )
    })?;

    let mut matrices = match &moe.gate_up {
        gguf::GateUp::Separate { gate, up } => vec![gate, up],
        gguf::GateUp::Merged(both) => vec![both],
    };
    matrices.push(&moe.down);
    if let Some(shared) = &moe.shared {
        matrices.extend([&shared.gate, &shared.up, &shared.down]);
    }
    let mut put = Put::new(gguf, backend, &matrices, progress)?;
    let gate_up = match &moe.gate_up {
        gguf::GateUp::Separate { gate, up } => {
            GateUpWeights::Separate { gate: put.experts(gate)?, up: put.experts(up)? }
        }
        gguf::GateUp::Merged(both) => {
            GateUpWeights::Merged { tensor: put.experts(both)?, order: GateUpOrder::Split }
        }
    };
    let layer = MoeLayer::new(gate_up, put.experts(&moe.down)?, moe.used)?;
    let weights = tensor_f32(gguf, &router.tensor)?;
    let router = Router::new(backend, &weights, moe.experts, moe.width)?;
    let layer = layer.with_router(router, &options)?;

    let Some(shared) = &moe.shared else {
        return Ok(layer);
    };
    let gate_up =
        GateUpWeights::Separate { gate: put.experts(&shared.gate)?, up: put.experts(&shared.up)? };
    let gate = match &shared.router {
        Some(router) => {
            Some(Router::new(backend, &tensor_f32(gguf, &router.tensor)?, 1, moe.width)?)
        }
        None => None,
    };
    layer.with_shared(SharedExpert { gate_up, down: put.experts(&shared.down)?, gate })
}

/// Puts the dense FFN of a block on a device, seen as `experts` experts that
/// every token goes through with weight 1: it has no router, and its routes are
/// [`Routes::all`](crate::routing::Routes::all).
///
/// `progress` is called after each tensor.
///
/// # Errors
/// As [`load_moe`], and [`Error::Gguf`] where the FFN cannot be cut into so many.
pub fn load_dense(
    gguf: &Gguf,
    block: usize,
    experts: usize,
    backend: &dyn Backend,
    progress: &mut dyn FnMut(LoadProgress<'_>),
) -> Result<MoeLayer> {
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
    let split = dense.split(experts)?;
    let mut put = Put::new(gguf, backend, &[&dense.gate, &dense.up, &dense.down], progress)?;
    let gate_up = GateUpWeights::Separate {
        gate: put.split(&dense.gate, split.gate, experts)?,
        up: put.split(&dense.up, split.up, experts)?,
    };
    MoeLayer::new(gate_up, put.split(&dense.down, split.down, experts)?, experts)
}

/// A tensor of any float or quantized type as f32, in the file's order.
///
/// # Errors
/// [`Error::Invalid`] for other types; [`Error::Gguf`] for another model's tensor.
pub fn tensor_f32(gguf: &Gguf, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let bytes = gguf.tensor_bytes(tensor)?;
    let halves = |to_f32: fn(u16) -> f32| {
        let (halves, _) = bytes.as_chunks::<2>();
        halves.iter().map(|&b| to_f32(u16::from_le_bytes(b))).collect()
    };
    match tensor.tensor_type() {
        TensorType::F32 => {
            let (words, _) = bytes.as_chunks::<4>();
            Ok(words.iter().map(|&b| f32::from_le_bytes(b)).collect())
        }
        TensorType::F16 => Ok(halves(crate::numerics::f16_to_f32)),
        TensorType::BF16 => Ok(halves(|bits| f32::from_bits(u32::from(bits) << 16))),
        TensorType::Weight(ty) => {
            let mut values = vec![0.0; bytes.len() / ty.block_bytes() * ty.block_values()];
            dequantize(ty, bytes, &mut values)?;
            Ok(values)
        }
        other => Err(Error::invalid(
            format!("tensor {}: type", tensor.name()),
            other,
            "F32, F16, BF16 or a quantized weight type",
        )),
    }
}

/// Refuses SwiGLU of clamped values, which a file states block by block.
fn unclamped(gguf: &Gguf, meta: &ModelMeta, block: usize) -> Result<()> {
    for name in ["swiglu_clamp_exp", "swiglu_clamp_shexp"] {
        let key = format!("{}.{name}", meta.architecture);
        let Some(value) = gguf.value(&key) else {
            continue;
        };
        let limit = match value.as_array() {
            Some(limits) => limits.get(block).and_then(|limit| limit.as_f32()),
            None => value.as_f32(),
        };
        // Those who write the key mean no limit by such a small one.
        if !limit.is_some_and(|limit| limit <= 1e-6) {
            let given = limit.map_or("no number".to_owned(), |limit| limit.to_string());
            let what = format!("{key} of block {block}");
            return Err(Error::invalid(what, given, "0, no limit on hidden values"));
        }
    }
    Ok(())
}

/// Refuses routers that first choose groups of experts, then experts among theirs.
fn ungrouped(gguf: &Gguf, meta: &ModelMeta) -> Result<()> {
    let key = |name: &str| format!("{}.{name}", meta.architecture);
    let groups = gguf.head().u64(&key("expert_group_count"))?.unwrap_or(1);
    let used = gguf.head().u64(&key("expert_group_used_count"))?;
    match groups <= 1 || used == Some(groups) {
        true => Ok(()),
        false => Err(Error::invalid(
            key("expert_group_count"),
            groups,
            "1 group, or all groups used: every expert is chosen from",
        )),
    }
}

/// How scores become weights, from what the file says or its architecture implies.
fn weighting(meta: &ModelMeta) -> Result<RouterOptions> {
    let key = |name: &str| format!("{}.{name}", meta.architecture);
    let implied = architectures::experts(&meta.architecture)?;
    let sigmoid = |given: &str| {
        let expected = "1 (softmax) or 3 (softmax of the chosen)";
        Err(Error::invalid(key("expert_gating_func"), given, expected))
    };
    let norm = match meta.gating {
        Some(Gating::SoftmaxOfChosen) => RouterOptions::SOFTMAX_OF_CHOSEN,
        Some(Gating::Sigmoid) => return sigmoid("2 (sigmoid)"),
        None if implied.sigmoid => {
            return sigmoid("nothing, which in this architecture is sigmoid");
        }
        Some(Gating::Softmax) | None => match meta.weights_norm.unwrap_or(implied.normalised) {
            // Softmax over all, then brought to a sum of 1, is softmax over the chosen.
            true => RouterOptions::SOFTMAX_OF_CHOSEN,
            false => RouterOptions::SOFTMAX,
        },
    };
    match meta.weights_scale {
        // Files of models without a factor may carry a zero.
        None | Some(0.0) => Ok(norm),
        Some(scale) if scale.is_finite() => Ok(norm.scaled(scale)),
        Some(scale) => Err(Error::invalid(key("expert_weights_scale"), scale, "a finite number")),
    }
}

/// Puts one tensor after the other on a device.
struct Put<'a> {
    gguf: &'a Gguf,
    backend: &'a dyn Backend,
    progress: &'a mut dyn FnMut(LoadProgress<'_>),
    done: u64,
    total: u64,
}

impl<'a> Put<'a> {
    /// Refuses what can be refused before anything is copied: types, and more
    /// bytes than the device has.
    fn new(
        gguf: &'a Gguf,
        backend: &'a dyn Backend,
        matrices: &[&gguf::Matrix],
        progress: &'a mut dyn FnMut(LoadProgress<'_>),
    ) -> Result<Self> {
        let mut total = 0;
        for matrix in matrices {
            let ty = matrix.weight_type()?;
            if !backend.supports(ty) {
                return Err(Error::invalid(
                    format!("tensor {}: type", matrix.tensor.name()),
                    ty,
                    format!("a type that {} multiplies", backend.id()),
                ));
            }
            total += matrix.tensor.bytes() as u64;
        }
        // Where they are used in place, weights stay in the mapped file.
        if !backend.device().imports_in_place {
            let memory = backend.memory()?;
            if memory.free < total {
                return Err(Error::OutOfMemory {
                    device: backend.id().to_string(),
                    asked: total,
                    free: memory.free,
                    total: memory.total,
                });
            }
        }
        Ok(Self { gguf, backend, progress, done: 0, total })
    }

    fn experts(&mut self, matrix: &gguf::Matrix) -> Result<Tensor> {
        let view = ExpertView {
            rows: matrix.rows,
            cols: matrix.cols,
            row_stride: matrix.row_bytes,
            expert_stride: matrix.stride,
        };
        self.split(matrix, view, matrix.count)
    }

    fn split(&mut self, matrix: &gguf::Matrix, view: ExpertView, experts: usize) -> Result<Tensor> {
        let tensor = &matrix.tensor;
        let (owner, range) = self.gguf.mapped(tensor)?;
        let placed = Tensor::strided(
            self.backend,
            &format!("tensor {}", tensor.name()),
            HostBytes::new(owner, range)?,
            matrix.weight_type()?,
            experts,
            view.rows,
            view.cols,
            Strides { row: view.row_stride, expert: view.expert_stride },
        )?;
        self.done += tensor.bytes() as u64;
        (self.progress)(LoadProgress { tensor: tensor.name(), done: self.done, total: self.total });
        Ok(placed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta(architecture: &str) -> ModelMeta {
        ModelMeta {
            architecture: architecture.to_owned(),
            blocks: None,
            width: None,
            experts: None,
            used: None,
            weights_norm: None,
            weights_scale: None,
            gating: None,
        }
    }

    #[test]
    fn weights_follow_the_file_then_the_architecture() {
        const ALL: RouterOptions = RouterOptions::SOFTMAX;
        const CHOSEN: RouterOptions = RouterOptions::SOFTMAX_OF_CHOSEN;
        let norm = |meta: &ModelMeta| weighting(meta).unwrap();
        for (name, expected) in
            [("qwen3moe", CHOSEN), ("llama", CHOSEN), ("deepseek2", ALL), ("llada-moe", ALL)]
        {
            assert_eq!(norm(&meta(name)), expected, "{name}");
            for (said, expected) in [(true, CHOSEN), (false, ALL)] {
                let said = ModelMeta { weights_norm: Some(said), ..meta(name) };
                assert_eq!(norm(&said), expected, "{name}");
            }
            let chosen = ModelMeta { gating: Some(Gating::SoftmaxOfChosen), ..meta(name) };
            assert_eq!(norm(&chosen), CHOSEN, "{name}");
        }
        for (name, expected) in [("glm4moe", ALL), ("kimi-linear", CHOSEN)] {
            let softmax = ModelMeta { gating: Some(Gating::Softmax), ..meta(name) };
            assert_eq!(norm(&softmax), expected, "{name}");
        }
        let scaled = ModelMeta { weights_scale: Some(2.5), ..meta("deepseek2") };
        assert_eq!(norm(&scaled), ALL.scaled(2.5));
    }

    #[test]
    fn sigmoid_is_refused_said_or_not() {
        let refused = |meta: &ModelMeta| weighting(meta).unwrap_err().to_string();
        let said = ModelMeta { gating: Some(Gating::Sigmoid), ..meta("deepseek2") };
        assert!(refused(&said).starts_with("deepseek2.expert_gating_func: given 2 (sigmoid)"));
        for name in ["dots1", "glm4moe", "minimax-m2", "step35"] {
            let given = format!("{name}.expert_gating_func: given nothing, which in this");
            assert!(refused(&meta(name)).starts_with(&given));
        }
        // Where a file cannot say otherwise, saying it does not help.
        let softmax = ModelMeta { gating: Some(Gating::Softmax), ..meta("llama4") };
        assert!(refused(&softmax).starts_with("general.architecture: given llama4 (sigmoid"));
    }
}
