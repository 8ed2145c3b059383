//! Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.

use strata_core::format::types::{Q4_0, Q4_1, Q5_0, Q5_1, Q8_0};

use super::{Lanes, Rows, To, fields};
use crate::simd::Simd;

impl Lanes for Q4_0 {
    const OFFSET: i32 = 8;
    const MOST: Option<i32> = Some(15);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 18 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            nibbles(rows, 2, to);
        }
    }
}

impl Lanes for Q4_1 {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = Some(15);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 20 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            to.min(0, S::splat_i(1));
            to.min_scale(rows.half::<S>(2));
            nibbles(rows, 4, to);
        }
    }
}

impl Lanes for Q5_0 {
    const OFFSET: i32 = 16;
    const MOST: Option<i32> = Some(31);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 22 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            five_bits(rows, 2, to);
        }
    }
}

impl Lanes for Q5_1 {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = Some(31);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 24 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            to.min(0, S::splat_i(1));
            to.min_scale(rows.half::<S>(2));
            five_bits(rows, 4, to);
        }
    }
}

impl Lanes for Q8_0 {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = None;

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 34 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            to.signed(0, rows.turn::<S>(2));
            to.signed(4, rows.turn::<S>(18));
        }
    }
}

/// Sixteen code bytes from byte `at` on.
///
/// # Safety
/// As for [`Lanes::lanes`].
#[inline(always)]
unsafe fn nibbles<S: Simd, F: Lanes, const ONE: bool>(
    rows: &Rows<'_>,
    at: usize,
    to: &To<S, F, ONE>,
) {
    // SAFETY: the caller's.
    unsafe {
        let codes = rows.turn::<S>(at);
        to.codes(0, fields::<S>(codes, 0, 15));
        to.codes(4, fields::<S>(codes, 4, 15));
    }
}

/// A word of fifth bits from byte `at` on, then sixteen code bytes.
///
/// # Safety
/// As for [`Lanes::lanes`].
#[inline(always)]
unsafe fn five_bits<S: Simd, F: Lanes, const ONE: bool>(
    rows: &Rows<'_>,
    at: usize,
    to: &To<S, F, ONE>,
) {
    // SAFETY: the caller's.
    unsafe {
        let (high, fifth) = (rows.word::<S>(at), S::splat_i(0x1010_1010));
        let codes = rows.turn::<S>(at + 4);
        for half in 0..2 {
            let mut words = fields::<S>(codes, 4 * half as u32, 15);
            for (i, word) in words.iter_mut().enumerate() {
                *word = S::or(*word, S::and(S::bit_bytes(high, 4 * half + i), fifth));
            }
            to.codes(4 * half, words);
        }
    }
}
