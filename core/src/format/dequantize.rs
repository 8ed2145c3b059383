//! Whole blocks to f32, for tests, tools and the eye; products never do this.

use super::{Decoded, Format, WeightType, dispatch};
use crate::{Error, Result};

/// Decodes consecutive blocks to f32: `dw * iw`, or `dw * iw + dm * mn`.
///
/// Both products are exact in f32 (an f16 scale has 11 bits and an integer at
/// most 12, or is 4096), so a value without minimum is exact and one with a
/// minimum is rounded once, by the addition; fused or not, it is the same.
///
/// Against the reference's own dequantization:
///
/// | types | agreement |
/// |---|---|
/// | all but the following | every bit |
/// | Q3_K, Q6_K, IQ4_XS, IQ1_S | every bit, but a zero may have the other sign: the reference multiplies scale and sub-scale, or sub-scale and shift, in f32 before the code, and gives a zero the sign of those; here the product of the integers is +0 |
///
/// # Errors
/// [`Error::Invalid`] unless `blocks` is a whole number of blocks and `out`
/// has room for exactly their values.
pub fn dequantize(ty: WeightType, blocks: &[u8], out: &mut [f32]) -> Result<()> {
    let count = blocks.len() / ty.block_bytes();
    if !blocks.len().is_multiple_of(ty.block_bytes()) {
        return Err(Error::invalid(
            format!("bytes of {ty} blocks"),
            blocks.len(),
            format!("a multiple of {}", ty.block_bytes()),
        ));
    }
    if count.checked_mul(ty.block_values()) != Some(out.len()) {
        return Err(Error::invalid(
            format!("values for {count} {ty} blocks"),
            out.len(),
            format!("{count} x {}", ty.block_values()),
        ));
    }
    dispatch!(ty, F => dequantize_as::<F>(blocks, out));
    Ok(())
}

fn dequantize_as<F: Format>(blocks: &[u8], out: &mut [f32]) {
    let mut decoded = Decoded::ZERO;
    for (block, out) in blocks.chunks_exact(F::BYTES).zip(out.chunks_exact_mut(F::BLOCK)) {
        F::decode(block, &mut decoded);
        for (i, value) in out.iter_mut().enumerate() {
            *value = decoded.dw[i / F::GROUP] * f32::from(decoded.iw[i]);
            if let Some(group) = F::MIN_GROUP {
                *value += decoded.dm * f32::from(decoded.mn[i / group]);
            }
        }
    }
}
