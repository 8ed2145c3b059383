//! Blocks of many rows decoded side by side: a lane is a row.
//!
//! Raw bytes are turned first, so that a word of a row is a lane of a vector, and decoded by plain
//! bit operations then: whatever one row needs, all rows of a vector have done by the same
//! instructions, and no sum is ever taken across lanes. Codes stay bytes, and sub-scales stay apart
//! from them; the kernel multiplies sums, not weights.

mod bits;
mod entries;
mod fp4;
mod iq;
mod k;
mod legacy;

use std::marker::PhantomData;

use strata_core::format::Format;

use super::tile::Shape;
use crate::simd::{MOST_LANES, Simd, depth, prefetch};

/// How blocks of a type become bytes.
pub(super) trait Lanes: Format + Sized {
    /// Codes are `iw / sub-scale + OFFSET`.
    const OFFSET: i32;
    /// The largest code, if codes are unsigned.
    const MOST: Option<i32>;
    /// Values between those that stand next to each other in a word: byte b of word i is value
    /// `4 * STEP * (i / STEP) + STEP * b + i % STEP`.
    const STEP: usize = 1;

    /// Decodes a block of each row.
    ///
    /// # Safety
    /// Inside a `run` of S; rows are good for a block, and `to` for what the type has.
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>);
}

/// What is stored of a type for an instruction set.
pub(super) struct Codes<F>(PhantomData<F>);

impl<F: Lanes> Codes<F> {
    /// Whether codes are signed bytes: those of eight bits, where a product takes them.
    pub(super) const fn signed<S: Simd>() -> bool {
        F::MOST.is_none() && !S::BYTES
    }

    /// What stored codes are more than the integers.
    pub(super) const fn offset<S: Simd>() -> i32 {
        match (F::MOST, S::BYTES) {
            (None, true) => 128,
            (None, false) => 0,
            (Some(_), _) => F::OFFSET,
        }
    }

    /// How many words of codes of `run` values are summed from one start on: all, or two.
    pub(super) const fn words<S: Simd>(run: usize) -> usize {
        let most = match F::MOST {
            Some(most) if most - F::OFFSET > F::OFFSET => most - F::OFFSET,
            Some(_) => F::OFFSET,
            None => 128,
        };
        if S::HALVES && F::MOST.is_some() && depth(most) < run / 4 {
            assert!(depth(most) >= 2);
            return 2;
        }
        run / 4
    }
}

/// Where the blocks of the rows of a vector are.
pub(super) struct Rows<'a> {
    /// The rows; the first `LANES` are used.
    pub(super) at: &'a [*const u8; MOST_LANES],
    /// Bytes of each before the block.
    pub(super) from: usize,
    /// For long blocks: bytes from what is decoded to what will be a little later.
    pub(super) ahead: Option<usize>,
}

impl Rows<'_> {
    /// Sixteen bytes from byte `at` on, as words.
    ///
    /// # Safety
    /// As for [`Lanes::lanes`]; the bytes are of the block. So for all that follow.
    #[inline(always)]
    unsafe fn turn<S: Simd>(&self, at: usize) -> [S::I; 4] {
        if let Some(ahead) = self.ahead {
            // A line of a quarter of the rows each time: of all of them every 64 bytes.
            let quarter = at / 16 % 4 * (S::LANES / 4);
            for row in &self.at[quarter..quarter + S::LANES / 4] {
                prefetch(row.wrapping_add(self.from + at + ahead));
            }
        }
        // SAFETY: the caller's.
        unsafe { S::turn(self.at, self.from + at) }
    }

    /// The word from byte `at` on.
    #[inline(always)]
    unsafe fn word<S: Simd>(&self, at: usize) -> S::I {
        let mut words = [0; MOST_LANES];
        // SAFETY: the caller's.
        unsafe {
            for (word, row) in words[..S::LANES].iter_mut().zip(self.at) {
                *word = u32::from_le_bytes(row.add(self.from + at).cast::<[u8; 4]>().read());
            }
            S::load_i(words.as_ptr())
        }
    }

    /// The f16 at byte `at`.
    #[inline(always)]
    unsafe fn half<S: Simd>(&self, at: usize) -> S::F {
        let mut halves = [0; MOST_LANES];
        // SAFETY: the caller's.
        unsafe {
            for (half, row) in halves[..S::LANES].iter_mut().zip(self.at) {
                *half = u16::from_le_bytes(row.add(self.from + at).cast::<[u8; 2]>().read());
            }
            S::load_f16(halves.as_ptr())
        }
    }

    /// What `of` makes of byte `at`.
    #[inline(always)]
    unsafe fn byte<S: Simd>(&self, at: usize, of: impl Fn(u8) -> f32) -> S::F {
        let mut values = [0.0; MOST_LANES];
        // SAFETY: the caller's.
        unsafe {
            for (value, row) in values[..S::LANES].iter_mut().zip(self.at) {
                *value = of(*row.add(self.from + at));
            }
            S::load(values.as_ptr())
        }
    }
}

