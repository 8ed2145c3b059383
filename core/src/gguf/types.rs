//! Tensor types: what one block of a tensor's row is.

use crate::format::WeightType;

/// The type of a tensor's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TensorType {
    /// 32-bit floats.
    F32,
    /// 16-bit IEEE floats.
    F16,
    /// The upper halves of 32-bit floats.
    BF16,
    /// A quantized weight type that the matrix product takes.
    Weight(WeightType),
    /// Any other type the format defines, by its ggml id and name: listed and sized, not computed
    /// with.
    Other(u32, &'static str),
    /// A type of an id that is not known, or that was withdrawn from the format. How many bytes its
    /// tensor has is not known either: none are listed.
    Unknown(u32),
}

/// The types that are neither floats nor weight types: id, name, values and bytes of a block.
const OTHER: [(u32, &str, usize, usize); 7] = [
    (9, "q8_1", 32, 36),
    (15, "q8_K", 256, 292),
    (24, "i8", 1, 1),
    (25, "i16", 1, 2),
    (26, "i32", 1, 4),
    (27, "i64", 1, 8),
    (28, "f64", 1, 8),
];

/// Ids past this one are not searched for in the list of known ids.
const LAST_ID: u32 = 255;

impl TensorType {
    /// The type with a ggml id; `None` for an id that is unknown or was withdrawn from the format.
    pub fn from_ggml_id(id: u32) -> Option<Self> {
        match id {
            0 => Some(Self::F32),
            1 => Some(Self::F16),
            30 => Some(Self::BF16),
            _ => WeightType::from_ggml_id(id).map(Self::Weight).or_else(|| {
                OTHER.iter().find(|o| o.0 == id).map(|&(id, name, ..)| Self::Other(id, name))
            }),
        }
    }

    /// The id that stands for this type in a file.
    pub fn ggml_id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::BF16 => 30,
            Self::Weight(weight) => weight.ggml_id(),
            Self::Other(id, _) | Self::Unknown(id) => id,
        }
    }

    /// Values in one block; rows hold whole blocks. At least 1.
    pub fn block_values(self) -> usize {
        self.block().0
    }

    /// Bytes of one block. At least 1.
    pub fn block_bytes(self) -> usize {
        self.block().1
    }

    /// The weight type, if this is one.
    pub fn weight(self) -> Option<WeightType> {
        match self {
            Self::Weight(weight) => Some(weight),
            _ => None,
        }
    }

    fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::BF16 => (1, 2),
            Self::Weight(weight) => (weight.block_values(), weight.block_bytes()),
            // An `Other` that a caller made up is sized as single bytes.
            Self::Other(id, _) => OTHER
                .iter()
                .find(|o| o.0 == id)
                .map_or((1, 1), |&(_, _, values, bytes)| (values, bytes)),
            Self::Unknown(_) => (1, 1),
        }
    }

    /// The known ids with their names, for messages.
    pub(super) fn known() -> String {
        let names: Vec<String> = (0..=LAST_ID)
            .filter_map(|id| Self::from_ggml_id(id).map(|ty| format!("{id} ({ty})")))
            .collect();
        names.join(", ")
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::F32 => f.write_str("f32"),
            Self::F16 => f.write_str("f16"),
            Self::BF16 => f.write_str("bf16"),
            Self::Weight(weight) => write!(f, "{weight}"),
            Self::Other(_, name) => f.write_str(name),
            Self::Unknown(id) => write!(f, "id {id}, which is not known"),
        }
    }
}
