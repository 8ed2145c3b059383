//! The mixture-of-experts tensors of a block, found by their standard names.

use std::collections::{BTreeMap, BTreeSet};

use super::names::{FfnRole, block_of, ffn_role};
use super::{Gguf, GgufError, ModelMeta, Result, TensorInfo, TensorType, shown};
use crate::format::WeightType;

/// A tensor of `count` matrices of `rows` x `cols`, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// The tensor.
    pub tensor: TensorInfo,
    /// Rows of one matrix: outputs.
    pub rows: usize,
    /// Columns of one matrix: inputs.
    pub cols: usize,
    /// How many matrices; 1 where there are no experts.
    pub count: usize,
    /// Bytes from one row to the next.
    pub row_bytes: usize,
    /// Bytes from one matrix to the next.
    pub stride: usize,
    file: String,
}

impl Matrix {
    /// The weight type, if the matrix product takes it.
    ///
    /// # Errors
    /// [`GgufError::Field`] naming the tensor and its type if it is not quantized to one.
    pub fn weight_type(&self) -> Result<WeightType> {
        let ty = self.tensor.tensor_type();
        ty.weight().ok_or_else(|| {
            let field = format!("tensor {}: type", shown(self.tensor.name()));
            let expected = "a type that weights are multiplied in, such as q4_K or q8_0 (floats only \
                            in rows of a multiple of 32): quantize the model again to one";
            GgufError::field(&self.file, field, ty, expected)
        })
    }

    /// Reads a tensor as matrices; fails unless its dims are `dims`, up to ones at the end.
    fn new(gguf: &Gguf, tensor: &TensorInfo, dims: [u64; 3], why: &str) -> Result<Self> {
        let file = gguf.parts().get(tensor.part()).unwrap_or(gguf.head()).name();
        if let TensorType::Unknown(id) = tensor.tensor_type() {
            let (file, tensor) = (file.to_owned(), shown(tensor.name()));
            return Err(GgufError::UnknownType { file, tensor, id });
        }
        let given = [tensor.dim(0), tensor.dim(1), tensor.dim(2), tensor.dim(3)];
        if given[..3] != dims || given[3] != 1 {
            let expected = format!("{dims:?} ({why})");
            let field = format!("tensor {}: dims", shown(tensor.name()));
            return Err(GgufError::field(file, field, format!("{:?}", tensor.dims()), expected));
        }
        if dims.contains(&0) {
            let field = format!("tensor {}: dims", shown(tensor.name()));
            return Err(GgufError::field(file, field, format!("{dims:?}"), "1 or more of each"));
        }
        // All of these divide a size that fits the address space.
        let [cols, rows, count] = dims.map(|dim| usize::try_from(dim).unwrap_or(usize::MAX));
        let row_bytes = match tensor.tensor_type().weight() {
            Some(weight) => weight.row_bytes(cols).map_err(|_| {
                let field = format!("tensor {}: dims[0]", shown(tensor.name()));
                let expected = format!("a multiple of {}", weight.block_values());
                GgufError::field(file, field, cols, expected)
            })?,
            None => tensor.bytes() / rows.max(1) / count.max(1),
        };
        let stride = tensor.bytes() / count.max(1);
        Ok(Self {
            tensor: tensor.clone(),
            rows,
            cols,
            count,
            row_bytes,
            stride,
            file: file.to_owned(),
        })
    }
}

/// The gate and up projections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GateUp {
    /// A tensor each: `[width, ffn, experts]`.
    Separate {
        /// The gates.
        gate: Matrix,
        /// The ups.
        up: Matrix,
    },
    /// One tensor, `[width, 2 * ffn, experts]`: an expert's gate rows, then its up rows.
    Merged(Matrix),
    /// Ups alone, `[width, ffn, experts]`: experts without gates.
    UpOnly(Matrix),
}

/// A shared expert, which every token is sent to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedExpert {
    /// The gate: `[width, ffn]`; none where it has up values alone.
    pub gate: Option<Matrix>,
    /// The up: `[width, ffn]`.
    pub up: Matrix,
    /// The down: `[ffn, width]`.
    pub down: Matrix,
    /// Its own router, `[width]`, whose sigmoid weighs the shared expert's result. Without one the
    /// weight is 1.
    pub router: Option<Matrix>,
    /// Hidden neurons, which may differ from the routed experts'.
    pub ffn: usize,
}

/// The mixture-of-experts part of one block.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoeTensors {
    /// The block's number.
    pub block: usize,
    /// Gates and ups.
    pub gate_up: GateUp,
    /// Downs: `[ffn, width, experts]`.
    pub down: Matrix,
    /// The router, `[width, experts]`.
    pub router: Option<Matrix>,
    /// The shared expert.
    pub shared: Option<SharedExpert>,
    /// Experts.
    pub experts: usize,
    /// Experts a token is sent to: 1 to `experts`.
    pub used: usize,
    /// Values of a token.
    pub width: usize,
    /// Hidden neurons of an expert.
    pub ffn: usize,
    /// Other tensors of the block that act on its experts or router, biases say, and that this
    /// description leaves out: who computes without them computes something else.
    pub others: Vec<String>,
}

