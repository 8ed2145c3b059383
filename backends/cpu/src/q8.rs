//! One q8_1 block, and the report of what in it is not finite.

use std::sync::atomic::{AtomicU32, Ordering};

use strata_core::Result;
use strata_core::backend::ops::ReportTo;
use strata_core::numerics::{canonical, largest_magnitude, round_code};
use strata_core::q8_1::{BLOCK_BYTES, BLOCK_VALUES, HEADER_BYTES, Headers, Layout, Sums};

use crate::memory;
use crate::simd::Simd;

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

    /// A header of `token`, or what is reported as one, that is not finite.
    pub(crate) fn header(&self, token: usize) {
        self.report(token, self.header);
    }

    #[cold]
    fn report(&self, token: usize, kind: u32) {
        self.least.fetch_min((token as u32) << 3 | kind, Ordering::Relaxed);
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
///
/// # Safety
/// Inside a `run` of S.
#[inline(always)]
pub(crate) unsafe fn block<S: Simd>(
    x: &[f32; BLOCK_VALUES],
    headers: Headers,
    out: &mut [u8; BLOCK_BYTES],
) -> Seen {
    let Headers { layout, sums } = headers;
    let (header, codes) = out.split_at_mut(HEADER_BYTES);
    let x = x.as_chunks::<32>().0;
    let codes = codes.as_chunks_mut().0.as_mut_array::<4>().expect("128 codes");
    let mut largest = [0; 4];
    let mut halves = [0.0; 8];
    // SAFETY: the caller's.
    unsafe {
        for i in 0..4 {
            largest[i] = S::largest(&x[i]);
        }
        match (layout, sums) {
            (Layout::D4, _) | (_, Sums::Codes) => {}
            (Layout::DS4, Sums::Values) => {
                for i in 0..4 {
                    halves[2 * i + 1] = S::sum_32(&x[i]);
                }
            }
            (Layout::D2S6, Sums::Values) => {
                for i in 0..3 {
                    [halves[2 * i + 2], halves[2 * i + 3]] = S::sums_16(&x[i]);
                }
            }
        }
    }
    let value = largest.into_iter().fold(0, u32::max) >= INFINITY;
    let mut finite = true;
    // SAFETY: the caller's, for every group.
    unsafe {
        match layout {
            Layout::D4 => {
                for (i, to) in header.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                    let d = group::<S>(&x[i..=i], &mut codes[i..=i], largest[i]);
                    finite &= d.is_finite();
                    *to = canonical(d).to_le_bytes();
                }
                return Seen { value, header: !finite };
            }
            Layout::DS4 => {
                for i in 0..4 {
                    halves[2 * i] = group::<S>(&x[i..=i], &mut codes[i..=i], largest[i]);
                }
                if sums == Sums::Codes {
                    let sums = S::code_sums(codes);
                    for i in 0..4 {
                        halves[2 * i + 1] = (sums[2 * i] + sums[2 * i + 1]) as f32 * halves[2 * i];
                    }
                }
            }
            Layout::D2S6 => {
                for i in 0..2 {
                    let pair = 2 * i..2 * i + 2;
                    let largest = largest[2 * i].max(largest[2 * i + 1]);
                    halves[i] = group::<S>(&x[pair.clone()], &mut codes[pair], largest);
                }
                if sums == Sums::Codes {
                    let sums = S::code_sums(codes);
                    for j in 0..6 {
                        halves[2 + j] = sums[j] as f32 * halves[j / 4];
                    }
                }
            }
        }
    }
    // SAFETY: the caller's.
    let halves = unsafe { S::f16_bits(halves) };
    for (to, bits) in header.as_chunks_mut::<2>().0.iter_mut().zip(halves) {
        finite &= bits & 0x7c00 != 0x7c00;
        *to = bits.to_le_bytes();
    }
    Seen { value, header: !finite }
}

