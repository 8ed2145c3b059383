//! Layers that keep a state of each sequence.

use strata_core::backend::ops::{Convolve, DeltaInputs, DeltaNet, DeltaShape, KeyHeads};
use strata_core::backend::{Backend, BatchLimits, States, TokenBatch};
use strata_core::{Result, reference};

use super::InMatrix;
use crate::output::Shape;
use crate::poisoned::{OutMatrix, POISON};
use crate::values::Values;
use crate::{Op, Output, Outputs, Stage, Stop};

/// A layer, and what is its own of its shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RecurrentStep {
    /// A convolution of so many columns with so many taps, with SiLU or without.
    Convolve(usize, usize, bool),
    /// A gated delta net.
    DeltaNet(DeltaShape),
}

/// Several sequences, read in chunks whose tokens take turns; the yardstick reads them whole.
#[derive(Debug, Clone, Copy)]
pub struct RecurrentCase {
    /// The layer.
    pub step: RecurrentStep,
    /// Tokens of each sequence.
    pub lens: &'static [u32],
    /// Tokens of a sequence in one call, 0 for all; several sequences go together.
    pub chunk: u32,
    /// What the tokens hold.
    pub values: Values,
    /// Values between rows of every matrix.
    pub gap: usize,
}

impl std::fmt::Display for RecurrentCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, lens, chunk, values, gap } = self;
        match step {
            RecurrentStep::Convolve(cols, taps, silu) => {
                let silu = if *silu { ",silu" } else { "" };
                write!(f, "convolution/cols={cols},taps={taps}{silu}")?;
            }
            RecurrentStep::DeltaNet(shape) => {
                let DeltaShape { key_heads, value_heads, key, value, order, .. } = shape;
                let modulo = if *order == KeyHeads::Modulo { ",modulo" } else { "" };
                write!(f, "delta-net/heads={value_heads}:{key_heads},size={key}:{value}{modulo}")?;
            }
        }
        let lens: Vec<String> = lens.iter().map(u32::to_string).collect();
        write!(f, "/T={}", lens.join("+"))?;
        if *chunk > 0 {
            write!(f, "/chunk={chunk}")?;
        }
        if *gap > 0 {
            write!(f, "/gap={gap}")?;
        }
        write!(f, "/{values}")
    }
}

impl RecurrentStep {
    fn sizes(&self) -> (usize, usize) {
        match *self {
            Self::Convolve(cols, taps, _) => (cols, (taps - 1) * cols),
            Self::DeltaNet(shape) => {
                (shape.value_heads * shape.value, shape.state().expect("small"))
            }
        }
    }
}

impl RecurrentCase {
    /// The rows that are asked for of `cols` values for each token of all sequences.
    fn part(
        &self,
        backend: &dyn Backend,
        rows: &[usize],
        seed: u64,
        cols: usize,
        head: Option<usize>,
    ) -> Result<InMatrix> {
        let total = self.lens.iter().map(|len| *len as usize).sum();
        let all = self.values.fill(seed, total, cols);
        let picked = rows.iter().flat_map(|row| &all[row * cols..][..cols]).copied();
        let mut picked: Vec<f32> = picked.collect();
        if let Some(head) = head {
            // As long as 1: a state that keys of any length are written to has no bounds.
            let heads = picked.chunks_exact(head);
            picked = heads.flat_map(|head| reference::l2_norm(head, 1e-6)).collect();
        }
        InMatrix::new(backend, &picked, rows.len(), cols, self.gap, 0)
    }

