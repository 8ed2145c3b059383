//! Row-major activation formats: Q8_0, Q8_1 and Q8_K blocks, row after row,
//! as the vector (decode) path of other engines reads them.

use crate::numerics::{f16_bits, largest_magnitude};
use crate::{Error, Result};

/// A row-major activation format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(non_camel_case_types)] // the names of the file format
pub enum RowFormat {
    /// 34 bytes per 32 values: f16 d, int8 q.
    Q8_0,
    /// 36 bytes per 32 values: f16 d, f16 sum of q times d, int8 q.
    Q8_1,
    /// 292 bytes per 256 values: f32 d, int8 q, int16 sums of each 16 q.
    Q8_K,
}

impl RowFormat {
    /// All formats.
    pub const ALL: [Self; 3] = [Self::Q8_0, Self::Q8_1, Self::Q8_K];

    /// The name as ggml spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Q8_0 => "q8_0",
            Self::Q8_1 => "q8_1",
            Self::Q8_K => "q8_K",
        }
    }

    /// Values of one block.
    pub const fn block_values(self) -> usize {
        match self {
            Self::Q8_0 | Self::Q8_1 => 32,
            Self::Q8_K => 256,
        }
    }

    /// Bytes of one block.
    pub const fn block_bytes(self) -> usize {
        match self {
            Self::Q8_0 => 34,
            Self::Q8_1 => 36,
            Self::Q8_K => 292,
        }
    }

    /// Quantizes rows of `cols` values, one after the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `cols` is not a multiple of the block or `x` of `cols`.
    pub fn quantize(self, x: &[f32], cols: usize) -> Result<Vec<u8>> {
        let block = self.block_values();
        if cols == 0 || !cols.is_multiple_of(block) {
            return Err(Error::invalid(
                format!("{} columns", self.name()),
                cols,
                format!("a multiple of {block}, at least one"),
            ));
        }
        if !x.len().is_multiple_of(cols) {
            return Err(Error::invalid(
                format!("{} input", self.name()),
                format!("{} values", x.len()),
                format!("whole rows of {cols}"),
            ));
        }
        let mut out = Vec::with_capacity(x.len() / block * self.block_bytes());
        for values in x.chunks_exact(block) {
            match self {
                Self::Q8_0 => q8_0(values, &mut out),
                Self::Q8_1 => q8_1(values, &mut out),
                Self::Q8_K => q8_k(values, &mut out),
            }
        }
        Ok(out)
    }
}

impl std::fmt::Display for RowFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for RowFormat {
    type Err = Error;
    fn from_str(s: &str) -> Result<Self> {
        Self::ALL
            .into_iter()
            .find(|f| f.name().eq_ignore_ascii_case(s))
            .ok_or_else(|| Error::invalid("row format", s, "q8_0, q8_1 or q8_K"))
    }
}

/// The low byte of the integer nearest to `x`, half away from zero; 0 where
/// it does not fit 32 bits (the reciprocal of a subnormal d is infinite).
fn low_byte(x: f32) -> i8 {
    let x = x.round();
    if x.abs() < 2_147_483_648.0 { x as i32 as i8 } else { 0 }
}

/// d and the codes of 32 values.
fn codes(x: &[f32]) -> (f32, [i8; 32]) {
    let amax = largest_magnitude(x).unwrap_or(0.0);
    let d = amax / 127.0;
    let id = if d != 0.0 { 1.0 / d } else { 0.0 };
    (d, std::array::from_fn(|i| low_byte(x[i] * id)))
}

fn q8_0(x: &[f32], out: &mut Vec<u8>) {
    let (d, q) = codes(x);
    out.extend(f16_bits(d).to_le_bytes());
    out.extend(q.map(|q| q as u8));
}

fn q8_1(x: &[f32], out: &mut Vec<u8>) {
    let (d, q) = codes(x);
    let sum: i32 = q.iter().map(|&q| i32::from(q)).sum();
    out.extend(f16_bits(d).to_le_bytes());
    out.extend(f16_bits(sum as f32 * d).to_le_bytes());
    out.extend(q.map(|q| q as u8));
}

/// The integer nearest to `x`, half to even, at most 127; 0 where adding
/// 1.5 * 2^23 does not leave it in the mantissa (the factor of a subnormal
/// maximum is infinite).
fn low_code(x: f32) -> i8 {
    if x.abs() < 4_194_304.0 { (x.round_ties_even() as i32).min(127) as i8 } else { 0 }
}

fn q8_k(x: &[f32], out: &mut Vec<u8>) {
    let mut max = 0.0f32;
    for &v in x {
        if v.abs() > max.abs() {
            max = v;
        }
    }
    if max == 0.0 {
        out.resize(out.len() + 292, 0);
        return;
    }
    let iscale = -127.0 / max;
    let q: Vec<i8> = x.iter().map(|&v| low_code(iscale * v)).collect();
    out.extend((1.0 / iscale).to_le_bytes());
    out.extend(q.iter().map(|&q| q as u8));
    for group in q.chunks_exact(16) {
        let sum: i16 = group.iter().map(|&q| i16::from(q)).sum();
        out.extend(sum.to_le_bytes());
    }
}