/// The codes of a group whose largest magnitude is `largest`; returns its scale.
///
/// # Safety
/// Inside a `run` of S.
#[inline(always)]
unsafe fn group<S: Simd>(x: &[[f32; 32]], codes: &mut [[u8; 32]], largest: u32) -> f32 {
    let d_inv = 127.0 / f32::from_bits(largest);
    if largest >= INFINITY || d_inv == f32::INFINITY {
        return special_group(x, codes);
    }
    for (x, codes) in x.iter().zip(codes) {
        // SAFETY: the caller's; products with d_inv are within a rounding of 127.
        unsafe { S::codes(x, d_inv, codes) };
    }
    1.0 / d_inv
}

/// Bits of infinity: above them is NaN, from them on nothing is finite.
const INFINITY: u32 = 0x7f80_0000;

/// The scale and codes of a group of zeros, one with values that are not
/// finite, or one so small that 127 over its largest is infinite.
///
/// Zeros need no case of their own: zero times infinity is NaN, which is code
/// 0, and one over infinity is the scale 0.
#[cold]
#[inline(never)]
fn special_group(x: &[[f32; 32]], codes: &mut [[u8; 32]]) -> f32 {
    let largest = largest_magnitude(x.as_flattened()).unwrap_or(f32::NAN);
    let d_inv = 127.0 / largest;
    for (x, codes) in x.iter().zip(codes) {
        for (code, &x) in codes.iter_mut().zip(x) {
            *code = round_code(x * d_inv) as u8;
        }
    }
    1.0 / d_inv
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{Cpu, Isa};
    use crate::simd::SimdWork;
    use strata_core::numerics;

    /// Codes of `x` with the scale 1.
    struct Codes<'a>(&'a [[f32; 32]], &'a mut [[u8; 32]]);

    impl SimdWork for Codes<'_> {
        #[inline(always)]
        fn run<S: Simd>(self) {
            for (x, codes) in self.0.iter().zip(self.1) {
                // SAFETY: inside a `run`; the values are at most 127.
                unsafe { S::codes(x, 1.0, codes) }
            }
        }
    }

    #[test]
    fn codes_at_every_half_and_its_neighbours() {
        let mut values = vec![0.0, f32::MIN_POSITIVE, 1e-45];
        for half in 0..=508 {
            let at = half as f32 * 0.25;
            values.extend([at.next_down(), at, at.next_up()]);
        }
        for bits in (0..127f32.to_bits()).step_by(1021) {
            values.push(f32::from_bits(bits));
        }
        values.extend(values.clone().iter().map(|x| -x));
        values.resize(values.len().next_multiple_of(32), 0.0);
        let mut codes = vec![0xa5; values.len()];
        for isa in Isa::supported() {
            let to = codes.as_chunks_mut().0;
            Cpu::new(isa).unwrap().run_simd(Codes(values.as_chunks().0, to));
            for (x, code) in values.iter().zip(&codes) {
                assert_eq!(*code as i8, numerics::round_code(*x), "{x:e} with {isa}");
            }
        }
    }

    /// f32 to f16.
    struct Halves<'a>(&'a [[f32; 8]], &'a mut [[u16; 8]]);

    impl SimdWork for Halves<'_> {
        #[inline(always)]
        fn run<S: Simd>(self) {
            for (x, bits) in self.0.iter().zip(self.1) {
                // SAFETY: inside a `run`.
                *bits = unsafe { S::f16_bits(*x) };
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
        values.extend(values.clone().iter().map(|x| -x));
        values.resize(values.len().next_multiple_of(8), 0.0);
        let mut halves = vec![0xa5a5; values.len()];
        for isa in Isa::supported() {
            let to = halves.as_chunks_mut().0;
            Cpu::new(isa).unwrap().run_simd(Halves(values.as_chunks().0, to));
            for (x, bits) in values.iter().zip(&halves) {
                assert_eq!(*bits, numerics::f16_bits(*x), "{x:e} with {isa}");
            }
        }
    }
}
