//! Sequences of tokens on their way through a model: their cache, and the memory that a chunk needs.

use std::ops::Range;

use strata_core::attention::PAGE;
use strata_core::backend::ops::{By, Embed, Matrix, MatrixMut, Pointwise};
use strata_core::backend::{Backend, BatchLimits, Buffer, TokenBatch};
use strata_core::prefill::{Chunk, Options as LayerOptions};
use strata_core::{Error, Result};

use crate::attention::TurnTable;
use crate::ffn::FfnSpace;
use crate::load::{Acts, NormWeights};
use crate::mixer::{Kept, MixerSpace, Needs, Step};
use crate::model::{Block, Model};

/// How a session is set up; none of it changes a byte of a result.
#[derive(Debug, Clone)]
pub struct Space {
    /// The most tokens of a sequence.
    pub context: usize,
    /// Sequences that are kept at once.
    pub sequences: usize,
    /// The most tokens that go through the model at once.
    pub chunk: usize,
    /// How layers of experts are run.
    pub options: LayerOptions,
}

impl Space {
    /// One sequence of up to `context` tokens, in chunks of 512.
    pub fn new(context: usize) -> Self {
        let chunk = 512;
        let options = LayerOptions { chunk: Chunk::Tokens(chunk), ..LayerOptions::default() };
        Self { context, sequences: 1, chunk, options }
    }

    /// The same in chunks of `tokens`.
    pub fn in_chunks_of(mut self, tokens: usize) -> Self {
        self.chunk = tokens.max(1);
        self.options.chunk = Chunk::Tokens(self.chunk);
        self
    }
}

/// One token of a sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    /// Its id.
    pub id: u32,
    /// The sequence it is appended to.
    pub sequence: usize,
    /// Whether its logits are wanted.
    pub logits: bool,
}

/// Sequences, their keys and values, and memory for a chunk.
pub struct Session {
    space: Space,
    /// The ids of each sequence.
    texts: Vec<Vec<u32>>,
    /// The logits behind each sequence's last token, or none.
    latest: Vec<Vec<f32>>,
    batch: TokenBatch,
    pub(crate) kept: Vec<Kept>,
    tables: Vec<TurnTable>,
    mixing: MixerSpace,
    ffn: FfnSpace,
    head: Acts,
    x: Buffer<f32>,
    normed: Buffer<f32>,
    branch: Buffer<f32>,
    last: Buffer<f32>,
    logits: Buffer<f32>,
}

impl Session {
    /// Memory for a model's sequences, on the device that the model is on.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a context, chunk or number of sequences of 0, and a context longer
    /// than the model was trained for; [`Error::OutOfMemory`].
    pub fn new(backend: &dyn Backend, model: &Model, space: Space) -> Result<Self> {
        let Space { context, sequences, chunk, .. } = space;
        let config = model.config();
        for (what, given) in [("context", context), ("sequences", sequences), ("chunk", chunk)] {
            if given == 0 {
                return Err(Error::invalid(what, given, "1 or more"));
            }
        }
        if context > config.context {
            let most = format!("at most {}, which the model was trained for", config.context);
            return Err(Error::invalid("context", context, most));
        }
        let width = config.width;
        let pages_per_sequence = context.div_ceil(PAGE);
        let pages = pages_per_sequence.saturating_mul(sequences);
        let limits = BatchLimits { vocabulary: config.vocab, sequences, pages_per_sequence, pages };
        let mut batch = TokenBatch::with_capacity(backend, chunk, limits)?;
        // Every sequence has pages of its own.
        let own: Vec<u32> = (0..pages as u32).collect();
        batch.set_pages(backend, &own)?;
        let kept = model
            .blocks
            .iter()
            .map(|block| Kept::new(backend, &block.mixer, sequences, pages))
            .collect::<Result<_>>()?;
        let tables = model
            .turns
            .iter()
            .map(|turn| TurnTable::new(backend, turn, context))
            .collect::<Result<_>>()?;
        let values = |n: usize| -> Result<Buffer<f32>> {
            let all = n.checked_mul(chunk);
            backend.alloc(all.ok_or_else(|| Error::invalid("chunk", chunk, "less"))?)
        };
        let needs = model.blocks.iter().map(|block| block.mixer.needs());
        let needs = needs.fold(Needs::default(), Needs::max);
        let [a, b, c, d, e, f] = needs.rows.map(values);
        let ffns: Vec<_> = model.blocks.iter().map(|block| &block.ffn).collect();
        let ffn = FfnSpace::new(backend, &ffns, width, &space)?;
        Ok(Self {
            space,
            texts: vec![Vec::new(); sequences],
            latest: vec![Vec::new(); sequences],
            batch,
            kept,
            tables,
            mixing: MixerSpace {
                acts: Acts::new(backend, chunk, width.max(needs.input))?,
                rows: [a?, b?, c?, d?, e?, f?],
            },
            ffn,
            head: Acts::new(backend, chunk, width)?,
            x: values(width)?,
            normed: values(width)?,
            branch: values(width)?,
            last: values(width)?,
            logits: backend.alloc(0)?,
        })
    }

