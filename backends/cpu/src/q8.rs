//! One q8_1 block, and the report of what in it is not finite.

use std::sync::atomic::{AtomicU32, Ordering};

use strata_core::Result;
use strata_core::backend::ops::ReportTo;
use strata_core::numerics::canonical;
use strata_core::q8_1::{BLOCK_BYTES, BLOCK_VALUES, HEADER_BYTES, Layout};

use crate::memory;

/// What a block was seen to hold.
#[derive(Clone, Copy)]
pub(crate) struct Seen {
    /// An input that is not finite.
    value: bool,
    /// A stored scale or sum that is not finite.
    header: bool,
}

/// Where blocks report to while they are written on several threads.
pub(crate) struct Reporter {
    least: AtomicU32,
    value: u32,
    header: u32,
}

impl Reporter {
    pub(crate) fn new(to: &ReportTo<'_>) -> Self {
        Self { least: AtomicU32::new(u32::MAX), value: to.value_kind(), header: to.header_kind() }
    }

    #[inline(always)]
    pub(crate) fn block(&self, token: usize, seen: Seen) {
        if seen.value | seen.header {
            self.report(token, if seen.value { self.value } else { self.header });
        }
    }

    /// A value of `token` that is not finite.
    pub(crate) fn value(&self, token: usize) {
        self.report(token, self.value);
    }

    #[cold]
    fn report(&self, token: usize, kind: u32) {
        self.least.fetch_min((token as u32) << 2 | kind, Ordering::Relaxed);
    }

    /// Hands the least report on, when all threads are done.
    pub(crate) fn finish(self, to: &mut ReportTo<'_>) -> Result<()> {
        let mut word = to.word();
        let word = memory::values_mut(&mut word)?;
        word[0] = word[0].min(self.least.into_inner());
        Ok(())
    }
}

/// The block of 128 values.
#[inline(always)]
pub(crate) fn block(x: &[f32; BLOCK_VALUES], layout: Layout, out: &mut [u8; BLOCK_BYTES]) -> Seen {
    let (header, codes) = out.split_at_mut(HEADER_BYTES);
    let mut value = false;
    let mut finite = true;
    if layout == Layout::D2S6 {
        let mut halves = [0u16; 8];
        for g in 0..2 {
            let (d, any) = group::<64>(&x[64 * g..], &mut codes[64 * g..]);
            halves[g] = f16_bits(d);
            value |= any;
        }
        for j in 0..6 {
            halves[2 + j] = f16_bits(sum::<4>(&x[16 * j..]));
        }
        for (to, half) in header.as_chunks_mut::<2>().0.iter_mut().zip(halves) {
            finite &= half & 0x7c00 != 0x7c00;
            *to = half.to_le_bytes();
        }
        return Seen { value, header: !finite };
    }
    for g in 0..4 {
        let (d, any) = group::<32>(&x[32 * g..], &mut codes[32 * g..]);
        value |= any;
        let word = if layout == Layout::D4 {
            finite &= d.is_finite();
            canonical(d).to_bits()
        } else {
            let (d, s) = (f16_bits(d), f16_bits(sum::<8>(&x[32 * g..])));
            finite &= d & 0x7c00 != 0x7c00 && s & 0x7c00 != 0x7c00;
            u32::from(d) | u32::from(s) << 16
        };
        header[4 * g..4 * g + 4].copy_from_slice(&word.to_le_bytes());
    }
    Seen { value, header: !finite }
}

/// Bits of infinity: above them is NaN, from them on nothing is finite.
const INFINITY: i32 = 0x7f80_0000;

