//! The 25 GGUF weight types, decoded to integers and scales.
//!
//! A weight is `dw * iw`, for some types plus `dm * mn`: `iw` and `mn` are
//! integers with the sub-scales folded in, `dw` and `dm` are f32. The matrix
//! product works on these parts and never on rounded weights.
//!
//! [`WeightType`] is the run-time name of a type and knows its properties.
//! [`Format`] is the same at compile time, for loops that should be compiled
//! once per type; [`dispatch!`](crate::dispatch) goes from one to the other.
//! Each type has one plain function from a block's bytes to [`Decoded`]:
//! [`legacy`], [`bits`], [`k`], [`iq`] and [`fp4`] hold them by family.

// Decoders count through fixed arrays by value index: it reads like the format's description, and
// iterators over several arrays at once would not.
#![allow(clippy::needless_range_loop)]

pub mod bits;
pub mod fp4;
pub mod grids;
pub mod iq;
pub mod k;
pub mod legacy;
pub mod random;
pub mod scale;

mod dequantize;
mod weight_type;

pub use crate::dispatch;
pub use dequantize::dequantize;
pub use random::{random_blocks, try_random_blocks};
pub use weight_type::{WeightType, types};

use crate::q8_1::Layout;

/// Values of the largest block.
pub const MAX_BLOCK: usize = 256;

/// One decoded block.
///
/// Only the leading entries that the type has are meaningful; a decoder leaves
/// the others as they were, so that one `Decoded` can be reused for a whole row.
#[derive(Debug, Clone, PartialEq)]
#[repr(C, align(64))]
pub struct Decoded {
    /// The integers, `BLOCK` of them.
    pub iw: [i16; MAX_BLOCK],
    /// One scale per `GROUP` values.
    pub dw: [f32; 4],
    /// One integer minimum per `MIN_GROUP` values, if the type has minimums.
    pub mn: [i16; 16],
    /// The scale of the minimums, sign included, if the type has them.
    pub dm: f32,
}

impl Decoded {
    /// All zeros.
    pub const ZERO: Self = Self { iw: [0; MAX_BLOCK], dw: [0.0; 4], mn: [0; 16], dm: 0.0 };
}

impl Default for Decoded {
    fn default() -> Self {
        Self::ZERO
    }
}

/// A weight type at compile time. The unit structs of [`types`] implement it.
pub trait Format: Copy + Send + Sync + 'static {
    /// The run-time name.
    const TYPE: WeightType;
    /// Values of a block: 32, 64, 128 or 256.
    const BLOCK: usize;
    /// Bytes of a block.
    const BYTES: usize;
    /// The q8_1 layout of the activations it is multiplied with.
    const LAYOUT: Layout;
    /// Values per float scale `dw`: `BLOCK`, or 16 for NVFP4.
    const GROUP: usize;
    /// Values per integer minimum `mn`, for the types that have minimums.
    const MIN_GROUP: Option<usize>;
    /// Values that share one integer sub-scale, for the types that have sub-scales.
    const SUB_SCALE: Option<usize>;
    /// The largest magnitude that an integer `iw` can have, whatever the block's bits are.
    const MAX_IW: i32;

    /// Decodes the block at the start of `block`.
    ///
    /// Compiled into its caller, with the caller's target features.
    ///
    /// # Panics
    /// If `block` is shorter than `BYTES`.
    fn decode(block: &[u8], out: &mut Decoded);
}

/// Evaluates an expression with a type alias for the [`Format`](crate::format::Format)
/// that a run-time [`WeightType`](crate::format::WeightType) names.
///
/// ```
/// use strata_core::format::{dispatch, Format, WeightType};
/// let bytes = dispatch!(WeightType::Q4_K, F => F::BYTES);
/// assert_eq!(bytes, 144);
/// ```
#[macro_export]
macro_rules! dispatch {
    ($ty:expr, $format:ident => $body:expr) => {
        $crate::for_each_weight_type!($crate::dispatch_arms!($ty, $format, $body))
    };
}

/// The arms of [`dispatch!`](crate::dispatch), from the table of types.
#[doc(hidden)]
#[macro_export]
macro_rules! dispatch_arms {
    (($ty:expr, $format:ident, $body:expr), $($name:ident $id:literal $text:literal
        $block:literal / $bytes:literal $layout:ident $group:literal $min:expr, $sub:expr,
        $max:expr, $scales:expr, $family:ident :: $decode:ident : $doc:literal)*) => {
        match $ty {
            $($crate::format::WeightType::$name => {
                type $format = $crate::format::types::$name;
                $body
            })*
            // For other crates, to which the types are an open list.
            #[allow(unreachable_patterns)]
            other => unreachable!("{other} is not dispatched"),
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_is_dispatched() {
        for &ty in WeightType::ALL {
            assert_eq!(dispatch!(ty, F => F::TYPE), ty);
        }
    }
}
