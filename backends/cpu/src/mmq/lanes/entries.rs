//! Codebook entries of the IQ types, row by row.

use std::mem::MaybeUninit;

use strata_core::format::{Format, MAX_BLOCK};

use super::{Lanes, Rows, To};
use crate::simd::{MOST_LANES, Simd};

/// Codebook entries of a block of every lane's row: eight bytes each.
pub(super) struct Entries([[MaybeUninit<[u64; 4]>; MAX_BLOCK / 32]; MOST_LANES]);

impl Entries {
    /// What `of` says of a block's bytes: entries of the 32 values from 32s on.
    ///
    /// # Safety
    /// Rows are good for a block.
    #[inline(always)]
    pub(super) unsafe fn of<S: Simd, F: Format>(
        rows: &Rows<'_>,
        of: impl Fn(&[u8], usize) -> [u64; 4],
    ) -> Self {
        let mut entries = Self([[const { MaybeUninit::uninit() }; MAX_BLOCK / 32]; MOST_LANES]);
        for (entries, row) in entries.0[..S::LANES].iter_mut().zip(rows.at) {
            // SAFETY: the caller's.
            let block = unsafe { std::slice::from_raw_parts(row.add(rows.from), F::BYTES) };
            copy_entries::<F>(block, entries, &of);
        }
        entries
    }

    /// Their words from word `4 * i` on.
    ///
    /// # Safety
    /// Inside a `run` of S.
    #[inline(always)]
    pub(super) unsafe fn words<S: Simd>(&self, i: usize) -> [S::I; 4] {
        let rows = self.0.each_ref().map(|entries| entries.as_ptr().cast());
        // SAFETY: the caller's; i is below 16.
        unsafe { S::turn(&rows, 16 * i) }
    }

    /// Magnitudes with the signs of 32 values each, and `offset` more.
    ///
    /// # Safety
    /// As for [`Lanes::lanes`].
    #[inline(always)]
    pub(super) unsafe fn signed<S: Simd, F: Lanes, const ONE: bool>(
        &self,
        signs: impl Fn(usize) -> S::I,
        offset: u8,
        to: &To<S, F, ONE>,
    ) {
        // SAFETY: the caller's.
        unsafe {
            let offset = S::splat_i(u32::from(offset) * 0x0101_0101);
            for s in 0..8 {
                let signs = signs(s);
                for part in 0..2 {
                    let mut words = self.words::<S>(2 * s + part);
                    for (i, word) in words.iter_mut().enumerate() {
                        let minus = S::bit_bytes(signs, 4 * part + i);
                        let value = S::sub_bytes(S::xor(*word, minus), minus);
                        *word = S::add_bytes(value, offset);
                    }
                    to.codes(8 * s + 4 * part, words);
                }
            }
        }
    }
}

/// Not inlined, so that it is compiled for the plain target: with wider instructions entries become
/// gathers, which take twice as long.
#[inline(never)]
fn copy_entries<F: Format>(
    block: &[u8],
    entries: &mut [MaybeUninit<[u64; 4]>; MAX_BLOCK / 32],
    of: impl Fn(&[u8], usize) -> [u64; 4],
) {
    assert!(block.len() == F::BYTES);
    for (s, entries) in entries.iter_mut().enumerate() {
        entries.write(of(block, s));
    }
}

/// The `N` bytes from byte `at` on.
#[inline(always)]
pub(super) fn bytes_at<const N: usize>(block: &[u8], at: usize) -> [u8; N] {
    block[at..at + N].try_into().expect("as many")
}

/// The little-endian u16 at byte `at`.
#[inline(always)]
pub(super) fn u16_at(block: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes(bytes_at(block, at)))
}

/// Entry `i` of a codebook of eight values, as it lies in memory.
#[inline(always)]
pub(super) fn eight<const N: usize>(grid: &[[i8; 8]; N], i: usize) -> u64 {
    bytemuck::cast(grid[i])
}

/// Entries `i` and `j` of a codebook of four values, likewise.
#[inline(always)]
pub(super) fn joined<const N: usize>(grid: &[[i8; 4]; N], i: usize, j: usize) -> u64 {
    bytemuck::cast([grid[i], grid[j]])
}
