//! Reading and writing GGUF files.
//!
//! The reader is our own because of the published ones neither fits: `ggus` 0.5 reserves memory for
//! whatever counts the header claims, adds offsets unchecked and takes version 3 only, and
//! `gguf-rs-lib` 0.3 neither reads split files nor hands out shareable mapped tensor bytes.
//!
//! Everything a file says is checked when it is opened, against the bytes that are there: counts
//! before anything is reserved for them, tensor sizes in checked arithmetic, tensor ranges against
//! the end of the file and against each other. Metadata strings and arrays stay in the file and
//! are decoded when asked for. Versions 2 and 3, little-endian, are read.
//!
//! - [`GgufFile`] is one file; [`Gguf`] is a model of one or more parts.
//! - [`MoeTensors`] and [`DenseTensors`] describe the feed-forward part of a block.
//! - [`Writer`] writes files.

mod cursor;
mod dense;
mod file;
mod meta;
mod meta_value;
mod model;
mod moe;
mod names;
mod parse;
mod types;
mod value;
mod write;

pub use dense::{DenseSplit, DenseTensors, ExpertView};
pub use file::{GgufFile, Owner};
pub use meta::{Gating, ModelMeta};
pub use meta_value::MetaValue;
pub use model::Gguf;
pub use moe::{GateUp, Matrix, MoeTensors, SharedExpert};
pub use names::{FfnRole, ffn_role};
pub use parse::TensorInfo;
pub use types::TensorType;
pub use value::{Array, Value, ValueType};
pub use write::Writer;

/// Shorthand for a result that fails with [`GgufError`].
type Result<T, E = GgufError> = std::result::Result<T, E>;

/// Why a GGUF file was refused.
///
/// Every message names the file, the field, what was given and what would have been accepted.
/// Names taken from the file are cut to a readable length.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The operating system refused.
    #[error("{file}: {source}")]
    Io {
        /// The file.
        file: String,
        /// The system's error.
        source: std::io::Error,
    },

    /// The file ends inside a field.
    #[error(
        "{file}: {field}: truncated: {needs} bytes expected at offset {offset}, {left} are left"
    )]
    Truncated {
        /// The file.
        file: String,
        /// The field that is cut short.
        field: String,
        /// Where the field begins, in bytes from the start of the file.
        offset: usize,
        /// Bytes it needs.
        needs: u64,
        /// Bytes left from `offset` to the end of the file.
        left: usize,
    },

    /// The first four bytes are not `GGUF`.
    #[error("{file}: magic: given {given}, expected \"GGUF\"{}", what_it_is(given))]
    Magic {
        /// The file.
        file: String,
        /// The four bytes, escaped.
        given: String,
    },

    /// A big-endian file.
    #[error(
        "{file}: version: given {given:#010x}, a byte-swapped {}: the file is big-endian, expected little-endian",
        given.swap_bytes()
    )]
    BigEndian {
        /// The file.
        file: String,
        /// The version field as read.
        given: u32,
    },

    /// A version of the format that is not read.
    #[error("{file}: version: given {given}, expected 2 or 3")]
    Version {
        /// The file.
        file: String,
        /// The version it states.
        given: u32,
    },

    /// A count that the bytes left in the file cannot hold.
    #[error("{file}: {field}: given {given}, expected at most {most}: only {left} bytes are left")]
    Count {
        /// The file.
        file: String,
        /// The counting field.
        field: String,
        /// What it says.
        given: u64,
        /// What the rest of the file could hold at most.
        most: u64,
        /// Bytes left in the file.
        left: usize,
    },

    /// A field with a value that is not accepted.
    #[error("{file}: {field}: given {given}, expected {expected}")]
    Field {
        /// The file.
        file: String,
        /// The field.
        field: String,
        /// What it holds.
        given: String,
        /// What is accepted.
        expected: String,
    },

    /// A tensor type id that is not known.
    #[error(
        "{file}: tensor {tensor}: type id: given {id}{}, expected one of {}",
        withdrawn(*id),
        TensorType::known()
    )]
    UnknownType {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// The id.
        id: u32,
    },

    /// A key or a tensor name that occurs twice.
    #[error("{file}: {field}: given {name} twice, expected each name once")]
    Duplicate {
        /// The file.
        file: String,
        /// `metadata key` or `tensor name`.
        field: &'static str,
        /// The name.
        name: String,
    },

    /// A tensor whose bytes lie past the end of the file.
    #[error(
        "{file}: tensor {tensor}: offset: given {offset} with {bytes} bytes, expected an end at or before {data}, the size of the data section"
    )]
    PastEnd {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its offset in the data section.
        offset: u64,
        /// Its size in bytes.
        bytes: u64,
        /// Bytes in the data section.
        data: usize,
    },

    /// Two tensors that share bytes.
    #[error(
        "{file}: tensor {tensor}: offset: given {offset}, which overlaps tensor {other}, expected {free} or more"
    )]
    Overlap {
        /// The file.
        file: String,
        /// The tensor that begins later.
        tensor: String,
        /// Its offset in the data section.
        offset: usize,
        /// The tensor it runs into.
        other: String,
        /// Where the other one ends in the data section.
        free: usize,
    },

    /// A tensor with more values or bytes than 64 bits can count.
    #[error("{file}: tensor {tensor}: dims: given {dims:?}, expected a product below 2^64")]
    Overflow {
        /// The file.
        file: String,
        /// The tensor.
        tensor: String,
        /// Its dims.
        dims: Vec<u64>,
    },

    /// A tensor or metadata key that has to be there.
    #[error("{file}: {field}: given nothing, expected it because {reason}")]
    Missing {
        /// The file.
        file: String,
        /// The tensor or key that is missing.
        field: String,
        /// Why it is needed.
        reason: String,
    },

    /// A part of a split model that is not there.
    #[error("{file}: part is missing: expected it next to {of}")]
    MissingPart {
        /// The part's path.
        file: String,
        /// The path that was opened.
        of: String,
    },
}

