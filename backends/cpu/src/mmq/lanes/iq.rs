//! The IQ types.
//!
//! Codebook entries are copied row by row, signs and sub-scales are applied to all rows at once.

use strata_core::format::grids;
use strata_core::format::iq::IQ4_VALUES;
use strata_core::format::types::{
    IQ1_M, IQ1_S, IQ2_S, IQ2_XS, IQ2_XXS, IQ3_S, IQ3_XXS, IQ4_NL, IQ4_XS,
};

use super::entries::{Entries, bytes_at, eight, joined, u16_at};
use super::{Lanes, Rows, To, fields, lookups, times};
use crate::simd::{MOST_LANES, Simd};

/// Four seven-bit sign codes of a word as 32 signs: the eighth of eight makes their number even.
///
/// # Safety
/// Inside a `run` of S.
#[inline(always)]
unsafe fn even_signs<S: Simd>(word: S::I) -> S::I {
    // SAFETY: the caller's.
    unsafe {
        let mut signs = S::and(word, S::splat_i(0x7f));
        for i in 1..4 {
            signs = S::or(signs, S::and(S::shl(word, i), S::splat_i(0x7f << (8 * i))));
        }
        let mut parity = signs;
        for shift in [4, 2, 1] {
            parity = S::xor(parity, S::shr(parity, shift));
        }
        S::or(signs, S::shl(S::and(parity, S::splat_i(0x0101_0101)), 7))
    }
}

/// Twice an integer, and one.
///
/// # Safety
/// Inside a `run` of S.
#[inline(always)]
unsafe fn odd<S: Simd>(v: S::I) -> S::I {
    // SAFETY: the caller's.
    unsafe { S::or(S::shl(v, 1), S::splat_i(1)) }
}

/// Bits of a word, after a shift to the right.
///
/// # Safety
/// Inside a `run` of S.
#[inline(always)]
unsafe fn bits<S: Simd>(v: S::I, shift: usize, mask: u32) -> S::I {
    // SAFETY: the caller's.
    unsafe { S::and(S::shr(v, shift as u32), S::splat_i(mask)) }
}

/// Eight bytes of two sub-scales each, from byte `at` on.
///
/// # Safety
/// As for [`Lanes::lanes`].
#[inline(always)]
unsafe fn nibble_scales<S: Simd, F: Lanes, const ONE: bool>(
    rows: &Rows<'_>,
    at: usize,
    to: &To<S, F, ONE>,
) {
    // SAFETY: the caller's.
    unsafe {
        for half in 0..2 {
            let scales = rows.word::<S>(at + 4 * half);
            for i in 0..8 {
                to.sub(8 * half + i, odd::<S>(bits::<S>(scales, 4 * i, 15)));
            }
        }
    }
}

impl Lanes for IQ2_XXS {
    const OFFSET: i32 = 43;
    const MOST: Option<i32> = Some(86);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 66 bytes.
        unsafe {
            to.scale(0, times::<S>(rows.half::<S>(0), 0.125));
            let entries = Entries::of::<S, Self>(rows, |block, s| {
                let [a, b, c, d] = bytes_at::<4>(block, 2 + 8 * s);
                [
                    eight(&grids::IQ2_XXS, usize::from(a)),
                    eight(&grids::IQ2_XXS, usize::from(b)),
                    eight(&grids::IQ2_XXS, usize::from(c)),
                    eight(&grids::IQ2_XXS, usize::from(d)),
                ]
            });
            let mut words = [S::zero_i(); 8];
            for pair in 0..4 {
                [_, words[2 * pair], _, words[2 * pair + 1]] = rows.turn::<S>(2 + 16 * pair);
            }
            for (s, word) in words.into_iter().enumerate() {
                to.sub(s, odd::<S>(S::shr(word, 28)));
            }
            entries.signed::<S, Self, ONE>(|s| even_signs::<S>(words[s]), 43, to);
        }
    }
}

impl Lanes for IQ2_XS {
    const OFFSET: i32 = 43;
    const MOST: Option<i32> = Some(86);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 74 bytes.
        unsafe {
            to.scale(0, times::<S>(rows.half::<S>(0), 0.125));
            nibble_scales(rows, 66, to);
            let entries = Entries::of::<S, Self>(rows, |block, s| {
                let codes = u64::from_le_bytes(bytes_at(block, 2 + 8 * s));
                [
                    eight(&grids::IQ2_XS, (codes & 511) as usize),
                    eight(&grids::IQ2_XS, (codes >> 16 & 511) as usize),
                    eight(&grids::IQ2_XS, (codes >> 32 & 511) as usize),
                    eight(&grids::IQ2_XS, (codes >> 48 & 511) as usize),
                ]
            });
            let mut pairs = [S::zero_i(); 16];
            for (pairs, i) in pairs.as_chunks_mut::<4>().0.iter_mut().zip(0..) {
                *pairs = rows.turn::<S>(2 + 16 * i);
            }
            // Two codes of nine bits below seven of signs to a word.
            let signs = |s: usize| {
                let seven = |i: usize| {
                    let word = pairs[2 * s + i];
                    S::or(bits::<S>(word, 9, 0x7f), S::shl(S::shr(word, 25), 7))
                };
                even_signs::<S>(S::or(seven(0), S::shl(seven(1), 14)))
            };
            entries.signed::<S, Self, ONE>(signs, 43, to);
        }
    }
}