/// Where a block of a vector of rows goes: rows of a tile's width; or where there is `ONE` routed row,
/// codes are multiplied by its own as they come, and only what else a block has is stored.
pub(super) struct To<S: Simd, F, const ONE: bool> {
    /// Codes of weights, or for one row [`Shape::runs`](super::tile::Shape::runs) sums.
    pub(super) words: *mut u32,
    /// Codes of the one row.
    pub(super) codes: *const u32,
    pub(super) dw: *mut f32,
    pub(super) sub: *mut u32,
    pub(super) mn: *mut f32,
    pub(super) dm: *mut f32,
    /// Rows of the tile.
    pub(super) stride: usize,
    pub(super) types: PhantomData<(S, F)>,
}

impl<S: Simd, F: Lanes, const ONE: bool> To<S, F, ONE> {
    /// Word `i` of the codes.
    ///
    /// # Safety
    /// As for [`Lanes::lanes`]; the type has so many. So for all that follow.
    #[inline(always)]
    unsafe fn code(&self, i: usize, codes: S::I) {
        // SAFETY: the caller's.
        unsafe {
            if !ONE {
                return S::store_i(self.words.add(i * self.stride), codes);
            }
            let shape = const { Shape::one::<S, F>() };
            let sum = self.words.add(4 * i / shape.run * S::LANES);
            let x = S::splat_i(*self.codes.add(i));
            S::store_i(sum, Self::dot(S::load_i(sum), codes, x));
        }
    }

    /// One routed row's products, added to sums of one run.
    #[inline(always)]
    unsafe fn dot(sums: S::I, codes: S::I, x: S::I) -> S::I {
        let shape = const { Shape::one::<S, F>() };
        // SAFETY: the caller's.
        unsafe {
            let ones = S::splat_i(0x0001_0001);
            if Codes::<F>::signed::<S>() {
                S::dot_signed(sums, codes, x, ones)
            } else if shape.halves || !S::HALVES {
                S::dot_add(sums, codes, x)
            } else {
                S::dot_end(sums, S::dot_add(S::zero_i(), codes, x), ones)
            }
        }
    }

    /// Words from `i` on, a multiple of four.
    #[inline(always)]
    unsafe fn codes(&self, i: usize, codes: [S::I; 4]) {
        // SAFETY: the caller's.
        unsafe {
            if !ONE {
                for (n, codes) in codes.into_iter().enumerate() {
                    S::store_i(self.words.add((i + n) * self.stride), codes);
                }
                return;
            }
            // Four words are of one run.
            let shape = const { Shape::one::<S, F>() };
            let sum = self.words.add(4 * i / shape.run * S::LANES);
            let mut acc = S::load_i(sum);
            for (n, codes) in codes.into_iter().enumerate() {
                acc = Self::dot(acc, codes, S::splat_i(*self.codes.add(i + n)));
            }
            S::store_i(sum, acc);
        }
    }

