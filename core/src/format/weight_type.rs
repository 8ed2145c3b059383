//! The names and properties of the weight types, one row per type.

use super::{Decoded, Format, bits, dispatch, fp4, iq, k, legacy};
use crate::q8_1::Layout;
use crate::{Error, Result};

/// What never changes about a type; see [`Format`] for the meaning of each.
struct Properties {
    name: &'static str,
    block: usize,
    bytes: usize,
    layout: Layout,
    group: usize,
    min_group: Option<usize>,
    sub_scale: Option<usize>,
    max_iw: i32,
    scales: &'static [FloatScale],
}

/// An f16 among the bytes of a block, and what it is in blocks of random weights.
#[derive(Clone, Copy)]
pub(super) struct FloatScale {
    pub at: usize,
    pub sign: Sign,
    /// Powers of two that it is larger than a scale of the largest integer for weights below 1.
    pub more: i32,
}

/// What a scale's sign is to be.
#[derive(Clone, Copy)]
pub(super) enum Sign {
    Random,
    Plus,
    Minus,
}

/// Of random sign.
#[allow(non_snake_case)] // a column of the table
const fn R(at: usize, more: i32) -> FloatScale {
    FloatScale { at, sign: Sign::Random, more }
}

/// Above 0.
#[allow(non_snake_case)]
const fn P(at: usize, more: i32) -> FloatScale {
    FloatScale { at, sign: Sign::Plus, more }
}

/// Below 0.
#[allow(non_snake_case)]
const fn M(at: usize, more: i32) -> FloatScale {
    FloatScale { at, sign: Sign::Minus, more }
}

/// From the rows below: the enum, its properties, and the compile-time types.
macro_rules! weight_types {
    ((), $($type:ident $id:literal $name:literal $block:literal / $bytes:literal $layout:ident
        $group:literal $min:expr, $sub:expr, $max:expr, $scales:expr,
        $family:ident :: $decode:ident : $doc:literal)*) => {
        /// A quantized weight type of GGUF. The discriminant is its ggml id.
        #[allow(non_camel_case_types)] // the names that files, tools and people use
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        #[repr(u32)]
        pub enum WeightType {
            $(#[doc = $doc] $type = $id,)*
        }

        impl WeightType {
            /// Every type, in the order of ggml ids.
            pub const ALL: &[Self] = &[$(Self::$type),*];

            const fn properties(self) -> &'static Properties {
                match self {
                    $(Self::$type => {
                        const SCALES: &[FloatScale] = &$scales;
                        &Properties {
                            name: $name,
                            block: $block,
                            bytes: $bytes,
                            layout: Layout::$layout,
                            group: $group,
                            min_group: $min,
                            sub_scale: $sub,
                            max_iw: $max,
                            scales: SCALES,
                        }
                    })*
                }
            }
        }

        /// The weight types as Rust types, to be generic over.
        #[allow(non_camel_case_types)]
        pub mod types {
            use super::*;
            $(
                #[doc = $doc]
                #[derive(Debug, Clone, Copy)]
                pub struct $type;

                impl Format for $type {
                    const TYPE: WeightType = WeightType::$type;
                    const BLOCK: usize = $block;
                    const BYTES: usize = $bytes;
                    const LAYOUT: Layout = Layout::$layout;
                    const GROUP: usize = $group;
                    const MIN_GROUP: Option<usize> = $min;
                    const SUB_SCALE: Option<usize> = $sub;
                    const MAX_IW: i32 = $max;

                    #[inline(always)]
                    fn decode(block: &[u8], out: &mut Decoded) {
                        let block = block.first_chunk().expect(concat!($name, ": a whole block"));
                        $family::$decode(block, out);
                    }
                }
            )*
        }
    };
}

