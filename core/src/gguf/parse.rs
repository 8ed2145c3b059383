//! The strict parser: one walk over the header, the metadata and the tensor table.

use std::ops::Range;

use super::cursor::{Cursor, DEPTH, Shown};
use super::value::{Entry, ValueType};
use super::{GgufError, Result, TensorType, shown};

/// The most dimensions of a tensor.
const DIMS: usize = 4;
/// The alignment of tensor data when `general.alignment` does not say.
const ALIGNMENT: u64 = 32;
/// The fewest bytes of a metadata entry: key length, one character, type, one byte.
const LEAST_ENTRY: usize = 8 + 1 + 4 + 1;
/// The fewest bytes of a tensor's entry: name length, one character, count of dims, no dim, type,
/// offset.
const LEAST_TENSOR: usize = 8 + 1 + 4 + 4 + 8;

/// One entry of a tensor table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorInfo {
    pub(super) name: Box<str>,
    pub(super) dims: [u64; DIMS],
    pub(super) count: usize,
    pub(super) ty: TensorType,
    pub(super) offset: usize,
    pub(super) bytes: usize,
    pub(super) part: usize,
}

impl TensorInfo {
    /// The tensor's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions the file states, up to 4 of them, innermost (columns) first. A single value may
    /// have none; a tensor of no values has a 0 among them.
    pub fn dims(&self) -> &[u64] {
        self.dims.get(..self.count).unwrap_or(&self.dims)
    }

    /// Dimension `i`, 1 where the file states none.
    pub fn dim(&self, i: usize) -> u64 {
        self.dims().get(i).copied().unwrap_or(1)
    }

    /// The type of its values.
    pub fn tensor_type(&self) -> TensorType {
        self.ty
    }

    /// Where its bytes begin, from the start of its part's file.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Which part of a split model holds it, from 0.
    pub fn part(&self) -> usize {
        self.part
    }

    /// Where its bytes lie in its part's file.
    pub fn range(&self) -> Range<usize> {
        // The sum was checked against the end of the file.
        self.offset..self.offset.saturating_add(self.bytes)
    }
}

/// What a file says.
#[derive(Debug)]
pub(super) struct Parsed {
    pub version: u32,
    pub alignment: u64,
    pub entries: Vec<Entry>,
    /// Indices of `entries` in the order of their keys.
    pub by_key: Vec<usize>,
    pub tensors: Vec<TensorInfo>,
    /// Indices of `tensors` in the order of their names.
    pub by_name: Vec<usize>,
}

/// Parses a whole file; `file` is its name for messages.
pub(super) fn parse(file: &str, bytes: &[u8]) -> Result<Parsed> {
    let mut cursor = Cursor { file, bytes, at: 0 };
    let version = header(&mut cursor)?;
    let (tensor_count, entry_count) =
        (cursor.u64(&"tensor count")?, cursor.u64(&"metadata count")?);
    let tensor_count = cursor.fits(tensor_count, LEAST_TENSOR, &"tensor count")?;
    let entry_count = cursor.fits(entry_count, LEAST_ENTRY, &"metadata count")?;

    // Counts only bound the loops: the tables grow with what has been read.
    let mut entries = Vec::new();
    for i in 0..entry_count {
        entries.push(entry(&mut cursor, i)?);
    }
    let by_key = order(file, "metadata key", entries.len(), |i| entries[i].key(bytes))?;
    let alignment =
        match by_key.binary_search_by(|&i| entries[i].key(bytes).cmp("general.alignment")) {
            Ok(found) => alignment(file, bytes, &entries[by_key[found]])?,
            Err(_) => ALIGNMENT,
        };

    let mut tensors = Vec::new();
    for i in 0..tensor_count {
        tensors.push(tensor(&mut cursor, i, alignment)?);
    }
    let by_name = order(file, "tensor name", tensors.len(), |i| tensors[i].name())?;
    place(&cursor, alignment, &mut tensors)?;
    Ok(Parsed { version, alignment, entries, by_key, tensors, by_name })
}