impl Lanes for IQ2_S {
    const OFFSET: i32 = 43;
    const MOST: Option<i32> = Some(86);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 82 bytes.
        unsafe {
            to.scale(0, times::<S>(rows.half::<S>(0), 0.125));
            nibble_scales(rows, 74, to);
            let entries = Entries::of::<S, Self>(rows, |block, s| {
                let [a, b, c, d] = bytes_at::<4>(block, 2 + 4 * s);
                let upper = usize::from(block[66 + s]);
                [
                    eight(&grids::IQ2_S, usize::from(a) | upper << 8 & 0x300),
                    eight(&grids::IQ2_S, usize::from(b) | upper << 6 & 0x300),
                    eight(&grids::IQ2_S, usize::from(c) | upper << 4 & 0x300),
                    eight(&grids::IQ2_S, usize::from(d) | upper << 2 & 0x300),
                ]
            });
            let signs = [rows.turn::<S>(34), rows.turn::<S>(50)];
            entries.signed::<S, Self, ONE>(|s| signs[s / 4][s % 4], 43, to);
        }
    }
}

impl Lanes for IQ3_XXS {
    const OFFSET: i32 = 62;
    const MOST: Option<i32> = Some(124);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 98 bytes.
        unsafe {
            to.scale(0, times::<S>(rows.half::<S>(0), 0.25));
            let entries = Entries::of::<S, Self>(rows, |block, s| {
                let [a, b, c, d, e, f, g, h] = bytes_at::<8>(block, 2 + 8 * s);
                [
                    joined(&grids::IQ3_XXS, usize::from(a), usize::from(b)),
                    joined(&grids::IQ3_XXS, usize::from(c), usize::from(d)),
                    joined(&grids::IQ3_XXS, usize::from(e), usize::from(f)),
                    joined(&grids::IQ3_XXS, usize::from(g), usize::from(h)),
                ]
            });
            let words = [rows.turn::<S>(66), rows.turn::<S>(82)];
            for s in 0..8 {
                to.sub(s, odd::<S>(S::shr(words[s / 4][s % 4], 28)));
            }
            entries.signed::<S, Self, ONE>(|s| even_signs::<S>(words[s / 4][s % 4]), 62, to);
        }
    }
}

impl Lanes for IQ3_S {
    const OFFSET: i32 = 15;
    const MOST: Option<i32> = Some(30);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 110 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            let scales = rows.word::<S>(106);
            for s in 0..8 {
                to.sub(s, odd::<S>(bits::<S>(scales, 4 * s, 15)));
            }
            let entries = Entries::of::<S, Self>(rows, |block, s| {
                let [a, b, c, d, e, f, g, h] = bytes_at::<8>(block, 2 + 8 * s);
                let ninth = usize::from(block[66 + s]);
                let (grid, bit) = (&grids::IQ3_S, 0x100);
                [
                    joined(
                        grid,
                        usize::from(a) | ninth << 8 & bit,
                        usize::from(b) | ninth << 7 & bit,
                    ),
                    joined(
                        grid,
                        usize::from(c) | ninth << 6 & bit,
                        usize::from(d) | ninth << 5 & bit,
                    ),
                    joined(
                        grid,
                        usize::from(e) | ninth << 4 & bit,
                        usize::from(f) | ninth << 3 & bit,
                    ),
                    joined(
                        grid,
                        usize::from(g) | ninth << 2 & bit,
                        usize::from(h) | ninth << 1 & bit,
                    ),
                ]
            });
            let signs = [rows.turn::<S>(74), rows.turn::<S>(90)];
            entries.signed::<S, Self, ONE>(|s| signs[s / 4][s % 4], 15, to);
        }
    }
}

