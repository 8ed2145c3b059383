//! Metadata values, decoded from the file's bytes when they are asked for.

use std::ops::Range;

/// The type of a metadata value, with its id in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ValueType {
    /// Unsigned, 1 byte.
    U8 = 0,
    /// Signed, 1 byte.
    I8 = 1,
    /// Unsigned, 2 bytes.
    U16 = 2,
    /// Signed, 2 bytes.
    I16 = 3,
    /// Unsigned, 4 bytes.
    U32 = 4,
    /// Signed, 4 bytes.
    I32 = 5,
    /// Float, 4 bytes.
    F32 = 6,
    /// One byte, 0 or 1.
    Bool = 7,
    /// A length of 8 bytes, then that many bytes of UTF-8.
    String = 8,
    /// An element type, a count, then the elements.
    Array = 9,
    /// Unsigned, 8 bytes.
    U64 = 10,
    /// Signed, 8 bytes.
    I64 = 11,
    /// Float, 8 bytes.
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The type with an id.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// Bytes of a value of fixed size; `None` for strings and arrays.
    pub fn size(self) -> Option<usize> {
        match self {
            Self::U8 | Self::I8 | Self::Bool => Some(1),
            Self::U16 | Self::I16 => Some(2),
            Self::U32 | Self::I32 | Self::F32 => Some(4),
            Self::U64 | Self::I64 | Self::F64 => Some(8),
            Self::String | Self::Array => None,
        }
    }

    /// The fewest bytes a value of this type takes.
    pub(super) fn least(self) -> usize {
        match self {
            Self::String => 8,
            Self::Array => 12,
            _ => self.size().unwrap_or(1),
        }
    }
}

impl std::fmt::Display for ValueType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        })
    }
}

