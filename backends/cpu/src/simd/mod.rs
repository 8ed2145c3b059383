//! Vectors of one instruction set, as the kernels see them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

#[cfg(target_arch = "x86_64")]
use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
use avx512::Avx512;
use plain::Plain;

use crate::isa::{Cpu, Isa, Work};

/// The float below 1/2. Added to a magnitude before the fraction is cut off, it
/// carries every half and above to the next integer, and not the float below a
/// half: the sum of those two rounds to below it.
const BELOW_HALF: f32 = 0.499_999_97;

/// A value of this type is the proof that the machine has its instructions.
///
/// A lane is a row of weights, keys or values. Words of 32 bits hold what is next to each other in
/// k of one row: four bytes, or two i16.
///
/// # Safety
/// The methods that are not `run` may be called only inside a `run` of the
/// same type, from functions that are inlined into it; pointers must be good
/// for the values that a method reads or writes.
///
/// Closures are not always inlined in time: one around a vector can leave its
/// instructions calls to functions, and code twenty times as slow.
pub(crate) unsafe trait Simd: Copy + Send + Sync + 'static {
    /// Vectors of `LANES` i32, or of as many words.
    type I: Copy;
    /// Vectors of `LANES` f32.
    type F: Copy;
    /// Rows of a vector, at most [`MOST_LANES`].
    const LANES: usize;
    /// Whether [`dot_bytes`](Self::dot_bytes) is one instruction; weights of eight bits are then unsigned.
    const BYTES: bool;
    /// Whether [`dot_add`](Self::dot_add) sums in two i16 of a lane, which wrap. Starts are then two i16,
    /// sub-scales are twice the same i16, and [`dot_end`](Self::dot_end) multiplies by them.
    const HALVES: bool;
    /// The most routed rows whose sums fit the registers.
    const ROWS: usize;

    /// Runs `work` as compiled for these instructions.
    fn run<W: Work>(self, work: W) -> W::Output;

    /// Zeros.
    unsafe fn zero_i() -> Self::I;
    /// `LANES` words.
    unsafe fn load_i(from: *const u32) -> Self::I;
    /// Stores `LANES` words.
    unsafe fn store_i(to: *mut u32, v: Self::I);
    /// One word in all lanes.
    unsafe fn splat_i(word: u32) -> Self::I;
    /// `a - b` of i32.
    unsafe fn sub_i(a: Self::I, b: Self::I) -> Self::I;
    /// `acc` plus the sum of the products of two i16 in each lane.
    unsafe fn dot_wide(acc: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc` plus the sum of the products of four i8 of `w` and u8 of `x` in each lane.
    unsafe fn dot_bytes(acc: Self::I, w: Self::I, x: Self::I) -> Self::I;

    /// `sums` plus the products of four u8 of `w`, at most 128, and i8 of `x` in each lane: two i16 of sums, or
    /// one i32.
    unsafe fn dot_add(sums: Self::I, w: Self::I, x: Self::I) -> Self::I;
    /// `acc` plus `sums` of [`dot_add`](Self::dot_add), where [`HALVES`](Self::HALVES) times `scale`. Each of the
    /// halves, when all is added, is an i16: [`depth`].
    unsafe fn dot_end(acc: Self::I, sums: Self::I, scale: Self::I) -> Self::I;
    /// `acc` plus the sum of the products of four i8 each, where [`HALVES`](Self::HALVES) times `scale`, and where
    /// not [`BYTES`](Self::BYTES); those of `x` are not -128.
    unsafe fn dot_signed(acc: Self::I, w: Self::I, x: Self::I, scale: Self::I) -> Self::I;

    /// Sixteen bytes of every lane's row from byte `at`, as four vectors of words.
    unsafe fn turn(rows: &[*const u8; MOST_LANES], at: usize) -> [Self::I; 4];
    /// Bits of both.
    unsafe fn and(a: Self::I, b: Self::I) -> Self::I;
    /// Bits of either.
    unsafe fn or(a: Self::I, b: Self::I) -> Self::I;
    /// Bits of one.
    unsafe fn xor(a: Self::I, b: Self::I) -> Self::I;
    /// Words shifted to the right, zeros from the left.
    unsafe fn shr(v: Self::I, bits: u32) -> Self::I;
    /// Words shifted to the left.
    unsafe fn shl(v: Self::I, bits: u32) -> Self::I;
    /// `a + b` of words.
    unsafe fn add_i(a: Self::I, b: Self::I) -> Self::I;
    /// `a + b` of bytes.
    unsafe fn add_bytes(a: Self::I, b: Self::I) -> Self::I;
    /// `a - b` of bytes.
    unsafe fn sub_bytes(a: Self::I, b: Self::I) -> Self::I;
    /// The entries of `table` that bytes of `v`, at most 15, name.
    unsafe fn lookup(table: &[u8; 16], v: Self::I) -> Self::I;
    /// Bytes of ones where bits `4 * word..4 * word + 4` of a lane are set.
    unsafe fn bit_bytes(v: Self::I, word: usize) -> Self::I;
    /// `LANES` f16, widened.
    unsafe fn load_f16(from: *const u16) -> Self::F;

    /// Zeros.
    unsafe fn zero() -> Self::F;
    /// `LANES` values.
    unsafe fn load(from: *const f32) -> Self::F;
    /// Stores `LANES` values.
    unsafe fn store(to: *mut f32, v: Self::F);
    /// One value in all lanes.
    unsafe fn splat(value: f32) -> Self::F;
    /// i32 to f32; exact below 2^24.
    unsafe fn convert(v: Self::I) -> Self::F;
    /// `a * b + c` with one rounding.
    unsafe fn fma(a: Self::F, b: Self::F, c: Self::F) -> Self::F;

    /// Transposes 8 x 8 words: word j of `from[i]` to word i of row j of `to`,
    /// whose rows are `stride` words apart.
    unsafe fn transpose(from: [*const u32; 8], to: *mut u32, stride: usize);

    /// The largest magnitude of 32 values, as bits: NaN is above infinity.
    unsafe fn largest(x: &[f32; 32]) -> u32;
    /// `x * d_inv` as integers, half away from zero; magnitudes of at most
    /// a little above 127.
    unsafe fn codes(x: &[f32; 32], d_inv: f32, to: &mut [u8; 32]);
    /// The sum of 32 values: four at a time in order, then halves.
    unsafe fn sum_32(x: &[f32; 32]) -> f32;
    /// The sums of the first and of the last 16 values, likewise.
    unsafe fn sums_16(x: &[f32; 32]) -> [f32; 2];
    /// The sums of each 16 codes, as i8, of a block.
    unsafe fn code_sums(codes: &[[u8; 32]; 4]) -> [i32; 8];
    /// f32 to f16 bits: nearest even, overflow to infinity, canonical NaN.
    unsafe fn f16_bits(x: [f32; 8]) -> [u16; 8];
}

/// The most lanes of a vector.
pub(crate) const MOST_LANES: usize = 16;

/// Asks for the line of memory at `at`, wherever it points to.
#[inline(always)]
pub(crate) fn prefetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; every x86-64 has it, and no address is wrong.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// How many words of bytes of magnitudes up to `most` can be summed in two i16: products of two bytes with
/// codes of at most 127 go to each.
pub(crate) const fn depth(most: i32) -> usize {
    match i16::MAX as i32 / (2 * 127 * most) {
        8.. => 8,
        4.. => 4,
        2.. => 2,
        _ => 1,
    }
}

/// A loop to be compiled once per instruction set, with its vectors.
pub(crate) trait SimdWork {
    /// See [`Work::run`]; inlined into it.
    fn run<S: Simd>(self);
}

/// [`SimdWork`] for one instruction set.
struct For<S, W>(S, W);

impl<S: Simd, W: SimdWork> Work for For<S, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.1.run::<S>();
    }
}

/// A call that takes the vectors of the instruction set in use.
pub(crate) trait WithSimd {
    type Output;

    fn call<S: Simd>(self, simd: S) -> Self::Output;
}

impl Cpu {
    /// Calls `with` with the vectors of this instruction set.
    pub(crate) fn with_simd<W: WithSimd>(self, with: W) -> W::Output {
        match self.isa() {
            Isa::Plain | Isa::Neon => with.call(Plain),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => with.call(Avx2::of(self).expect("matched")),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => with.call(Avx512::of(self).expect("matched")),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512 => unreachable!("Cpu::new refuses it here"),
        }
    }

    /// Runs `work` as compiled for this instruction set.
    pub(crate) fn run_simd<W: SimdWork>(self, work: W) {
        struct Run<W>(W);
        impl<W: SimdWork> WithSimd for Run<W> {
            type Output = ();
            fn call<S: Simd>(self, simd: S) {
                simd.run(For(simd, self.0));
            }
        }
        self.with_simd(Run(work));
    }
}