/// Magic and version.
fn header(cursor: &mut Cursor<'_>) -> Result<u32> {
    let file = cursor.file;
    let magic = cursor.take(4, &"magic")?;
    if magic != b"GGUF" {
        let given = format!("\"{}\"", magic.escape_ascii());
        return Err(GgufError::Magic { file: file.to_owned(), given });
    }
    match cursor.u32(&"version")? {
        version @ (2 | 3) => Ok(version),
        // A small version, byte-swapped, has nothing in its low half.
        given if given != 0 && given & 0xffff == 0 => {
            Err(GgufError::BigEndian { file: file.to_owned(), given })
        }
        given => Err(GgufError::Version { file: file.to_owned(), given }),
    }
}

/// One metadata entry.
fn entry(cursor: &mut Cursor<'_>, i: usize) -> Result<Entry> {
    let key = cursor.name(&format_args!("metadata entry {i}: key"))?;
    let field = format_args!("metadata key {}", Shown(key));
    let key_end = cursor.at;
    let ty = cursor.value_type(&field)?;
    let at = cursor.at;
    cursor.skip_value(ty, DEPTH, &field)?;
    Ok(Entry { key: key_end - key.len()..key_end, ty, value: at..cursor.at })
}

/// The alignment that the metadata states.
fn alignment(file: &str, bytes: &[u8], entry: &Entry) -> Result<u64> {
    let expected = "a power of two, as u32 or u64";
    match entry.value(bytes).map(|value| (value.ty(), value.as_u64())) {
        Some((ValueType::U32 | ValueType::U64, Some(given))) if given.is_power_of_two() => {
            Ok(given)
        }
        Some((ty, Some(given))) => Err(GgufError::field(
            file,
            "general.alignment",
            format_args!("{given} ({ty})"),
            expected,
        )),
        _ => Err(GgufError::field(file, "general.alignment", entry.ty, expected)),
    }
}

/// One entry of the tensor table; `offset` still counts from the start of the data section.
fn tensor(cursor: &mut Cursor<'_>, i: usize, alignment: u64) -> Result<TensorInfo> {
    let file = cursor.file;
    let name = cursor.name(&format_args!("tensor entry {i}: name"))?;
    let field = |what: &str| format!("tensor {}: {what}", shown(name));

    let count = cursor.u32(&format_args!("tensor {}: count of dims", Shown(name)))?;
    let count = match usize::try_from(count) {
        Ok(count @ ..=DIMS) => count,
        _ => {
            return Err(GgufError::field(file, field("count of dims"), count, "0 to 4"));
        }
    };
    let mut dims = [1u64; DIMS];
    for (d, dim) in dims.iter_mut().enumerate().take(count) {
        *dim = cursor.u64(&format_args!("tensor {}: dims[{d}]", Shown(name)))?;
    }
    let id = cursor.u32(&format_args!("tensor {}: type id", Shown(name)))?;
    let offset = cursor.u64(&format_args!("tensor {}: offset", Shown(name)))?;

    // Whoever uses the tensor refuses a type that is not known.
    let ty = TensorType::from_ggml_id(id).unwrap_or(TensorType::Unknown(id));
    let bytes = match (ty, size(file, name, &dims[..count], ty)?) {
        (TensorType::Unknown(_), _) => 0,
        (_, bytes) => bytes,
    };
    if !offset.is_multiple_of(alignment) {
        let expected = format!("a multiple of {alignment}, the file's alignment");
        return Err(GgufError::field(file, field("offset"), offset, expected));
    }
    // Whether the tensor fits the address space is settled here, whether it fits the file below.
    match (usize::try_from(offset), usize::try_from(bytes)) {
        (Ok(offset), Ok(bytes)) => {
            Ok(TensorInfo { name: name.into(), dims, count, ty, offset, bytes, part: 0 })
        }
        _ => Err(past_end(file, name, offset, bytes, cursor.left())),
    }
}