impl Lanes for IQ1_S {
    const OFFSET: i32 = 1;
    const MOST: Option<i32> = Some(2);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 50 bytes.
        unsafe {
            let d = rows.half::<S>(0);
            to.scale(0, d);
            to.min_scale(times::<S>(d, 0.125));
            for (i, pair) in rows.turn::<S>(34).into_iter().enumerate() {
                for j in 0..2 {
                    let word = bits::<S>(pair, 16 * j, 0xffff);
                    let scale = odd::<S>(bits::<S>(word, 12, 7));
                    // The sign of the shift negates: flipped, and one more.
                    let sign = S::shr(word, 15);
                    let minus = S::sub_i(S::zero_i(), sign);
                    to.sub(2 * i + j, scale);
                    to.min(2 * i + j, S::add_i(S::xor(scale, minus), sign));
                }
            }
            let entries = Entries::of::<S, Self>(rows, |block, s| {
                let [a, b, c, d] = bytes_at::<4>(block, 2 + 4 * s);
                let upper = u16_at(block, 34 + 2 * s);
                [
                    eight(&grids::IQ1_S, usize::from(a) | upper << 8 & 0x700),
                    eight(&grids::IQ1_S, usize::from(b) | upper << 5 & 0x700),
                    eight(&grids::IQ1_S, usize::from(c) | upper << 2 & 0x700),
                    eight(&grids::IQ1_S, usize::from(d) | upper >> 1 & 0x700),
                ]
            });
            for part in 0..16 {
                let mut words = entries.words::<S>(part);
                for word in &mut words {
                    *word = S::add_bytes(*word, S::splat_i(0x0101_0101));
                }
                to.codes(4 * part, words);
            }
        }
    }
}

impl Lanes for IQ1_M {
    const OFFSET: i32 = 9;
    const MOST: Option<i32> = Some(18);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 56 bytes.
        unsafe {
            let [shifts, more_shifts, a, b] = rows.turn::<S>(40);
            let d = S::or(
                S::or(bits::<S>(a, 12, 0xf), bits::<S>(a, 24, 0xf0)),
                S::or(bits::<S>(b, 4, 0xf00), bits::<S>(b, 16, 0xf000)),
            );
            let mut words = [0; MOST_LANES];
            S::store_i(words.as_mut_ptr(), d);
            to.scale(0, times::<S>(S::load_f16(words.map(|word| word as u16).as_ptr()), 0.125));
            for s in 0..16 {
                let word = if s < 8 { a } else { b };
                to.sub(s, odd::<S>(bits::<S>(word, 16 * (s / 4 % 2) + 3 * (s % 4), 7)));
            }
            let entries = Entries::of::<S, Self>(rows, |block, s| {
                let [a, b, c, d] = bytes_at::<4>(block, 4 * s);
                let upper = u16_at(block, 32 + 2 * s);
                [
                    eight(&grids::IQ1_S, usize::from(a) | upper << 8 & 0x700),
                    eight(&grids::IQ1_S, usize::from(b) | upper << 4 & 0x700),
                    eight(&grids::IQ1_S, usize::from(c) | upper & 0x700),
                    eight(&grids::IQ1_S, usize::from(d) | upper >> 4 & 0x700),
                ]
            });
            // The sign of the shift is bit 3 of the nibble of eight values.
            let nibbles = [rows.word::<S>(32), rows.word::<S>(36), shifts, more_shifts];
            for part in 0..16 {
                let mut words = entries.words::<S>(part);
                for (i, word) in words.iter_mut().enumerate() {
                    let eight = 2 * part + i / 2;
                    let sign = bits::<S>(nibbles[eight / 8], 4 * (eight % 8) + 3, 1);
                    let less = S::and(S::sub_i(S::zero_i(), sign), S::splat_i(0x0202_0202));
                    // 8 (entry + 1) + 2, or 2 less.
                    let entry = S::shl(S::add_bytes(*word, S::splat_i(0x0101_0101)), 3);
                    *word = S::sub_bytes(S::add_bytes(entry, S::splat_i(0x0202_0202)), less);
                }
                to.codes(4 * part, words);
            }
        }
    }
}

/// [`IQ4_VALUES`] as bytes.
const IQ4_BYTES: [u8; 16] = {
    let mut bytes = [0; 16];
    let mut i = 0;
    while i < 16 {
        bytes[i] = IQ4_VALUES[i] as u8;
        i += 1;
    }
    bytes
};

/// Sixteen code bytes from byte `at` on to words from `word` on.
///
/// # Safety
/// As for [`Lanes::lanes`].
#[inline(always)]
unsafe fn non_linear<S: Simd, F: Lanes, const ONE: bool>(
    rows: &Rows<'_>,
    at: usize,
    word: usize,
    to: &To<S, F, ONE>,
) {
    // SAFETY: the caller's.
    unsafe {
        let codes = rows.turn::<S>(at);
        to.signed(word, lookups::<S>(&IQ4_BYTES, fields::<S>(codes, 0, 15)));
        to.signed(word + 4, lookups::<S>(&IQ4_BYTES, fields::<S>(codes, 4, 15)));
    }
}

impl Lanes for IQ4_NL {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = None;

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 18 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            non_linear(rows, 2, 0, to);
        }
    }
}

impl Lanes for IQ4_XS {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = None;

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 136 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(0));
            let [head, lower, ..] = rows.turn::<S>(0);
            for s in 0..8 {
                let upper = S::shl(bits::<S>(head, 16 + 2 * s, 3), 4);
                let scale = S::or(bits::<S>(lower, 4 * s, 15), upper);
                to.sub(s, S::sub_i(scale, S::splat_i(32)));
                non_linear(rows, 8 + 16 * s, 8 * s, to);
            }
        }
    }
}
