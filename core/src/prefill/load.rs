//! A layer of a GGUF model, on a device.
//!
//! Weights are handed to the backend as they stand in the mapped file: a CPU
//! multiplies from there, a device with memory of its own copies once. Only
//! routers, a few rows each, are decoded to f32.

use super::layer::{GateUpWeights, MoeLayer, Router, SharedExpert, Tensor};
use super::plan::{MoePlan, plan_dense, plan_moe};
use crate::backend::ops::{GateUpOrder, Strides};
use crate::backend::{Backend, HostBytes};
use crate::format::{WeightType, dequantize};
use crate::gguf::{self, ExpertView, FfnRole, Gguf, ModelMeta, TensorInfo, TensorType};
use crate::rows::RowFormat;
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
    /// The type that its file has, where it was quantized to Q8_0 on the way.
    pub quantized: Option<TensorType>,
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
    load_planned(gguf, &plan_moe(gguf, block)?, backend, progress)
}

/// The same, as a plan has it: one of [`plan_moe`] for this model.
///
/// # Errors
/// As [`load_moe`].
pub fn load_planned(
    gguf: &Gguf,
    plan: &MoePlan,
    backend: &dyn Backend,
    progress: &mut dyn FnMut(LoadProgress<'_>),
) -> Result<MoeLayer> {
    let moe = &plan.tensors;
    let router = moe.router.as_ref().ok_or_else(|| {
        Error::invalid(
            format!("tensor {}", FfnRole::Router.name(moe.block)),
            "nothing",
            "a router of [width, experts]",
        )
    })?;

    let mut put = Put::new(gguf, backend, &moe.matrices(), progress)?;
    let gate_up = match &moe.gate_up {
        gguf::GateUp::Separate { gate, up } => {
            GateUpWeights::Separate { gate: put.experts(gate)?, up: put.experts(up)? }
        }
        gguf::GateUp::Merged(both) => {
            GateUpWeights::Merged { tensor: put.experts(both)?, order: GateUpOrder::Split }
        }
        gguf::GateUp::UpOnly(up) => GateUpWeights::UpOnly { up: put.experts(up)? },
    };
    let layer = MoeLayer::new(gate_up, put.experts(&moe.down)?, moe.used)?;
    let mut weights = tensor_f32(gguf, &router.tensor)?;
    if let Some(scale) = &plan.router_scale {
        for row in weights.chunks_exact_mut(scale.len()) {
            row.iter_mut().zip(scale).for_each(|(w, s)| *w *= s);
        }
    }
    let (score, selection) = (plan.score_bias.as_deref(), plan.selection_bias.as_deref());
    let mut router = Router::new(backend, &weights, moe.experts, moe.width)?
        .biased(backend, score, selection)?;
    if plan.own_input {
        router = router.with_own_input();
    }
    let layer = layer
        .with_router(router, &plan.router)?
        .with_experts(backend, &plan.experts)?
        .with_factors(plan.factors);

    let Some(shared) = &moe.shared else {
        return Ok(layer);
    };
    let up = put.experts(&shared.up)?;
    let gate_up = match &shared.gate {
        Some(gate) => GateUpWeights::Separate { gate: put.experts(gate)?, up },
        None => GateUpWeights::UpOnly { up },
    };
    let gate = match &shared.router {
        Some(router) => {
            Some(Router::new(backend, &tensor_f32(gguf, &router.tensor)?, 1, moe.width)?)
        }
        None => None,
    };
    layer
        .with_shared(SharedExpert { gate_up, down: put.experts(&shared.down)?, gate })?
        .with_shared_options(backend, &plan.shared)
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
    let dense = plan_dense(gguf, block)?;
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
/// [`Error::Invalid`] for other types; [`Error::Gguf`] for another model's tensor;
/// [`Error::OutOfMemory`].
pub fn tensor_f32(gguf: &Gguf, tensor: &TensorInfo) -> Result<Vec<f32>> {
    let bytes = gguf.tensor_bytes(tensor)?;
    let halves = |to_f32: fn(u16) -> f32| {
        let (halves, _) = bytes.as_chunks::<2>();
        let mut values = crate::host_vec(halves.len())?;
        for (value, half) in values.iter_mut().zip(halves) {
            *value = to_f32(u16::from_le_bytes(*half));
        }
        Ok(values)
    };
    match tensor.tensor_type() {
        TensorType::F32 => {
            let (words, _) = bytes.as_chunks::<4>();
            let mut values = crate::host_vec(words.len())?;
            for (value, word) in values.iter_mut().zip(words) {
                *value = f32::from_le_bytes(*word);
            }
            Ok(values)
        }
        TensorType::F16 => halves(crate::numerics::f16_to_f32),
        TensorType::BF16 => halves(|bits| f32::from_bits(u32::from(bits) << 16)),
        TensorType::Weight(ty) => {
            let count = (bytes.len() / ty.block_bytes()).saturating_mul(ty.block_values());
            let mut values = crate::host_vec(count)?;
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
pub(super) fn unclamped(gguf: &Gguf, meta: &ModelMeta, block: usize) -> Result<()> {
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

/// The type that a tensor has on the device: floats are quantized to Q8_0.
pub(super) fn loaded_type(matrix: &gguf::Matrix) -> Result<WeightType> {
    let floats =
        matches!(matrix.tensor.tensor_type(), TensorType::F32 | TensorType::F16 | TensorType::BF16);
    match floats && matrix.cols.is_multiple_of(32) {
        true => Ok(WeightType::Q8_0),
        false => Ok(matrix.weight_type()?),
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
            let ty = loaded_type(matrix)?;
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
        if matrix.tensor.tensor_type().weight().is_none() {
            return self.quantized(matrix, view, experts);
        }
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
        self.put(tensor, false);
        Ok(placed)
    }

    /// A tensor of floats, as Q8_0.
    fn quantized(
        &mut self,
        matrix: &gguf::Matrix,
        view: ExpertView,
        experts: usize,
    ) -> Result<Tensor> {
        let tensor = &matrix.tensor;
        let what = format!("tensor {}", tensor.name());
        let blocks = RowFormat::Q8_0.quantize(&tensor_f32(self.gguf, tensor)?, matrix.cols)?;
        // Strides of floats, in whole blocks.
        let (row, expert) = match matrix.row_bytes == view.row_stride {
            true => (
                matrix.cols / 32 * 34,
                view.expert_stride / matrix.row_bytes * (matrix.cols / 32 * 34),
            ),
            false => {
                return Err(Error::invalid(what, tensor.tensor_type(), "a quantized weight type"));
            }
        };
        let strides = Strides { row, expert };
        let (rows, cols) = (view.rows, view.cols);
        let host = HostBytes::from(blocks);
        let ty = WeightType::Q8_0;
        let placed = Tensor::strided(self.backend, &what, host, ty, experts, rows, cols, strides)?;
        self.put(tensor, true);
        Ok(placed)
    }

    fn put(&mut self, tensor: &TensorInfo, quantized: bool) {
        self.done += tensor.bytes() as u64;
        (self.progress)(LoadProgress {
            tensor: tensor.name(),
            done: self.done,
            total: self.total,
            quantized: quantized.then(|| tensor.tensor_type()),
        });
    }
}