    /// Tokens of a sequence; 0 for one that there is not.
    pub fn len(&self, sequence: usize) -> usize {
        self.texts.get(sequence).map_or(0, Vec::len)
    }

    /// Whether no sequence has a token.
    pub fn is_empty(&self) -> bool {
        self.texts.iter().all(Vec::is_empty)
    }

    /// The ids of a sequence's tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a sequence that there is not.
    pub fn tokens(&self, sequence: usize) -> Result<&[u32]> {
        let sequences = self.texts.len();
        let missing = || Error::invalid("sequence", sequence, format!("less than {sequences}"));
        self.texts.get(sequence).map(Vec::as_slice).ok_or_else(missing)
    }

    /// The logits behind a sequence's last token, if they were asked for.
    pub fn logits(&self, sequence: usize) -> Option<&[f32]> {
        self.latest.get(sequence).map(Vec::as_slice).filter(|logits| !logits.is_empty())
    }

    /// How it was set up.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Keeps the first `tokens` tokens of a sequence: what comes next is as if there had been no
    /// others.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a sequence that there is not, or that is shorter; and for a part of
    /// one where a block keeps a state of all tokens, not of each: there, all or none can be kept.
    pub fn truncate(&mut self, sequence: usize, tokens: usize) -> Result<()> {
        let length = self.tokens(sequence)?.len();
        if tokens > length {
            return Err(Error::invalid("tokens to keep", tokens, format!("at most {length}")));
        }
        if self.kept_from(sequence, tokens)? != tokens {
            let expected = format!("0 or {length}, as a block has a state of all tokens");
            return Err(Error::invalid("tokens to keep", tokens, expected));
        }
        if tokens < length {
            self.texts[sequence].truncate(tokens);
            self.latest[sequence].clear();
        }
        Ok(())
    }

    /// The most tokens, of at most `tokens`, that a sequence can be cut back to.
    fn kept_from(&self, sequence: usize, tokens: usize) -> Result<usize> {
        let whole = self.kept.iter().any(|kept| !kept.states.is_empty());
        let all = self.tokens(sequence)?.len();
        Ok(if whole && tokens < all { 0 } else { tokens })
    }

    /// Keeps what a sequence has in common with the beginning of `ids`, and returns how many tokens
    /// that is; the rest of `ids` can then be appended. The last of `ids` is never kept: its logits
    /// are what somebody wants who asks for this.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a sequence that there is not.
    pub fn reuse(&mut self, sequence: usize, ids: &[u32]) -> Result<usize> {
        let own = self.tokens(sequence)?.iter();
        let common = own.zip(ids).take_while(|(own, given)| own == given).count();
        let kept = self.kept_from(sequence, common.min(ids.len().saturating_sub(1)))?;
        self.truncate(sequence, kept)?;
        Ok(kept)
    }

    /// Where a sequence's first pages are in a cache with pages of `bytes` bytes.
    pub(crate) fn pages_of(&self, sequence: usize, tokens: usize, bytes: usize) -> Range<usize> {
        let first = sequence * self.space.context.div_ceil(PAGE);
        first * bytes..(first + tokens.div_ceil(PAGE)) * bytes
    }

