//! AVX2 with FMA: eight lanes, sixteen registers.

use std::arch::x86_64::*;

use strata_core::numerics::NAN_F32;

use super::{BELOW_HALF, MOST_LANES, Simd};
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
    const BYTES: bool = false;
    const HALVES: bool = true;
    const ROWS: usize = 4;

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
    unsafe fn dot_bytes(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe {
            let twos = _mm256_maddubs_epi16(x, w);
            _mm256_add_epi32(acc, _mm256_madd_epi16(twos, _mm256_set1_epi16(1)))
        }
    }

    #[inline(always)]
    unsafe fn dot_add(sums: Self::I, w: Self::I, x: Self::I) -> Self::I {
        unsafe { _mm256_add_epi16(sums, _mm256_maddubs_epi16(w, x)) }
    }

    #[inline(always)]
    unsafe fn dot_end(acc: Self::I, sums: Self::I, scale: Self::I) -> Self::I {
        unsafe { _mm256_add_epi32(acc, _mm256_madd_epi16(sums, scale)) }
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: Self::I, w: Self::I, x: Self::I, scale: Self::I) -> Self::I {
        // Two products of magnitudes up to 128 and 127 stay within i16.
        unsafe {
            let twos = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
            _mm256_add_epi32(acc, _mm256_madd_epi16(twos, scale))
        }
    }

    #[inline(always)]
    unsafe fn turn(rows: &[*const u8; MOST_LANES], at: usize) -> [Self::I; 4] {
        unsafe {
            // Two rows to a register, one of each half; then words change places within the halves.
            let mut r = [_mm256_setzero_si256(); 4];
            for (i, r) in r.iter_mut().enumerate() {
                let row = |n: usize| _mm_loadu_si128(rows[i + 4 * n].add(at).cast());
                *r = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(row(0)), row(1));
            }
            let (a, b) = (_mm256_unpacklo_epi32(r[0], r[1]), _mm256_unpackhi_epi32(r[0], r[1]));
            let (c, d) = (_mm256_unpacklo_epi32(r[2], r[3]), _mm256_unpackhi_epi32(r[2], r[3]));
            [
                _mm256_unpacklo_epi64(a, c),
                _mm256_unpackhi_epi64(a, c),
                _mm256_unpacklo_epi64(b, d),
                _mm256_unpackhi_epi64(b, d),
            ]
        }
    }

    #[inline(always)]
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_and_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_or_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_xor_si256(a, b) }
    }

    #[inline(always)]
    unsafe fn shr(v: Self::I, bits: u32) -> Self::I {
        unsafe { _mm256_srl_epi32(v, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn shl(v: Self::I, bits: u32) -> Self::I {
        unsafe { _mm256_sll_epi32(v, _mm_cvtsi32_si128(bits as i32)) }
    }

    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn add_bytes(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_add_epi8(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_bytes(a: Self::I, b: Self::I) -> Self::I {
        unsafe { _mm256_sub_epi8(a, b) }
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], v: Self::I) -> Self::I {
        unsafe {
            let table = _mm_loadu_si128(table.as_ptr().cast());
            _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), v)
        }
    }

    #[inline(always)]
    unsafe fn bit_bytes(v: Self::I, word: usize) -> Self::I {
        unsafe {
            // The byte that holds the four bits, in all four bytes of its lane.
            let from = (word / 2) as i32 * 0x0101_0101;
            let [a, b, c, d] = [0, 0x0404_0404, 0x0808_0808, 0x0c0c_0c0c].map(|lane| from + lane);
            let bytes = _mm256_shuffle_epi8(v, _mm256_setr_epi32(a, b, c, d, a, b, c, d));
            let bits = if word.is_multiple_of(2) { 0x0804_0201 } else { 0x8040_2010u32 };
            let bits = _mm256_set1_epi32(bits as i32);
            _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bits), bits)
        }
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(from.cast())) }
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

/// Words change places in three rounds: pairs, then quads, then halves of registers.
///
/// # Safety
/// AVX2; eight words at each of `from`, and eight rows of eight at `to`.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn transpose_8x8(from: [*const u32; 8], to: *mut u32, stride: usize) {
    unsafe {
        let mut r = [_mm256_setzero_si256(); 8];
        for (r, from) in r.iter_mut().zip(from) {
            *r = _mm256_loadu_si256(from.cast());
        }
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

/// The four vectors of 32 values.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // as above
unsafe fn load_32(x: &[f32; 32]) -> [__m256; 4] {
    let x = x.as_ptr();
    unsafe {
        [
            _mm256_loadu_ps(x),
            _mm256_loadu_ps(x.add(8)),
            _mm256_loadu_ps(x.add(16)),
            _mm256_loadu_ps(x.add(24)),
        ]
    }
}

/// See [`Simd::largest`].
///
/// # Safety
/// AVX2.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn largest(x: &[f32; 32]) -> u32 {
    unsafe {
        let mask = _mm256_set1_epi32(0x7fff_ffff);
        let mut m = [mask; 4];
        for (m, x) in m.iter_mut().zip(load_32(x)) {
            *m = _mm256_and_si256(*m, _mm256_castps_si256(x));
        }
        let m = _mm256_max_epi32(_mm256_max_epi32(m[0], m[1]), _mm256_max_epi32(m[2], m[3]));
        let m = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256::<1>(m));
        let m = _mm_max_epi32(m, _mm_shuffle_epi32::<0b01_00_11_10>(m));
        let m = _mm_max_epi32(m, _mm_shuffle_epi32::<0b10_11_00_01>(m));
        _mm_cvtsi128_si32(m) as u32
    }
}

