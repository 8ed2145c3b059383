//! Products of digits: some rows with the lanes of a packed block.
//!
//! One kernel for both halves of attention: rows are queries and lanes keys,
//! then rows are weights and lanes the values' columns. Where the instruction
//! set multiplies bytes ([`narrow`]), lanes hold digits plus 128 and a row's sum
//! starts at what that adds too much; elsewhere words are two i16, a value
//! of a lane whole and its high digit, and meet a row's high and low digit: what both
//! come to is `256 * sum(h*h) + sum(h*l + l*h)` in i32. Rows wider than [`WHOLE`], whose sums
//! could pass i32 so, have the two sums apart.

use std::marker::PhantomData;

use crate::isa::Work;
use crate::simd::Simd;

/// Rows of a kernel: their sums fill the registers.
pub(super) const ROWS: usize = 6;
/// Vectors of lanes of a kernel.
const VECTORS: usize = 2;

/// The most values of a row whose sums of both digits fit i32 together.
const WHOLE: usize = 512;

/// Whether words hold four bytes.
pub(super) const fn narrow<S: Simd>() -> bool {
    S::BYTES
}

/// Lanes are padded to a multiple of this.
pub(super) const fn lane_step<S: Simd>() -> usize {
    VECTORS * S::LANES
}

/// Words that `values` values of a row or lane take.
pub(super) const fn words<S: Simd>(values: usize) -> usize {
    if narrow::<S>() { values / 4 } else { values }
}

/// Digits of lanes, turned: word w of lane c is at `w * stride + c`.
#[derive(Default)]
pub(super) struct Packed {
    pub high: Vec<u32>,
    /// Not used where words are wide.
    pub low: Vec<u32>,
    pub words: usize,
    pub stride: usize,
}

/// Digits of rows, word after word.
#[derive(Default)]
pub(super) struct Rows {
    pub high: Vec<u32>,
    /// Not used where words are wide.
    pub low: Vec<u32>,
    /// Where the sums of each row start: of high digits, and of both.
    pub start: Vec<[i32; 2]>,
}

impl Rows {
    /// Takes over one row.
    #[inline(always)]
    pub(super) fn set<S: Simd>(&mut self, row: usize, high: &[i8], low: &[i8]) {
        let words = words::<S>(high.len());
        let low = &low[..high.len()];
        let to = &mut self.high[row * words..][..words];
        if narrow::<S>() {
            let sum = |x: &[i8]| x.iter().map(|x| i32::from(*x)).sum::<i32>();
            let (h, l) = (sum(high), sum(low));
            self.start[row] = [-128 * h, -128 * (h + l)];
            let word = |four: &[i8; 4]| u32::from_le_bytes(four.map(|x| x as u8));
            for (to, four) in to.iter_mut().zip(high.as_chunks::<4>().0) {
                *to = word(four);
            }
            let to = &mut self.low[row * words..][..words];
            for (to, four) in to.iter_mut().zip(low.as_chunks::<4>().0) {
                *to = word(four);
            }
        } else {
            for i in 0..words {
                to[i] = u32::from(i16::from(high[i]) as u16) | u32::from(low[i] as u16) << 16;
            }
        }
    }

    /// Makes room for `rows` rows of `values` values.
    pub(super) fn size<S: Simd>(&mut self, rows: usize, values: usize) {
        let words = rows * words::<S>(values);
        self.high.resize(words, 0);
        self.low.resize(if narrow::<S>() { words } else { 0 }, 0);
        self.start.resize(rows, [0; 2]);
    }
}

/// `out[n][c]` of `N` rows from `row`.
struct Products<'a, S, const N: usize> {
    rows: &'a Rows,
    row: usize,
    lanes: &'a Packed,
    out: &'a mut [f32],
    simd: PhantomData<S>,
}

/// Multiplies `count` rows, at most [`ROWS`], from `row` with all lanes; `out` has rows of the lanes' stride.
pub(super) fn multiply<S: Simd>(
    simd: S,
    rows: &Rows,
    row: usize,
    count: usize,
    lanes: &Packed,
    out: &mut [f32],
) {
    macro_rules! by_count {
        ($($n:literal)*) => {
            match count {
                $($n => {
                    simd.run(Products::<S, $n> { rows, row, lanes, out, simd: PhantomData });
                })*
                _ => unreachable!("at most {ROWS} rows"),
            }
        };
    }
    by_count!(1 2 3 4 5 6);
}

