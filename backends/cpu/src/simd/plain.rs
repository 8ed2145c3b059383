//! Plain Rust, for any target; the compiler makes vectors of it where it can.

use super::{BELOW_HALF, MOST_LANES, Simd};
use crate::isa::Work;

/// Arrays of eight.
#[derive(Clone, Copy)]
pub(crate) struct Plain;

// SAFETY: nothing here asks for more than the target has.
unsafe impl Simd for Plain {
    type I = [i32; 8];
    type F = [f32; 8];
    const LANES: usize = 8;
    const BYTES: bool = false;
    const HALVES: bool = false;
    const ROWS: usize = 4;

    fn run<W: Work>(self, work: W) -> W::Output {
        work.run()
    }

    #[inline(always)]
    unsafe fn zero_i() -> Self::I {
        [0; 8]
    }

    #[inline(always)]
    unsafe fn load_i(from: *const u32) -> Self::I {
        // SAFETY: good for eight words by the trait's contract.
        unsafe { from.cast::<Self::I>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_i(to: *mut u32, v: Self::I) {
        // SAFETY: as above.
        unsafe { to.cast::<Self::I>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn splat_i(word: u32) -> Self::I {
        [word as i32; 8]
    }

    #[inline(always)]
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|l| a[l] - b[l])
    }

    #[inline(always)]
    unsafe fn dot_wide(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        // The halves of a word in value order: the low one is first on little-endian memory.
        let halves = |word: i32| (word as i16 as i32, word >> 16);
        std::array::from_fn(|l| {
            let ((w0, w1), (x0, x1)) = (halves(w[l]), halves(x[l]));
            acc[l] + w0 * x0 + w1 * x1
        })
    }

    #[inline(always)]
    unsafe fn dot_bytes(acc: Self::I, w: Self::I, x: Self::I) -> Self::I {
        // SAFETY: any lanes.
        unsafe { Self::dot_add(acc, x, w) }
    }

    #[inline(always)]
    unsafe fn dot_add(sums: Self::I, w: Self::I, x: Self::I) -> Self::I {
        dot(sums, w, x, |w| w & 0xff)
    }

    #[inline(always)]
    unsafe fn dot_end(acc: Self::I, sums: Self::I, _: Self::I) -> Self::I {
        std::array::from_fn(|l| acc[l] + sums[l])
    }

    #[inline(always)]
    unsafe fn dot_signed(acc: Self::I, w: Self::I, x: Self::I, _: Self::I) -> Self::I {
        dot(acc, w, x, |w| i32::from(w as i8))
    }

    #[inline(always)]
    unsafe fn turn(rows: &[*const u8; MOST_LANES], at: usize) -> [Self::I; 4] {
        std::array::from_fn(|word| {
            std::array::from_fn(|l| {
                // SAFETY: good for sixteen bytes by the trait's contract.
                let bytes = unsafe { rows[l].add(at + 4 * word).cast::<[u8; 4]>().read() };
                i32::from_le_bytes(bytes)
            })
        })
    }

    #[inline(always)]
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|l| a[l] & b[l])
    }

