//! The IQ types: codebook entries under integer sub-scales, and the two
//! non-linear four-bit types.
//!
//! Sub-scales are stored as s and mean 2s + 1. Where a type takes its signs
//! from seven-bit codes, see [`EVEN_SIGN_MASKS`].

use super::Decoded;
use super::grids;
use super::scale::{BIT_MASKS, EVEN_SIGN_MASKS, f16, f16_at, field, u16_at, u32_at};

/// Codebook values, scaled and signed.
///
/// Entries and signs are rows of a table and not numbers to shift apart, so
/// that each is one load into a vector register.
#[inline(always)]
fn put_signed<const N: usize>(out: &mut [i16], entry: &[i8; N], scale: i16, signs: &[i16]) {
    for j in 0..N {
        out[j] = ((i16::from(entry[j]) * scale) ^ signs[j]) - signs[j];
    }
}

/// 2s + 1 of a four-bit sub-scale.
#[inline(always)]
fn odd(s: u8) -> i16 {
    2 * i16::from(s) + 1
}

/// IQ2_XXS: f16 d, then per 32 values four codebook bytes and a word of four
/// seven-bit sign codes and a four-bit sub-scale; dw = d/8.
#[inline(always)]
pub fn iq2_xxs(block: &[u8; 66], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0) * 0.125;
    for (s, iw) in out.iw.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let codes: &[u8; 4] = field(block, 2 + 8 * s);
        let word = u32_at(block, 6 + 8 * s);
        let scale = odd((word >> 28) as u8);
        for (l, iw) in iw.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let signs = &EVEN_SIGN_MASKS[(word >> (7 * l) & 127) as usize];
            put_signed(iw, &grids::IQ2_XXS[usize::from(codes[l])], scale, signs);
        }
    }
}

/// IQ2_XS: f16 d, 32 words of nine codebook bits and a seven-bit sign code,
/// eight bytes of two sub-scales each, one per 16 values; dw = d/8.
#[inline(always)]
pub fn iq2_xs(block: &[u8; 74], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0) * 0.125;
    let scales: &[u8; 8] = field(block, 66);
    for (s, iw) in out.iw.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let pair = [odd(scales[s] & 15), odd(scales[s] >> 4)];
        for (l, iw) in iw.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = u16_at(block, 2 + 8 * s + 2 * l);
            let signs = &EVEN_SIGN_MASKS[usize::from(word >> 9)];
            put_signed(iw, &grids::IQ2_XS[usize::from(word & 511)], pair[l / 2], signs);
        }
    }
}

/// IQ2_S: f16 d, 32 low codebook bytes, 32 sign bytes, eight bytes of two
/// high codebook bits each for four entries, eight bytes of two sub-scales,
/// one per 16 values; dw = d/8.
#[inline(always)]
pub fn iq2_s(block: &[u8; 82], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0) * 0.125;
    let low: &[u8; 32] = field(block, 2);
    let signs: &[u8; 32] = field(block, 34);
    let high: &[u8; 8] = field(block, 66);
    let scales: &[u8; 8] = field(block, 74);
    for (s, iw) in out.iw.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let pair = [odd(scales[s] & 15), odd(scales[s] >> 4)];
        for (l, iw) in iw.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let upper = usize::from(high[s] >> (2 * l) & 3) << 8;
            let entry = &grids::IQ2_S[usize::from(low[4 * s + l]) | upper];
            let signs = &BIT_MASKS[usize::from(signs[4 * s + l])];
            put_signed(iw, entry, pair[l / 2], signs);
        }
    }
}

/// IQ3_XXS: f16 d, 64 codebook bytes of four values each, then per 32 values
/// a word of four seven-bit sign codes and a four-bit sub-scale; dw = d/4.
#[inline(always)]
pub fn iq3_xxs(block: &[u8; 98], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0) * 0.25;
    for (s, iw) in out.iw.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let codes: &[u8; 8] = field(block, 2 + 8 * s);
        let word = u32_at(block, 66 + 4 * s);
        let scale = odd((word >> 28) as u8);
        for (l, iw) in iw.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let first = &grids::IQ3_XXS[usize::from(codes[2 * l])];
            let second = &grids::IQ3_XXS[usize::from(codes[2 * l + 1])];
            let signs = &EVEN_SIGN_MASKS[(word >> (7 * l) & 127) as usize];
            put_signed(&mut iw[..4], first, scale, &signs[..4]);
            put_signed(&mut iw[4..], second, scale, &signs[4..]);
        }
    }
}

/// IQ3_S: f16 d, 64 low codebook bytes of four values each, eight bytes of
/// ninth codebook bits, 32 sign bytes, four bytes of two sub-scales, one per
/// 32 values; dw = d.
#[inline(always)]
pub fn iq3_s(block: &[u8; 110], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    let low: &[u8; 64] = field(block, 2);
    let high: &[u8; 8] = field(block, 66);
    let signs: &[u8; 32] = field(block, 74);
    let scales: &[u8; 4] = field(block, 106);
    for (s, iw) in out.iw.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let scale = odd(scales[s / 2] >> (s % 2 * 4) & 15);
        for (l, iw) in iw.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let ninth = usize::from(high[s]) >> (2 * l);
            let e = 4 * s + l;
            let first = &grids::IQ3_S[usize::from(low[2 * e]) | (ninth & 1) << 8];
            let second = &grids::IQ3_S[usize::from(low[2 * e + 1]) | (ninth >> 1 & 1) << 8];
            let signs = &BIT_MASKS[usize::from(signs[e])];
            put_signed(&mut iw[..4], first, scale, &signs[..4]);
            put_signed(&mut iw[4..], second, scale, &signs[4..]);
        }
    }
}