    /// Makes a sequence one of these tokens, whose keys and values are there.
    pub(crate) fn set(&mut self, sequence: usize, ids: Vec<u32>, logits: Vec<f32>) {
        self.texts[sequence] = ids;
        self.latest[sequence] = logits;
    }

    /// Appends tokens to their sequences, in order, and returns the logits of those that want
    /// them, in order: each [`Config::vocab`](crate::config::Config::vocab) values.
    ///
    /// # Errors
    /// [`Error::Invalid`] before anything is computed: for an id past the vocabulary, a sequence
    /// that there is not, more tokens than the context has room for. After an error of the backend
    /// the sequences hold an unspecified part of the tokens' keys and values, and their lengths
    /// are those of before.
    pub fn append(
        &mut self,
        backend: &dyn Backend,
        model: &Model,
        tokens: &[Token],
    ) -> Result<Vec<Vec<f32>>> {
        let mut lengths: Vec<usize> = self.texts.iter().map(Vec::len).collect();
        let mut positions = Vec::with_capacity(tokens.len());
        for (at, token) in tokens.iter().enumerate() {
            let sequences = lengths.len();
            let length = lengths.get_mut(token.sequence).ok_or_else(|| {
                let what = format!("token {at}: sequence");
                Error::invalid(what, token.sequence, format!("less than {sequences}"))
            })?;
            if *length >= self.space.context {
                let what = format!("tokens of sequence {}", token.sequence);
                let most = format!("at most {}, the context", self.space.context);
                return Err(Error::invalid(what, *length + 1, most));
            }
            if token.id as usize >= model.config.vocab {
                let most = format!("less than {}, the vocabulary", model.config.vocab);
                return Err(Error::invalid(format!("token {at}: id"), token.id, most));
            }
            positions.push(*length as u32);
            *length += 1;
        }
        let mut logits = Vec::new();
        let chunks = tokens.chunks(self.space.chunk).zip(positions.chunks(self.space.chunk));
        for (tokens, positions) in chunks {
            self.chunk(backend, model, tokens, positions, &mut logits)?;
        }
        self.remember(tokens, &logits);
        Ok(logits)
    }

    /// Tokens that were appended, and the logits of those that wanted them.
    fn remember(&mut self, tokens: &[Token], logits: &[Vec<f32>]) {
        let mut last = vec![None; self.texts.len()];
        let mut rows = logits.iter();
        for token in tokens {
            self.texts[token.sequence].push(token.id);
            last[token.sequence] = Some(if token.logits { rows.next() } else { None });
        }
        for (latest, last) in self.latest.iter_mut().zip(last) {
            if let Some(row) = last {
                latest.clear();
                latest.extend(row.into_iter().flatten());
            }
        }
    }

    fn chunk(
        &mut self,
        backend: &dyn Backend,
        model: &Model,
        tokens: &[Token],
        positions: &[u32],
        logits: &mut Vec<Vec<f32>>,
    ) -> Result<()> {
        let (count, width) = (tokens.len(), model.config.width);
        let ids: Vec<u32> = tokens.iter().map(|token| token.id).collect();
        let sequences: Vec<u32> = tokens.iter().map(|token| token.sequence as u32).collect();
        self.batch.set(backend, &ids, &sequences, positions)?;
        let x = MatrixMut::dense("embedded", &mut self.x, count, width)?;
        let scale = model.config.embedding_scale;
        Embed::new(model.embedding.table()?, &self.batch, scale, x)?.launch(backend)?;
        for (no, block) in model.blocks.iter().enumerate() {
            self.block(backend, model, no, block, count)?;
        }
        self.head(backend, model, tokens, logits)
    }

