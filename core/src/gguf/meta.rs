//! What the metadata says about the feed-forward blocks.

use super::{Gguf, GgufError, Result, TensorInfo, shown};

/// How router scores become weights (`expert_gating_func`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Gating {
    /// Softmax over all experts (1).
    Softmax,
    /// Sigmoid of each score (2).
    Sigmoid,
    /// Softmax over the chosen experts only (3).
    SoftmaxOfChosen,
    /// Square root of softplus of each score (4).
    SqrtSoftplus,
}

/// What the metadata says about a model's feed-forward blocks. Fields are `None` where it is
/// silent.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelMeta {
    /// `general.architecture`, the prefix of the other keys.
    pub architecture: String,
    /// `block_count`.
    pub blocks: Option<u64>,
    /// `embedding_length`: values of one token between blocks.
    pub width: Option<u64>,
    /// `expert_count`.
    pub experts: Option<u64>,
    /// `expert_used_count`: experts a token is sent to.
    pub used: Option<u64>,
    /// `expert_weights_norm`: whether the chosen experts' weights are scaled to sum to 1.
    pub weights_norm: Option<bool>,
    /// `expert_weights_scale`: a factor on the weights.
    pub weights_scale: Option<f32>,
    /// `expert_gating_func`.
    pub gating: Option<Gating>,
}

impl Gguf {
    /// What the metadata says about the feed-forward blocks.
    ///
    /// # Errors
    /// [`GgufError`] without `general.architecture`, for a key of the wrong type, for a gating
    /// function of unknown number, and for more experts used than there are.
    pub fn model_meta(&self) -> Result<ModelMeta> {
        let head = self.head();
        let architecture = head
            .str("general.architecture")?
            .ok_or_else(|| {
                let reason = "the names of the other keys begin with it";
                GgufError::missing(head.name(), "general.architecture", reason)
            })?
            .to_owned();
        let key = |name: &str| format!("{architecture}.{name}");
        let gating = match head.u64(&key("expert_gating_func"))? {
            // Writers that leave it to the architecture may write a zero.
            None | Some(0) => None,
            Some(1) => Some(Gating::Softmax),
            Some(2) => Some(Gating::Sigmoid),
            Some(3) => Some(Gating::SoftmaxOfChosen),
            Some(4) => Some(Gating::SqrtSoftplus),
            Some(given) => {
                let expected =
                    "1 (softmax), 2 (sigmoid), 3 (softmax of the chosen) or 4 (root of softplus)";
                let field = shown(&key("expert_gating_func"));
                return Err(GgufError::field(head.name(), field, given, expected));
            }
        };
        // A number for each block is read where the block is: it is none of the model's.
        let number = |name: &str| match head.value(&key(name)) {
            Some(value) if value.as_array().is_some() => Ok(None),
            _ => head.u64(&key(name)),
        };
        let experts = number("expert_count")?;
        let used = number("expert_used_count")?;
        if let (Some(experts), Some(used)) = (experts, used)
            && used > experts
        {
            let field = shown(&key("expert_used_count"));
            let expected = format!("at most {experts}, the expert_count");
            return Err(GgufError::field(head.name(), field, used, expected));
        }
        Ok(ModelMeta {
            blocks: head.u64(&key("block_count"))?,
            width: number("embedding_length")?,
            experts,
            used,
            weights_norm: head.bool(&key("expert_weights_norm"))?,
            weights_scale: head.f32(&key("expert_weights_scale"))?,
            gating,
            architecture,
        })
    }

    /// Fails if the metadata states another number than a tensor has.
    pub(super) fn agree(
        &self,
        meta: &ModelMeta,
        key: &str,
        block: usize,
        dim: u64,
        tensor: &TensorInfo,
    ) -> Result<()> {
        let key = format!("{}.{key}", meta.architecture);
        match self.head().u64_of_block(&key, block)? {
            Some(given) if given != dim => {
                let name = shown(tensor.name());
                let expected = format!("{dim}, as tensor {name} with dims {:?}", tensor.dims());
                Err(GgufError::field(self.head().name(), shown(&key), given, expected))
            }
            _ => Ok(()),
        }
    }
}
