//! q8_1: the activation blocks that MMQ reads.
//!
//! A matrix of `rows x cols` f32 becomes `k_blocks(cols) * rows` blocks of
//! [`BLOCK_BYTES`] bytes; block `k_block * rows + row` covers the
//! [`BLOCK_VALUES`] values of `row` from column `k_block * 128`. Columns are
//! padded with zeros to a multiple of [`PAD`].

use crate::{Error, Result};

/// Values one block covers.
pub const BLOCK_VALUES: usize = 128;
/// Bytes of one block: a 16-byte header and 128 int8.
pub const BLOCK_BYTES: usize = 144;
/// Bytes of the header.
pub const HEADER_BYTES: usize = 16;
/// Columns are padded to a multiple of this.
pub const PAD: usize = 512;

/// What the 16-byte header of a block holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum Layout {
    /// Four f32 scales, one per 32 values.
    D4 = 0,
    /// Four pairs of f16 scale and f16 sum, one per 32 values.
    DS4 = 1,
    /// Two f16 scales, one per 64 values, then six f16 sums of 16 values each (values 0..96).
    D2S6 = 2,
}

impl Layout {
    /// All layouts.
    pub const ALL: [Self; 3] = [Self::D4, Self::DS4, Self::D2S6];

    /// Values that share one scale.
    pub const fn group(self) -> usize {
        match self {
            Self::D4 | Self::DS4 => 32,
            Self::D2S6 => 64,
        }
    }

    /// The name, as `D4`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::D4 => "D4",
            Self::DS4 => "DS4",
            Self::D2S6 => "D2S6",
        }
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for Layout {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|l| l.name().eq_ignore_ascii_case(s))
            .ok_or_else(|| Error::invalid("q8_1 layout", s, "D4, DS4 or D2S6"))
    }
}

/// What the sums of DS4 and D2S6 headers are sums of.
///
/// A weight type with minimums multiplies them with these sums. [`Layout::D4`] has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u32)]
pub enum Sums {
    /// The values, as they were before they were rounded to codes.
    #[default]
    Values = 0,
    /// The codes, times their scale: what a product reads. Half the error, with minimums.
    Codes = 1,
}

impl Sums {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Values, Self::Codes];

    /// The name, as `codes`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Values => "values",
            Self::Codes => "codes",
        }
    }
}

impl std::fmt::Display for Sums {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// How q8_1 blocks are written: what their headers hold, and what the sums in them are of.
///
/// A [`Layout`] alone means sums of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Headers {
    /// What they hold.
    pub layout: Layout,
    /// What the sums are of, where there are any.
    pub sums: Sums,
}

impl From<Layout> for Headers {
    fn from(layout: Layout) -> Self {
        Self { layout, sums: Sums::default() }
    }
}

impl Layout {
    /// Headers of this layout with such sums.
    pub const fn with(self, sums: Sums) -> Headers {
        Headers { layout: self, sums }
    }
}

/// Blocks along k of one row of `cols` values, padding included.
pub const fn k_blocks(cols: usize) -> usize {
    cols.div_ceil(PAD) * (PAD / BLOCK_VALUES)
}

/// Bytes of a q8_1 matrix; an error where they do not fit a `usize`.
pub fn bytes(rows: usize, cols: usize) -> Result<usize> {
    cols.div_ceil(PAD)
        .checked_mul(PAD / BLOCK_VALUES * BLOCK_BYTES)
        .and_then(|row| row.checked_mul(rows))
        .ok_or_else(|| {
            Error::invalid("q8_1 matrix", format!("{rows} x {cols}"), "a size below 2^64 bytes")
        })
}
