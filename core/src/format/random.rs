//! Random blocks of every type, for tests and benchmarks.

use super::WeightType;
use super::weight_type::{FloatScale, Sign};

/// The splitmix64 generator: a counter through a mixing function.
///
/// Small, fast, the same everywhere, and good enough to fill buffers with.
#[derive(Debug, Clone)]
pub struct SplitMix64 {
    state: u64,
}

impl SplitMix64 {
    /// A generator; equal seeds give equal sequences.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next 64 random bits.
    #[inline]
    pub const fn next_u64(&mut self) -> u64 {
        // The increment is 2^64 divided by the golden ratio; shifts and multipliers are splitmix64's.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// Fills `bytes` with random bits.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        let (words, rest) = bytes.as_chunks_mut::<8>();
        for word in words {
            *word = self.next_u64().to_le_bytes();
        }
        let last = self.next_u64().to_le_bytes();
        rest.copy_from_slice(&last[..rest.len()]);
    }
}

/// `blocks` blocks of random codes, sub-scales and signs, with float scales
/// that keep every weight finite and at most 1 in magnitude.
///
/// The scales are random too, but in a range: `dw` is in `[1, 2) * 2^-n`
/// (in `[1, 8) * 2^-n` for MXFP4 and `[1, 4) * 2^-n` for NVFP4) with n such
/// that the largest possible weight comes out between 1/16 and 1; never zero,
/// never a special code. Minimums are sized to put weights about zero. Types
/// without a minimum have scales of both signs where the format has a sign.
///
/// The same arguments give the same bytes on every machine.
///
/// # Panics
/// Where the host has no memory for so many; [`try_random_blocks`] says so.
pub fn random_blocks(ty: WeightType, seed: u64, blocks: usize) -> Vec<u8> {
    match try_random_blocks(ty, seed, blocks) {
        Ok(bytes) => bytes,
        Err(error) => panic!("{blocks} blocks of {ty}: {error}"),
    }
}

/// [`random_blocks`], for as many as there may not be memory for.
///
/// # Errors
/// [`Error::OutOfMemory`](crate::Error::OutOfMemory).
pub fn try_random_blocks(ty: WeightType, seed: u64, blocks: usize) -> crate::Result<Vec<u8>> {
    let mut bytes = crate::host_vec(blocks.saturating_mul(ty.block_bytes()))?;
    SplitMix64::new(seed).fill(&mut bytes);
    for block in bytes.chunks_exact_mut(ty.block_bytes()) {
        set_scales(ty, block);
    }
    Ok(bytes)
}

/// The f16 `bits` with exponent 2^`exponent` and a chosen sign; the mantissa stays.
fn with_exponent(bits: u16, exponent: i32, sign: Sign) -> u16 {
    let signed = match sign {
        Sign::Random => bits & 0x83ff,
        Sign::Plus => bits & 0x03ff,
        Sign::Minus => bits & 0x03ff | 0x8000,
    };
    signed | ((exponent + 15) as u16) << 10
}

fn set_f16(block: &mut [u8], at: usize, exponent: i32, sign: Sign) {
    let bits = u16::from_le_bytes([block[at], block[at + 1]]);
    block[at..at + 2].copy_from_slice(&with_exponent(bits, exponent, sign).to_le_bytes());
}

/// Replaces the float scales of one block of random bits.
fn set_scales(ty: WeightType, block: &mut [u8]) {
    use WeightType as T;
    // 2^bits is the power of two at or above the largest integer: dw below 2^-bits keeps weights below 1.
    let bits = (ty.max_iw() as u32).next_power_of_two().trailing_zeros() as i32;
    let dw = -bits - 1;
    for &FloatScale { at, sign, more } in ty.float_scales() {
        set_f16(block, at, dw + more, sign);
    }
    match ty {
        T::IQ1_M => {
            // The f16 is spread over the top nibbles of four words, the lowest nibble first.
            let (words, _) = block[48..].as_chunks_mut::<2>();
            let mut d = 0;
            for (i, word) in words.iter().enumerate() {
                d |= u16::from(word[1] >> 4) << (4 * i);
            }
            let d = with_exponent(d, dw + 3, Sign::Random);
            for (i, word) in words.iter_mut().enumerate() {
                word[1] = word[1] & 15 | (d >> (4 * i) << 4) as u8;
            }
        }
        // dw = 2^(e - 128), from 2^-7 to 2^-4.
        T::MXFP4 => block[0] = 121 + (block[0] & 3),
        // Half of (1 + m/8) * 2^(e - 7) with e = 2 or 3: from 2^-6 to nearly 2^-4.
        T::NVFP4 => {
            for scale in &mut block[..4] {
                *scale = (2 << 3) | *scale & 15;
            }
        }
        _ => {}
    }
}