/// Hands the table of the weight types, behind some tokens in parentheses, to a macro.
///
/// A row: type, ggml id, name, values and bytes of a block, q8_1 layout, values per scale, per
/// minimum and per sub-scale, largest |iw|, where float scales stand, decoder, what it is. All that
/// must name every type is written from it: the enum, the types, [`dispatch!`](crate::dispatch),
/// the golden vectors of the suite.
///
/// ```
/// macro_rules! names {
///     ((), $($type:ident $id:literal $name:literal $block:literal / $bytes:literal
///         $layout:ident $group:literal $min:expr, $sub:expr, $max:expr, $scales:expr,
///         $family:ident :: $decode:ident : $doc:literal)*) => { [$($name),*] };
/// }
/// let names = strata_core::for_each_weight_type!(names!());
/// assert!(names.contains(&"q4_K"));
/// ```
// The largest |iw| is the largest code times the largest sub-scale: codes of IQ types reach 43 (IQ2),
// 62 (IQ3_XXS), 15 (IQ3_S), 9 (IQ1_M) and 127 (IQ4), and sub-scales 31 (2 * 15 + 1), 15 or -32.
// A scale is an f16 at a byte: R of random sign, P above 0, M below; the number behind says how many
// powers of two it may be larger than 2^-(bits of the largest |iw| + 1), for weights below 1.
// The average code of Q4_K and the like is near 8, of Q5_K near 16: so many scales does the minimum take away.
// Those of IQ1_M, MXFP4 and NVFP4 are no f16 in one place: `random.rs` has them.
#[macro_export]
macro_rules! for_each_weight_type {
    ($($then:tt)::+ ! ($($first:tt)*)) => {
        $($then)::+ ! { ($($first)*),
            // type id name   values/bytes layout group minimum sub-scale largest |iw| scales decoder
            Q4_0     2 "q4_0"     32 /  18 DS4   32 None,     None,     8,        [R(0, 0)],            legacy::q4_0   : "Four bits, offset 8."
            Q4_1     3 "q4_1"     32 /  20 DS4   32 Some(32), None,     15,       [P(0, 0), M(2, 3)],   legacy::q4_1   : "Four bits and a float minimum."
            Q5_0     6 "q5_0"     32 /  22 D4    32 None,     None,     16,       [R(0, 0)],            legacy::q5_0   : "Five bits, offset 16."
            Q5_1     7 "q5_1"     32 /  24 DS4   32 Some(32), None,     31,       [P(0, 0), M(2, 4)],   legacy::q5_1   : "Five bits and a float minimum."
            Q8_0     8 "q8_0"     32 /  34 D4    32 None,     None,     128,      [R(0, 0)],            legacy::q8_0   : "Eight bits."
            Q2_K    10 "q2_K"    256 /  84 D2S6 256 Some(16), Some(16), 15 * 3,   [P(80, 0), P(82, 0)], k::q2_k        : "Two bits, scales and minimums per 16."
            Q3_K    11 "q3_K"    256 / 110 D4   256 None,     Some(16), 32 * 4,   [R(108, 0)],          k::q3_k        : "Three bits, scales per 16."
            Q4_K    12 "q4_K"    256 / 144 DS4  256 Some(32), Some(32), 63 * 15,  [P(0, 0), P(2, 3)],   k::q4_k        : "Four bits, scales and minimums per 32."
            Q5_K    13 "q5_K"    256 / 176 DS4  256 Some(32), Some(32), 63 * 31,  [P(0, 0), P(2, 4)],   k::q5_k        : "Five bits, scales and minimums per 32."
            Q6_K    14 "q6_K"    256 / 210 D4   256 None,     Some(16), 128 * 32, [R(208, 0)],          k::q6_k        : "Six bits, scales per 16."
            IQ2_XXS 16 "iq2_xxs" 256 /  66 D4   256 None,     Some(32), 31 * 43,  [R(0, 3)],            iq::iq2_xxs    : "Two-bit codebook of 256, scales per 32."
            IQ2_XS  17 "iq2_xs"  256 /  74 D4   256 None,     Some(16), 31 * 43,  [R(0, 3)],            iq::iq2_xs     : "Two-bit codebook of 512, scales per 16."
            IQ3_XXS 18 "iq3_xxs" 256 /  98 D4   256 None,     Some(32), 31 * 62,  [R(0, 2)],            iq::iq3_xxs    : "Three-bit codebook of 256, scales per 32."
            IQ1_S   19 "iq1_s"   256 /  50 DS4  256 Some(32), Some(32), 15,       [R(0, -1)],           iq::iq1_s      : "Ternary codebook of 2048, scales and shifts per 32."
            IQ4_NL  20 "iq4_nl"   32 /  18 D4    32 None,     None,     127,      [R(0, 0)],            iq::iq4_nl     : "Four bits, non-linear."
            IQ3_S   21 "iq3_s"   256 / 110 D4   256 None,     Some(32), 31 * 15,  [R(0, 0)],            iq::iq3_s      : "Three-bit codebook of 512, scales per 32."
            IQ2_S   22 "iq2_s"   256 /  82 D4   256 None,     Some(16), 31 * 43,  [R(0, 3)],            iq::iq2_s      : "Two-bit codebook of 1024, scales per 16."
            IQ4_XS  23 "iq4_xs"  256 / 136 D4   256 None,     Some(32), 32 * 127, [R(0, 0)],            iq::iq4_xs     : "Four bits, non-linear, scales per 32."
            IQ1_M   29 "iq1_m"   256 /  56 D4   256 None,     Some(16), 15 * 9,   [],                   iq::iq1_m      : "Ternary codebook of 2048, scales per 16, shifts per 8."
            TQ1_0   34 "tq1_0"   256 /  54 D4   256 None,     None,     1,        [R(52, 0)],           bits::tq1_0    : "Ternary, five digits a byte."
            TQ2_0   35 "tq2_0"   256 /  66 D4   256 None,     None,     2,        [R(64, 0)],           bits::tq2_0    : "Two bits, offset 1."
            MXFP4   39 "mxfp4"    32 /  17 D4    32 None,     None,     12,       [],                   fp4::mxfp4     : "Four-bit floats, a power of two per 32."
            NVFP4   40 "nvfp4"    64 /  36 D4    16 None,     None,     12,       [],                   fp4::nvfp4     : "Four-bit floats, an eight-bit float per 16."
            Q1_0    41 "q1_0"    128 /  18 D4   128 None,     None,     1,        [R(0, 0)],            bits::q1_0     : "One bit: plus or minus."
            Q2_0    42 "q2_0"     64 /  18 D4    64 None,     None,     2,        [R(0, 0)],            bits::q2_0     : "Two bits, offset 1."
        }
    };
}
crate::for_each_weight_type!(weight_types!());

