//! AVX-512 with VNNI: sixteen lanes, thirty-two registers.

use std::arch::x86_64::*;

use super::avx2::{code_sums, codes, f16_bits, largest, sum_32, sums_16, transpose_8x8};
use super::{MOST_LANES, Simd};
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
    const BYTES: bool = true;
    const HALVES: bool = false;
    const ROWS: usize = 6;

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
    unsafe fn dot_bytes(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe { _mm512_dpbusd_epi32(acc, x, w) }
    }

    #[inline(always)]
    unsafe fn dot_add(sums: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe { _mm512_dpbusd_epi32(sums, w, x) }
    }

    #[inline(always)]
    unsafe fn dot_end(acc: Self::I, sums: Self::I, _: Self::I) -> Self::I {
        unsafe { _mm512_add_epi32(acc, sums) }
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: Self::I, w: Self::I, x: Self::I, _: Self::I) -> Self::I {
        // w as u8 is 256 more where it is negative; 128 more everywhere can be taken off again.
        unsafe {
            let bias = _mm512_set1_epi8(-128);
            let off = _mm512_dpbusd_epi32(_mm512_setzero_si512(), bias, x);
            _mm512_sub_epi32(_mm512_dpbusd_epi32(acc, _mm512_xor_si512(w, bias), x), off)
        }
    }

    #[inline(always)]
    unsafe fn turn(rows: &[*const u8; MOST_LANES], at: usize) -> [Self::I; 4] {
        unsafe {
            // Four rows to a register, each four from its own; then words change places within the
            // quarters.
            let mut r = [_mm512_setzero_si512(); 4];
            for (i, r) in r.iter_mut().enumerate() {
                let row = |n: usize| _mm_loadu_si128(rows[i + 4 * n].add(at).cast());
                let low = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(row(0)), row(1));
                *r = _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(low, row(2)), row(3));
            }
            let (a, b) = (_mm512_unpacklo_epi32(r[0], r[1]), _mm512_unpackhi_epi32(r[0], r[1]));
            let (c, d) = (_mm512_unpacklo_epi32(r[2], r[3]), _mm512_unpackhi_epi32(r[2], r[3]));
            [
                _mm512_unpacklo_epi64(a, c),
                _mm512_unpackhi_epi64(a, c),
                _mm512_unpacklo_epi64(b, d),
                _mm512_unpackhi_epi64(b, d),
            ]
        }
    }

    #[inline(always)]
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_and_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_or_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_xor_si512(a, b) }
    }

    #[inline(always)]
    unsafe fn shr(v: Self::I, bits: u32) -> Self::I {
        unsafe { _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn shl(v: Self::I, bits: u32) -> Self::I {
        unsafe { _mm512_sll_epi32(v, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn add_bytes(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_add_epi8(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_bytes(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm512_sub_epi8(a, b) }
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], v: Self::I) -> Self::I {
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), v)
        }
    }

    #[inline(always)]
    unsafe fn bit_bytes(v: Self::I, word: usize) -> Self::I {
        unsafe {
            // The byte that holds the four bits, in all four bytes of its lane.
            let from = (word / 2) as i32 * 0x0101_0101;
            let [a, b, c, d] = [0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c].map(|lane| from + lane);
            let bytes = _mm512_shuffle_epi8(v, _mm512_set4_epi32(d, c, b, a));
            let bits = _mm512_set1_epi32(if word.is_multiple_of(2) {
                0x0804_0201
            } else {
                0x8040_2010u32 as i32
            });
            _mm512_movm_epi8(_mm512_test_epi8_mask(bytes, bits))
        }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(from.cast())) }
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
