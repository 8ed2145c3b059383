//! Blocks of 32 values with one f16 scale: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
//!
//! Value i of a nibble type sits in the low nibble of code byte i for the
//! first sixteen values and in the high nibble for the others.

use super::Decoded;
use super::scale::{BIT_MASKS, f16_at, field};

/// Q4_0: f16 d, 16 code bytes; value = d * (code - 8).
#[inline(always)]
pub fn q4_0(block: &[u8; 18], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    nibbles(field(block, 2), -8, out);
}

/// Q4_1: f16 d, f16 m, 16 code bytes; value = d * code + m.
#[inline(always)]
pub fn q4_1(block: &[u8; 20], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    out.mn[0] = 1;
    out.dm = f16_at(block, 2);
    nibbles(field(block, 4), 0, out);
}

/// Q5_0: f16 d, the fifth bits of the 32 codes, 16 code bytes; value = d * (code - 16).
#[inline(always)]
pub fn q5_0(block: &[u8; 22], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    five_bits(field(block, 2), field(block, 6), -16, out);
}

/// Q5_1: f16 d, f16 m, the fifth bits, 16 code bytes; value = d * code + m.
#[inline(always)]
pub fn q5_1(block: &[u8; 24], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    out.mn[0] = 1;
    out.dm = f16_at(block, 2);
    five_bits(field(block, 4), field(block, 8), 0, out);
}

/// Q8_0: f16 d, 32 signed bytes; value = d * code.
#[inline(always)]
pub fn q8_0(block: &[u8; 34], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    let codes: &[u8; 32] = field(block, 2);
    for (iw, &code) in out.iw[..32].iter_mut().zip(codes) {
        *iw = i16::from(code as i8);
    }
}

#[inline(always)]
fn nibbles(codes: &[u8; 16], offset: i16, out: &mut Decoded) {
    for i in 0..16 {
        out.iw[i] = i16::from(codes[i] & 15) + offset;
        out.iw[i + 16] = i16::from(codes[i] >> 4) + offset;
    }
}

#[inline(always)]
fn five_bits(high: &[u8; 4], codes: &[u8; 16], offset: i16, out: &mut Decoded) {
    for (j, &high) in high.iter().enumerate() {
        let fifth = &BIT_MASKS[usize::from(high)];
        for i in 0..8 {
            let code = codes[j % 2 * 8 + i] >> (j / 2 * 4) & 15;
            out.iw[j * 8 + i] = (i16::from(code) | fifth[i] & 16) + offset;
        }
    }
}