impl MoeTensors {
    /// The matrices of experts and shared expert, without routers.
    pub fn matrices(&self) -> Vec<&Matrix> {
        let mut all = match &self.gate_up {
            GateUp::Separate { gate, up } => vec![gate, up],
            GateUp::Merged(both) => vec![both],
            GateUp::UpOnly(up) => vec![up],
        };
        all.push(&self.down);
        if let Some(shared) = &self.shared {
            all.extend(&shared.gate);
            all.extend([&shared.up, &shared.down]);
        }
        all
    }
}

impl Gguf {
    /// The feed-forward tensors by block and role, whatever their dims.
    pub fn ffn_tensors(&self) -> BTreeMap<usize, Vec<(FfnRole, &TensorInfo)>> {
        let mut blocks: BTreeMap<usize, Vec<(FfnRole, &TensorInfo)>> = BTreeMap::new();
        for tensor in self.tensors() {
            if let Some((block, role)) = ffn_role(tensor.name()) {
                blocks.entry(block).or_default().push((role, tensor));
            }
        }
        blocks
    }

    /// The numbers of the blocks that have tensors of experts.
    pub fn moe_blocks(&self) -> Vec<usize> {
        let experts = |name: &str| match ffn_role(name) {
            Some((block, role)) => role.is_experts().then_some(block),
            None => single_expert(name),
        };
        let blocks: BTreeSet<usize> = self.tensors().filter_map(|t| experts(t.name())).collect();
        blocks.into_iter().collect()
    }

    /// Describes the mixture-of-experts part of a block.
    ///
    /// # Errors
    /// [`GgufError`] naming the tensor or key that is missing or does not agree with the others.
    pub fn moe(&self, block: usize) -> Result<MoeTensors> {
        let meta = self.model_meta()?;
        let find = |role: FfnRole| self.tensor(&role.name(block));
        let (first, gate_up) =
            match (find(FfnRole::GateUpExps), find(FfnRole::GateExps), find(FfnRole::UpExps)) {
                (Some(merged), None, None) => (merged, Err(merged)),
                (None, gate, Some(up)) => (gate.unwrap_or(up), Ok((gate, up))),
                (Some(merged), _, _) => {
                    let field = format!("tensor {}", FfnRole::GateExps.name(block));
                    let expected = format!("either it or {}", merged.name());
                    return Err(GgufError::field(self.head().name(), field, "both", expected));
                }
                (None, Some(there), None) => {
                    return Err(self.absent(FfnRole::UpExps, block, there));
                }
                (None, None, None) => return Err(self.no_experts(block)),
            };
        let down =
            find(FfnRole::DownExps).ok_or_else(|| self.absent(FfnRole::DownExps, block, first))?;

        let (width, experts) = (first.dim(0), first.dim(2));
        let (ffn, of) = (down.dim(0), "the columns of ffn_down_exps");
        self.agree(&meta, "embedding_length", block, width, first)?;
        self.agree(&meta, "expert_count", block, experts, first)?;
        // Writers put 0 where they have no such number.
        let key = format!("{}.expert_feed_forward_length", meta.architecture);
        if self.head().u64_of_block(&key, block)? != Some(0) {
            self.agree(&meta, "expert_feed_forward_length", block, ffn, down)?;
        }

        let sides = format!("[width, ffn, experts], where ffn is {of}");
        let gate_up = match gate_up {
            Ok((None, up)) => GateUp::UpOnly(Matrix::new(self, up, [width, ffn, experts], &sides)?),
            Ok((Some(gate), up)) => GateUp::Separate {
                gate: Matrix::new(self, gate, [width, ffn, experts], &sides)?,
                up: Matrix::new(self, up, [width, ffn, experts], &sides)?,
            },
            Err(merged) => {
                let dims = [width, ffn.saturating_mul(2), experts];
                let why = format!("[width, 2 * ffn, experts], where ffn is {of}");
                GateUp::Merged(Matrix::new(self, merged, dims, &why)?)
            }
        };
        let down = Matrix::new(self, down, [ffn, width, experts], "[ffn, width, experts]")?;
        let router = find(FfnRole::Router)
            .map(|router| Matrix::new(self, router, [width, experts, 1], "[width, experts]"))
            .transpose()?;
        let shared = self.shared(block, width)?;
        let used = self.used(&meta, block, experts, first)?;
        let others = self.others(block, acts_on_experts);
        Ok(MoeTensors {
            block,
            experts: down.count,
            used,
            width: down.rows,
            ffn: down.cols,
            gate_up,
            down,
            router,
            shared,
            others,
        })
    }

