//! Attention of one block: queries, keys and values, their rotation, the cache, the output.

use strata_core::attention::{AttentionShape, Pairs, Reach};
use strata_core::backend::ops::{
    AppendKv, Attend, By, Matrix, MatrixMut, Norm, NormKind, Pointwise, Rope,
};
use strata_core::backend::{Backend, Buffer, KvCache, TokenBatch};
use strata_core::{Error, Result};

use crate::config::{self, Gate, Mask, Pairing, Qkv};
use crate::load::{Acts, Linear, Loader};

/// Attention on a device.
pub(crate) struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    gate: Option<Linear>,
    norms: Option<QkNorm>,
    sinks: Option<Buffer<f32>>,
    shape: AttentionShape,
    value_scale: Option<f32>,
    /// Which of the model's tables turn queries and keys.
    rope: Option<usize>,
    pairs: Pairs,
}

struct QkNorm {
    weights: Option<[Buffer<f32>; 2]>,
    whole: bool,
    after_rope: bool,
}

/// Cosines and sines of all positions.
pub(crate) struct RopeTable {
    pub rope: config::Rope,
    pub cos: Buffer<f32>,
    pub sin: Buffer<f32>,
    pub positions: usize,
}

impl RopeTable {
    /// The rows of `positions` positions, from 0.
    pub fn new(backend: &dyn Backend, rope: &config::Rope, positions: usize) -> Result<Self> {
        let half = rope.dims / 2;
        let mut tables = [Vec::new(), Vec::new()];
        for table in &mut tables {
            table.reserve_exact(positions * half);
        }
        for position in 0..positions {
            let (cos, sin) = rope.table(position);
            tables[0].extend(cos);
            tables[1].extend(sin);
        }
        let [cos, sin] = tables;
        let (cos, sin) = (backend.from_slice(&cos)?, backend.from_slice(&sin)?);
        Ok(Self { rope: rope.clone(), cos, sin, positions })
    }
}

/// Memory that attention works in.
pub(crate) struct AttentionSpace {
    pub acts: Acts,
    pub rows: [Buffer<f32>; 6],
}

/// Values of a token in each of the buffers: queries, the same normed, keys, the same normed,
/// values, output.
pub(crate) fn widths(attention: &Attention) -> [usize; 6] {
    let AttentionShape { heads, kv_heads, key, value, .. } = attention.shape;
    let (q, k, v) = (heads * key, kv_heads * key, kv_heads * value);
    [q, q, k, k, v, heads * value]
}

impl Attention {
    /// `tables` takes the rotation, if no block before had the same.
    pub fn load(
        loader: &mut Loader<'_>,
        block: usize,
        config: &config::Attention,
        tables: &mut Vec<config::Rope>,
    ) -> Result<Self> {
        let not_yet = |what: &str| {
            Error::invalid(format!("block {block}"), what, "attention that this version computes")
        };
        if matches!(config.gate, Some(Gate::Interleaved)) {
            return Err(not_yet("gates between queries"));
        }
        if config.temperature.is_some() {
            return Err(not_yet("a temperature by position"));
        }
        let key_rows = config.kv_heads * config.key_size;
        let value_rows = config.kv_heads * config.value_size;
        let sizes = [config.heads * config.key_size, key_rows, value_rows];
        let [query, key, value] = match &config.qkv {
            Qkv::Split { query, key, value } => {
                [loader.linear(query)?, loader.linear(key)?, loader.linear(value)?]
            }
            Qkv::Fused(all) => loader.parts(all, sizes)?,
        };
        let shape = AttentionShape {
            heads: config.heads,
            kv_heads: config.kv_heads,
            key: config.key_size,
            value: config.value_size,
            scale: config.scale,
            softcap: config.softcap,
            reach: match config.mask {
                Mask::Full => Reach::All,
                Mask::Sliding { window } => Reach::Window(short("window", window)?),
                Mask::Chunked { chunk } => Reach::Chunk(short("chunk", chunk)?),
            },
        };
        shape.check()?;
        let rope = config.rope.as_ref().map(|rope| {
            tables.iter().position(|known| known == rope).unwrap_or_else(|| {
                tables.push(rope.clone());
                tables.len() - 1
            })
        });
        let pairing = config.rope.as_ref().map(|rope| rope.pairing);
        Ok(Self {
            query,
            key,
            value,
            output: loader.linear(&config.output)?,
            gate: match &config.gate {
                Some(Gate::Projection(gate)) => Some(loader.linear(gate)?),
                _ => None,
            },
            norms: match &config.qk_norm {
                None => None,
                Some(norm) => Some(QkNorm {
                    weights: match &norm.weights {
                        None => None,
                        Some([q, k]) => Some([loader.vector(q)?, loader.vector(k)?]),
                    },
                    whole: norm.whole,
                    after_rope: norm.after_rope,
                }),
            },
            sinks: config.sinks.as_deref().map(|name| loader.vector(name)).transpose()?,
            shape,
            value_scale: config.value_scale,
            rope,
            pairs: match pairing {
                Some(Pairing::Interleaved) => Pairs::Interleaved,
                _ => Pairs::Halves,
            },
        })
    }

