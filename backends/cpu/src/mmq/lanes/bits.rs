//! Q1_0, Q2_0, TQ1_0, TQ2_0.

use strata_core::format::types::{Q1_0, Q2_0, TQ1_0, TQ2_0};

use super::{Lanes, Rows, To, field, fields};
use crate::simd::Simd;

impl Lanes for Q1_0 {
    // A bit is twice itself less one.
    const OFFSET: i32 = 1;
    const MOST: Option<i32> = Some(2);
    const STEP: usize = 8;

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 18 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            for (i, codes) in rows.turn::<S>(2).into_iter().enumerate() {
                let [mut first, mut last] = [[S::zero_i(); 4]; 2];
                first[0] = S::shl(field::<S>(codes, 0, 1), 1);
                for (n, first) in first.iter_mut().enumerate().skip(1) {
                    *first = field::<S>(codes, n as u32 - 1, 2);
                }
                for (n, last) in last.iter_mut().enumerate() {
                    *last = field::<S>(codes, n as u32 + 3, 2);
                }
                to.codes(8 * i, first);
                to.codes(8 * i + 4, last);
            }
        }
    }
}

impl Lanes for Q2_0 {
    const OFFSET: i32 = 1;
    const MOST: Option<i32> = Some(3);
    const STEP: usize = 4;

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 18 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            for (i, codes) in rows.turn::<S>(2).into_iter().enumerate() {
                let mut words = [codes; 4];
                for (n, word) in words.iter_mut().enumerate() {
                    *word = field::<S>(codes, 2 * n as u32, 3);
                }
                to.codes(4 * i, words);
            }
        }
    }
}

impl Lanes for TQ1_0 {
    const OFFSET: i32 = 1;
    const MOST: Option<i32> = Some(2);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 54 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(52));
            for part in 0..2 {
                for (i, bytes) in rows.turn::<S>(16 * part).into_iter().enumerate() {
                    digits(bytes, 4 * part + i, 8, 5, to);
                }
            }
            for (i, bytes) in rows.turn::<S>(32).into_iter().enumerate() {
                digits(bytes, 40 + i, 4, 5, to);
            }
            digits(rows.word::<S>(48), 60, 1, 4, to);
        }
    }
}

/// The first `count` digits of four bytes to words `step` apart.
///
/// # Safety
/// As for [`Lanes::lanes`].
#[inline(always)]
unsafe fn digits<S: Simd, F: Lanes, const ONE: bool>(
    bytes: S::I,
    word: usize,
    step: usize,
    count: usize,
    to: &To<S, F, ONE>,
) {
    // SAFETY: the caller's.
    unsafe {
        let halves = S::splat_i(0x00ff_00ff);
        let mut even = S::and(bytes, halves);
        let mut odd = S::and(S::shr(bytes, 8), halves);
        for n in 0..count {
            // Three times a fraction of 256: a digit, and the fraction that is left.
            even = S::add_i(S::add_i(even, even), even);
            odd = S::add_i(S::add_i(odd, odd), odd);
            let low = S::and(S::shr(even, 8), S::splat_i(0x0003_0003));
            to.code(word + step * n, S::or(low, S::and(odd, S::splat_i(0x0300_0300))));
            even = S::and(even, halves);
            odd = S::and(odd, halves);
        }
    }
}

impl Lanes for TQ2_0 {
    const OFFSET: i32 = 1;
    const MOST: Option<i32> = Some(3);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 66 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(64));
            for quarter in 0..4 {
                let (half, from) = (quarter / 2, quarter % 2 * 4);
                let codes = rows.turn::<S>(16 * quarter);
                for n in 0..4 {
                    to.codes(32 * half + 8 * n + from, fields::<S>(codes, 2 * n as u32, 3));
                }
            }
        }
    }
}
