//! Attention over a compressed row: see `docs/numerics.md` for its two forms.
//!
//! Here the values that turn come first in a query and a key; sums of integers have no order.

use strata_core::attention::{AttentionShape, Pairs, Reach};
use strata_core::backend::ops::{AppendKv, Attend, Matrix, MatrixMut};
use strata_core::backend::{Buffer, KvCache};
use strata_core::{Error, Result};

use crate::attention::{Turn, place};
use crate::config::{self, MlaExpand, MlaQuery, Pairing};
use crate::load::{Linear, Loader, NormWeights};
use crate::mixer::{MixerSpace, Needs, Step, copy};

/// Attention over a compressed row, on a device.
pub(crate) struct Mla {
    query: Query,
    compress: Linear,
    compress_norm: NormWeights,
    expand: Expand,
    output: Linear,
    shape: AttentionShape,
    /// Values of a head's query that do not turn, and that do.
    plain: usize,
    turned: usize,
    rank: usize,
    /// Values of a head's value.
    value: usize,
    rope: usize,
    pairs: Pairs,
}

enum Query {
    Direct(Linear),
    LowRank { down: Linear, norm: NormWeights, up: Linear },
}

enum Expand {
    /// A matrix for each head: of queries to the compressed row, of that to values.
    Absorbed { keys: Vec<Linear>, values: Vec<Linear> },
    /// Of the compressed row to keys and values of all heads.
    Joint { keys: Linear, values: Linear },
}

impl Mla {
    /// `turns` takes the rotation, if no block before had the same.
    pub fn load(
        loader: &mut Loader<'_>,
        config: &config::Mla,
        turns: &mut Vec<Turn>,
    ) -> Result<Self> {
        let config::Mla { heads, plain_size: plain, value_size: value, rank, .. } = *config;
        let turned = config.rope.dims;
        let (expand, kv_heads, key, kept) = match &config.expand {
            MlaExpand::Absorbed { key: keys, value: values } => {
                let keys = loader.each(keys, heads, [rank, plain])?;
                let values = loader.each(values, heads, [value, rank])?;
                (Expand::Absorbed { keys, values }, 1, turned + rank, rank)
            }
            MlaExpand::Joint(both) => {
                let each = plain + value;
                let rows = |from: usize, len: usize| {
                    let first = (0..heads).map(|head| head * each + from);
                    first.map(|first| first..first + len).collect()
                };
                let parts = loader.gathered(both, vec![rows(0, plain), rows(plain, value)])?;
                let [keys, values] = <[Linear; 2]>::try_from(parts).map_err(|parts| {
                    Error::invalid("parts of keys and values", parts.len(), "two")
                })?;
                (Expand::Joint { keys, values }, heads, turned + plain, value)
            }
        };
        let shape = AttentionShape {
            heads,
            kv_heads,
            key,
            value: kept,
            scale: config.scale,
            softcap: None,
            reach: Reach::All,
        };
        shape.check()?;
        Ok(Self {
            query: match &config.query {
                MlaQuery::Direct(all) => Query::Direct(loader.linear(all)?),
                MlaQuery::LowRank { down, norm, up } => Query::LowRank {
                    down: loader.linear(down)?,
                    norm: loader.norm(norm)?,
                    up: loader.linear(up)?,
                },
            },
            compress: loader.linear(&config.compress)?,
            compress_norm: loader.norm(&config.compress_norm)?,
            expand,
            output: loader.linear(&config.output)?,
            shape,
            plain,
            turned,
            rank,
            value,
            rope: place(turns, Turn::Rope(config.rope.clone())),
            pairs: match config.rope.pairing {
                Pairing::Interleaved => Pairs::Interleaved,
                Pairing::Halves => Pairs::Halves,
            },
        })
    }

    /// The numbers of its attention.
    pub fn shape(&self) -> AttentionShape {
        self.shape
    }

