//! Layers that keep a state of each sequence: short convolutions, gated delta nets.

use std::ops::Range;

use strata_core::backend::ops::{
    By, Convolve, DeltaInputs, DeltaShape, KeyHeads, Matrix, MatrixMut, Norm, NormKind, Pointwise,
};
use strata_core::backend::{Buffer, States};
use strata_core::{Error, Result};

use crate::config::{self, DeltaInput, DeltaRates, Projection};
use crate::load::{Linear, Loader, NormWeights};
use crate::mixer::{MixerSpace, Needs, Step};

/// `out(c * conv(b * x))`.
pub(crate) struct ShortConv {
    /// b, c, x.
    input: [Linear; 3],
    taps: Buffer<f32>,
    kernel: usize,
    output: Linear,
}

impl ShortConv {
    pub fn load(loader: &mut Loader<'_>, config: &config::ShortConv) -> Result<Self> {
        let width = config.output.cols;
        Ok(Self {
            input: loader.parts(&config.input, [width; 3])?,
            taps: loader.vector(&config.conv)?,
            kernel: config.kernel,
            output: loader.linear(&config.output)?,
        })
    }

    /// Values of a sequence's state.
    pub fn state(&self) -> usize {
        (self.kernel - 1) * self.input[0].rows()
    }

    /// b, c, x, the convolution.
    pub fn needs(&self) -> Needs {
        let width = self.input[0].rows();
        Needs { rows: [width, width, width, width, 0, 0], input: width }
    }

    pub fn apply(
        &self,
        step: &Step<'_>,
        x: Matrix<'_>,
        states: &mut States,
        space: &mut MixerSpace,
        out: MatrixMut<'_>,
    ) -> Result<()> {
        let (backend, tokens, width) = (step.backend, x.rows(), self.input[0].rows());
        let MixerSpace { acts, rows: [b, c, u, y, ..] } = space;
        acts.begin();
        for (linear, to) in self.input.iter().zip([&mut *b, &mut *c, &mut *u]) {
            let to = MatrixMut::dense("input", to, tokens, width)?;
            linear.apply(backend, x, acts, to)?;
        }
        let times = |x: &mut Buffer<f32>, by: &Buffer<f32>| -> Result<()> {
            let by = Matrix::dense("factors", by, tokens, width)?;
            let x = MatrixMut::dense("values", x, tokens, width)?;
            Pointwise::new(x, By::Multiply(by))?.launch(backend)
        };
        times(u, b)?;
        let from = Matrix::dense("values", &*u, tokens, width)?;
        let taps = Matrix::dense("taps", &self.taps, width, self.kernel)?;
        let to = MatrixMut::dense("convolution", &mut *y, tokens, width)?;
        Convolve::new(from, taps, false, step.batch, states, to)?.launch(backend)?;
        times(y, c)?;
        acts.begin();
        let y = Matrix::dense("convolution", &*y, tokens, width)?;
        self.output.apply(backend, y, acts, out)
    }
}

/// A gated delta net behind a convolution.
pub(crate) struct DeltaNet {
    /// Queries, keys, values of all heads.
    qkv: Linear,
    gate: Linear,
    beta: Linear,
    alpha: Linear,
    taps: Buffer<f32>,
    kernel: usize,
    decay_bias: Buffer<f32>,
    decay: Buffer<f32>,
    norm: NormWeights,
    output: Linear,
    shape: DeltaShape,
}

