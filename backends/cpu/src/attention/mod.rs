//! Attention over pages of digits: see `docs/numerics.md`.
//!
//! The unit of work is a tile of tokens of one sequence with one head of keys
//! and values: its rows are those of all query heads that this one serves.
//! Block by block, keys and values are turned so that lanes are keys, then columns
//! ([`products`]); [`softmax`] makes the digits of the weights between the
//! two products. Which rows share a tile changes nothing: every row has its own
//! largest score, its own scale and its own sums.
//!
//! | file | what it holds |
//! |---|---|
//! | [`digits`] | rows as digits, and tokens into pages |
//! | [`products`] | turned digits, and the kernel of both products |
//! | [`softmax`] | a row's weights over a block |

mod digits;
mod products;
mod softmax;
#[cfg(test)]
mod tests;

use std::marker::PhantomData;
use std::ops::Range;

use strata_core::Result;
use strata_core::attention::{AttentionShape, MOST_KEY, PAGE};
use strata_core::numerics::{EXP_LOG2E, canonical};

use crate::device::Shared;
use crate::exp::exp2;
use crate::isa::Work;
use crate::memory::Parts;
use crate::quantize::Input;
use crate::scratch::Bytes;
use crate::simd::{Simd, WithSimd};
pub(crate) use digits::Append;
use products::{Packed, ROWS, Rows, multiply};
use softmax::{Unit, Weighed, weigh};

/// Rows of a tile: what turning a block costs is shared by so many.
const TILE_ROWS: usize = 16 * ROWS;

/// Where tokens stand, one by one, and the pages of each sequence.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) sequences: &'a [u32],
    pub(crate) positions: &'a [u32],
    pub(crate) pages: &'a [u32],
    /// Pages of each sequence.
    pub(crate) per_sequence: usize,
}

impl Places<'_> {
    /// The page of a token's block `block`.
    #[inline(always)]
    fn page_of(&self, row: usize, block: usize) -> usize {
        self.pages[self.sequences[row] as usize * self.per_sequence + block] as usize
    }

    /// The page and the slot of a token's own key.
    #[inline(always)]
    fn page(&self, row: usize) -> (usize, usize) {
        let position = self.positions[row] as usize;
        (self.page_of(row, position / PAGE), position % PAGE)
    }

    /// The end of the run from `row` on: tokens of one sequence, one after the other.
    fn run_end(&self, row: usize) -> usize {
        let next = |r: usize| {
            self.sequences[r] == self.sequences[row]
                && self.positions[r] == self.positions[r - 1].wrapping_add(1)
        };
        (row + 1..self.positions.len()).find(|r| !next(*r)).unwrap_or(self.positions.len())
    }
}

/// One attention.
#[derive(Clone, Copy)]
pub(crate) struct Attend<'a> {
    pub(crate) shape: AttentionShape,
    pub(crate) queries: Input<'a>,
    pub(crate) places: Places<'a>,
    pub(crate) cache: &'a [u8],
    pub(crate) sinks: Option<&'a [f32]>,
    pub(crate) out: Parts<'a, f32>,
    pub(crate) out_stride: usize,
}

/// What one thread works in.
#[derive(Default)]
pub(crate) struct Worker {
    queries: Rows,
    weights: Rows,
    keys: Packed,
    values: Packed,
    turned: [Vec<u32>; 2],
    scores: Vec<f32>,
    sums: Vec<f32>,
    out: Vec<f32>,
    states: Vec<State>,
}

impl Bytes for Worker {
    fn bytes(&self) -> usize {
        let rows = |r: &Rows| r.high.bytes() + r.low.bytes() + r.start.bytes();
        let packed = |p: &Packed| p.high.bytes() + p.low.bytes();
        rows(&self.queries)
            + rows(&self.weights)
            + packed(&self.keys)
            + packed(&self.values)
            + self.turned.iter().map(Bytes::bytes).sum::<usize>()
            + self.scores.bytes()
            + self.sums.bytes()
            + self.out.bytes()
            + self.states.bytes()
    }
}

/// What a row has of the blocks before.
#[derive(Clone, Copy)]
struct State {
    m: f32,
    l: f32,
    unit: Unit,
    started: bool,
}

