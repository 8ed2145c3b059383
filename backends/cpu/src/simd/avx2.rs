//! AVX2 with FMA: eight lanes, sixteen registers.

use std::arch::x86_64::*;

use super::Simd;
use crate::isa::{Cpu, Isa, Work, run_avx2};

/// See [`Simd`]: made only where the machine has AVX2, FMA and F16C.
#[derive(Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The proof, if `cpu` was opened for AVX2.
    pub(crate) fn of(cpu: Cpu) -> Option<Self> {
        (cpu.isa() == Isa::Avx2).then_some(Self(()))
    }
}

// SAFETY: every method is one or a few instructions of AVX2 and FMA, on values or on the memory
// that its contract names; callers are inlined into `run`, which has these features.
#[allow(clippy::undocumented_unsafe_blocks)] // the reason above is every block's
unsafe impl Simd for Avx2 {
    type I = __m256i;
    type F = __m256;
    const LANES: usize = 8;
    const NARROW: i32 = 0;
    const TOKENS: usize = 6;

    fn run<W: Work>(self, work: W) -> W::Output {
        unsafe { run_avx2(work) }
    }

    #[inline(always)]
    unsafe fn zero_i() -> Self::I {
        unsafe { _mm256_setzero_si256() }
    }

    #[inline(always)]
    unsafe fn load_i(from: *const u32) -> Self::I {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_i(to: *mut u32, v: Self::I) {
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn splat_i(word: u32) -> Self::I {
        unsafe { _mm256_set1_epi32(word as i32) }
    }

    #[inline(always)]
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn dot_wide(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(w, x)) }
    }

    #[inline(always)]
    unsafe fn dot_narrow(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe {
            let pairs = _mm256_maddubs_epi16(x, w);
            _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: Self::F) {
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn convert(v: Self::I) -> Self::F {
        unsafe { _mm256_cvtepi32_ps(v) }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm256_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn transpose(from: [*const u32; 8], to: *mut u32, stride: usize) {
        unsafe { transpose_8x8(from, to, stride) }
    }
}

/// Words change places in three rounds: pairs, then quads, then halves of registers.
///
/// # Safety
/// AVX2; eight words at each of `from`, and eight rows of eight at `to`.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn transpose_8x8(from: [*const u32; 8], to: *mut u32, stride: usize) {
    unsafe {
        let r = from.map(|row| _mm256_loadu_si256(row.cast()));
        let pairs = [
            (_mm256_unpacklo_epi32(r[0], r[1]), _mm256_unpackhi_epi32(r[0], r[1])),
            (_mm256_unpacklo_epi32(r[2], r[3]), _mm256_unpackhi_epi32(r[2], r[3])),
            (_mm256_unpacklo_epi32(r[4], r[5]), _mm256_unpackhi_epi32(r[4], r[5])),
            (_mm256_unpacklo_epi32(r[6], r[7]), _mm256_unpackhi_epi32(r[6], r[7])),
        ];
        // Columns j and j + 4 of rows 0..4, and of rows 4..8.
        let upper = [
            _mm256_unpacklo_epi64(pairs[0].0, pairs[1].0),
            _mm256_unpackhi_epi64(pairs[0].0, pairs[1].0),
            _mm256_unpacklo_epi64(pairs[0].1, pairs[1].1),
            _mm256_unpackhi_epi64(pairs[0].1, pairs[1].1),
        ];
        let lower = [
            _mm256_unpacklo_epi64(pairs[2].0, pairs[3].0),
            _mm256_unpackhi_epi64(pairs[2].0, pairs[3].0),
            _mm256_unpacklo_epi64(pairs[2].1, pairs[3].1),
            _mm256_unpackhi_epi64(pairs[2].1, pairs[3].1),
        ];
        for j in 0..4 {
            let first = _mm256_permute2x128_si256::<0x20>(upper[j], lower[j]);
            let second = _mm256_permute2x128_si256::<0x31>(upper[j], lower[j]);
            _mm256_storeu_si256(to.add(j * stride).cast(), first);
            _mm256_storeu_si256(to.add((j + 4) * stride).cast(), second);
        }
    }
}
