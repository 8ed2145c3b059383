//! Keys and values into the cache, and attention over it.

use super::*;
use crate::attention::{AttentionShape, PAGE, PageLayout};

fn fits(what: &str, batch: &TokenBatch, pages: usize) -> Result<()> {
    if batch.limits().pages <= pages {
        return Ok(());
    }
    let most = format!("at most {pages}, those of the cache");
    Err(Error::invalid(format!("{what}: pages of the batch"), batch.limits().pages, most))
}

/// How many pages some tokens see: of each its sequence, and the first and the last of its pages.
fn distinct(mut spans: Vec<(u32, usize, usize)>) -> usize {
    spans.sort_unstable();
    let (mut pages, mut before) = (0, None);
    for (sequence, first, last) in spans {
        // Pages of the same sequence below `end` are counted.
        let end = match before {
            Some((of, end)) if of == sequence => end,
            _ => 0,
        };
        pages += (last + 1).saturating_sub(first.max(end));
        before = Some((sequence, end.max(last + 1)));
    }
    pages
}

/// Keys and values of a batch's tokens to their places in the cache, as digits.
pub struct AppendKv<'a> {
    keys: Matrix<'a>,
    values: Matrix<'a>,
    batch: &'a TokenBatch,
    layout: PageLayout,
    cache: SliceMut<'a, u8>,
}

impl<'a> AppendKv<'a> {
    /// `keys`: tokens x heads of keys, after RoPE; `values`: tokens x heads of values.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ, or the batch may name a page that the cache has not.
    pub fn new(
        keys: Matrix<'a>,
        values: Matrix<'a>,
        batch: &'a TokenBatch,
        cache: &'a mut KvCache,
    ) -> Result<Self> {
        let layout = cache.layout();
        for (what, m, cols) in [
            ("keys", &keys, layout.kv_heads * layout.key),
            ("values", &values, layout.kv_heads * layout.value),
        ] {
            agree(format!("append: rows of the {what}"), m.rows(), batch.tokens())?;
            agree(format!("append: columns of the {what}"), m.cols(), cols)?;
        }
        fits("append", batch, cache.pages())?;
        Ok(Self { keys, values, batch, layout, cache: cache.data_mut() })
    }

    /// Keys.
    pub fn keys(&self) -> Matrix<'a> {
        self.keys
    }

    /// Values.
    pub fn values(&self) -> Matrix<'a> {
        self.values
    }

    /// Where the tokens stand.
    pub fn batch(&self) -> &'a TokenBatch {
        self.batch
    }

    /// How the pages are laid out.
    pub fn layout(&self) -> PageLayout {
        self.layout
    }
}

impl Operation for AppendKv<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("keys", self.keys.device())?;
        to.lives_on("values", self.values.device())?;
        to.lives_on("cache", self.cache.device())?;
        self.batch.read(&to.name("batch"), to.backend)
    }

    fn is_empty(&self) -> bool {
        self.batch.tokens() == 0
    }

    fn cost(&self) -> Cost {
        let PageLayout { kv_heads, key, value } = self.layout;
        // Two digits of each value, and two scales of each head.
        let digits = self.batch.tokens() * kv_heads * (2 * (key + value) + 8);
        let places = self.batch.sequences().moved() + self.batch.positions().moved();
        Cost::bytes([self.keys.moved(), self.values.moved(), places, digits as u64])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Bytes(self.cache.reborrow())]
    }
}

impl<'a> Checked<AppendKv<'a>> {
    /// The bytes of the cache.
    pub fn cache(&mut self) -> SliceMut<'_, u8> {
        self.0.cache.reborrow()
    }
}

/// Attention of a batch's tokens over the cache, which must hold the keys and values of all positions
/// that they see, their own among them.
///
/// Tokens of one sequence that stand next to each other in ascending positions share work; any order and
/// any mix of sequences gives the same bytes.
pub struct Attend<'a> {
    shape: AttentionShape,
    queries: Matrix<'a>,
    sinks: Option<Slice<'a, f32>>,
    batch: &'a TokenBatch,
    cache: &'a KvCache,
    out: MatrixMut<'a>,
}

impl<'a> Attend<'a> {
    /// `queries`: tokens x heads of keys; `sinks`: a logit per head; `out`: tokens x heads of values.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ, or the batch may name a page that the cache has not.
    pub fn new(
        shape: AttentionShape,
        queries: Matrix<'a>,
        sinks: Option<Slice<'a, f32>>,
        batch: &'a TokenBatch,
        cache: &'a KvCache,
        out: MatrixMut<'a>,
    ) -> Result<Self> {
        shape.check()?;
        if shape.layout() != cache.layout() {
            return Err(Error::invalid(
                "attention: cache",
                format!("{:?}", cache.layout()),
                format!("{:?}", shape.layout()),
            ));
        }
        agree("attention: rows of the queries", queries.rows(), batch.tokens())?;
        agree("attention: columns of the queries", queries.cols(), shape.heads * shape.key)?;
        agree("attention: rows of the output", out.rows(), batch.tokens())?;
        agree("attention: columns of the output", out.cols(), shape.heads * shape.value)?;
        if let Some(sinks) = &sinks {
            agree("attention: sinks", sinks.len(), shape.heads)?;
        }
        fits("attention", batch, cache.pages())?;
        Ok(Self { shape, queries, sinks, batch, cache, out })
    }

    /// The numbers.
    pub fn shape(&self) -> AttentionShape {
        self.shape
    }

    /// Queries, after RoPE.
    pub fn queries(&self) -> Matrix<'a> {
        self.queries
    }

    /// A logit per head.
    pub fn sinks(&self) -> Option<Slice<'a, f32>> {
        self.sinks
    }

    /// Where the tokens stand.
    pub fn batch(&self) -> &'a TokenBatch {
        self.batch
    }

    /// The bytes of the cache.
    pub fn cache(&self) -> Slice<'a, u8> {
        self.cache.data()
    }
}

impl Operation for Attend<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("queries", self.queries.device())?;
        to.lives_on("cache", self.cache.data().device())?;
        if let Some(sinks) = &self.sinks {
            to.lives_on("sinks", sinks.device())?;
        }
        to.lives_on("output", self.out.device())?;
        self.batch.read(&to.name("batch"), to.backend)
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        let (sequences, positions) = self.batch.on_host();
        let (mut seen, mut spans) = (0, Vec::with_capacity(positions.len()));
        for (&sequence, &position) in sequences.iter().zip(positions) {
            let first = self.shape.reach.first(position);
            seen += u64::from(position - first) + 1;
            spans.push((sequence, first as usize / PAGE, position as usize / PAGE));
        }
        let pages = (distinct(spans) * self.shape.layout().bytes()) as u64;
        let operands = [self.queries.moved(), self.sinks.moved(), pages, self.out.moved()];
        let pairs = 2 * (self.shape.heads * (self.shape.key + self.shape.value)) as u64;
        Cost { ops: seen * pairs, ..Cost::bytes(operands) }
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow())]
    }
}

impl<'a> Checked<Attend<'a>> {
    /// Attended values.
    pub fn out(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.out
    }
}