impl GgufError {
    /// A [`GgufError::Field`] from anything that can be shown.
    fn field(
        file: &str,
        field: impl std::fmt::Display,
        given: impl std::fmt::Display,
        expected: impl Into<String>,
    ) -> Self {
        Self::Field {
            file: file.to_owned(),
            field: field.to_string(),
            given: given.to_string(),
            expected: expected.into(),
        }
    }

    /// A [`GgufError::Missing`].
    fn missing(file: &str, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self::Missing { file: file.to_owned(), field: field.into(), reason: reason.into() }
    }
}

/// What a file without the magic is, by how it begins.
fn what_it_is(given: &str) -> &'static str {
    match given.trim_matches('"') {
        "vers" => {
            "; this may be the pointer that Git LFS leaves in the place of a large file: `git lfs pull` \
             fetches it"
        }
        text if text.starts_with('<') => {
            "; this may be a web page that was saved in the place of the model"
        }
        text if text.starts_with("PK") => "; this is a zip archive, as PyTorch saves models",
        "ggml" | "ggmf" | "ggjt" | "lmgg" | "fmgg" | "tjgg" => {
            "; this is a format before GGUF: convert the model again"
        }
        _ => "",
    }
}

/// A word on types that the format once had.
fn withdrawn(id: u32) -> &'static str {
    match id {
        4 | 5 | 31..=33 | 36..=38 => {
            ", which was withdrawn from the format (quantize the model again from its source)"
        }
        _ => "",
    }
}

/// The longest piece of a name from a file that an error repeats, in characters.
const SHOWN: usize = 96;

/// A name from a file, made fit for a message: control characters escaped, cut when long.
fn shown(name: &str) -> String {
    let mut text: String = name.chars().take(SHOWN).flat_map(char::escape_debug).collect();
    if name.chars().nth(SHOWN).is_some() {
        text.push_str("...");
    }
    text
}
