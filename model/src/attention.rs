//! Attention of one block: queries, keys and values, their rotation, the cache, the output.

use strata_core::attention::{AttentionShape, Pairs, Reach};
use strata_core::backend::ops::{
    AppendKv, Attend, By, Matrix, MatrixMut, Norm, NormKind, Pointwise, Rope,
};
use strata_core::backend::{Backend, Buffer, KvCache, TokenBatch};
use strata_core::{Error, Result};

use crate::config::{self, Gate, Mask, Pairing, Qkv, Temperature};
use crate::load::{Linear, Loader};
use crate::mixer::{MixerSpace, Needs, Step};

/// Attention on a device.
pub(crate) struct Attention {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    gate: Option<Linear>,
    /// Whether the rows of `query` are a head's query, then its gate.
    interleaved: bool,
    norms: Option<QkNorm>,
    sinks: Option<Buffer<f32>>,
    shape: AttentionShape,
    value_scale: Option<f32>,
    /// Which of the model's tables turn queries and keys.
    rope: Option<usize>,
    /// Which of them multiplies queries.
    temperature: Option<usize>,
    pairs: Pairs,
}

struct QkNorm {
    weights: Option<[Buffer<f32>; 2]>,
    whole: bool,
    after_rope: bool,
}

/// What is done to heads by their position.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Turn {
    /// A rotation.
    Rope(config::Rope),
    /// A factor on all of a head's values, of so many pairs: a rotation by 0 of that magnitude.
    Temperature(Temperature, usize),
}

impl Turn {
    /// Values of a row of cosines.
    fn pairs(&self) -> usize {
        match self {
            Self::Rope(rope) => rope.dims / 2,
            Self::Temperature(_, pairs) => *pairs,
        }
    }

    fn row(&self, position: usize) -> (Vec<f32>, Vec<f32>) {
        match self {
            Self::Rope(rope) => rope.table(position),
            Self::Temperature(temperature, pairs) => {
                (vec![temperature.factor(position); *pairs], vec![0.0; *pairs])
            }
        }
    }
}

/// Cosines and sines of all positions.
pub(crate) struct TurnTable {
    pub turn: Turn,
    pub cos: Buffer<f32>,
    pub sin: Buffer<f32>,
    pub positions: usize,
}

impl TurnTable {
    /// The rows of `positions` positions, from 0.
    pub fn new(backend: &dyn Backend, turn: &Turn, positions: usize) -> Result<Self> {
        let mut tables = [Vec::new(), Vec::new()];
        for table in &mut tables {
            table.reserve_exact(positions * turn.pairs());
        }
        for position in 0..positions {
            let (cos, sin) = turn.row(position);
            tables[0].extend(cos);
            tables[1].extend(sin);
        }
        let [cos, sin] = tables;
        let (cos, sin) = (backend.from_slice(&cos)?, backend.from_slice(&sin)?);
        Ok(Self { turn: turn.clone(), cos, sin, positions })
    }

    /// Turns heads of `head` values in place.
    pub fn apply(
        &self,
        backend: &dyn Backend,
        x: MatrixMut<'_>,
        head: usize,
        pairs: Pairs,
        batch: &TokenBatch,
    ) -> Result<()> {
        let cos = Matrix::dense("cosines", &self.cos, self.positions, self.turn.pairs())?;
        let sin = Matrix::dense("sines", &self.sin, self.positions, self.turn.pairs())?;
        Rope::new(x, head, cos, sin, pairs, batch)?.launch(backend)
    }
}

/// The place of a turn in the model's list, where it is put if no block before had the same.
pub(crate) fn place(turns: &mut Vec<Turn>, turn: Turn) -> usize {
    turns.iter().position(|known| *known == turn).unwrap_or_else(|| {
        turns.push(turn);
        turns.len() - 1
    })
}