/// One metadata value, borrowing strings and arrays from the file.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// A `u8`.
    U8(u8),
    /// An `i8`.
    I8(i8),
    /// A `u16`.
    U16(u16),
    /// An `i16`.
    I16(i16),
    /// A `u32`.
    U32(u32),
    /// An `i32`.
    I32(i32),
    /// An `f32`.
    F32(f32),
    /// A `bool`.
    Bool(bool),
    /// A string's bytes. Tokenizers are known to store pieces that are not UTF-8, so that is
    /// checked where a string is wanted ([`Value::as_str`]).
    String(&'a [u8]),
    /// An array.
    Array(Array<'a>),
    /// A `u64`.
    U64(u64),
    /// An `i64`.
    I64(i64),
    /// An `f64`.
    F64(f64),
}

impl<'a> Value<'a> {
    /// The value's type.
    pub fn ty(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// A non-negative integer of any width.
    pub fn as_u64(&self) -> Option<u64> {
        match *self {
            Self::U8(v) => Some(v.into()),
            Self::U16(v) => Some(v.into()),
            Self::U32(v) => Some(v.into()),
            Self::U64(v) => Some(v),
            Self::I8(v) => v.try_into().ok(),
            Self::I16(v) => v.try_into().ok(),
            Self::I32(v) => v.try_into().ok(),
            Self::I64(v) => v.try_into().ok(),
            _ => None,
        }
    }

    /// An `f32`.
    pub fn as_f32(&self) -> Option<f32> {
        match *self {
            Self::F32(v) => Some(v),
            _ => None,
        }
    }

    /// A bool.
    pub fn as_bool(&self) -> Option<bool> {
        match *self {
            Self::Bool(v) => Some(v),
            _ => None,
        }
    }

    /// A string, if it is UTF-8.
    pub fn as_str(&self) -> Option<&'a str> {
        match *self {
            Self::String(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// An array.
    pub fn as_array(&self) -> Option<Array<'a>> {
        match *self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Decodes the value of type `ty` that `bytes` begins with, and how many bytes it takes.
    ///
    /// The parser has walked these bytes before, so `None` only comes of a file that was changed
    /// while it was mapped.
    pub(super) fn decode(bytes: &'a [u8], ty: ValueType) -> Option<(Self, usize)> {
        fn fixed<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
            bytes.get(..N)?.try_into().ok()
        }
        let value = match ty {
            ValueType::U8 => Self::U8(u8::from_le_bytes(fixed(bytes)?)),
            ValueType::I8 => Self::I8(i8::from_le_bytes(fixed(bytes)?)),
            ValueType::U16 => Self::U16(u16::from_le_bytes(fixed(bytes)?)),
            ValueType::I16 => Self::I16(i16::from_le_bytes(fixed(bytes)?)),
            ValueType::U32 => Self::U32(u32::from_le_bytes(fixed(bytes)?)),
            ValueType::I32 => Self::I32(i32::from_le_bytes(fixed(bytes)?)),
            ValueType::F32 => Self::F32(f32::from_le_bytes(fixed(bytes)?)),
            ValueType::Bool => Self::Bool(*bytes.first()? != 0),
            ValueType::U64 => Self::U64(u64::from_le_bytes(fixed(bytes)?)),
            ValueType::I64 => Self::I64(i64::from_le_bytes(fixed(bytes)?)),
            ValueType::F64 => Self::F64(f64::from_le_bytes(fixed(bytes)?)),
            ValueType::String => {
                let end = string_end(bytes)?;
                return Some((Self::String(bytes.get(8..end)?), end));
            }
            ValueType::Array => {
                let element = ValueType::from_id(u32::from_le_bytes(fixed(bytes)?))?;
                let len = u64::from_le_bytes(fixed(bytes.get(4..)?)?).try_into().ok()?;
                let array = Array { element, len, bytes: bytes.get(12..)? };
                let span = array.span(element, len)?;
                return Some((
                    Self::Array(Array { bytes: array.bytes.get(..span)?, ..array }),
                    12 + span,
                ));
            }
        };
        Some((value, ty.size()?))
    }
}

/// Where the string that `bytes` begins with ends.
fn string_end(bytes: &[u8]) -> Option<usize> {
    let len = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
    usize::try_from(len).ok()?.checked_add(8)
}

/// An array of metadata values. Elements are decoded one by one, nothing is copied.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Array<'a> {
    element: ValueType,
    len: usize,
    bytes: &'a [u8],
}

impl<'a> Array<'a> {
    /// The type of the elements.
    pub fn element(&self) -> ValueType {
        self.element
    }

    /// How many elements there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The elements, as they lie in the file.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Element `index`: at once for elements of fixed size, by walking for the others.
    pub fn get(&self, index: usize) -> Option<Value<'a>> {
        if index >= self.len {
            return None;
        }
        match self.element.size() {
            Some(size) => {
                let at = index.checked_mul(size)?;
                Value::decode(self.bytes.get(at..)?, self.element).map(|(value, _)| value)
            }
            None => self.iter().nth(index),
        }
    }

    /// The elements in order.
    pub fn iter(&self) -> impl Iterator<Item = Value<'a>> + use<'a> {
        let Self { element, len, mut bytes } = *self;
        (0..len).map_while(move |_| {
            let (value, used) = Value::decode(bytes, element)?;
            bytes = bytes.get(used..)?;
            Some(value)
        })
    }

    /// Bytes that `len` elements take at the start of `self.bytes`.
    fn span(&self, element: ValueType, len: usize) -> Option<usize> {
        if let Some(size) = element.size() {
            return len.checked_mul(size);
        }
        let mut at = 0usize;
        for _ in 0..len {
            let rest = self.bytes.get(at..)?;
            let used = match element {
                ValueType::String => string_end(rest)?,
                _ => Value::decode(rest, element)?.1,
            };
            at = at.checked_add(used)?;
        }
        Some(at)
    }
}

/// Where one metadata entry lies in the file.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub key: Range<usize>,
    pub ty: ValueType,
    pub value: Range<usize>,
}

impl Entry {
    /// The entry's key; it was checked to be UTF-8.
    pub fn key<'a>(&self, bytes: &'a [u8]) -> &'a str {
        bytes
            .get(self.key.clone())
            .and_then(|key| std::str::from_utf8(key).ok())
            .unwrap_or_default()
    }

    /// The entry's value.
    pub fn value<'a>(&self, bytes: &'a [u8]) -> Option<Value<'a>> {
        Value::decode(bytes.get(self.value.clone())?, self.ty).map(|(value, _)| value)
    }
}