impl Attend<'_> {
    /// Runs it on all threads.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](strata_core::Error::OutOfMemory) for the list of tiles.
    pub(crate) fn run(&self, shared: &Shared) -> Result<()> {
        let group = self.shape.heads / self.shape.kv_heads;
        let most = (TILE_ROWS / group).max(1);
        let rows = self.places.positions.len();
        let mut tiles: Vec<Range<usize>> = Vec::new();
        shared.reserve(&mut tiles, rows)?;
        let mut row = 0;
        while row < rows {
            let end = self.places.run_end(row);
            tiles.extend((row..end).step_by(most).map(|r| r..end.min(r + most)));
            row = end;
        }
        // Heavy ones first: the light ones then fill the gaps at the end.
        let cost = |tile: &Range<usize>| {
            let last = self.places.positions[tile.end - 1];
            (last - self.shape.reach.first(last)) as usize * tile.len()
        };
        tiles.sort_by_key(|tile| std::cmp::Reverse(cost(tile)));
        let heads = self.shape.kv_heads;
        shared.parallel_with(
            tiles.len() * heads,
            || Ok(shared.attention.take()),
            |worker, i| {
                let (tile, kv_head) = (tiles[i / heads].clone(), i % heads);
                shared.cpu.with_simd(Tile { attend: self, worker, rows: tile, kv_head });
            },
        )
    }
}

/// A tile of tokens with one head of keys and values.
struct Tile<'a, 'b> {
    attend: &'a Attend<'b>,
    worker: &'a mut Worker,
    rows: Range<usize>,
    kv_head: usize,
}

impl WithSimd for Tile<'_, '_> {
    type Output = ();

    fn call<S: Simd>(self, simd: S) {
        let Self { attend, worker: w, rows, kv_head } = self;
        let shape = &attend.shape;
        let group = shape.heads / shape.kv_heads;
        let layout = shape.layout();
        let count = rows.len() * group;
        w.queries.size::<S>(count, shape.key);
        w.weights.size::<S>(ROWS, PAGE);
        w.keys.size::<S>(PAGE, shape.key);
        w.values.size::<S>(shape.value, PAGE);
        w.scores.resize(ROWS * PAGE, 0.0);
        w.sums.resize(ROWS * w.values.stride, 0.0);
        w.out.clear();
        w.out.resize(count * shape.value, 0.0);
        w.states.clear();
        simd.run(Queries::<S> { attend, rows: rows.clone(), kv_head, w, simd: PhantomData });

        let positions = &attend.places.positions[rows.clone()];
        let first = |t: usize| shape.reach.first(positions[t]) as usize;
        let last = positions[positions.len() - 1] as usize;
        for block in first(0) / PAGE..=last / PAGE {
            let start = block * PAGE;
            // First keys and positions ascend: the tokens that see some of this block are a range.
            let from = positions.partition_point(|p| (*p as usize) < start);
            let to = (from..positions.len()).find(|t| first(*t) >= start + PAGE);
            let to = to.unwrap_or(positions.len());
            if from >= to {
                continue;
            }
            let page = attend.places.page_of(rows.start, block);
            let bytes = &attend.cache[layout.head(page, kv_head)..][..layout.head_bytes()];
            simd.run(Pack::<S> { shape, bytes, w, simd: PhantomData });
            let (key_scales, value_scales) = (
                scales(&bytes[layout.scales_at()..]),
                scales(&bytes[layout.scales_at() + 4 * PAGE..]),
            );
            let (from, to) = (from * group, to * group);
            for row in (from..to).step_by(ROWS) {
                let n = ROWS.min(to - row);
                multiply(simd, &w.queries, row, n, &w.keys, &mut w.scores);
                let mut weighed = [const { Weighed { m: 0.0, l: 0.0, g: 0.0 } }; ROWS];
                simd.run(Weigh::<S> {
                    scores: &mut w.scores,
                    key_scales: &key_scales,
                    value_scales: &value_scales,
                    seen: &|i| {
                        let t = (row + i) / group;
                        let last = (positions[t] as usize).min(start + PAGE - 1) - start;
                        (first(t).max(start) - start) as u32..last as u32 + 1
                    },
                    states: &w.states[row..row + n],
                    weights: &mut w.weights,
                    weighed: &mut weighed,
                    simd: PhantomData,
                });
                multiply(simd, &w.weights, 0, n, &w.values, &mut w.sums);
                simd.run(Join {
                    weighed: &weighed[..n],
                    sums: &w.sums,
                    stride: w.values.stride,
                    states: &mut w.states[row..row + n],
                    out: &mut w.out[row * shape.value..(row + n) * shape.value],
                });
            }
        }
        simd.run(Finish { attend, rows, kv_head, w });
    }
}

/// Sixty-four f32 of a page.
fn scales(bytes: &[u8]) -> [f32; PAGE] {
    std::array::from_fn(|i| f32::from_le_bytes(*bytes[4 * i..].first_chunk().expect("inside")))
}

/// Queries as digits.
struct Queries<'a, 'b, S> {
    attend: &'a Attend<'b>,
    rows: Range<usize>,
    kv_head: usize,
    w: &'a mut Worker,
    simd: PhantomData<S>,
}