/// The bytes of a tensor.
pub(super) fn size(file: &str, name: &str, dims: &[u64], ty: TensorType) -> Result<u64> {
    let overflow =
        || GgufError::Overflow { file: file.to_owned(), tensor: shown(name), dims: dims.to_vec() };
    let product = |values: &[u64]| values.iter().try_fold(1u64, |all, &dim| all.checked_mul(dim));
    product(dims).ok_or_else(overflow)?;

    let cols = dims.first().copied().unwrap_or(1);
    let block = ty.block_values() as u64;
    if !cols.is_multiple_of(block) {
        let field = format!("tensor {}: dims[0]", shown(name));
        let expected = format!("a multiple of {block}, the block of {ty}");
        return Err(GgufError::field(file, field, cols, expected));
    }
    let rows = product(dims.get(1..).unwrap_or_default()).ok_or_else(overflow)?;
    (cols / block)
        .checked_mul(ty.block_bytes() as u64)
        .and_then(|row| row.checked_mul(rows))
        .ok_or_else(overflow)
}

/// Moves the tensors' offsets to the start of the file; none may end past it or share bytes.
fn place(cursor: &Cursor<'_>, alignment: u64, tensors: &mut [TensorInfo]) -> Result<()> {
    if tensors.is_empty() {
        return Ok(());
    }
    let file = cursor.file;
    let start = (cursor.at as u64)
        .checked_next_multiple_of(alignment)
        .and_then(|start| usize::try_from(start).ok())
        .filter(|&start| start <= cursor.bytes.len());
    let Some(start) = start else {
        return Err(GgufError::Truncated {
            file: file.to_owned(),
            field: format!("padding to the alignment of {alignment} before the tensor data"),
            offset: cursor.at,
            needs: alignment - cursor.at as u64 % alignment,
            left: cursor.left(),
        });
    };
    let data = cursor.bytes.len() - start;
    for tensor in tensors.iter_mut() {
        match tensor.offset.checked_add(tensor.bytes) {
            Some(end) if end <= data => tensor.offset += start,
            _ => {
                let (offset, bytes) = (tensor.offset as u64, tensor.bytes as u64);
                return Err(past_end(file, tensor.name(), offset, bytes, data));
            }
        }
    }
    // One of no values takes none, wherever it stands.
    let mut order: Vec<usize> = (0..tensors.len()).filter(|&i| tensors[i].bytes > 0).collect();
    order.sort_unstable_by_key(|&i| tensors[i].offset);
    for pair in order.windows(2) {
        let (first, second) = (&tensors[pair[0]], &tensors[pair[1]]);
        if first.range().end > second.offset {
            return Err(GgufError::Overlap {
                file: file.to_owned(),
                tensor: shown(second.name()),
                offset: second.offset - start,
                other: shown(first.name()),
                free: first.range().end - start,
            });
        }
    }
    Ok(())
}

fn past_end(file: &str, name: &str, offset: u64, bytes: u64, data: usize) -> GgufError {
    GgufError::PastEnd { file: file.to_owned(), tensor: shown(name), offset, bytes, data }
}

/// Indices in the order of their names, which have to differ.
pub(super) fn order<'a>(
    file: &str,
    field: &'static str,
    len: usize,
    name: impl Fn(usize) -> &'a str,
) -> Result<Vec<usize>> {
    let mut order: Vec<usize> = (0..len).collect();
    order.sort_unstable_by(|&a, &b| name(a).cmp(name(b)));
    match order.windows(2).find(|pair| name(pair[0]) == name(pair[1])) {
        Some(pair) => {
            Err(GgufError::Duplicate { file: file.to_owned(), field, name: shown(name(pair[0])) })
        }
        None => Ok(order),
    }
}
