//! AVX-512 with VNNI: sixteen lanes, thirty-two registers.

use std::arch::x86_64::*;

use super::Simd;
use super::avx2::{code_sums, codes, f16_bits, largest, sum_32, sums_16, transpose_8x8};
use crate::isa::{Cpu, Isa, Work, run_avx512};

/// See [`Simd`]: made only where the machine has AVX-512 with VNNI.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(());

impl Avx512 {
    /// The proof, if `cpu` was opened for AVX-512.
    pub(crate) fn of(cpu: Cpu) -> Option<Self> {
        (cpu.isa() == Isa::Avx512).then_some(Self(()))
    }
}

// SAFETY: every method is one or a few instructions of AVX-512 F and VNNI, on values or on the
// memory that its contract names; callers are inlined into `run`, which has these features.
#[allow(clippy::undocumented_unsafe_blocks)] // the reason above is every block's
unsafe impl Simd for Avx512 {
    type I = __m512i;
    type F = __m512;
    const LANES: usize = 16;
    const NARROW: i32 = 127;
    const WIDE_ROWS: usize = 6;
    const NARROW_ROWS: usize = 6;

    fn run<W: Work>(self, work: W) -> W::Output {
        unsafe { run_avx512(work) }
    }

    #[inline(always)]
    unsafe fn zero_i() -> Self::I {
        unsafe { _mm512_setzero_si512() }
    }

    #[inline(always)]
    unsafe fn load_i(from: *const u32) -> Self::I {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_i(to: *mut u32, v: Self::I) {
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn splat_i(word: u32) -> Self::I {
        unsafe { _mm512_set1_epi32(word as i32) }
    }

    #[inline(always)]
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn dot_wide(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe { _mm512_dpwssd_epi32(acc, w, x) }
    }

    #[inline(always)]
    unsafe fn dot_narrow(acc: Self::I, w: [Self::I; 2], x: [Self::I; 2]) -> Self::I {
        unsafe { _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(acc, x[0], w[0]), x[1], w[1]) }
    }

    #[inline(always)]
    unsafe fn dot_bytes(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe { _mm512_dpbusd_epi32(acc, x, w) }
    }

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        unsafe { _mm512_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: Self::F) {
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn convert(v: Self::I) -> Self::F {
        unsafe { _mm512_cvtepi32_ps(v) }
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        unsafe { _mm512_fmadd_ps(a, b, c) }
    }

    #[inline(always)]
    unsafe fn transpose(from: [*const u32; 8], to: *mut u32, stride: usize) {
        unsafe { transpose_8x8(from, to, stride) }
    }

    #[inline(always)]
    unsafe fn largest(x: &[f32; 32]) -> u32 {
        unsafe { largest(x) }
    }

    #[inline(always)]
    unsafe fn codes(x: &[f32; 32], d_inv: f32, to: &mut [u8; 32]) {
        unsafe { codes(x, d_inv, to) }
    }

    #[inline(always)]
    unsafe fn sum_32(x: &[f32; 32]) -> f32 {
        unsafe { sum_32(x) }
    }

    #[inline(always)]
    unsafe fn sums_16(x: &[f32; 32]) -> [f32; 2] {
        unsafe { sums_16(x) }
    }

    #[inline(always)]
    unsafe fn code_sums(codes: &[[u8; 32]; 4]) -> [i32; 8] {
        unsafe { code_sums(codes) }
    }

    #[inline(always)]
    unsafe fn f16_bits(x: [f32; 8]) -> [u16; 8] {
        unsafe { f16_bits(x) }
    }
}
