//! What an operation must move and compute at least.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use super::*;

/// Bytes and operations of a launch, as its shapes say: `time / cost` is how well it was done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// What it must read and write: every operand once, every output once. Of the weights of
    /// experts, those of as many as it has rows for.
    pub bytes: u64,
    /// Multiplications and additions of its products; 0 for the rest.
    pub ops: u64,
}

impl Add for Cost {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self { bytes: self.bytes + other.bytes, ops: self.ops + other.ops }
    }
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Self>>(costs: I) -> Self {
        costs.fold(Self::default(), Add::add)
    }
}

impl Cost {
    /// Of a step that reads or writes so many bytes, and multiplies nothing.
    pub(super) fn bytes(bytes: impl IntoIterator<Item = u64>) -> Self {
        Self { bytes: bytes.into_iter().sum(), ops: 0 }
    }

    /// The same of products of `rows` rows with `outputs` rows of `cols` values.
    pub(super) fn products(self, rows: usize, outputs: usize, cols: usize) -> Self {
        Self { ops: self.ops + 2 * rows as u64 * outputs as u64 * cols as u64, ..self }
    }
}

/// Operands whose bytes a cost counts.
pub(super) trait Moved {
    /// Bytes that are read or written.
    fn moved(&self) -> u64;
}

impl<D: View> Moved for MatrixOf<D> {
    fn moved(&self) -> u64 {
        4 * self.rows() as u64 * self.cols() as u64
    }
}

impl<D: View> Moved for Q8RowsOf<D> {
    fn moved(&self) -> u64 {
        (self.k_blocks() * q8_1::BLOCK_BYTES) as u64 * self.rows() as u64
    }
}

/// All of the experts.
impl Moved for Weights<'_> {
    fn moved(&self) -> u64 {
        let row = self.cols() / self.ty().block_values() * self.ty().block_bytes();
        (self.experts() * self.rows()) as u64 * row as u64
    }
}

impl Moved for FloatMatrix<'_> {
    fn moved(&self) -> u64 {
        (self.rows() * self.cols() * self.ty().bytes()) as u64
    }
}

impl<T: bytemuck::Pod> Moved for Slice<'_, T> {
    fn moved(&self) -> u64 {
        (self.len() * size_of::<T>()) as u64
    }
}

impl<T: Moved> Moved for Option<T> {
    fn moved(&self) -> u64 {
        self.as_ref().map_or(0, Moved::moved)
    }
}
