//! What mixes the tokens of a block: one of several kinds, and what it keeps of each sequence.

use strata_core::attention::PageLayout;
use strata_core::backend::ops::{By, Matrix, MatrixMut, Pointwise};
use strata_core::backend::{Backend, Buffer, KvCache, Slice, SliceMut, States, TokenBatch};
use strata_core::{Error, Result};

use crate::attention::{Attention, Turn, TurnTable};
use crate::config;
use crate::load::{Acts, Loader};
use crate::mla::Mla;
use crate::recurrent::{DeltaNet, ShortConv};

/// What mixes tokens, on a device.
pub(crate) enum Mixer {
    Attention(Box<Attention>),
    Mla(Box<Mla>),
    DeltaNet(Box<DeltaNet>),
    ShortConv(Box<ShortConv>),
}

/// What a block keeps of its sequences.
pub(crate) struct Kept {
    /// Keys and values of each token.
    pub cache: Option<KvCache>,
    /// What has one state, whatever the number of tokens.
    pub states: Vec<States>,
}

/// Memory that mixers work in; what a buffer is for, each says itself.
pub(crate) struct MixerSpace {
    pub acts: Acts,
    pub rows: [Buffer<f32>; 6],
}

/// Values of a token that a mixer needs memory for.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Needs {
    /// In each of the buffers.
    pub rows: [usize; 6],
    /// Of the widest input of a product.
    pub input: usize,
}

/// A step of a session.
#[derive(Clone, Copy)]
pub(crate) struct Step<'a> {
    pub backend: &'a dyn Backend,
    pub eps: f32,
    pub batch: &'a TokenBatch,
    pub tables: &'a [TurnTable],
}

impl Mixer {
    /// `turns` takes rotations, if no block before had the same.
    pub fn load(
        loader: &mut Loader<'_>,
        config: &config::Mixer,
        turns: &mut Vec<Turn>,
    ) -> Result<Self> {
        Ok(match config {
            config::Mixer::Attention(of) => {
                Self::Attention(Box::new(Attention::load(loader, of, turns)?))
            }
            config::Mixer::Mla(of) => Self::Mla(Box::new(Mla::load(loader, of, turns)?)),
            config::Mixer::DeltaNet(of) => Self::DeltaNet(Box::new(DeltaNet::load(loader, of)?)),
            config::Mixer::ShortConv(of) => Self::ShortConv(Box::new(ShortConv::load(loader, of)?)),
        })
    }

    /// How it keeps keys and values, if it does.
    pub fn layout(&self) -> Option<PageLayout> {
        match self {
            Self::Attention(of) => Some(of.shape().layout()),
            Self::Mla(of) => Some(of.shape().layout()),
            Self::DeltaNet(_) | Self::ShortConv(_) => None,
        }
    }

    /// Values of each state of a sequence.
    pub fn states(&self) -> Vec<usize> {
        match self {
            Self::Attention(_) | Self::Mla(_) => Vec::new(),
            Self::DeltaNet(of) => of.states().to_vec(),
            Self::ShortConv(of) => vec![of.state()],
        }
    }

    /// Memory that it needs for a token.
    pub fn needs(&self) -> Needs {
        match self {
            Self::Attention(of) => of.needs(),
            Self::Mla(of) => of.needs(),
            Self::DeltaNet(of) => of.needs(),
            Self::ShortConv(of) => of.needs(),
        }
    }

    /// `out`: as `x`, the normed input.
    pub fn apply(
        &self,
        step: &Step<'_>,
        x: Matrix<'_>,
        kept: &mut Kept,
        space: &mut MixerSpace,
        out: MatrixMut<'_>,
    ) -> Result<()> {
        let Kept { cache, states } = kept;
        let strange = || Error::invalid("session", "another block's memory", "this block's");
        match (self, cache.as_mut(), states.as_mut_slice()) {
            (Self::Attention(of), Some(cache), []) => of.apply(step, x, cache, space, out),
            (Self::Mla(of), Some(cache), []) => of.apply(step, x, cache, space, out),
            (Self::DeltaNet(of), None, [conv, net]) => of.apply(step, x, [conv, net], space, out),
            (Self::ShortConv(of), None, [conv]) => of.apply(step, x, conv, space, out),
            _ => Err(strange()),
        }
    }
}

impl Kept {
    /// Room for what a mixer keeps of `sequences` sequences, whose keys and values take `pages`
    /// pages in all.
    pub fn new(
        backend: &dyn Backend,
        mixer: &Mixer,
        sequences: usize,
        pages: usize,
    ) -> Result<Self> {
        let cache =
            mixer.layout().map(|layout| KvCache::new(backend, layout, pages)).transpose()?;
        let states = mixer.states().into_iter();
        let states = states.map(|values| States::new(backend, values, sequences));
        Ok(Self { cache, states: states.collect::<Result<_>>()? })
    }
}

impl Kept {
    /// How keys and values are kept; of no heads where none are.
    pub fn layout(&self) -> PageLayout {
        let none = PageLayout { kv_heads: 0, key: 0, value: 0 };
        self.cache.as_ref().map_or(none, KvCache::layout)
    }

    /// Values of the states of a sequence.
    pub fn state_values(&self) -> usize {
        self.states.iter().map(States::values).sum()
    }
}

impl Needs {
    /// What does for both.
    pub fn max(self, other: Self) -> Self {
        let rows = std::array::from_fn(|at| self.rows[at].max(other.rows[at]));
        Self { rows, input: self.input.max(other.input) }
    }
}

/// Puts `cols` values of each row where others stood; both may lie in wider rows.
pub(crate) fn copy(
    backend: &dyn Backend,
    [rows, cols]: [usize; 2],
    (from, from_stride): (Slice<'_, f32>, usize),
    (to, to_stride): (SliceMut<'_, f32>, usize),
) -> Result<()> {
    let from = Matrix::new("copied", from, rows, cols, from_stride)?;
    let to = MatrixMut::new("copy", to, rows, cols, to_stride)?;
    Pointwise::new(to, By::Copy(from))?.launch(backend)
}
