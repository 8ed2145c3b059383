//! The K types: 256 values, integer sub-scales under one f16 scale.

use super::Decoded;
use super::scale::{f16_at, field};

/// The sub-scale of each of the 32 values from 32s, where there is one per 16.
///
/// Loops over 32 values with a scale per value become vector code; loops over
/// 16 are unrolled first, and do not.
#[inline(always)]
fn lanes(scales: &[i16; 16], s: usize) -> [i16; 32] {
    let mut lanes = [scales[2 * s]; 32];
    lanes[16..].fill(scales[2 * s + 1]);
    lanes
}

/// Q2_K: 16 bytes of scale (low nibble) and minimum (high nibble) per 16
/// values, 64 code bytes, f16 d, f16 dmin; value = d * sc * code - dmin * mn.
///
/// Bits 2n of code byte 32h + m are value 128h + 32n + m.
#[inline(always)]
pub fn q2_k(block: &[u8; 84], out: &mut Decoded) {
    let scales: &[u8; 16] = field(block, 0);
    let codes: &[u8; 64] = field(block, 16);
    out.dw[0] = f16_at(block, 80);
    out.dm = -f16_at(block, 82);
    for (mn, &byte) in out.mn.iter_mut().zip(scales) {
        *mn = i16::from(byte >> 4);
    }
    let scales = scales.map(|byte| i16::from(byte & 15));
    for half in 0..2 {
        let scale: [_; 4] = std::array::from_fn(|n| lanes(&scales, 4 * half + n));
        for m in 0..32 {
            let byte = codes[32 * half + m];
            for n in 0..4 {
                out.iw[128 * half + 32 * n + m] = i16::from(byte >> (2 * n) & 3) * scale[n][m];
            }
        }
    }
}

/// Q3_K: 32 bytes of third bits, 64 code bytes, 12 bytes of six-bit scales,
/// f16 d; value = d * (sc - 32) * (code - 4).
///
/// Codes lie as in Q2_K; bit 4h + n of high byte m is the third bit of value
/// 128h + 32n + m.
#[inline(always)]
pub fn q3_k(block: &[u8; 110], out: &mut Decoded) {
    let high: &[u8; 32] = field(block, 0);
    let codes: &[u8; 64] = field(block, 32);
    let packed: &[u8; 12] = field(block, 96);
    out.dw[0] = f16_at(block, 108);
    // The low nibbles of the scales lie in bytes 0..8 (first the low nibble of each byte, then the
    // high one), the two high bits in bytes 8..12 by the quarter of the block.
    let mut scales = [0i16; 16];
    for i in 0..4 {
        let top = packed[8 + i];
        scales[i] = i16::from(packed[i] & 15 | (top & 3) << 4) - 32;
        scales[i + 4] = i16::from(packed[i + 4] & 15 | (top >> 2 & 3) << 4) - 32;
        scales[i + 8] = i16::from(packed[i] >> 4 | (top >> 4 & 3) << 4) - 32;
        scales[i + 12] = i16::from(packed[i + 4] >> 4 | (top >> 6) << 4) - 32;
    }
    for s in 0..8 {
        let (half, n) = (s / 4, s % 4);
        let scale = lanes(&scales, s);
        for m in 0..32 {
            let low = codes[32 * half + m] >> (2 * n) & 3;
            let third = high[m] >> s & 1;
            out.iw[32 * s + m] = (i16::from(low | third << 2) - 4) * scale[m];
        }
    }
}

/// The eight six-bit scales and minimums of Q4_K and Q5_K.
///
/// Bytes 0..4 hold scales 0..4 and bytes 4..8 minimums 0..4 in their low six
/// bits; bytes 8..12 hold the low nibbles of scales (low) and minimums (high)
/// 4..8, whose upper two bits are the top bits of bytes 0..4 and 4..8.
#[inline(always)]
fn scales_and_minimums(packed: &[u8; 12]) -> ([i16; 8], [i16; 8]) {
    let (mut scales, mut minimums) = ([0i16; 8], [0i16; 8]);
    for i in 0..4 {
        scales[i] = i16::from(packed[i] & 63);
        minimums[i] = i16::from(packed[i + 4] & 63);
        scales[i + 4] = i16::from(packed[i + 8] & 15 | packed[i] >> 6 << 4);
        minimums[i + 4] = i16::from(packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4);
    }
    (scales, minimums)
}

/// Q4_K: f16 d, f16 dmin, 12 bytes of scales and minimums, 128 code bytes;
/// value = d * sc * code - dmin * mn, with sc and mn per 32 values.
///
/// Code byte 32p + m holds value 64p + m (low nibble) and 64p + 32 + m.
#[inline(always)]
pub fn q4_k(block: &[u8; 144], out: &mut Decoded) {
    let (scales, minimums) = scales_and_minimums(field(block, 4));
    let codes: &[u8; 128] = field(block, 16);
    out.dw[0] = f16_at(block, 0);
    out.dm = -f16_at(block, 2);
    out.mn[..8].copy_from_slice(&minimums);
    for p in 0..4 {
        for m in 0..32 {
            let byte = codes[32 * p + m];
            out.iw[64 * p + m] = i16::from(byte & 15) * scales[2 * p];
            out.iw[64 * p + 32 + m] = i16::from(byte >> 4) * scales[2 * p + 1];
        }
    }
}

/// Q5_K: as Q4_K, with 32 bytes of fifth bits before the code bytes.
///
/// Bit s of high byte m is the fifth bit of value 32s + m.
#[inline(always)]
pub fn q5_k(block: &[u8; 176], out: &mut Decoded) {
    let (scales, minimums) = scales_and_minimums(field(block, 4));
    let high: &[u8; 32] = field(block, 16);
    let codes: &[u8; 128] = field(block, 48);
    out.dw[0] = f16_at(block, 0);
    out.dm = -f16_at(block, 2);
    out.mn[..8].copy_from_slice(&minimums);
    for s in 0..8 {
        for m in 0..32 {
            let low = codes[s / 2 * 32 + m] >> (s % 2 * 4) & 15;
            let fifth = high[m] >> s & 1;
            out.iw[32 * s + m] = i16::from(low | fifth << 4) * scales[s];
        }
    }
}

/// Q6_K: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed
/// scale bytes (one per 16 values), f16 d; value = d * sc * (code - 32).
///
/// Of half h, value 32n + m takes its nibble from byte 64h + 32(n % 2) + m
/// (the low one for n < 2) and its upper bits from bits 2n of byte 32h + m.
#[inline(always)]
pub fn q6_k(block: &[u8; 210], out: &mut Decoded) {
    let low: &[u8; 128] = field(block, 0);
    let high: &[u8; 64] = field(block, 128);
    let scales = field::<16>(block, 192).map(|byte| i16::from(byte as i8));
    out.dw[0] = f16_at(block, 208);
    for s in 0..8 {
        let (half, n) = (s / 4, s % 4);
        let scale = lanes(&scales, s);
        for m in 0..32 {
            let nibble = low[64 * half + n % 2 * 32 + m] >> (n / 2 * 4) & 15;
            let upper = high[32 * half + m] >> (2 * n) & 3;
            out.iw[32 * s + m] = (i16::from(nibble | upper << 4) - 32) * scale[m];
        }
    }
}