impl<S: Simd, const N: usize> Work for Products<'_, S, N> {
    type Output = ();

    #[inline(always)]
    #[allow(clippy::needless_range_loop)] // n and v index registers and memory alike
    fn run(self) {
        let Self { rows, row, lanes, out, .. } = self;
        let (words, stride) = (lanes.words, lanes.stride);
        assert!(stride.is_multiple_of(lane_step::<S>()) && out.len() >= N * stride);
        assert!(lanes.high.len() >= words * stride && rows.high.len() >= (row + N) * words);
        if narrow::<S>() {
            assert!(lanes.low.len() >= words * stride && rows.low.len() >= (row + N) * words);
        }
        let mut start = [[0i32; 2]; N];
        if narrow::<S>() {
            start.copy_from_slice(&rows.start[row..row + N]);
        }
        let (row_high, row_low) = (rows.high.as_ptr(), rows.low.as_ptr());
        let (lane_high, lane_low) = (lanes.high.as_ptr(), lanes.low.as_ptr());
        for c in (0..stride).step_by(lane_step::<S>()) {
            // SAFETY: inlined into `run` of S; offsets are below what was asserted.
            unsafe {
                let mut high = [[S::zero_i(); VECTORS]; N];
                let mut both = [[S::zero_i(); VECTORS]; N];
                if narrow::<S>() {
                    for n in 0..N {
                        high[n] = [S::splat_i(start[n][0] as u32); VECTORS];
                        both[n] = [S::splat_i(start[n][1] as u32); VECTORS];
                    }
                    for w in 0..words {
                        let at = w * stride + c;
                        let mut h = [S::zero_i(); VECTORS];
                        let mut l = [S::zero_i(); VECTORS];
                        for v in 0..VECTORS {
                            h[v] = S::load_i(lane_high.add(at + v * S::LANES));
                            l[v] = S::load_i(lane_low.add(at + v * S::LANES));
                        }
                        for n in 0..N {
                            let at = (row + n) * words + w;
                            let x = S::splat_i(*row_high.add(at));
                            let y = S::splat_i(*row_low.add(at));
                            for v in 0..VECTORS {
                                high[n][v] = S::dot_bytes(high[n][v], x, h[v]);
                                both[n][v] = S::dot_bytes(both[n][v], x, l[v]);
                                both[n][v] = S::dot_bytes(both[n][v], y, h[v]);
                            }
                        }
                    }
                    let scale = S::splat(256.0);
                    for n in 0..N {
                        for v in 0..VECTORS {
                            let sum = S::fma(S::convert(high[n][v]), scale, S::convert(both[n][v]));
                            S::store(out.as_mut_ptr().add(n * stride + c + v * S::LANES), sum);
                        }
                    }
                } else if words > WHOLE {
                    for w in 0..words {
                        let at = w * stride + c;
                        let mut h = [S::zero_i(); VECTORS];
                        for v in 0..VECTORS {
                            h[v] = S::load_i(lane_high.add(at + v * S::LANES));
                        }
                        for n in 0..N {
                            // Its high digit with the lane's; and what the value of the lane whole
                            // has of that too much is taken off: `h*(256*k + m) + (l - 256*h)*k`.
                            let x = *row_high.add((row + n) * words + w);
                            let (digit, low) = (x as i16, (x >> 16) as i16);
                            let rest = low - 256 * digit;
                            let y =
                                S::splat_i(u32::from(digit as u16) | u32::from(rest as u16) << 16);
                            let x = S::splat_i(x << 16);
                            for v in 0..VECTORS {
                                high[n][v] = S::dot_wide(high[n][v], h[v], x);
                                both[n][v] = S::dot_wide(both[n][v], h[v], y);
                            }
                        }
                    }
                    let scale = S::splat(256.0);
                    for n in 0..N {
                        for v in 0..VECTORS {
                            let sum = S::fma(S::convert(high[n][v]), scale, S::convert(both[n][v]));
                            S::store(out.as_mut_ptr().add(n * stride + c + v * S::LANES), sum);
                        }
                    }
                } else {
                    for w in 0..words {
                        let at = w * stride + c;
                        let mut h = [S::zero_i(); VECTORS];
                        for v in 0..VECTORS {
                            h[v] = S::load_i(lane_high.add(at + v * S::LANES));
                        }
                        for n in 0..N {
                            let x = S::splat_i(*row_high.add((row + n) * words + w));
                            for v in 0..VECTORS {
                                high[n][v] = S::dot_wide(high[n][v], h[v], x);
                            }
                        }
                    }
                    for n in 0..N {
                        for v in 0..VECTORS {
                            let to = out.as_mut_ptr().add(n * stride + c + v * S::LANES);
                            S::store(to, S::convert(high[n][v]));
                        }
                    }
                }
            }
        }
    }
}