/// Codes and scale of the first `G` values, and whether one is not finite.
///
/// A group of zeros needs no case of its own: 127/0 is infinite, zero times
/// that is NaN, which is code 0, and 1/infinity is the scale 0.
#[inline(always)]
fn group<const G: usize>(x: &[f32], codes: &mut [u8]) -> (f32, bool) {
    let (x, codes) = (&x[..G], &mut codes[..G]);
    // Magnitudes order as integers. NaN is left out of the one maximum, and decides the other.
    let (mut largest, mut any) = ([-1i32; 8], [0i32; 8]);
    for x in x.as_chunks::<8>().0 {
        for l in 0..8 {
            let magnitude = (x[l].to_bits() & 0x7fff_ffff) as i32;
            let key = if magnitude > INFINITY { -1 } else { magnitude };
            largest[l] = largest[l].max(key);
            any[l] = any[l].max(magnitude);
        }
    }
    let largest = largest.into_iter().fold(-1, i32::max);
    let any = any.into_iter().fold(0, i32::max);
    // All ones are a NaN: what -1 stands for.
    let d_inv = 127.0 / f32::from_bits(largest as u32);
    for (code, &x) in codes.iter_mut().zip(x) {
        *code = round_code(x * d_inv) as u8;
    }
    (1.0 / d_inv, any >= INFINITY)
}

/// [`strata_core::numerics::round_code`] without branches.
#[inline(always)]
fn round_code(x: f32) -> i8 {
    let x = if x > 127.0 { 127.0 } else { x };
    let x = if x < -127.0 { -127.0 } else { x };
    let x = if x.is_nan() { 0.0 } else { x };
    // The float below 1/2 is enough to carry every half and above to the next integer, and does not
    // carry the float below a half there: the sum of those two rounds to below it.
    let x = x + 0.499_999_97_f32.copysign(x);
    // SAFETY: x is within -127.5..=127.5.
    unsafe { x.to_int_unchecked::<i32>() as i8 }
}

/// The sum of `4 * N` values: four at a time in order, then halves.
#[inline(always)]
fn sum<const N: usize>(x: &[f32]) -> f32 {
    let x = &x.as_chunks::<4>().0[..N];
    let mut parts: [f32; N] = std::array::from_fn(|i| ((x[i][0] + x[i][1]) + x[i][2]) + x[i][3]);
    let mut count = N;
    while count > 1 {
        count /= 2;
        for i in 0..count {
            parts[i] += parts[i + count];
        }
    }
    parts[0]
}

/// [`strata_core::numerics::f16_bits`] without branches and calls.
#[inline(always)]
fn f16_bits(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16) as u16 & 0x8000;
    let magnitude = x.to_bits() & 0x7fff_ffff;
    // Normal: take the bias from 127 to 15 and 13 bits off, to the nearest, ties to even.
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    // Below 2^-14: added to 1/2 the last bit is worth 2^-24, as the result's is, and the adder rounds.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let finite = if magnitude < 113 << 23 { subnormal } else { normal };
    // Everything from 65520 on, and infinity.
    let bits = if magnitude >= 0x477f_f000 { 0x7c00 } else { finite as u16 };
    let nan = magnitude > INFINITY as u32;
    if nan { strata_core::numerics::NAN_F16 } else { sign | bits }
}

#[cfg(test)]
mod tests {
    use strata_core::numerics;

    #[test]
    fn codes_at_every_half_and_its_neighbours() {
        let mut values = vec![0.0, f32::NAN, f32::INFINITY, f32::MAX, f32::MIN_POSITIVE, 1e-45];
        for half in 0..=512 {
            let at = half as f32 * 0.25;
            values.extend([at.next_down(), at, at.next_up()]);
        }
        for bits in (0..=u32::MAX).step_by(1021) {
            values.push(f32::from_bits(bits));
        }
        for x in values {
            for x in [x, -x] {
                assert_eq!(super::round_code(x), numerics::round_code(x), "{x:e}");
            }
        }
    }

    #[test]
    fn half_precision_at_every_value_and_midpoint() {
        let mut values = Vec::new();
        for bits in 0..=0x7c00u16 {
            let (low, high) = (numerics::f16_to_f32(bits), numerics::f16_to_f32(bits + 1));
            let middle = if bits == 0x7bff { 65520.0 } else { low + (high - low) * 0.5 };
            for x in [low, middle] {
                values.extend([x.next_down(), x, x.next_up()]);
            }
        }
        values.extend((0..=u32::MAX).step_by(1021).map(f32::from_bits));
        for x in values {
            for x in [x, -x] {
                assert_eq!(super::f16_bits(x), numerics::f16_bits(x), "{x:e}");
            }
        }
    }
}