    fn shared(&self, block: usize, width: u64) -> Result<Option<SharedExpert>> {
        let find = |role: FfnRole| self.tensor(&role.name(block));
        let roles = [FfnRole::SharedGate, FfnRole::SharedUp, FfnRole::SharedDown];
        let Some(there) = roles.into_iter().find_map(find) else {
            return Ok(None);
        };
        let need = |role| find(role).ok_or_else(|| self.absent(role, block, there));
        let (gate, up, down) = (find(roles[0]), need(roles[1])?, need(roles[2])?);
        let ffn = down.dim(0);
        let why = "[width, ffn], where ffn is the columns of ffn_down_shexp";
        let down = Matrix::new(self, down, [ffn, width, 1], "[ffn, width]")?;
        Ok(Some(SharedExpert {
            gate: gate.map(|gate| Matrix::new(self, gate, [width, ffn, 1], why)).transpose()?,
            up: Matrix::new(self, up, [width, ffn, 1], why)?,
            ffn: down.cols,
            down,
            router: find(FfnRole::SharedRouter)
                .map(|router| Matrix::new(self, router, [width, 1, 1], "[width]"))
                .transpose()?,
        }))
    }

    fn used(
        &self,
        meta: &ModelMeta,
        block: usize,
        experts: u64,
        tensor: &TensorInfo,
    ) -> Result<usize> {
        let (head, key) = (self.head().name(), "expert_used_count");
        let key = format!("{}.{key}", meta.architecture);
        let used = self.head().u64_of_block(&key, block)?;
        let key = shown(&key);
        let Some(used) = used else {
            let reason = format!("{} is there", shown(tensor.name()));
            return Err(GgufError::missing(head, key, reason));
        };
        match usize::try_from(used) {
            Ok(fits) if (1..=experts).contains(&used) => Ok(fits),
            _ => Err(GgufError::field(head, key, used, format!("1 to {experts}, the experts"))),
        }
    }

    /// The error for a tensor that has to be there because another is.
    pub(super) fn absent(&self, role: FfnRole, block: usize, there: &TensorInfo) -> GgufError {
        let reason = format!("{} is there", shown(there.name()));
        GgufError::missing(self.head().name(), format!("tensor {}", role.name(block)), reason)
    }

    /// The names of a block's tensors whose stem `acts`, save those that have a role.
    pub(super) fn others(&self, block: usize, acts: impl Fn(&str) -> bool) -> Vec<String> {
        let is_other = |name: &str| {
            block_of(name).is_some_and(|(of, rest)| {
                of == block && acts(rest.split('.').next().unwrap_or_default())
            }) && ffn_role(name).is_none()
        };
        self.tensors()
            .map(TensorInfo::name)
            .filter(|name| is_other(name))
            .map(str::to_owned)
            .collect()
    }

    fn no_experts(&self, block: usize) -> GgufError {
        let single = self.tensors().find(|tensor| single_expert(tensor.name()) == Some(block));
        if let Some(single) = single {
            let given = "a tensor for each expert, as files before April 2024 have them";
            let expected = "one tensor for all experts of a block: convert the model again";
            let field = format!("tensor {}", shown(single.name()));
            return GgufError::field(self.head().name(), field, given, expected);
        }
        let blocks = self.moe_blocks();
        let reason = match (blocks.first(), blocks.last()) {
            (Some(first), Some(last)) if first == last => {
                format!("experts were asked for; block {first} alone has them")
            }
            (Some(first), Some(last)) => {
                format!(
                    "experts were asked for; {} blocks of {first}..={last} have them",
                    blocks.len()
                )
            }
            _ => "experts were asked for; no block of this model has them".to_owned(),
        };
        let field = format!("tensor {}", FfnRole::GateExps.name(block));
        GgufError::missing(self.head().name(), field, reason)
    }

    pub(super) fn matrix(&self, tensor: &TensorInfo, dims: [u64; 2], why: &str) -> Result<Matrix> {
        Matrix::new(self, tensor, [dims[0], dims[1], 1], why)
    }
}

/// The block of an expert that is a tensor of its own, as `blk.0.ffn_gate.7.weight`.
fn single_expert(name: &str) -> Option<usize> {
    let (block, rest) = block_of(name)?;
    let rest = ["ffn_gate.", "ffn_up.", "ffn_down."].iter().find_map(|s| rest.strip_prefix(s))?;
    let number = rest.strip_suffix(".weight")?;
    (!number.is_empty() && number.bytes().all(|b| b.is_ascii_digit())).then_some(block)
}

/// Whether a tensor of this stem acts on experts or router.
fn acts_on_experts(stem: &str) -> bool {
    stem.contains("exps")
        || stem.contains("shexp")
        || stem.starts_with("exp_")
        || stem.starts_with("ffn_gate_inp")
}
