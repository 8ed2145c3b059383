//! Routed rows as the kernels read them.

use std::ops::Range;

use strata_core::Result;
use strata_core::format::scale::f16;
use strata_core::q8_1::{BLOCK_BYTES, BLOCK_VALUES, HEADER_BYTES, Layout};

use super::SLAB;
use super::tile::Shape;
use crate::device::Shared;
use crate::isa::Work;
use crate::scratch::Bytes;
use crate::simd::Simd;

/// Where the activation row of a routed row is.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// In the same row.
    Same,
    /// In row `src[row]`.
    Of(&'a [u32]),
}

/// A q8_1 matrix.
pub(super) struct Activations<'a> {
    pub blocks: &'a [u8],
    pub rows: usize,
    pub cols: usize,
    pub source: Source<'a>,
}

/// Words of codes of a slab of one row.
pub(super) const WORDS: usize = SLAB / 4;
/// Scales of a slab of one row: one per 32 values.
pub(super) const SCALES: usize = SLAB / 32;

/// Some routed rows. Slab by slab, and row by row inside a slab, so that a
/// tile of weights meets all of them in one walk.
#[derive(Default)]
pub(super) struct RoutedRows {
    pub count: usize,
    /// [`WORDS`] words of four codes, in the order in which weights have theirs.
    pub codes: Vec<u32>,
    /// Where sums of integers start, less what the weights' offset brings in: one for each
    /// [`Shape::part`] values, an i32 or two i16.
    pub starts: Vec<u32>,
    /// [`SCALES`] scales.
    pub scales: Vec<f32>,
    /// Sums, one per minimum of the weights.
    pub sums: Vec<f32>,
}

impl Bytes for RoutedRows {
    fn bytes(&self) -> usize {
        self.codes.bytes() + self.starts.bytes() + self.scales.bytes() + self.sums.bytes()
    }
}

impl RoutedRows {
    /// Makes room for `count` rows of `cols` values, so that [`spread`](Self::spread) allocates
    /// nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](strata_core::Error::OutOfMemory).
    pub(super) fn reserve(
        &mut self,
        shared: &Shared,
        count: usize,
        cols: usize,
        shape: Shape,
    ) -> Result<()> {
        let slabs = cols.div_ceil(SLAB) * count;
        shared.reserve(&mut self.codes, slabs * WORDS)?;
        shared.reserve(&mut self.starts, slabs * shape.starts())?;
        shared.reserve(&mut self.scales, slabs * SCALES)?;
        shared.reserve(&mut self.sums, slabs * shape.sums())
    }

    /// Takes over the routed rows `rows`.
    pub(super) fn spread<S: Simd>(
        &mut self,
        simd: S,
        activations: &Activations<'_>,
        rows: Range<usize>,
        shape: Shape,
    ) {
        self.count = rows.len();
        let slabs = activations.cols.div_ceil(SLAB);
        self.codes.resize(slabs * self.count * WORDS, 0);
        self.starts.resize(slabs * self.count * shape.starts(), 0);
        self.scales.resize(slabs * self.count * SCALES, 0.0);
        self.sums.resize(slabs * self.count * shape.sums(), 0.0);
        simd.run(Spread { to: self, activations, rows, shape });
    }
}

struct Spread<'a> {
    to: &'a mut RoutedRows,
    activations: &'a Activations<'a>,
    rows: Range<usize>,
    shape: Shape,
}

impl Work for Spread<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { to, activations, rows, shape } = self;
        let count = to.count;
        for k_block in 0..activations.cols.div_ceil(BLOCK_VALUES) {
            let (slab, half) = (k_block / 2, k_block % 2);
            for (i, row) in rows.clone().enumerate() {
                let row = match activations.source {
                    Source::Same => row,
                    Source::Of(src) => src[row] as usize,
                };
                let at = (k_block * activations.rows + row) * BLOCK_BYTES;
                let block = &activations.blocks[at..at + BLOCK_BYTES];
                let (header, codes) = block.split_at(HEADER_BYTES);
                let at = (slab * count + i) * WORDS + half * WORDS / 2;
                let words = &mut to.codes[at..at + WORDS / 2];
                match shape.step {
                    1 => spread_codes::<1>(codes, words),
                    4 => spread_codes::<4>(codes, words),
                    _ => spread_codes::<8>(codes, words),
                }
                let at = (slab * count + i) * shape.starts() + half * shape.starts() / 2;
                let starts = &mut to.starts[at..at + shape.starts() / 2];
                spread_starts(words, shape, starts);
                let at = (slab * count + i) * SCALES + half * SCALES / 2;
                let scales = &mut to.scales[at..at + SCALES / 2];
                let at = (slab * count + i) * shape.sums() + half * shape.sums() / 2;
                let sums = &mut to.sums[at..at + shape.sums() / 2];
                spread_header(shape.layout, header, codes, scales, sums);
            }
        }
    }
}

/// Codes in the order of [`Lanes::STEP`](super::lanes::Lanes::STEP).
#[inline(always)]
fn spread_codes<const STEP: usize>(codes: &[u8], words: &mut [u32]) {
    for (words, codes) in words.chunks_exact_mut(STEP).zip(codes.chunks_exact(4 * STEP)) {
        for (i, word) in words.iter_mut().enumerate() {
            *word = u32::from_le_bytes(std::array::from_fn(|b| codes[STEP * b + i]));
        }
    }
}

/// `-offset` times the sums of codes that are multiplied from one start on.
#[inline(always)]
fn spread_starts(words: &[u32], shape: Shape, starts: &mut [u32]) {
    if shape.offset == 0 {
        starts.fill(0);
        return;
    }
    // Of a word the sums of its first two codes and of its last two.
    let halves = |word: u32| {
        let [a, b, c, d] = word.to_le_bytes().map(|code| i32::from(code as i8));
        [a + b, c + d]
    };
    for (start, words) in starts.iter_mut().zip(words.chunks_exact(shape.part / 4)) {
        let mut sums = [0; 2];
        for &word in words {
            let [first, last] = halves(word);
            sums = [sums[0] + first, sums[1] + last];
        }
        let [first, last] = sums.map(|sum| -shape.offset * sum);
        *start = match shape.halves {
            true => (first as u32 & 0xffff) | (last as u32) << 16,
            false => (first + last) as u32,
        };
    }
}

/// The scales of 128 values, and the sums that minimums meet.
#[inline(always)]
fn spread_header(
    layout: Layout,
    header: &[u8],
    codes: &[u8],
    scales: &mut [f32],
    sums: &mut [f32],
) {
    let (halves, _) = header.as_chunks::<2>();
    let f16_at = |i: usize| f16(u16::from_le_bytes(halves[i]));
    match layout {
        Layout::D4 => {
            for (scale, bytes) in scales.iter_mut().zip(header.as_chunks::<4>().0) {
                *scale = f32::from_le_bytes(*bytes);
            }
        }
        Layout::DS4 => {
            for (i, scale) in scales.iter_mut().enumerate() {
                *scale = f16_at(2 * i);
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                *sum = f16_at(2 * i + 1);
            }
        }
        Layout::D2S6 => {
            for (i, scale) in scales.iter_mut().enumerate() {
                *scale = f16_at(i / 2);
            }
            for (i, sum) in sums.iter_mut().enumerate() {
                // The last two of eight are not stored: codes times scale stand in for them.
                *sum = match i {
                    0..6 => f16_at(2 + i),
                    _ => {
                        let codes = &codes[16 * i..][..16];
                        let total: i32 = codes.iter().map(|&c| i32::from(c as i8)).sum();
                        total as f32 * f16_at(1)
                    }
                };
            }
        }
    }
}