/// See [`Simd::codes`].
///
/// # Safety
/// AVX2.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn codes(x: &[f32; 32], d_inv: f32, to: &mut [u8; 32]) {
    unsafe {
        let (d_inv, sign) = (_mm256_set1_ps(d_inv), _mm256_set1_ps(-0.0));
        let below_half = _mm256_set1_ps(BELOW_HALF);
        let mut q = [_mm256_setzero_si256(); 4];
        for (q, x) in q.iter_mut().zip(load_32(x)) {
            let x = _mm256_mul_ps(x, d_inv);
            let carry = _mm256_or_ps(_mm256_and_ps(x, sign), below_half);
            *q = _mm256_cvttps_epi32(_mm256_add_ps(x, carry));
        }
        // Packing works within halves of registers: fours of the values come out as 0 2 4 6 1 3 5 7.
        let q = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
        let q = _mm256_permutevar8x32_epi32(q, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        _mm256_storeu_si256(to.as_mut_ptr().cast(), q);
    }
}

/// The sums of four consecutive values: 0 2 4 6 in the lower half, 1 3 5 7 in the upper.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // as above
unsafe fn sums_of_four(x: &[f32; 32]) -> __m256 {
    unsafe {
        let [a, b, c, d] = load_32(x);
        // Value i of all fours in one vector: a transpose inside each half.
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        let x0 = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
        let x1 = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
        let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        let x2 = _mm256_shuffle_ps::<0b01_00_01_00>(ab, cd);
        let x3 = _mm256_shuffle_ps::<0b11_10_11_10>(ab, cd);
        _mm256_add_ps(_mm256_add_ps(_mm256_add_ps(x0, x1), x2), x3)
    }
}

/// See [`Simd::sum_32`].
///
/// # Safety
/// AVX2.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn sum_32(x: &[f32; 32]) -> f32 {
    unsafe {
        let p = sums_of_four(x);
        // 0 + 4 and 2 + 6 in the lower half, 1 + 5 and 3 + 7 in the upper; then those two; then both.
        let r = _mm256_add_ps(p, _mm256_shuffle_ps::<0b01_00_11_10>(p, p));
        let r = _mm256_add_ps(r, _mm256_shuffle_ps::<0b10_11_00_01>(r, r));
        _mm_cvtss_f32(_mm_add_ss(_mm256_castps256_ps128(r), _mm256_extractf128_ps::<1>(r)))
    }
}

/// See [`Simd::sums_16`].
///
/// # Safety
/// AVX2.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn sums_16(x: &[f32; 32]) -> [f32; 2] {
    unsafe {
        let p = sums_of_four(x);
        // 0 + 2 and, two lanes on, 4 + 6; in the upper half 1 + 3 and 5 + 7.
        let r = _mm256_add_ps(p, _mm256_shuffle_ps::<0b10_11_00_01>(p, p));
        let r = _mm_add_ps(_mm256_castps256_ps128(r), _mm256_extractf128_ps::<1>(r));
        [_mm_cvtss_f32(r), _mm_cvtss_f32(_mm_movehl_ps(r, r))]
    }
}

/// See [`Simd::code_sums`].
///
/// # Safety
/// AVX2.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn code_sums(codes: &[[u8; 32]; 4]) -> [i32; 8] {
    unsafe {
        let mut fours = [_mm256_setzero_si256(); 4];
        for (fours, codes) in fours.iter_mut().zip(codes) {
            let codes = _mm256_loadu_si256(codes.as_ptr().cast());
            let pairs = _mm256_maddubs_epi16(_mm256_set1_epi8(1), codes);
            *fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
        }
        // Half a register is 16 codes: first ones of all four in the lower half, second ones above.
        let a = _mm256_hadd_epi32(fours[0], fours[1]);
        let b = _mm256_hadd_epi32(fours[2], fours[3]);
        let sums = _mm256_hadd_epi32(a, b);
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let mut to = [0; 8];
        let sums = _mm256_permutevar8x32_epi32(sums, order);
        _mm256_storeu_si256(to.as_mut_ptr().cast(), sums);
        to
    }
}

/// See [`Simd::f16_bits`].
///
/// # Safety
/// AVX2 and F16C.
#[inline(always)]
#[allow(clippy::undocumented_unsafe_blocks)] // one reason: the contract above
pub(super) unsafe fn f16_bits(x: [f32; 8]) -> [u16; 8] {
    unsafe {
        let x = _mm256_loadu_ps(x.as_ptr());
        // The canonical NaN of f32 converts to that of f16; others would keep sign and payload.
        let nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(x, x);
        let x = _mm256_blendv_ps(x, _mm256_set1_ps(f32::from_bits(NAN_F32)), nan);
        let mut bits = [0; 8];
        _mm_storeu_si128(bits.as_mut_ptr().cast(), _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(x));
        bits
    }
}
