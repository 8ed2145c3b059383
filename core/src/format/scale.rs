//! The scales that blocks store, widened to f32, and the sign tables that
//! several families share.

/// The exponent bits of 2^-14, the smallest normal f16, as f32.
const F16_MIN_NORMAL: u32 = 113 << 23;

/// Widens an f16, exactly, with selects instead of branches.
///
/// Decoders run inside loops compiled for wider instruction sets than the
/// crate is; a conversion that asks the CPU what it can do would be a call in
/// the middle of them.
#[inline(always)]
pub const fn f16(bits: u16) -> f32 {
    let magnitude = (bits as u32 & 0x7fff) << 13;
    let exponent = bits & 0x7c00;
    // Moving the bias from 15 to 127 is right for normal values.
    let rebiased = magnitude + (112 << 23);
    // An f16 without exponent is mantissa * 2^-24: read it as 2^-14 + mantissa * 2^-24 and take 2^-14 off.
    let subnormal =
        (f32::from_bits(rebiased + (1 << 23)) - f32::from_bits(F16_MIN_NORMAL)).to_bits();
    let finite = if exponent == 0 { subnormal } else { rebiased };
    // Infinity and NaN keep an exponent of all ones; a signalling NaN is made quiet.
    let quiet = if magnitude & 0x007f_ffff == 0 { 0 } else { 0x0040_0000 };
    let special = magnitude | 0x7f80_0000 | quiet;
    let unsigned = if exponent == 0x7c00 { special } else { finite };
    f32::from_bits(unsigned | (bits as u32 & 0x8000) << 16)
}

/// Half of an e8m0 scale: `2^(e - 128)`, subnormal for 0 and 1.
///
/// The format calls 255 a NaN; the reference decodes it as the power of two
/// that it would be, and so does this.
#[inline(always)]
pub const fn e8m0_half(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e as u32 - 1) << 23 })
}

/// Half of an unsigned e4m3 scale, for every byte.
///
/// As in the reference, 0x7f (the format's NaN) is 0, and the top bit, which
/// has no meaning in an unsigned scale, is ignored otherwise: 0xff is 240.
pub static UE4M3_HALF: [f32; 256] = {
    let mut table = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        table[code] = ue4m3_half(code as u8);
        code += 1;
    }
    table
};

const fn ue4m3_half(code: u8) -> f32 {
    let exponent = (code >> 3 & 15) as u32;
    let mantissa = (code & 7) as f32;
    if code == 0x7f {
        0.0
    } else if exponent == 0 {
        mantissa * (1.0 / 1024.0)
    } else {
        // (1 + mantissa / 8) * 2^(exponent - 7) / 2
        (8.0 + mantissa) * f32::from_bits((exponent + 127 - 11) << 23)
    }
}

/// The f16 at byte `at`.
#[inline(always)]
pub(super) fn f16_at(block: &[u8], at: usize) -> f32 {
    f16(u16_at(block, at))
}

/// The little-endian u16 at byte `at`.
#[inline(always)]
pub(super) fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*field(block, at))
}

/// The little-endian u32 at byte `at`.
#[inline(always)]
pub(super) fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*field(block, at))
}

/// The `N` bytes of a block from byte `at`; callers pass constants that lie inside.
#[inline(always)]
pub(super) fn field<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a field lies inside its block")
}

/// The eight bits of every byte as masks: entry j is all ones where bit j is set.
///
/// `(x ^ mask) - mask` negates x where the bit is set; `mask & n` picks n.
pub static BIT_MASKS: [[i16; 8]; 256] = masks::<256>(false);

/// [`BIT_MASKS`] for the seven-bit sign codes of the IQ types: the eighth
/// sign is the one that makes the number of negative values even.
pub static EVEN_SIGN_MASKS: [[i16; 8]; 128] = masks::<128>(true);

const fn masks<const N: usize>(even: bool) -> [[i16; 8]; N] {
    let mut table = [[0; 8]; N];
    let mut code = 0;
    while code < N {
        let parity = if even { (code.count_ones() & 1) << 7 } else { 0 };
        let bits = code as u32 | parity;
        let mut j = 0;
        while j < 8 {
            table[code][j] = -((bits >> j & 1) as i16);
            j += 1;
        }
        code += 1;
    }
    table
}
