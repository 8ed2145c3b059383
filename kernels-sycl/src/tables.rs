//! What the decoders of `format.hpp` need beside the block.

use strata_core::WeightType;
use strata_core::format::grids;
use strata_core::format::iq::IQ4_VALUES;

/// What is added to the integer codes of a type, so that they are unsigned.
pub const fn offset(ty: WeightType) -> i32 {
    use WeightType::*;
    match ty {
        Q4_1 | Q5_1 | Q2_K | Q4_K | Q5_K => 0,
        Q1_0 | Q2_0 | TQ1_0 | TQ2_0 | IQ1_S => 1,
        Q3_K => 4,
        Q4_0 => 8,
        MXFP4 | NVFP4 => 12,
        Q5_0 => 16,
        Q6_K => 32,
        // Q8_0 and the codebooks: bytes.
        _ => 128,
    }
}

/// Entries of signed bytes as words, the first value in the lowest byte;
/// `plus` is added to every value.
fn words<const N: usize>(entries: &[[i8; N]], plus: i8) -> Vec<u32> {
    let bytes: Vec<u8> = entries.iter().flatten().map(|&v| (v + plus) as u8).collect();
    bytes.as_chunks().0.iter().map(|&w| u32::from_le_bytes(w)).collect()
}

/// The table that a type's decoder indexes, if it has one.
///
/// Codebooks are as core has them, IQ1's plus one; the IQ4 types have the two
/// values, plus 128, of each pair of codes (the first in the low nibble).
pub fn table(ty: WeightType) -> Option<Vec<u32>> {
    use WeightType::*;
    Some(match ty {
        IQ2_XXS => words(&grids::IQ2_XXS, 0),
        IQ2_XS => words(&grids::IQ2_XS, 0),
        IQ2_S => words(&grids::IQ2_S, 0),
        IQ3_XXS => words(&grids::IQ3_XXS, 0),
        IQ3_S => words(&grids::IQ3_S, 0),
        IQ1_S | IQ1_M => words(&grids::IQ1_S, 1),
        IQ4_NL | IQ4_XS => {
            let value = |code: usize| u32::from(IQ4_VALUES[code & 15] as u8 ^ 0x80);
            (0..256).map(|pair| value(pair) | value(pair >> 4) << 8).collect()
        }
        _ => return None,
    })
}
