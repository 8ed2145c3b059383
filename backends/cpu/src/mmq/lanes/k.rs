//! Q2_K, Q3_K, Q4_K, Q5_K, Q6_K.

use strata_core::format::types::{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K};

use super::{Lanes, Rows, To, byte, field, fields, joined_fields, times};
use crate::simd::Simd;

impl Lanes for Q2_K {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = Some(3);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 84 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(80));
            to.min_scale(times::<S>(rows.half::<S>(82), -1.0));
            for (i, packed) in rows.turn::<S>(0).into_iter().enumerate() {
                let (scales, minimums) = (field::<S>(packed, 0, 15), field::<S>(packed, 4, 15));
                for j in 0..4 {
                    to.sub(4 * i + j, byte::<S>(scales, j));
                    to.min(4 * i + j, byte::<S>(minimums, j));
                }
            }
            for quarter in 0..4 {
                let (half, from) = (quarter / 2, quarter % 2 * 4);
                let codes = rows.turn::<S>(16 + 16 * quarter);
                for n in 0..4 {
                    to.codes(32 * half + 8 * n + from, fields::<S>(codes, 2 * n as u32, 3));
                }
            }
        }
    }
}

impl Lanes for Q3_K {
    const OFFSET: i32 = 4;
    const MOST: Option<i32> = Some(7);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 110 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(108));
            // Twelve bytes of scales end the sixteen.
            let [_, a, b, top] = rows.turn::<S>(92);
            for (i, low) in [a, b, S::shr(a, 4), S::shr(b, 4)].into_iter().enumerate() {
                let upper = S::shl(field::<S>(top, 2 * i as u32, 3), 4);
                let scales = S::or(field::<S>(low, 0, 15), upper);
                for j in 0..4 {
                    to.sub(4 * i + j, S::sub_i(byte::<S>(scales, j), S::splat_i(32)));
                }
            }
            for part in 0..2 {
                let third = rows.turn::<S>(16 * part);
                for half in 0..2 {
                    let codes = rows.turn::<S>(32 + 32 * half + 16 * part);
                    for n in 0..4 {
                        let (low, third_bit) = (2 * n as u32, (4 * half + n) as u32);
                        let words = joined_fields::<S>(codes, (low, 3), third, (third_bit, 1, 2));
                        to.codes(32 * half + 8 * n + 4 * part, words);
                    }
                }
            }
        }
    }
}

/// Twelve bytes of eight scales and minimums from byte 4 on, and the two f16 before them.
///
/// # Safety
/// As for [`Lanes::lanes`].
#[inline(always)]
unsafe fn scales_and_minimums<S: Simd, F: Lanes, const ONE: bool>(
    rows: &Rows<'_>,
    to: &To<S, F, ONE>,
) {
    // SAFETY: the caller's.
    unsafe {
        to.scale(0, rows.half::<S>(0));
        to.min_scale(times::<S>(rows.half::<S>(2), -1.0));
        let [_, a, b, c] = rows.turn::<S>(0);
        let upper = |v| field::<S>(v, 2, 0x30);
        let scales = [field::<S>(a, 0, 63), S::or(field::<S>(c, 0, 15), upper(a))];
        let minimums = [field::<S>(b, 0, 63), S::or(field::<S>(c, 4, 15), upper(b))];
        for i in 0..8 {
            to.sub(i, byte::<S>(scales[i / 4], i % 4));
            to.min(i, byte::<S>(minimums[i / 4], i % 4));
        }
    }
}

impl Lanes for Q4_K {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = Some(15);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 144 bytes.
        unsafe {
            scales_and_minimums(rows, to);
            for part in 0..8 {
                let (pair, from) = (part / 2, part % 2 * 4);
                let codes = rows.turn::<S>(16 + 16 * part);
                to.codes(16 * pair + from, fields::<S>(codes, 0, 15));
                to.codes(16 * pair + 8 + from, fields::<S>(codes, 4, 15));
            }
        }
    }
}

impl Lanes for Q5_K {
    const OFFSET: i32 = 0;
    const MOST: Option<i32> = Some(31);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 176 bytes.
        unsafe {
            scales_and_minimums(rows, to);
            for part in 0..2 {
                let fifth = rows.turn::<S>(16 + 16 * part);
                for pair in 0..4 {
                    let codes = rows.turn::<S>(48 + 32 * pair + 16 * part);
                    for n in 0..2 {
                        let s = 2 * pair + n;
                        let low = (4 * n as u32, 15);
                        let words = joined_fields::<S>(codes, low, fifth, (s as u32, 1, 4));
                        to.codes(8 * s + 4 * part, words);
                    }
                }
            }
        }
    }
}

impl Lanes for Q6_K {
    const OFFSET: i32 = 32;
    const MOST: Option<i32> = Some(63);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 210 bytes.
        unsafe {
            to.scale(0, rows.half::<S>(208));
            for (i, scales) in rows.turn::<S>(192).into_iter().enumerate() {
                // Signed bytes: with the sign flipped they are 128 more.
                let scales = S::xor(scales, S::splat_i(0x8080_8080));
                for j in 0..4 {
                    to.sub(4 * i + j, S::sub_i(byte::<S>(scales, j), S::splat_i(128)));
                }
            }
            for half in 0..2 {
                for part in 0..2 {
                    let upper = rows.turn::<S>(128 + 32 * half + 16 * part);
                    for side in 0..2 {
                        let codes = rows.turn::<S>(64 * half + 32 * side + 16 * part);
                        for nibble in 0..2 {
                            let n = 2 * nibble + side;
                            let low = (4 * nibble as u32, 15);
                            let words = joined_fields::<S>(codes, low, upper, (2 * n as u32, 3, 4));
                            to.codes(32 * half + 8 * n + 4 * part, words);
                        }
                    }
                }
            }
        }
    }
}
