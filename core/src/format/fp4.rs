//! Four-bit floats (e2m1) under byte scales: MXFP4, NVFP4.
//!
//! The integers are twice the e2m1 values, and the scales half of what the
//! block stores, so that everything is exact.

use super::Decoded;
use super::scale::{UE4M3_HALF, e8m0_half, field};

/// Twice the e2m1 value of a code: 0 1 2 3 4 6 8 12, negative from 8 on.
///
/// As a function of the three magnitude bits the table is piecewise linear:
/// its slope is 1, becomes 2 at 4 and 4 at 6. Saturating subtractions build
/// it without a lookup, so that loops over codes become vector code.
#[inline(always)]
fn doubled_e2m1(code: u8) -> i8 {
    let m = code & 7;
    let magnitude = m + m.saturating_sub(4) + 2 * m.saturating_sub(6);
    let sign = -(((code & 8) >> 3) as i8);
    (magnitude as i8 ^ sign) - sign
}

/// MXFP4: one e8m0 byte, 16 code bytes, low nibbles first.
#[inline(always)]
pub fn mxfp4(block: &[u8; 17], out: &mut Decoded) {
    out.dw[0] = e8m0_half(block[0]);
    let codes: &[u8; 16] = field(block, 1);
    for i in 0..16 {
        out.iw[i] = i16::from(doubled_e2m1(codes[i] & 15));
        out.iw[i + 16] = i16::from(doubled_e2m1(codes[i] >> 4));
    }
}

/// NVFP4: four unsigned e4m3 bytes, one per 16 values, then for each of them
/// eight code bytes, low nibbles first.
#[inline(always)]
pub fn nvfp4(block: &[u8; 36], out: &mut Decoded) {
    let codes: &[u8; 32] = field(block, 4);
    for s in 0..4 {
        out.dw[s] = UE4M3_HALF[usize::from(block[s])];
        for i in 0..8 {
            let byte = codes[8 * s + i];
            out.iw[16 * s + i] = i16::from(doubled_e2m1(byte & 15));
            out.iw[16 * s + 8 + i] = i16::from(doubled_e2m1(byte >> 4));
        }
    }
}