    #[inline(always)]
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|l| a[l] | b[l])
    }

    #[inline(always)]
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|l| a[l] ^ b[l])
    }

    #[inline(always)]
    unsafe fn shr(v: Self::I, bits: u32) -> Self::I {
        v.map(|v| (v as u32 >> bits) as i32)
    }

    #[inline(always)]
    unsafe fn shl(v: Self::I, bits: u32) -> Self::I {
        v.map(|v| v << bits)
    }

    #[inline(always)]
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I {
        std::array::from_fn(|l| a[l].wrapping_add(b[l]))
    }

    #[inline(always)]
    unsafe fn add_bytes(a: Self::I, b: Self::I) -> Self::I {
        bytes(a, b, u8::wrapping_add)
    }

    #[inline(always)]
    unsafe fn sub_bytes(a: Self::I, b: Self::I) -> Self::I {
        bytes(a, b, u8::wrapping_sub)
    }

    #[inline(always)]
    unsafe fn lookup(table: &[u8; 16], v: Self::I) -> Self::I {
        bytes(v, v, |v, _| table[usize::from(v & 15)])
    }

    #[inline(always)]
    unsafe fn bit_bytes(v: Self::I, word: usize) -> Self::I {
        v.map(|v| {
            let bits = (v as u32 >> (4 * word)) & 15;
            i32::from_le_bytes(std::array::from_fn(|i| if bits >> i & 1 == 0 { 0 } else { 0xff }))
        })
    }

    #[inline(always)]
    unsafe fn load_f16(from: *const u16) -> Self::F {
        // SAFETY: good for eight values by the trait's contract.
        let bits = unsafe { from.cast::<[u16; 8]>().read_unaligned() };
        bits.map(strata_core::format::scale::f16)
    }

    #[inline(always)]
    unsafe fn zero() -> Self::F {
        [0.0; 8]
    }

    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self::F {
        // SAFETY: good for eight values by the trait's contract.
        unsafe { from.cast::<Self::F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: Self::F) {
        // SAFETY: as above.
        unsafe { to.cast::<Self::F>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self::F {
        [value; 8]
    }

    #[inline(always)]
    unsafe fn convert(v: Self::I) -> Self::F {
        v.map(|v| v as f32)
    }

    #[inline(always)]
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        std::array::from_fn(|l| a[l].mul_add(b[l], c[l]))
    }

    #[inline(always)]
    unsafe fn transpose(from: [*const u32; 8], to: *mut u32, stride: usize) {
        for (i, from) in from.into_iter().enumerate() {
            for j in 0..8 {
                // SAFETY: 8 words of each input, and 8 rows of the output, by the trait's contract.
                unsafe { *to.add(j * stride + i) = from.add(j).read_unaligned() };
            }
        }
    }

    #[inline(always)]
    unsafe fn largest(x: &[f32; 32]) -> u32 {
        x.iter().map(|x| x.to_bits() & 0x7fff_ffff).fold(0, u32::max)
    }

    #[inline(always)]
    unsafe fn codes(x: &[f32; 32], d_inv: f32, to: &mut [u8; 32]) {
        for (to, x) in to.iter_mut().zip(x) {
            let x = x * d_inv;
            *to = (x + BELOW_HALF.copysign(x)) as i32 as u8;
        }
    }

    #[inline(always)]
    unsafe fn sum_32(x: &[f32; 32]) -> f32 {
        let p = sums_of_four(x);
        let r: [f32; 4] = std::array::from_fn(|i| p[i] + p[i + 4]);
        (r[0] + r[2]) + (r[1] + r[3])
    }

    #[inline(always)]
    unsafe fn sums_16(x: &[f32; 32]) -> [f32; 2] {
        let p = sums_of_four(x);
        [0, 4].map(|i| (p[i] + p[i + 2]) + (p[i + 1] + p[i + 3]))
    }

    #[inline(always)]
    unsafe fn code_sums(codes: &[[u8; 32]; 4]) -> [i32; 8] {
        let sixteens = codes.as_flattened().as_chunks::<16>().0;
        std::array::from_fn(|i| sixteens[i].iter().map(|&code| i32::from(code as i8)).sum())
    }

    #[inline(always)]
    unsafe fn f16_bits(x: [f32; 8]) -> [u16; 8] {
        x.map(strata_core::numerics::f16_bits)
    }
}

fn sums_of_four(x: &[f32; 32]) -> [f32; 8] {
    std::array::from_fn(|i| ((x[4 * i] + x[4 * i + 1]) + x[4 * i + 2]) + x[4 * i + 3])
}

/// Products of bytes of `w`, widened by `wide`, and i8 of `x`.
#[inline(always)]
fn dot(acc: [i32; 8], w: [i32; 8], x: [i32; 8], wide: impl Fn(i32) -> i32) -> [i32; 8] {
    std::array::from_fn(|l| {
        let mut sum = acc[l];
        for byte in 0..4 {
            sum += wide(w[l] >> (8 * byte)) * i32::from((x[l] >> (8 * byte)) as i8);
        }
        sum
    })
}

#[inline(always)]
fn bytes(a: [i32; 8], b: [i32; 8], of: impl Fn(u8, u8) -> u8) -> [i32; 8] {
    std::array::from_fn(|l| {
        let (a, b) = (a[l].to_ne_bytes(), b[l].to_ne_bytes());
        i32::from_ne_bytes(std::array::from_fn(|i| of(a[i], b[i])))
    })
}
