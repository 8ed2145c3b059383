//! MXFP4, NVFP4.

use strata_core::format::scale::{UE4M3_HALF, e8m0_half};
use strata_core::format::types::{MXFP4, NVFP4};

use super::{Lanes, Rows, To, fields, lookups};
use crate::simd::Simd;

/// Twice the e2m1 values, and 12.
const CODES: [u8; 16] = [12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0];

impl Lanes for MXFP4 {
    const OFFSET: i32 = 12;
    const MOST: Option<i32> = Some(24);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 17 bytes.
        unsafe {
            to.scale(0, rows.byte::<S>(0, e8m0_half));
            let codes = rows.turn::<S>(1);
            to.codes(0, lookups::<S>(&CODES, fields::<S>(codes, 0, 15)));
            to.codes(4, lookups::<S>(&CODES, fields::<S>(codes, 4, 15)));
        }
    }
}

impl Lanes for NVFP4 {
    const OFFSET: i32 = 12;
    const MOST: Option<i32> = Some(24);

    #[inline(always)]
    unsafe fn lanes<S: Simd, const ONE: bool>(rows: &Rows<'_>, to: &To<S, Self, ONE>) {
        // SAFETY: the caller's; a block has 36 bytes.
        unsafe {
            for s in 0..4 {
                to.scale(s, rows.byte::<S>(s, |code| UE4M3_HALF[usize::from(code)]));
            }
            for pair in 0..2 {
                // Two words of codes to a group: its values 0..8 and 8..16.
                let codes = rows.turn::<S>(4 + 16 * pair);
                let [a, b, c, d] = lookups::<S>(&CODES, fields::<S>(codes, 0, 15));
                let [e, f, g, h] = lookups::<S>(&CODES, fields::<S>(codes, 4, 15));
                to.codes(8 * pair, [a, b, e, f]);
                to.codes(8 * pair + 4, [c, d, g, h]);
            }
        }
    }
}
