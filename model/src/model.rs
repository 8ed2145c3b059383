//! A model on a device.

use strata_core::Result;
use strata_core::backend::Backend;
use strata_core::gguf::Gguf;
use strata_core::prefill::LoadProgress;
use strata_core::{Error, attention::PAGE};

use crate::attention::{Attention, Turn};
use crate::config::{self, Config};
use crate::ffn::Ffn;
use crate::load::{Linear, Loader, NormWeights, Weight};

/// A model's weights on a device, and what it computes.
pub struct Model {
    pub(crate) config: Config,
    pub(crate) embedding: Weight,
    pub(crate) blocks: Vec<Block>,
    pub(crate) output_norm: NormWeights,
    pub(crate) head: Linear,
    /// What is done to heads by their position, in any block.
    pub(crate) turns: Vec<Turn>,
}

pub(crate) struct Block {
    pub mixer_norm: NormWeights,
    pub mixer: Attention,
    pub mixer_post_norm: Option<NormWeights>,
    pub ffn_norm: NormWeights,
    pub ffn: Ffn,
    pub ffn_post_norm: Option<NormWeights>,
    pub residual_scale: Option<f32>,
}

impl Model {
    /// Puts a model on a device; `progress` is called after each tensor.
    ///
    /// # Errors
    /// As [`Config::load`]; [`Error::Invalid`] naming the block for what this version does not
    /// compute; and those of the backend.
    pub fn load(
        gguf: &Gguf,
        context: Option<usize>,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(LoadProgress<'_>),
    ) -> Result<Self> {
        let config = Config::load(gguf, context)?;
        let mut loader = Loader::new(gguf, backend, progress);
        let mut turns = Vec::new();
        let embedding = loader.weight(&config.embedding, config.vocab, config.width)?;
        let mut blocks = Vec::with_capacity(config.layers.len());
        for (no, layer) in config.layers.iter().enumerate() {
            let config::Mixer::Attention(attention) = &layer.mixer else {
                let expected = "attention that this version computes";
                return Err(Error::invalid(
                    format!("block {no}"),
                    mixer_name(&layer.mixer),
                    expected,
                ));
            };
            let mut post = |norm: &Option<config::Norm>| {
                norm.as_ref().map(|norm| loader.norm(norm)).transpose()
            };
            let (mixer_post_norm, ffn_post_norm) =
                (post(&layer.mixer_post_norm)?, post(&layer.ffn_post_norm)?);
            blocks.push(Block {
                mixer_norm: loader.norm(&layer.mixer_norm)?,
                mixer: Attention::load(&mut loader, attention, &mut turns)?,
                mixer_post_norm,
                ffn_norm: loader.norm(&layer.ffn_norm)?,
                ffn: Ffn::load(&mut loader, &layer.ffn)?,
                ffn_post_norm,
                residual_scale: layer.residual_scale,
            });
        }
        let output_norm = loader.norm(&config.output_norm)?;
        let head = loader.linear(&config.head)?;
        Ok(Self { config, embedding, blocks, output_norm, head, turns })
    }

    /// What the model computes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Bytes of keys and values of one token, in all blocks.
    pub fn cache_bytes_per_token(&self) -> usize {
        let bytes = |block: &Block| block.mixer.shape().layout().bytes() / PAGE;
        self.blocks.iter().map(bytes).sum()
    }
}

fn mixer_name(mixer: &config::Mixer) -> &'static str {
    match mixer {
        config::Mixer::Attention(_) => "attention",
        config::Mixer::Mla(_) => "attention over a compressed row",
        config::Mixer::DeltaNet(_) => "a gated delta net",
        config::Mixer::ShortConv(_) => "a short convolution",
    }
}
