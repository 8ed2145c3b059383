//! Blocks of many rows decoded side by side: a lane is a row.
//!
//! Raw bytes are turned first, so that a word of a row is a lane of a vector, and decoded by plain
//! bit operations then: whatever one row needs, all rows of a vector have done by the same
//! instructions, and no sum is ever taken across lanes. Codes stay bytes, and sub-scales stay apart
//! from them; the kernel multiplies sums, not weights.

mod bits;
mod fp4;
mod iq;
mod k;
mod legacy;

use strata_core::format::Format;

use crate::simd::{MOST_LANES, Simd, prefetch};

/// How blocks of a type become bytes.
pub(super) trait Lanes: Format {
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
    unsafe fn lanes<S: Simd>(rows: &Rows<'_>, to: &To<S>);
}

/// What is stored of a type for an instruction set.
pub(super) struct Codes<F>(std::marker::PhantomData<F>);

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

/// Where a block of a vector of rows goes: rows of a tile's width.
pub(super) struct To<S> {
    pub(super) words: *mut u32,
    pub(super) dw: *mut f32,
    pub(super) sub: *mut f32,
    pub(super) mn: *mut f32,
    pub(super) dm: *mut f32,
    /// Rows of the tile.
    pub(super) stride: usize,
    pub(super) simd: std::marker::PhantomData<S>,
}

impl<S: Simd> To<S> {
    /// Word `i` of the codes.
    ///
    /// # Safety
    /// As for [`Lanes::lanes`]; the type has so many. So for all that follow.
    #[inline(always)]
    unsafe fn code(&self, i: usize, codes: S::I) {
        // SAFETY: the caller's.
        unsafe { S::store_i(self.words.add(i * self.stride), codes) }
    }

    /// Word `i` of signed codes.
    #[inline(always)]
    unsafe fn signed(&self, i: usize, codes: S::I) {
        // SAFETY: the caller's.
        unsafe {
            let flipped = if S::BYTES { S::xor(codes, S::splat_i(0x8080_8080)) } else { codes };
            self.code(i, flipped);
        }
    }

    /// The scale of group `g`.
    #[inline(always)]
    unsafe fn scale(&self, g: usize, values: S::F) {
        // SAFETY: the caller's.
        unsafe { S::store(self.dw.add(g * self.stride), values) }
    }

    /// Sub-scale `s`, an integer.
    #[inline(always)]
    unsafe fn sub(&self, s: usize, values: S::I) {
        // SAFETY: the caller's.
        unsafe { S::store(self.sub.add(s * self.stride), S::convert(values)) }
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