impl WeightType {
    /// The name as ggml spells it, as `q4_K`.
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// The id that stands for the type in a GGUF file.
    pub const fn ggml_id(self) -> u32 {
        self as u32
    }

    /// The type of a GGUF id; `None` for ids of unquantized, retired and unknown types.
    pub fn from_ggml_id(id: u32) -> Option<Self> {
        Self::ALL.iter().copied().find(|ty| ty.ggml_id() == id)
    }

    /// Values of a block: 32, 64, 128 or 256.
    pub const fn block_values(self) -> usize {
        self.properties().block
    }

    /// Bytes of a block.
    pub const fn block_bytes(self) -> usize {
        self.properties().bytes
    }

    /// The q8_1 layout of the activations that the type is multiplied with.
    pub const fn layout(self) -> Layout {
        self.properties().layout
    }

    /// Values per float scale `dw`: the block, or 16 for NVFP4.
    pub const fn group(self) -> usize {
        self.properties().group
    }

    /// Values per integer minimum `mn`; `None` for types without minimums.
    pub const fn min_group(self) -> Option<usize> {
        self.properties().min_group
    }

    /// Values that share one integer sub-scale; `None` for types without sub-scales.
    pub const fn sub_scale(self) -> Option<usize> {
        self.properties().sub_scale
    }

    /// The largest magnitude of an integer `iw`, whatever the block's bits are.
    pub const fn max_iw(self) -> i32 {
        self.properties().max_iw
    }

    /// Where the float scales of a block stand.
    pub(super) const fn float_scales(self) -> &'static [FloatScale] {
        self.properties().scales
    }

    /// Bytes of a row of `cols` values.
    ///
    /// # Errors
    /// [`Error::Invalid`] unless `cols` is a multiple of [`block_values`](Self::block_values)
    /// and the row's bytes fit a `usize`.
    pub fn row_bytes(self, cols: usize) -> Result<usize> {
        let block = self.block_values();
        let bytes = if cols.is_multiple_of(block) {
            (cols / block).checked_mul(self.block_bytes())
        } else {
            None
        };
        bytes.ok_or_else(|| {
            Error::invalid(
                format!("columns of a {self} row"),
                cols,
                format!("a multiple of {block}"),
            )
        })
    }

    /// Decodes the block at the start of `block`. A loop over blocks should
    /// rather [`dispatch!`](crate::dispatch) once and call [`Format::decode`].
    ///
    /// # Panics
    /// If `block` is shorter than [`block_bytes`](Self::block_bytes).
    pub fn decode(self, block: &[u8], out: &mut Decoded) {
        dispatch!(self, F => F::decode(block, out));
    }
}

impl std::fmt::Display for WeightType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for WeightType {
    type Err = Error;

    /// Reads a name, in upper or lower case.
    fn from_str(name: &str) -> Result<Self> {
        Self::ALL.iter().copied().find(|ty| ty.name().eq_ignore_ascii_case(name)).ok_or_else(|| {
            Error::UnknownType {
                given: name.to_owned(),
                expected: Self::ALL.iter().map(|ty| ty.name()).collect::<Vec<_>>().join(", "),
            }
        })
    }
}