    fn low(&self) -> usize {
        match &self.query {
            Query::Direct(_) => 0,
            Query::LowRank { down, .. } => down.rows(),
        }
    }

    /// Queries as they come (then plain keys); as they are multiplied; the compressed row; keys;
    /// values (and queries of low rank, normed); what was attended (and queries of low rank, and
    /// the compressed row normed).
    pub fn needs(&self) -> Needs {
        let AttentionShape { heads, kv_heads, key, value, .. } = self.shape;
        let (low, out) = (self.low(), heads * self.value);
        let rows = [
            heads * (self.plain + self.turned),
            heads * key,
            self.rank + self.turned,
            kv_heads * key,
            out.max(low),
            (heads * value).max(low).max(self.rank),
        ];
        Needs { rows, input: out.max(low).max(self.rank).max(self.plain) }
    }

    pub fn apply(
        &self,
        step: &Step<'_>,
        x: Matrix<'_>,
        cache: &mut KvCache,
        space: &mut MixerSpace,
        out: MatrixMut<'_>,
    ) -> Result<()> {
        self.queries(step, x, space)?;
        self.append(step, x.rows(), cache, space)?;
        let (backend, tokens) = (step.backend, x.rows());
        let AttentionShape { heads, key, value: kept, .. } = self.shape;
        let MixerSpace { acts, rows: [_, queries, _, _, values, attended] } = space;
        let from = Matrix::dense("queries", &*queries, tokens, heads * key)?;
        let to = MatrixMut::dense("attended", &mut *attended, tokens, heads * kept)?;
        Attend::new(self.shape, from, None, step.batch, cache, to)?.launch(backend)?;
        let cols = heads * self.value;
        let from = match &self.expand {
            Expand::Joint { .. } => &*attended,
            Expand::Absorbed { values: each, .. } => {
                for (head, linear) in each.iter().enumerate() {
                    let from = attended.slice(head * kept..tokens * heads * kept)?;
                    let from = Matrix::new("attended", from, tokens, kept, heads * kept)?;
                    let to = values.slice_mut(head * self.value..tokens * cols)?;
                    let to = MatrixMut::new("values", to, tokens, self.value, cols)?;
                    acts.begin();
                    linear.apply(backend, from, acts, to)?;
                }
                &*values
            }
        };
        acts.begin();
        let from = Matrix::dense("attended values", from, tokens, cols)?;
        self.output.apply(backend, from, acts, out)
    }

    /// The compressed row, and queries as they are multiplied.
    fn queries(&self, step: &Step<'_>, x: Matrix<'_>, space: &mut MixerSpace) -> Result<()> {
        let (backend, tokens) = (step.backend, x.rows());
        let MixerSpace { acts, rows: [q, queries, compressed, _, normed, low] } = space;
        acts.begin();
        let to = MatrixMut::dense("compressed", compressed, tokens, self.rank + self.turned)?;
        self.compress.apply(backend, x, acts, to)?;
        let AttentionShape { heads, key, .. } = self.shape;
        let (Self { plain, turned, .. }, size) = (self, self.plain + self.turned);
        let to = MatrixMut::dense("queries", &mut *q, tokens, heads * size)?;
        match &self.query {
            Query::Direct(all) => all.apply(backend, x, acts, to)?,
            Query::LowRank { down, norm, up } => {
                let rank = down.rows();
                let of_low = MatrixMut::dense("queries of low rank", &mut *low, tokens, rank)?;
                down.apply(backend, x, acts, of_low)?;
                let from = Matrix::dense("queries of low rank", &*low, tokens, rank)?;
                let of_norm = MatrixMut::dense("normed queries", &mut *normed, tokens, rank)?;
                norm.apply(backend, from, step.eps, of_norm)?;
                acts.begin();
                let from = Matrix::dense("normed queries", &*normed, tokens, rank)?;
                up.apply(backend, from, acts, to)?;
            }
        }
        let (all, rows) = (tokens * heads * size, tokens * heads);
        let (from, to) = (q.slice(*plain..all)?, queries.view_mut());
        copy(backend, [rows, *turned], (from, size), (to, key))?;
        match &self.expand {
            Expand::Joint { .. } => {
                let to = queries.slice_mut(*turned..rows * key)?;
                copy(backend, [rows, *plain], (q.view(), size), (to, key))?;
            }
            Expand::Absorbed { keys, .. } => {
                for (head, linear) in keys.iter().enumerate() {
                    let from = q.slice(head * size..all)?;
                    let from = Matrix::new("plain queries", from, tokens, *plain, heads * size)?;
                    let to = queries.slice_mut(head * key + turned..rows * key)?;
                    let to = MatrixMut::new("queries", to, tokens, self.rank, heads * key)?;
                    acts.begin();
                    linear.apply(backend, from, acts, to)?;
                }
            }
        }
        self.turn(step, queries, tokens, heads)
    }

