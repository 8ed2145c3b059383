//! One- and two-bit codes and ternary digits: Q1_0, Q2_0, TQ1_0, TQ2_0.

use super::Decoded;
use super::scale::{BIT_MASKS, f16_at, field};

/// Q1_0: f16 d, 128 bits; value = d where the bit is set, -d where not.
#[inline(always)]
pub fn q1_0(block: &[u8; 18], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    let codes: &[u8; 16] = field(block, 2);
    for (iw, &bits) in out.iw.as_chunks_mut::<8>().0.iter_mut().zip(codes) {
        let mask = &BIT_MASKS[usize::from(bits)];
        for j in 0..8 {
            iw[j] = (mask[j] & 2) - 1;
        }
    }
}

/// The four values of each code byte of Q2_0.
static Q2_0_VALUES: [[i16; 4]; 256] = {
    let mut table = [[0; 4]; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut j = 0;
        while j < 4 {
            table[byte][j] = (byte >> (2 * j) & 3) as i16 - 1;
            j += 1;
        }
        byte += 1;
    }
    table
};

/// Q2_0: f16 d, 16 code bytes of four consecutive values; value = d * (code - 1).
#[inline(always)]
pub fn q2_0(block: &[u8; 18], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 0);
    let codes: &[u8; 16] = field(block, 2);
    for (iw, &byte) in out.iw.as_chunks_mut::<4>().0.iter_mut().zip(codes) {
        *iw = Q2_0_VALUES[usize::from(byte)];
    }
}

/// TQ1_0: five ternary digits a byte, most significant first, then f16 d.
///
/// A byte is the fraction 0.abcde in base 3, scaled by 256 and rounded up, so
/// `byte * 3^n mod 256` moves digit n to the front and `* 3 >> 8` reads it.
/// 32 bytes hold values 0..160 (digit n of byte m is value 32n + m), 16 bytes
/// values 160..240 in the same way, and 4 bytes of four digits the last 16.
#[inline(always)]
pub fn tq1_0(block: &[u8; 54], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 52);
    let (first, rest) = out.iw.split_at_mut(160);
    let (second, third) = rest.split_at_mut(80);
    digits(field::<32>(block, 0), first);
    digits(field::<16>(block, 32), second);
    digits(field::<4>(block, 48), third);
}

#[inline(always)]
fn digits<const N: usize>(bytes: &[u8; N], out: &mut [i16]) {
    const POWERS: [u8; 5] = [1, 3, 9, 27, 81];
    for (iw, power) in out.as_chunks_mut::<N>().0.iter_mut().zip(POWERS) {
        for m in 0..N {
            let front = bytes[m].wrapping_mul(power);
            iw[m] = ((u16::from(front) * 3) >> 8) as i16 - 1;
        }
    }
}

/// TQ2_0: 64 code bytes, then f16 d; value = d * (code - 1).
///
/// Bits 2n of byte 32h + m are value 128h + 32n + m.
#[inline(always)]
pub fn tq2_0(block: &[u8; 66], out: &mut Decoded) {
    out.dw[0] = f16_at(block, 64);
    let codes: &[u8; 64] = field(block, 0);
    for half in 0..2 {
        for n in 0..4 {
            for m in 0..32 {
                let code = codes[32 * half + m] >> (2 * n) & 3;
                out.iw[128 * half + 32 * n + m] = i16::from(code) - 1;
            }
        }
    }
}