    /// One call: the rows of a batch.
    fn call(
        &self,
        backend: &dyn Backend,
        batch: &TokenBatch,
        rows: &[usize],
        states: &mut States,
        out: &mut OutMatrix,
    ) -> Result<()> {
        let weights = |seed, n| Values::Normal.fill(seed, 1, n);
        match self.step {
            RecurrentStep::Convolve(cols, taps, silu) => {
                let x = self.part(backend, rows, 1, cols, None)?;
                let weights = weights(2, cols * taps);
                let taps = InMatrix::new(backend, &weights, cols, taps, self.gap, 0)?;
                let (x, taps) = (x.view()?, taps.view()?);
                Convolve::new(x, taps, silu, batch, states, out.view()?)?.launch(backend)
            }
            RecurrentStep::DeltaNet(shape) => {
                let part = |seed, cols, head| self.part(backend, rows, seed, cols, head);
                let (keys, heads) = (shape.key_heads * shape.key, shape.value_heads);
                let queries = part(1, keys, Some(shape.key))?;
                let key = part(2, keys, Some(shape.key))?;
                let values = part(3, heads * shape.value, None)?;
                let (beta, alpha) = (part(4, heads, None)?, part(5, heads, None)?);
                let bias = backend.from_slice(&weights(6, heads))?;
                let decay: Vec<f32> = weights(7, heads).iter().map(|x| -x.abs()).collect();
                let decay = backend.from_slice(&decay)?;
                let inputs = DeltaInputs {
                    queries: queries.view()?,
                    keys: key.view()?,
                    values: values.view()?,
                    beta: beta.view()?,
                    alpha: alpha.view()?,
                    decay_bias: bias.view(),
                    decay: decay.view(),
                };
                DeltaNet::new(shape, inputs, batch, states, out.view()?)?.launch(backend)
            }
        }
    }
}

impl Op for RecurrentCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { step, lens, gap, .. } = *self;
        let longest = lens.iter().copied().max().unwrap_or(1);
        let (sequences, blocks) = (lens.len(), longest.div_ceil(64) as usize);
        let pages = blocks * sequences;
        let limits = BatchLimits { vocabulary: 1, sequences, pages_per_sequence: blocks, pages };
        let total = lens.iter().map(|len| *len as usize).sum();
        let mut batch = TokenBatch::with_capacity(backend, total, limits)?;
        batch.set_pages(backend, &Vec::from_iter(0..pages as u32))?;
        let (cols, each) = step.sizes();
        // One state more than there are sequences: nobody touches it.
        let mut states = States::new(backend, each, sequences + 1)?;

        let chunk = if stage.plain || self.chunk == 0 { longest } else { self.chunk };
        let mut outputs: Vec<Option<Vec<u8>>> = vec![None; total];
        let first_row = |s: usize| lens[..s].iter().sum::<u32>() as usize;
        for start in (0..longest).step_by(chunk as usize) {
            let (mut owners, mut positions, mut rows) = (vec![], vec![], vec![]);
            for position in start..longest.min(start + chunk) {
                for (s, _) in lens.iter().enumerate().filter(|(_, len)| position < **len) {
                    owners.push(s as u32);
                    positions.push(position);
                    rows.push(first_row(s) + position as usize);
                }
            }
            let n = rows.len();
            batch.set(backend, &vec![0; n], &owners, &positions)?;
            let mut out = OutMatrix::new(backend, n, cols, cols + gap, 0)?;
            self.call(backend, &batch, &rows, &mut states, &mut out)?;
            let read = out.read(backend, "output")?;
            let Shape::Matrix { start, stride, .. } = read.shape else { unreachable!("a matrix") };
            for (i, row) in rows.iter().enumerate() {
                let at = start + 4 * i * stride;
                outputs[*row] = Some(read.bytes[at..at + 4 * stride].to_vec());
            }
            let end = start + 4 * n * stride;
            let outside = read.bytes[..start].iter().chain(&read.bytes[end..]);
            if outside.clone().any(|byte| *byte != POISON) {
                return Err(Stop::Differs("it wrote outside its rows".into()));
            }
        }
        for (s, len) in lens.iter().enumerate() {
            if states.length(s) != Some(*len) {
                let given = states.length(s);
                return Err(Stop::Differs(format!("state {s} is of {given:?}, not of {len}")));
            }
        }
        let bytes: Vec<u8> = outputs.into_iter().flatten().flatten().collect();
        let shape = Shape::Matrix { start: 0, rows: total, cols, stride: cols + gap };
        let output = Output { what: "output".into(), bytes, shape, expected: None };
        let states: &[f32] = &backend.download(states.data())?;
        let bytes: Vec<u8> = states.iter().flat_map(|x| x.to_le_bytes()).collect();
        let shape = Shape::Matrix { start: 0, rows: sequences, cols: each, stride: each };
        let states = Output { what: "states".into(), bytes, shape, expected: None };
        Ok(vec![output, states])
    }
}
