//! A model on a device.

use strata_core::Result;
use strata_core::attention::{PAGE, PageLayout};
use strata_core::backend::Backend;
use strata_core::gguf::Gguf;
use strata_core::prefill::LoadProgress;

use crate::attention::Turn;
use crate::config::{self, Config};
use crate::ffn::Ffn;
use crate::fingerprint::fingerprint;
use crate::load::{Linear, Loader, NormWeights, Weight};
use crate::mixer::Mixer;

/// A model's weights on a device, and what it computes.
pub struct Model {
    pub(crate) config: Config,
    pub(crate) embedding: Weight,
    pub(crate) blocks: Vec<Block>,
    pub(crate) output_norm: NormWeights,
    pub(crate) head: Linear,
    fingerprint: [u8; 32],
    /// What is done to heads by their position, in any block.
    pub(crate) turns: Vec<Turn>,
}

pub(crate) struct Block {
    pub mixer_norm: NormWeights,
    pub mixer: Mixer,
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
    /// As [`Config::load`]; [`strata_core::Error::Invalid`] for a tensor of a type, or heads of a size, that is
    /// not computed; and those of the backend.
    pub fn load(
        gguf: &Gguf,
        context: Option<usize>,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(LoadProgress<'_>),
    ) -> Result<Self> {
        Self::of(Config::load(gguf, context)?, gguf, backend, progress)
    }

    /// As [`load`](Self::load), of a configuration of the file's that was read before, and perhaps
    /// changed.
    ///
    /// # Errors
    /// As there.
    pub fn of(
        config: Config,
        gguf: &Gguf,
        backend: &dyn Backend,
        progress: &mut dyn FnMut(LoadProgress<'_>),
    ) -> Result<Self> {
        let mut loader = Loader::new(gguf, backend, progress);
        let mut turns = Vec::new();
        let embedding = loader.weight(&config.embedding, config.vocab, config.width)?;
        let mut blocks = Vec::with_capacity(config.layers.len());
        for layer in &config.layers {
            let mut post = |norm: &Option<config::Norm>| {
                norm.as_ref().map(|norm| loader.norm(norm)).transpose()
            };
            let (mixer_post_norm, ffn_post_norm) =
                (post(&layer.mixer_post_norm)?, post(&layer.ffn_post_norm)?);
            blocks.push(Block {
                mixer_norm: loader.norm(&layer.mixer_norm)?,
                mixer: Mixer::load(&mut loader, &layer.mixer, &mut turns)?,
                mixer_post_norm,
                ffn_norm: loader.norm(&layer.ffn_norm)?,
                ffn: Ffn::load(&mut loader, &layer.ffn)?,
                ffn_post_norm,
                residual_scale: layer.residual_scale,
            });
        }
        let output_norm = loader.norm(&config.output_norm)?;
        let head = loader.linear(&config.head)?;
        let fingerprint = fingerprint(gguf, &config)?;
        Ok(Self { config, embedding, blocks, output_norm, head, fingerprint, turns })
    }

    /// What the model computes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Which model this is, by its configuration and a part of every tensor: states are checked
    /// against it.
    pub fn fingerprint(&self) -> &[u8; 32] {
        &self.fingerprint
    }

    /// Bytes of keys and values of one token, in all blocks.
    pub fn cache_bytes_per_token(&self) -> usize {
        let layouts = self.blocks.iter().filter_map(|block| block.mixer.layout());
        layouts.map(|layout: PageLayout| layout.bytes() / PAGE).sum()
    }

    /// Bytes of the states of one sequence, in all blocks, whatever its length.
    pub fn state_bytes_per_sequence(&self) -> usize {
        let values = self.blocks.iter().flat_map(|block| block.mixer.states());
        values.map(|values| 4 * values).sum()
    }
}
