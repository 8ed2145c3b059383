//! Vectors of one instruction set, as the product's kernels see them.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512;
pub(crate) use plain::Plain;

use crate::isa::Work;

/// A value of this type is the proof that the machine has its instructions.
///
/// A lane is a weight row. Words of 32 bits hold the weights or activations of
/// one row next to each other in k: two i16 (*wide*), or four bytes
/// (*narrow*: weights i8, activations u8).
///
/// # Safety
/// The methods that are not `run` may be called only inside a `run` of the
/// same type, from functions that are inlined into it; pointers must be good
/// for the values that a method reads or writes.
pub(crate) unsafe trait Simd: Copy + Send + Sync + 'static {
    /// Vectors of `LANES` i32, or of as many words.
    type I: Copy;
    /// Vectors of `LANES` f32.
    type F: Copy;
    /// Rows of a vector.
    const LANES: usize;
    /// The largest integer weight that [`dot_narrow`](Self::dot_narrow) takes;
    /// 0 where there is no such instruction.
    const NARROW: i32;
    /// The most tokens whose sums fit the registers beside two vectors of weights.
    const TOKENS: usize;

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
    unsafe fn dot_narrow(acc: Self::I, w: Self::I, x: Self::I) -> Self::I;

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
}