impl DeltaNet {
    pub fn load(loader: &mut Loader<'_>, config: &config::DeltaNet) -> Result<Self> {
        let config::DeltaNet { key_heads, value_heads, key_size, value_size, kernel, .. } = *config;
        let shape = DeltaShape {
            key_heads,
            value_heads,
            key: key_size,
            value: value_size,
            order: if config.modulo { KeyHeads::Modulo } else { KeyHeads::Grouped },
            scale: 1.0 / (key_size as f32).sqrt(),
        };
        shape.check()?;
        // Rows of a head of keys that lie one after the other in a matrix of all, to those of each kind.
        let apart =
            |loader: &mut Loader<'_>, all: &Projection, of: &[usize], kinds: &[&[usize]]| {
                let each: usize = of.iter().sum();
                let rows = kinds.iter().map(|kind| {
                    let places = kind.iter().flat_map(|&part| {
                        let (start, len) = (of[..part].iter().sum::<usize>(), of[part]);
                        (0..key_heads).map(move |head| {
                            let first = head * each + start;
                            first..first + len
                        })
                    });
                    places.collect::<Vec<Range<usize>>>()
                });
                loader.gathered(all, rows.collect())
            };
        let missing = || Error::invalid("parts", "none", "as many as were asked for");
        let two = |mut parts: Vec<Linear>| -> Result<[Linear; 2]> {
            let second = parts.pop().ok_or_else(missing)?;
            Ok([parts.pop().ok_or_else(missing)?, second])
        };
        let group = value_heads / key_heads;
        let [qkv, gate] = match &config.input {
            DeltaInput::Split { qkv, gate } => [loader.linear(qkv)?, loader.linear(gate)?],
            DeltaInput::Interleaved(all) => {
                let of = [key_size, key_size, group * value_size, group * value_size];
                two(apart(loader, all, &of, &[&[0, 1, 2], &[3]])?)?
            }
        };
        let [beta, alpha] = match &config.rates {
            DeltaRates::Split { beta, alpha } => [loader.linear(beta)?, loader.linear(alpha)?],
            DeltaRates::Interleaved(all) => {
                two(apart(loader, all, &[group, group], &[&[0], &[1]])?)?
            }
        };
        Ok(Self {
            qkv,
            gate,
            beta,
            alpha,
            taps: loader.vector(&config.conv)?,
            kernel,
            decay_bias: loader.vector(&config.decay_bias)?,
            decay: loader.vector(&config.decay)?,
            norm: loader.norm(&config.norm)?,
            output: loader.linear(&config.output)?,
            shape,
        })
    }

    /// Values of a sequence's states: of the convolution, of the net.
    pub fn states(&self) -> [usize; 2] {
        let DeltaShape { value_heads, key, value, .. } = self.shape;
        [(self.kernel - 1) * self.qkv.rows(), value_heads * key * value]
    }

    /// Queries, keys and values, then the rates; the same behind the convolution, then the output
    /// normed; normed queries; normed keys; gates; the output.
    pub fn needs(&self) -> Needs {
        let DeltaShape { key_heads, value_heads, key, value, .. } = self.shape;
        let (channels, keys, values) = (self.qkv.rows(), key_heads * key, value_heads * value);
        let rows = [channels.max(2 * value_heads), channels, keys, keys, values, values];
        Needs { rows, input: values }
    }

    pub fn apply(
        &self,
        step: &Step<'_>,
        x: Matrix<'_>,
        [conv_states, net_states]: [&mut States; 2],
        space: &mut MixerSpace,
        out: MatrixMut<'_>,
    ) -> Result<()> {
        let (backend, tokens, channels) = (step.backend, x.rows(), self.qkv.rows());
        let DeltaShape { key_heads, value_heads, key, value, .. } = self.shape;
        let (keys, values) = (key_heads * key, value_heads * value);
        let MixerSpace { acts, rows: [qkv, convolved, q, k, z, answers] } = space;
        acts.begin();
        let to = MatrixMut::dense("qkv", &mut *qkv, tokens, channels)?;
        self.qkv.apply(backend, x, acts, to)?;
        let to = MatrixMut::dense("gates", &mut *z, tokens, values)?;
        self.gate.apply(backend, x, acts, to)?;

        let from = Matrix::dense("qkv", &*qkv, tokens, channels)?;
        let taps = Matrix::dense("taps", &self.taps, channels, self.kernel)?;
        let to = MatrixMut::dense("convolution", &mut *convolved, tokens, channels)?;
        Convolve::new(from, taps, true, step.batch, conv_states, to)?.launch(backend)?;

        let rates = value_heads * tokens;
        for (at, linear) in [&self.beta, &self.alpha].into_iter().enumerate() {
            let to = qkv.slice_mut(at * rates..(at + 1) * rates)?;
            let to = MatrixMut::dense("rates", to, tokens, value_heads)?;
            linear.apply(backend, x, acts, to)?;
        }
        for (at, to) in [&mut *q, &mut *k].into_iter().enumerate() {
            let from = convolved.slice(at * keys..tokens * channels)?;
            let from = Matrix::new("keys", from, tokens, keys, channels)?;
            let to = MatrixMut::dense("normed keys", to, tokens, keys)?;
            Norm::new(from, NormKind::L2, key, step.eps, to)?.launch(backend)?;
        }
        let rate = |at: usize| {
            let from = qkv.slice(at * rates..(at + 1) * rates)?;
            Matrix::dense("rates", from, tokens, value_heads)
        };
        let from = convolved.slice(2 * keys..tokens * channels)?;
        let inputs = DeltaInputs {
            queries: Matrix::dense("queries", &*q, tokens, keys)?,
            keys: Matrix::dense("keys", &*k, tokens, keys)?,
            values: Matrix::new("values", from, tokens, values, channels)?,
            beta: rate(0)?,
            alpha: rate(1)?,
            decay_bias: self.decay_bias.view(),
            decay: self.decay.view(),
        };
        let to = MatrixMut::dense("answers", &mut *answers, tokens, values)?;
        let net = strata_core::backend::ops::DeltaNet::new;
        net(self.shape, inputs, step.batch, net_states, to)?.launch(backend)?;

        let heads = tokens * value_heads;
        let from = Matrix::dense("answers", &*answers, heads, value)?;
        let to = MatrixMut::dense("normed answers", &mut *convolved, heads, value)?;
        self.norm.apply(backend, from, step.eps, to)?;
        let gates = Matrix::dense("gates", &*z, heads, value)?;
        let to = MatrixMut::dense("normed answers", &mut *convolved, heads, value)?;
        Pointwise::new(to, By::SiluGate(gates))?.launch(backend)?;
        acts.begin();
        let from = Matrix::dense("normed answers", &*convolved, tokens, values)?;
        self.output.apply(backend, from, acts, out)
    }
}