    /// Words of signed codes from `i` on, a multiple of four.
    #[inline(always)]
    unsafe fn signed(&self, i: usize, mut codes: [S::I; 4]) {
        // SAFETY: the caller's.
        unsafe {
            if S::BYTES {
                for codes in &mut codes {
                    *codes = S::xor(*codes, S::splat_i(0x8080_8080));
                }
            }
            self.codes(i, codes);
        }
    }

    /// The scale of group `g`.
    #[inline(always)]
    unsafe fn scale(&self, g: usize, values: S::F) {
        // SAFETY: the caller's.
        unsafe { S::store(self.dw.add(g * self.stride), values) }
    }

    /// Sub-scale `s`, an integer: as f32, or where sums are halves as two i16.
    #[inline(always)]
    unsafe fn sub(&self, s: usize, values: S::I) {
        // SAFETY: the caller's.
        unsafe {
            let to = self.sub.add(s * self.stride);
            if S::HALVES && (!ONE || const { Shape::one::<S, F>() }.halves) {
                let low = S::and(values, S::splat_i(0xffff));
                S::store_i(to, S::or(low, S::shl(values, 16)));
            } else {
                S::store(to.cast(), S::convert(values));
            }
        }
    }

    /// Minimum `m`, an integer.
    #[inline(always)]
    unsafe fn min(&self, m: usize, values: S::I) {
        // SAFETY: the caller's.
        unsafe { S::store(self.mn.add(m * self.stride), S::convert(values)) }
    }

    /// The scale of the minimums.
    #[inline(always)]
    unsafe fn min_scale(&self, values: S::F) {
        // SAFETY: the caller's.
        unsafe { S::store(self.dm, values) }
    }
}

/// Byte `i` of each lane, as a word.
///
/// # Safety
/// Inside a `run` of S. So for all that follow.
#[inline(always)]
unsafe fn byte<S: Simd>(v: S::I, i: usize) -> S::I {
    // SAFETY: the caller's.
    unsafe { S::and(S::shr(v, 8 * i as u32), S::splat_i(0xff)) }
}

/// `bits` of all four bytes, after a shift to the right of less than a byte.
#[inline(always)]
unsafe fn field<S: Simd>(v: S::I, shift: u32, bits: u8) -> S::I {
    // SAFETY: the caller's.
    unsafe { S::and(S::shr(v, shift), S::splat_i(u32::from(bits) * 0x0101_0101)) }
}

/// `v * c` for a power of two.
#[inline(always)]
unsafe fn times<S: Simd>(v: S::F, c: f32) -> S::F {
    // SAFETY: the caller's.
    unsafe { S::fma(v, S::splat(c), S::splat(-0.0)) }
}

/// [`field`] of four words.
#[inline(always)]
unsafe fn fields<S: Simd>(mut words: [S::I; 4], shift: u32, bits: u8) -> [S::I; 4] {
    for word in &mut words {
        // SAFETY: the caller's.
        *word = unsafe { field::<S>(*word, shift, bits) };
    }
    words
}

/// [`fields`] of `low`, with those of `high` above them.
#[inline(always)]
unsafe fn joined_fields<S: Simd>(
    low: [S::I; 4],
    (shift, bits): (u32, u8),
    high: [S::I; 4],
    (high_shift, high_bits, up): (u32, u8, u32),
) -> [S::I; 4] {
    // SAFETY: the caller's.
    unsafe {
        let mut words = fields::<S>(low, shift, bits);
        for (word, high) in words.iter_mut().zip(high) {
            *word = S::or(*word, S::shl(field::<S>(high, high_shift, high_bits), up));
        }
        words
    }
}

/// Entries of `table`, likewise.
#[inline(always)]
unsafe fn lookups<S: Simd>(table: &[u8; 16], mut words: [S::I; 4]) -> [S::I; 4] {
    for word in &mut words {
        // SAFETY: the caller's.
        *word = unsafe { S::lookup(table, *word) };
    }
    words
}