/// IQ1_S: f16 d, 32 low codebook bytes, eight words, one per 32 values, of
/// four times three high codebook bits, a three-bit sub-scale and the sign of
/// the shift; value = d * (2s+1) * grid + d/8 * (+-(2s+1)).
#[inline(always)]
pub fn iq1_s(block: &[u8; 50], out: &mut Decoded) {
    let d = f16_at(block, 0);
    out.dw[0] = d;
    out.dm = d * 0.125;
    let low: &[u8; 32] = field(block, 2);
    for (s, iw) in out.iw.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let word = u16_at(block, 34 + 2 * s);
        let scale = odd((word >> 12 & 7) as u8);
        out.mn[s] = if word & 0x8000 == 0 { scale } else { -scale };
        for (l, iw) in iw.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let upper = usize::from(word >> (3 * l) & 7) << 8;
            let entry = &grids::IQ1_S[usize::from(low[4 * s + l]) | upper];
            for j in 0..8 {
                iw[j] = i16::from(entry[j]) * scale;
            }
        }
    }
}

/// IQ1_M: 32 low codebook bytes, 16 bytes of two nibbles (three high codebook
/// bits and the sign of the shift, per 8 values), four words of four
/// three-bit sub-scales, one per 16 values; value = d/8 * (2s+1) * (8*grid +- 1).
///
/// The f16 d is spread over the top nibbles of the four words.
#[inline(always)]
pub fn iq1_m(block: &[u8; 56], out: &mut Decoded) {
    let low: &[u8; 32] = field(block, 0);
    let high: &[u8; 16] = field(block, 32);
    let mut words = [0u16; 4];
    let mut d = 0;
    for (i, word) in words.iter_mut().enumerate() {
        *word = u16_at(block, 48 + 2 * i);
        d |= *word >> 12 << (4 * i);
    }
    out.dw[0] = f16(d) * 0.125;
    for (s, iw) in out.iw.as_chunks_mut::<16>().0.iter_mut().enumerate() {
        let scale = odd((words[s / 4] >> (s % 4 * 3) & 7) as u8);
        let (first, second) = iw.split_at_mut(8);
        put_shifted(first, low[2 * s], high[s] & 15, scale);
        put_shifted(second, low[2 * s + 1], high[s] >> 4, scale);
    }
}

/// The shift of IQ1_M by its sign bit, once per value: a row to load keeps the
/// compiler from working on eight entries at a time and gathering their values.
static SHIFTS: [[i16; 8]; 2] = [[1; 8], [-1; 8]];

/// Eight values of IQ1_M from the low byte and the nibble of their entry.
#[inline(always)]
fn put_shifted(out: &mut [i16], low: u8, nibble: u8, scale: i16) {
    let entry = &grids::IQ1_S[usize::from(low) | usize::from(nibble & 7) << 8];
    let shift = &SHIFTS[usize::from(nibble >> 3)];
    for j in 0..8 {
        out[j] = (8 * i16::from(entry[j]) + shift[j]) * scale;
    }
}

/// The sixteen values of a non-linear four-bit code.
pub const IQ4_VALUES: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// [`IQ4_VALUES`] of a code, without a lookup: halves the candidates by one
/// bit of the code after the other, which vector code does with blends.
#[inline(always)]
fn iq4_value(code: u8) -> i8 {
    let mut left = IQ4_VALUES;
    let mut count = 16;
    let mut bit = 8;
    while bit > 0 {
        count /= 2;
        for i in 0..count {
            left[i] = if code & bit == 0 { left[i] } else { left[i + count] };
        }
        bit >>= 1;
    }
    left[0]
}

/// IQ4_NL: f16 d, 16 code bytes, low nibbles first; value = d * table\[code\].
#[inline(always)]
pub fn iq4_nl(block: &[u8; 18], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    let codes: &[u8; 16] = field(block, 2);
    for i in 0..16 {
        out.iw[i] = i16::from(iq4_value(codes[i] & 15));
        out.iw[i + 16] = i16::from(iq4_value(codes[i] >> 4));
    }
}

/// IQ4_XS: f16 d, a word of the two upper bits of eight sub-scales, four
/// bytes of their low nibbles, 128 code bytes: per 32 values sixteen, low
/// nibbles first; value = d * (ls - 32) * table\[code\].
#[inline(always)]
pub fn iq4_xs(block: &[u8; 136], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    let upper = u16_at(block, 2);
    let lower: &[u8; 4] = field(block, 4);
    for (s, iw) in out.iw.as_chunks_mut::<32>().0.iter_mut().enumerate() {
        let low = i16::from(lower[s / 2] >> (s % 2 * 4) & 15);
        let high = (upper >> (2 * s) & 3) as i16;
        let scale = (low | high << 4) - 32;
        let codes: &[u8; 16] = field(block, 8 + 16 * s);
        for i in 0..16 {
            iw[i] = i16::from(iq4_value(codes[i] & 15)) * scale;
            iw[i + 16] = i16::from(iq4_value(codes[i] >> 4)) * scale;
        }
    }
}