impl<S: Simd> Work for Queries<'_, '_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { attend, rows, kv_head, w, .. } = self;
        let shape = &attend.shape;
        let group = shape.heads / shape.kv_heads;
        let mut planes = [[0i8; MOST_KEY]; 2];
        let [high, low] = &mut planes;
        let mut row = 0;
        for token in rows {
            let queries = attend.queries.row(token);
            for head in kv_head * group..(kv_head + 1) * group {
                let query = &queries[head * shape.key..][..shape.key];
                let scale = digits::digits(query, high, low);
                let unit = (scale * 256.0) * shape.scale;
                let unit = match shape.softcap {
                    None => Unit { c: unit * EXP_LOG2E, cap: None },
                    Some(cap) => Unit { c: EXP_LOG2E, cap: Some((cap, unit / cap)) },
                };
                w.queries.set::<S>(row, &high[..shape.key], low);
                w.states.push(State { m: f32::NEG_INFINITY, l: 0.0, unit, started: false });
                row += 1;
            }
        }
    }
}

/// A block's keys and values, turned.
struct Pack<'a, S> {
    shape: &'a AttentionShape,
    bytes: &'a [u8],
    w: &'a mut Worker,
    simd: PhantomData<S>,
}

impl<S: Simd> Work for Pack<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { shape, bytes, w, .. } = self;
        let (keys, values) = (PAGE * shape.key, PAGE * shape.value);
        let (high, rest) = bytes.split_at(keys);
        let (low, rest) = rest.split_at(keys);
        w.keys.pack::<S>(&mut w.turned, high, low, PAGE, shape.key);
        let (high, low) = rest.split_at(values);
        w.values.pack::<S>(&mut w.turned, high, low, shape.value, PAGE);
    }
}

/// Scores of some rows to digits of their weights.
struct Weigh<'a, S> {
    scores: &'a mut [f32],
    key_scales: &'a [f32; PAGE],
    value_scales: &'a [f32; PAGE],
    seen: &'a dyn Fn(usize) -> Range<u32>,
    states: &'a [State],
    weights: &'a mut Rows,
    weighed: &'a mut [Weighed; ROWS],
    simd: PhantomData<S>,
}

impl<S: Simd> Work for Weigh<'_, S> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (mut high, mut low) = ([0; PAGE], [0; PAGE]);
        for (i, state) in self.states.iter().enumerate() {
            let z = self.scores[i * PAGE..].first_chunk_mut().expect("a row of scores");
            self.weighed[i] = weigh(
                z,
                self.key_scales,
                self.value_scales,
                &(self.seen)(i),
                state.unit,
                &mut high,
                &mut low,
            );
            self.weights.set::<S>(i, &high, &low);
        }
    }
}

/// A block's sums to those before.
struct Join<'a> {
    weighed: &'a [Weighed],
    sums: &'a [f32],
    stride: usize,
    states: &'a mut [State],
    out: &'a mut [f32],
}

impl Work for Join<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let value = self.out.len() / self.weighed.len();
        for (i, (block, state)) in self.weighed.iter().zip(self.states).enumerate() {
            let most = if block.m > state.m { block.m } else { state.m };
            let (a, b) = match state.started {
                false => (0.0, 1.0),
                true => {
                    (exp2((state.m - most) * state.unit.c), exp2((block.m - most) * state.unit.c))
                }
            };
            state.started = true;
            state.m = most;
            state.l = block.l.mul_add(b, state.l * a);
            let factor = block.g * b;
            let sums = &self.sums[i * self.stride..][..value];
            for (out, sum) in self.out[i * value..][..value].iter_mut().zip(sums) {
                *out = sum.mul_add(factor, *out * a);
            }
        }
    }
}

/// Sinks, and the division.
struct Finish<'a, 'b> {
    attend: &'a Attend<'b>,
    rows: Range<usize>,
    kv_head: usize,
    w: &'a mut Worker,
}

impl Work for Finish<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { attend, rows, kv_head, w } = self;
        let shape = &attend.shape;
        let group = shape.heads / shape.kv_heads;
        let mut rest = w.out.chunks_exact(shape.value).zip(&w.states);
        for token in rows {
            let at = token * attend.out_stride + kv_head * group * shape.value;
            // SAFETY: a token's heads of one head of keys belong to one task.
            let out = unsafe { attend.out.part(at, group * shape.value) };
            for (i, out) in out.chunks_exact_mut(shape.value).enumerate() {
                let (sums, state) = rest.next().expect("as many rows");
                let (mut l, mut a) = (state.l, 1.0);
                if let Some(sinks) = attend.sinks {
                    let sink = sinks[kv_head * group + i] * EXP_LOG2E;
                    let m = state.m * state.unit.c;
                    let most = if sink > m { sink } else { m };
                    a = exp2(m - most);
                    l = l.mul_add(a, exp2(sink - most));
                }
                for (out, sum) in out.iter_mut().zip(sums) {
                    *out = canonical(sum * a / l);
                }
            }
        }
    }
}