impl Packed {
    /// Makes room for `lanes` lanes of `values` values; lanes past them hold what they held.
    pub(super) fn size<S: Simd>(&mut self, lanes: usize, values: usize) {
        self.words = words::<S>(values);
        self.stride = lanes.next_multiple_of(lane_step::<S>());
        let len = self.words * self.stride;
        self.high.resize(len, 0);
        self.low.resize(if narrow::<S>() { len } else { 0 }, 0);
    }

    /// Takes over two planes of `lanes` rows of `values` digits.
    #[inline(always)]
    pub(super) fn pack<S: Simd>(
        &mut self,
        turned: &mut [Vec<u32>; 2],
        high: &[u8],
        low: &[u8],
        lanes: usize,
        values: usize,
    ) {
        self.size::<S>(lanes, values);
        let stride = self.stride;
        if narrow::<S>() {
            for (to, plane) in [(&mut self.high, high), (&mut self.low, low)] {
                turn::<S>(plane, lanes, values / 4, to, stride);
                for word in to.iter_mut() {
                    *word ^= 0x8080_8080;
                }
            }
            return;
        }
        for (to, plane) in turned.iter_mut().zip([high, low]) {
            to.resize(values / 4 * stride, 0);
            turn::<S>(plane, lanes, values / 4, to, stride);
        }
        let [high, low] = turned;
        for four in 0..values / 4 {
            let (high, low) = (&high[four * stride..][..stride], &low[four * stride..][..stride]);
            for byte in 0..4 {
                let to = &mut self.high[(4 * four + byte) * stride..][..stride];
                let up = 24 - 8 * byte;
                for c in 0..stride {
                    let h = ((high[c] << up) as i32) >> 24;
                    let l = ((low[c] << up) as i32) >> 24;
                    to[c] = ((h << 8) + l) as u32 & 0xffff | (h << 16) as u32;
                }
            }
        }
    }
}

/// Word w of row r of `plane` to `to[w * stride + r]`.
#[inline(always)]
fn turn<S: Simd>(plane: &[u8], rows: usize, words: usize, to: &mut [u32], stride: usize) {
    assert!(plane.len() >= rows * words * 4 && to.len() >= words * stride && rows <= stride);
    let from = plane.as_ptr().cast::<u32>();
    let (even_rows, even_words) = (rows / 8 * 8, words / 8 * 8);
    for r in (0..even_rows).step_by(8) {
        for w in (0..even_words).step_by(8) {
            // SAFETY: eight words of eight rows, inside what was asserted; inlined into `run` of S.
            unsafe {
                let mut rows = [from; 8];
                for (i, row) in rows.iter_mut().enumerate() {
                    *row = from.add((r + i) * words + w);
                }
                S::transpose(rows, to.as_mut_ptr().add(w * stride + r), stride);
            }
        }
    }
    for r in 0..rows {
        let done = if r < even_rows { even_words } else { 0 };
        for w in done..words {
            let at = (r * words + w) * 4;
            to[w * stride + r] = u32::from_le_bytes(*plane[at..].first_chunk().expect("inside"));
        }
    }
}
