//! Metadata values to write.

use super::ValueType;

/// A metadata value to write.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum MetaValue {
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
    /// A string.
    String(String),
    /// An array, with the type of its elements.
    Array(ValueType, Vec<MetaValue>),
    /// A `u64`.
    U64(u64),
    /// An `i64`.
    I64(i64),
    /// An `f64`.
    F64(f64),
}

impl MetaValue {
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
            Self::Array(..) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// Whether every array holds elements of the type it states.
    pub(super) fn is_consistent(&self) -> bool {
        match self {
            Self::Array(element, values) => {
                values.iter().all(|value| value.ty() == *element && value.is_consistent())
            }
            _ => true,
        }
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        match self {
            Self::U8(v) => out.push(*v),
            Self::I8(v) => out.extend(v.to_le_bytes()),
            Self::U16(v) => out.extend(v.to_le_bytes()),
            Self::I16(v) => out.extend(v.to_le_bytes()),
            Self::U32(v) => out.extend(v.to_le_bytes()),
            Self::I32(v) => out.extend(v.to_le_bytes()),
            Self::F32(v) => out.extend(v.to_le_bytes()),
            Self::Bool(v) => out.push(u8::from(*v)),
            Self::U64(v) => out.extend(v.to_le_bytes()),
            Self::I64(v) => out.extend(v.to_le_bytes()),
            Self::F64(v) => out.extend(v.to_le_bytes()),
            Self::String(v) => put_string(out, v),
            Self::Array(element, values) => {
                out.extend((*element as u32).to_le_bytes());
                out.extend((values.len() as u64).to_le_bytes());
                values.iter().for_each(|value| value.put(out));
            }
        }
    }
}

macro_rules! from {
    ($($from:ty => $variant:ident),* $(,)?) => {$(
        impl From<$from> for MetaValue {
            fn from(value: $from) -> Self {
                Self::$variant(value.into())
            }
        }
    )*};
}
from!(u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    String => String, &str => String, u64 => U64, i64 => I64, f64 => F64);

pub(super) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