impl Attention {
    /// `turns` takes the rotation, if no block before had the same.
    pub fn load(
        loader: &mut Loader<'_>,
        config: &config::Attention,
        turns: &mut Vec<Turn>,
    ) -> Result<Self> {
        let interleaved = matches!(config.gate, Some(Gate::Interleaved));
        let head_norm = |norm: &config::QkNorm| !norm.whole && !norm.after_rope;
        if interleaved && !config.qk_norm.as_ref().is_some_and(head_norm) {
            let expected = "a norm of each head in front of the rotation";
            return Err(Error::invalid("gates between queries", "no such norm", expected));
        }
        if interleaved && config.value_size != config.key_size {
            let expected = format!("{}, as gates have", config.key_size);
            return Err(Error::invalid("values of a head", config.value_size, expected));
        }
        let each = if interleaved { 2 } else { 1 };
        let key_rows = config.kv_heads * config.key_size;
        let value_rows = config.kv_heads * config.value_size;
        let sizes = [each * config.heads * config.key_size, key_rows, value_rows];
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
        let rope = config.rope.as_ref().map(|rope| place(turns, Turn::Rope(rope.clone())));
        let half = config.key_size / 2;
        let temperature = config.temperature.map(|of| place(turns, Turn::Temperature(of, half)));
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
            interleaved,
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
            temperature,
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

    /// Queries (with their gates), the same normed, keys, the same normed, values, output.
    pub fn needs(&self) -> Needs {
        let AttentionShape { heads, kv_heads, key, value, .. } = self.shape;
        let (q, k, v) = (heads * key, kv_heads * key, kv_heads * value);
        // The gate of the output lies where normed queries did.
        let rows = [self.query.rows(), q.max(heads * value), k, k, v, heads * value];
        Needs { rows, input: heads * value }
    }

    pub fn apply(
        &self,
        step: &Step<'_>,
        x: Matrix<'_>,
        cache: &mut KvCache,
        space: &mut MixerSpace,
        out: MatrixMut<'_>,
    ) -> Result<()> {
        let Step { backend, eps, batch, tables } = *step;
        let MixerSpace { acts, rows } = space;
        let tokens = x.rows();
        let [q, q_normed, k, k_normed, v, attended] = rows;
        acts.begin();
        for (linear, to) in [(&self.query, &mut *q), (&self.key, &mut *k), (&self.value, &mut *v)] {
            let to = MatrixMut::dense("qkv", &mut *to, tokens, linear.rows())?;
            linear.apply(backend, x, acts, to)?;
        }
        let AttentionShape { heads, key: head, .. } = self.shape;
        let (q_cols, k_cols) = (heads * head, self.key.rows());
        let turn = |at: Option<usize>, x: &mut Buffer<f32>, cols: usize| -> Result<()> {
            let Some(table) = at.and_then(|at| tables.get(at)) else { return Ok(()) };
            let x = MatrixMut::dense("heads", x, tokens, cols)?;
            table.apply(backend, x, head, self.pairs, batch)
        };
        let norms = self.norms.as_ref();
        if norms.is_none_or(|norms| norms.after_rope) {
            turn(self.rope, q, q_cols)?;
            turn(self.rope, k, k_cols)?;
        }
        if let Some(norms) = norms {
            let sides = [(&mut *q, &mut *q_normed, q_cols), (&mut *k, &mut *k_normed, k_cols)];
            for (at, (from, to, cols)) in sides.into_iter().enumerate() {
                let weight = norms.weights.as_ref().map(|weights| weights[at].view());
                let group = if norms.whole { cols } else { head };
                // Rows are heads, which a gate may lie behind.
                let stride = if self.interleaved && at == 0 { 2 * group } else { group };
                let rows = tokens * cols / group;
                let from = Matrix::new("heads", &*from, rows, group, stride)?;
                let to = MatrixMut::dense("normed heads", to, rows, group)?;
                Norm::new(from, NormKind::Rms(weight), group, eps, to)?.launch(backend)?;
            }
            if !norms.after_rope {
                turn(self.rope, q_normed, q_cols)?;
                turn(self.rope, k_normed, k_cols)?;
            }
        }
        turn(self.temperature, if norms.is_some() { &mut *q_normed } else { &mut *q }, q_cols)?;
        let (queries, k) = if norms.is_some() { (&*q_normed, &*k_normed) } else { (&*q, &*k) };
        let keys = Matrix::dense("keys", k, tokens, k_cols)?;
        let values = Matrix::dense("values", &*v, tokens, self.value.rows())?;
        AppendKv::new(keys, values, batch, cache)?.launch(backend)?;
        let queries = Matrix::dense("queries", queries, tokens, q_cols)?;
        let cols = self.shape.heads * self.shape.value;
        let sinks = self.sinks.as_ref().map(Buffer::view);
        let to = MatrixMut::dense("attended", &mut *attended, tokens, cols)?;
        Attend::new(self.shape, queries, sinks, batch, cache, to)?.launch(backend)?;
        if let Some(scale) = self.value_scale {
            let to = MatrixMut::dense("attended", &mut *attended, tokens, cols)?;
            Pointwise::new(to, By::Scale(scale))?.launch(backend)?;
        }
        if self.interleaved {
            let (rows, values) = (tokens * heads, self.shape.value);
            let gates = q.slice(head..tokens * q_cols * 2)?;
            let gates = Matrix::new("gates", gates, rows, values, 2 * head)?;
            let to = MatrixMut::dense("attended", &mut *attended, rows, values)?;
            Pointwise::new(to, By::SigmoidGate(gates))?.launch(backend)?;
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