    /// One block; `x` holds the tokens, before and after.
    fn block(
        &mut self,
        backend: &dyn Backend,
        model: &Model,
        no: usize,
        block: &Block,
        count: usize,
    ) -> Result<()> {
        let (width, eps) = (model.config.width, model.config.eps);
        let Self { x, normed, branch, batch, tables, kept, mixing, ffn, .. } = self;
        let values = Matrix::dense("tokens", &*x, count, width)?;
        let to = MatrixMut::dense("normed", &mut *normed, count, width)?;
        block.mixer_norm.apply(backend, values, eps, to)?;
        let input = Matrix::dense("normed", &*normed, count, width)?;
        let to = MatrixMut::dense("mixed", &mut *branch, count, width)?;
        let step = Step { backend, eps, batch, tables };
        block.mixer.apply(&step, input, &mut kept[no], mixing, to)?;
        finish(
            backend,
            block.mixer_post_norm.as_ref(),
            block.residual_scale,
            eps,
            branch,
            normed,
            [count, width],
        )?;

        let values = MatrixMut::dense("tokens", &mut *x, count, width)?;
        let y = Matrix::dense("branch", &*branch, count, width)?;
        let to = MatrixMut::dense("normed", &mut *normed, count, width)?;
        block.ffn_norm.add_and_apply(backend, values, y, eps, to)?;
        let input = Matrix::dense("normed", &*normed, count, width)?;
        let to = MatrixMut::dense("feed-forward", &mut *branch, count, width)?;
        block.ffn.apply(backend, input, ffn, to)?;
        finish(
            backend,
            block.ffn_post_norm.as_ref(),
            block.residual_scale,
            eps,
            branch,
            normed,
            [count, width],
        )?;
        let values = MatrixMut::dense("tokens", &mut *x, count, width)?;
        let y = Matrix::dense("branch", &*branch, count, width)?;
        Pointwise::new(values, By::Add(y))?.launch(backend)
    }

    /// The logits of the tokens of a chunk that want them.
    fn head(
        &mut self,
        backend: &dyn Backend,
        model: &Model,
        tokens: &[Token],
        logits: &mut Vec<Vec<f32>>,
    ) -> Result<()> {
        let (width, vocab, eps) = (model.config.width, model.config.vocab, model.config.eps);
        let wanted: Vec<usize> = (0..tokens.len()).filter(|&at| tokens[at].logits).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for (to, &from) in wanted.iter().enumerate() {
            let row = self.x.slice(from * width..(from + 1) * width)?;
            backend.copy(self.last.slice_mut(to * width..(to + 1) * width)?, row)?;
        }
        let rows = wanted.len();
        if self.logits.len() < rows * vocab {
            self.logits = backend.alloc(rows * vocab)?;
        }
        let last = Matrix::dense("last tokens", &self.last, rows, width)?;
        let to = MatrixMut::dense("normed", &mut self.normed, rows, width)?;
        model.output_norm.apply(backend, last, eps, to)?;
        self.head.begin();
        let normed = Matrix::dense("normed", &self.normed, rows, width)?;
        let to = MatrixMut::dense("logits", &mut self.logits, rows, vocab)?;
        model.head.apply(backend, normed, &mut self.head, to)?;
        let config = &model.config;
        let steps = [
            config.logit_divisor.map(|divisor| By::Scale(1.0 / divisor)),
            config.logit_scale.map(By::Scale),
            config.logit_softcap.map(By::Softcap),
        ];
        for by in steps.into_iter().flatten() {
            let to = MatrixMut::dense("logits", &mut self.logits, rows, vocab)?;
            Pointwise::new(to, by)?.launch(backend)?;
        }
        let all = backend.download(self.logits.slice(..rows * vocab)?)?;
        logits.extend(all.chunks_exact(vocab).map(<[f32]>::to_vec));
        Ok(())
    }
}

/// What is done to a branch before it is added: its norm and its scale.
fn finish(
    backend: &dyn Backend,
    norm: Option<&NormWeights>,
    scale: Option<f32>,
    eps: f32,
    branch: &mut Buffer<f32>,
    other: &mut Buffer<f32>,
    [count, width]: [usize; 2],
) -> Result<()> {
    if let Some(norm) = norm {
        let from = Matrix::dense("branch", &*branch, count, width)?;
        let to = MatrixMut::dense("normed branch", &mut *other, count, width)?;
        norm.apply(backend, from, eps, to)?;
        std::mem::swap(branch, other);
    }
    match scale {
        Some(scale) => {
            let to = MatrixMut::dense("branch", branch, count, width)?;
            Pointwise::new(to, By::Scale(scale))?.launch(backend)
        }
        None => Ok(()),
    }
}
