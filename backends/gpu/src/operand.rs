//! Operands as kernels take them: addresses, sizes, and what they are aligned to.

use strata_core::Layout;
use strata_core::backend::ops::{Matrix, MatrixMut, ReportTo};
use strata_core::backend::{Slice, SliceMut};

use crate::args;
use crate::memory::{address, address_mut};

/// Where values to be read are.
pub(crate) fn at<T: bytemuck::Pod>(slice: Slice<'_, T>) -> u64 {
    address(slice.raw())
}

/// Where values to be written are.
pub(crate) fn at_mut<T: bytemuck::Pod>(mut slice: SliceMut<'_, T>) -> u64 {
    address_mut(&slice.raw_mut())
}

/// Where values to be read are; null where there are none.
pub(crate) fn at_or_null<T: bytemuck::Pod>(slice: Option<Slice<'_, T>>) -> u64 {
    slice.map_or(0, at)
}

/// Where to report; null where nobody asks.
pub(crate) fn report(to: Option<&mut ReportTo<'_>>) -> args::ReportTo {
    to.map_or_else(args::ReportTo::default, |to| args::ReportTo {
        value_kind: to.value_kind(),
        header_kind: to.header_kind(),
        word: at_mut(to.word()),
    })
}

/// Rows as kernels take them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) address: u64,
    pub(crate) rows: usize,
    pub(crate) cols: usize,
    pub(crate) stride: usize,
}

impl Rows {
    /// Whether every row begins at a multiple of 16 bytes.
    pub(crate) fn aligned(&self) -> bool {
        aligned(self.address) && self.stride.is_multiple_of(4)
    }
}

impl From<Matrix<'_>> for Rows {
    fn from(m: Matrix<'_>) -> Self {
        Self { address: at(m.data()), rows: m.rows(), cols: m.cols(), stride: m.stride() }
    }
}

impl From<&mut MatrixMut<'_>> for Rows {
    fn from(m: &mut MatrixMut<'_>) -> Self {
        let (rows, cols, stride) = (m.rows(), m.cols(), m.stride());
        Self { address: at_mut(m.data()), rows, cols, stride }
    }
}

/// Whether an address is a multiple of 16.
pub(crate) fn aligned(address: u64) -> bool {
    address.is_multiple_of(16)
}

/// The kernel of a layout.
pub(crate) fn of_layout(layout: Layout, names: [&'static str; 3]) -> &'static str {
    let [d4, ds4, d2s6] = names;
    match layout {
        Layout::D4 => d4,
        Layout::DS4 => ds4,
        Layout::D2S6 => d2s6,
    }
}