    /// Keys and values of the compressed row, into the cache.
    fn append(
        &self,
        step: &Step<'_>,
        tokens: usize,
        cache: &mut KvCache,
        space: &mut MixerSpace,
    ) -> Result<()> {
        let backend = step.backend;
        let AttentionShape { kv_heads, key, value, .. } = self.shape;
        let Self { plain, turned, rank, .. } = self;
        let MixerSpace { acts, rows: [q, _, compressed, keys, values, normed] } = space;
        let (cols, rows) = (rank + turned, tokens * kv_heads);
        let row = Matrix::new("compressed", &*compressed, tokens, *rank, cols)?;
        match &self.expand {
            Expand::Absorbed { .. } => {
                let to = keys.slice_mut(*turned..rows * key)?;
                let to = MatrixMut::new("keys", to, tokens, *rank, key)?;
                self.compress_norm.apply(backend, row, step.eps, to)?;
            }
            Expand::Joint { keys: to_keys, values: to_values } => {
                let to = MatrixMut::dense("normed", &mut *normed, tokens, *rank)?;
                self.compress_norm.apply(backend, row, step.eps, to)?;
                let row = Matrix::dense("normed", &*normed, tokens, *rank)?;
                acts.begin();
                let to = MatrixMut::dense("values", &mut *values, tokens, to_values.rows())?;
                to_values.apply(backend, row, acts, to)?;
                let to = MatrixMut::dense("plain keys", &mut *q, tokens, to_keys.rows())?;
                to_keys.apply(backend, row, acts, to)?;
                let to = keys.slice_mut(*turned..rows * key)?;
                copy(backend, [rows, *plain], (q.view(), *plain), (to, key))?;
            }
        }
        for head in 0..kv_heads {
            let from = compressed.slice(*rank..tokens * cols)?;
            let to = keys.slice_mut(head * key..rows * key)?;
            copy(backend, [tokens, *turned], (from, cols), (to, kv_heads * key))?;
        }
        self.turn(step, keys, tokens, kv_heads)?;
        let of_keys = Matrix::dense("keys", &*keys, tokens, kv_heads * key)?;
        let of_values = match &self.expand {
            Expand::Absorbed { .. } => {
                let from = keys.slice(*turned..rows * key)?;
                Matrix::new("values", from, tokens, value, key)?
            }
            Expand::Joint { .. } => Matrix::dense("values", &*values, tokens, kv_heads * value)?,
        };
        AppendKv::new(of_keys, of_values, step.batch, cache)?.launch(backend)
    }

    /// Turns the first values of each head.
    fn turn(
        &self,
        step: &Step<'_>,
        x: &mut Buffer<f32>,
        tokens: usize,
        heads: usize,
    ) -> Result<()> {
        let Some(table) = step.tables.get(self.rope) else {
            return Err(Error::invalid("rotations", step.tables.len(), "those of the model"));
        };
        let x = MatrixMut::dense("heads", x, tokens, heads * self.shape.key)?;
        table.apply(step.backend, x, self.shape.key, self.pairs, step.batch)
    }
}
