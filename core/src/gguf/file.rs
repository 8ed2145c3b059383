//! One GGUF file: its mapped bytes, metadata and tensors.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use memmap2::Mmap;

use super::parse::{self, Parsed, TensorInfo};
use super::{GgufError, Result, Value, ValueType, shown};

/// The owner of a file's bytes, for those who want to keep using them without a copy.
pub type Owner = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// One GGUF file: its bytes and what they say.
pub struct GgufFile {
    name: String,
    source: Source,
    parsed: Parsed,
}

/// Both keep their length for as long as they live; a range that fitted once fits ever after.
enum Source {
    Mapped(Arc<Mmap>),
    Owned(Arc<Vec<u8>>),
}

impl Source {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Mapped(map) => map,
            Self::Owned(bytes) => bytes,
        }
    }
}

impl GgufFile {
    /// Maps a file into memory and parses it.
    ///
    /// The file must not be changed or truncated while it is open, as with everything that is
    /// mapped: values may change, and reading past a new end ends the process (`SIGBUS`; the command
    /// line tool catches it, says which file it was and exits with 1).
    ///
    /// # Errors
    /// [`GgufError`] if the file cannot be opened, is not a regular file, or is refused.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let io = |source| GgufError::Io { file: name.clone(), source };
        // Asked before opening, for opening a pipe waits for its other end.
        if !std::fs::metadata(path).map_err(io)?.is_file() {
            return Err(GgufError::field(&name, "file", "something else", "a regular file"));
        }
        let file = std::fs::File::open(path).map_err(io)?;
        // SAFETY: the mapping is only read. That nobody changes the file meanwhile is what this
        // function asks of its caller; values are bounds checked again when they are decoded, so
        // a changed file gives wrong values and no access out of bounds.
        let map = unsafe { Mmap::map(&file) }.map_err(io)?;
        let parsed = parse::parse(&name, &map)?;
        Ok(Self { name, source: Source::Mapped(Arc::new(map)), parsed })
    }

    /// Parses bytes in memory; `name` stands for the file in messages.
    ///
    /// # Errors
    /// [`GgufError`] if the bytes are refused.
    pub fn from_bytes(name: impl Into<String>, bytes: impl Into<Arc<Vec<u8>>>) -> Result<Self> {
        let (name, bytes) = (name.into(), bytes.into());
        let parsed = parse::parse(&name, &bytes)?;
        Ok(Self { name, source: Source::Owned(bytes), parsed })
    }

    /// The file's name, as messages give it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The version of the format, 2 or 3.
    pub fn version(&self) -> u32 {
        self.parsed.version
    }

    /// What tensor offsets are multiples of, in bytes.
    pub fn alignment(&self) -> u64 {
        self.parsed.alignment
    }

    /// Numbers the file among the parts of a model.
    pub(super) fn set_part(&mut self, part: usize) {
        self.parsed.tensors.iter_mut().for_each(|tensor| tensor.part = part);
    }

    /// The tensors, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.parsed.tensors
    }

    /// The tensor with a name.
    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        let Parsed { tensors, by_name, .. } = &self.parsed;
        let found = by_name.binary_search_by(|&i| tensors[i].name().cmp(name)).ok()?;
        Some(&tensors[by_name[found]])
    }

    /// The metadata, in the file's order.
    pub fn metadata(&self) -> impl Iterator<Item = (&str, Value<'_>)> {
        let bytes = self.source.bytes();
        self.parsed.entries.iter().filter_map(|e| Some((e.key(bytes), e.value(bytes)?)))
    }

    /// The metadata value of a key.
    pub fn value(&self, key: &str) -> Option<Value<'_>> {
        let bytes = self.source.bytes();
        let Parsed { entries, by_key, .. } = &self.parsed;
        let found = by_key.binary_search_by(|&i| entries[i].key(bytes).cmp(key)).ok()?;
        entries[by_key[found]].value(bytes)
    }

    /// The bytes of one of this file's tensors.
    ///
    /// # Errors
    /// [`GgufError::PastEnd`] if the tensor is another file's and does not fit this one.
    pub fn tensor_bytes(&self, tensor: &TensorInfo) -> Result<&[u8]> {
        let bytes = self.source.bytes();
        bytes.get(tensor.range()).ok_or_else(|| GgufError::PastEnd {
            file: self.name.clone(),
            tensor: shown(tensor.name()),
            offset: tensor.offset as u64,
            bytes: tensor.bytes as u64,
            data: bytes.len(),
        })
    }

    /// The owner of the file's bytes and where in them one of this file's tensors lies: for use
    /// without a copy, for as long as the owner is kept.
    ///
    /// # Errors
    /// As [`GgufFile::tensor_bytes`].
    pub fn mapped(&self, tensor: &TensorInfo) -> Result<(Owner, Range<usize>)> {
        self.tensor_bytes(tensor)?;
        let owner: Owner = match &self.source {
            Source::Mapped(map) => map.clone(),
            Source::Owned(bytes) => bytes.clone(),
        };
        Ok((owner, tensor.range()))
    }

    /// A non-negative integer of any width; `None` without the key.
    ///
    /// # Errors
    /// [`GgufError::Field`] if the key holds something else.
    pub fn u64(&self, key: &str) -> Result<Option<u64>> {
        self.typed(key, "a non-negative integer", |value| value.as_u64())
    }

    /// An `f32`; `None` without the key.
    ///
    /// # Errors
    /// As [`GgufFile::u64`].
    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "an f32", |value| value.as_f32())
    }

    /// A bool; `None` without the key.
    ///
    /// # Errors
    /// As [`GgufFile::u64`].
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", |value| value.as_bool())
    }

    /// A string; `None` without the key.
    ///
    /// # Errors
    /// As [`GgufFile::u64`], and if the string is not UTF-8.
    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a string of UTF-8", |value| value.as_str())
    }

    /// A non-negative integer that is the same for all blocks, or an array with one per block;
    /// `None` without the key.
    ///
    /// # Errors
    /// As [`GgufFile::u64`], and if an array has no element for `block`.
    pub fn u64_of_block(&self, key: &str, block: usize) -> Result<Option<u64>> {
        self.typed(key, "a non-negative integer, or one for every block", |value| {
            match value.as_array() {
                Some(array) => array.get(block)?.as_u64(),
                None => value.as_u64(),
            }
        })
    }

    fn typed<'a, T>(
        &'a self,
        key: &str,
        expected: &str,
        convert: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        convert(&value).map(Some).ok_or_else(|| {
            let given = match (value.ty(), value.as_array()) {
                (_, Some(array)) => format!("an array of {} {}", array.len(), array.element()),
                (ty @ (ValueType::String | ValueType::Bool), _) => format!("a {ty}"),
                (ty @ (ValueType::F32 | ValueType::F64), _) => format!("an {ty}"),
                (ty, _) => match value {
                    Value::I8(number) => format!("the number {number} ({ty})"),
                    Value::I16(number) => format!("the number {number} ({ty})"),
                    Value::I32(number) => format!("the number {number} ({ty})"),
                    Value::I64(number) => format!("the number {number} ({ty})"),
                    _ => match value.as_u64() {
                        Some(number) => format!("the number {number} ({ty})"),
                        None => format!("a value of type {ty}"),
                    },
                },
            };
            GgufError::field(&self.name, key, given, expected)
        })
    }
}

impl std::fmt::Debug for GgufFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GgufFile")
            .field("name", &self.name)
            .field("version", &self.parsed.version)
            .field("metadata", &self.parsed.entries.len())
            .field("tensors", &self.parsed.tensors.len())
            .finish_non_exhaustive()
    }
}