    /// The numbers of its attention.
    pub fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// `out`: as `x`, the normed input.
    #[allow(clippy::too_many_arguments)] // one per thing that a block of a session has
    pub fn apply(
        &self,
        backend: &dyn Backend,
        x: Matrix<'_>,
        eps: f32,
        batch: &TokenBatch,
        tables: &[RopeTable],
        cache: &mut KvCache,
        space: &mut AttentionSpace,
        out: MatrixMut<'_>,
    ) -> Result<()> {
        let AttentionSpace { acts, rows } = space;
        let tokens = x.rows();
        let [q, q_normed, k, k_normed, v, attended] = rows;
        acts.begin();
        for (linear, to) in [(&self.query, &mut *q), (&self.key, &mut *k), (&self.value, &mut *v)] {
            let to = MatrixMut::dense("qkv", &mut *to, tokens, linear.rows())?;
            linear.apply(backend, x, acts, to)?;
        }
        let (q_cols, k_cols) = (self.query.rows(), self.key.rows());
        let turn = |x: &mut Buffer<f32>, cols: usize| -> Result<()> {
            let Some(table) = self.rope.and_then(|at| tables.get(at)) else { return Ok(()) };
            let RopeTable { rope, cos, sin, positions } = table;
            let cos = Matrix::dense("cosines", cos, *positions, rope.dims / 2)?;
            let sin = Matrix::dense("sines", sin, *positions, rope.dims / 2)?;
            let x = MatrixMut::dense("heads", x, tokens, cols)?;
            Rope::new(x, self.shape.key, cos, sin, self.pairs, batch)?.launch(backend)
        };
        let norms = self.norms.as_ref();
        if norms.is_none_or(|norms| norms.after_rope) {
            turn(q, q_cols)?;
            turn(k, k_cols)?;
        }
        if let Some(norms) = norms {
            let sides = [(&mut *q, &mut *q_normed, q_cols), (&mut *k, &mut *k_normed, k_cols)];
            for (at, (from, to, cols)) in sides.into_iter().enumerate() {
                let weight = norms.weights.as_ref().map(|weights| weights[at].view());
                let group = if norms.whole { cols } else { self.shape.key };
                let from = Matrix::dense("heads", &*from, tokens, cols)?;
                let to = MatrixMut::dense("normed heads", to, tokens, cols)?;
                Norm::new(from, NormKind::Rms(weight), group, eps, to)?.launch(backend)?;
            }
            if !norms.after_rope {
                turn(q_normed, q_cols)?;
                turn(k_normed, k_cols)?;
            }
        }
        let (q, k) = if norms.is_some() { (&*q_normed, &*k_normed) } else { (&*q, &*k) };
        let keys = Matrix::dense("keys", k, tokens, k_cols)?;
        let values = Matrix::dense("values", &*v, tokens, self.value.rows())?;
        AppendKv::new(keys, values, batch, cache)?.launch(backend)?;
        let queries = Matrix::dense("queries", q, tokens, q_cols)?;
        let cols = self.shape.heads * self.shape.value;
        let sinks = self.sinks.as_ref().map(Buffer::view);
        let to = MatrixMut::dense("attended", &mut *attended, tokens, cols)?;
        Attend::new(self.shape, queries, sinks, batch, cache, to)?.launch(backend)?;
        if let Some(scale) = self.value_scale {
            let to = MatrixMut::dense("attended", &mut *attended, tokens, cols)?;
            Pointwise::new(to, By::Scale(scale))?.launch(backend)?;
        }
        if let Some(gate) = &self.gate {
            // The gate is as wide as the output; the values were used.
            let to = MatrixMut::dense("gates", &mut *q_normed, tokens, gate.rows())?;
            gate.apply(backend, x, acts, to)?;
            let gates = Matrix::dense("gates", &*q_normed, tokens, gate.rows())?;
            let to = MatrixMut::dense("attended", &mut *attended, tokens, cols)?;
            Pointwise::new(to, By::SigmoidGate(gates))?.launch(backend)?;
        }
        acts.begin();
        let attended = Matrix::dense("attended", &*attended, tokens, cols)?;
        self.output.apply(backend, attended, acts, out)
    }
}

fn short(what: &str, value: usize) -> Result<u32> {
    u32::try_from(value).map_err(|_| Error::invalid(what, value, "below 2^32"))
}
