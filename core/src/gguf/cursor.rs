//! A place in a file, from which fields are read in order and in bounds.

use std::fmt::Display;

use super::value::ValueType;
use super::{GgufError, Result, shown};

/// How deep arrays may hold arrays. Files in use hold none; the limit bounds the stack.
pub(super) const DEPTH: usize = 4;
/// The longest key or tensor name, in bytes: the format's own limit for keys.
pub(super) const NAME: usize = 65_535;

/// A name that is only made presentable when a message is.
pub(super) struct Shown<'a>(pub &'a str);

impl Display for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&shown(self.0))
    }
}

/// A place in a file's bytes. Fields are named by something shown only in errors.
pub(super) struct Cursor<'a> {
    pub file: &'a str,
    pub bytes: &'a [u8],
    pub at: usize,
}

impl<'a> Cursor<'a> {
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    pub fn take(&mut self, len: usize, field: &dyn Display) -> Result<&'a [u8]> {
        match self.bytes[self.at..].get(..len) {
            Some(taken) => {
                self.at += len;
                Ok(taken)
            }
            None => Err(self.truncated(len as u64, field)),
        }
    }

    fn truncated(&self, needs: u64, field: &dyn Display) -> GgufError {
        GgufError::Truncated {
            file: self.file.to_owned(),
            field: field.to_string(),
            offset: self.at,
            needs,
            left: self.left(),
        }
    }

    fn fixed<const N: usize>(&mut self, field: &dyn Display) -> Result<[u8; N]> {
        let mut fixed = [0; N];
        fixed.copy_from_slice(self.take(N, field)?);
        Ok(fixed)
    }

    pub fn u32(&mut self, field: &dyn Display) -> Result<u32> {
        self.fixed(field).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, field: &dyn Display) -> Result<u64> {
        self.fixed(field).map(u64::from_le_bytes)
    }

    /// `given` as a count of things that take at least `least` bytes each, if the rest of the file
    /// can hold them.
    pub fn fits(&self, given: u64, least: usize, field: &dyn Display) -> Result<usize> {
        let most = self.left() / least;
        match usize::try_from(given) {
            Ok(count) if count <= most => Ok(count),
            _ => Err(GgufError::Count {
                file: self.file.to_owned(),
                field: field.to_string(),
                given,
                most: most as u64,
                left: self.left(),
            }),
        }
    }

    /// A string of any bytes.
    fn string(&mut self, field: &dyn Display) -> Result<&'a [u8]> {
        let len = self.u64(field)?;
        match usize::try_from(len) {
            Ok(len) => self.take(len, field),
            Err(_) => Err(self.truncated(len, field)),
        }
    }

    /// A key or a tensor name: not empty, not too long, UTF-8.
    pub fn name(&mut self, field: &dyn Display) -> Result<&'a str> {
        let bytes = self.string(field)?;
        if !(1..=NAME).contains(&bytes.len()) {
            let expected = format!("1 to {NAME} bytes");
            return Err(GgufError::field(
                self.file,
                field,
                format_args!("{} bytes", bytes.len()),
                expected,
            ));
        }
        std::str::from_utf8(bytes).map_err(|bad| {
            let given = format!("byte {:#04x} at {}", bytes[bad.valid_up_to()], bad.valid_up_to());
            GgufError::field(self.file, field, given, "UTF-8")
        })
    }

    pub fn value_type(&mut self, field: &dyn Display) -> Result<ValueType> {
        let id = self.u32(field)?;
        ValueType::from_id(id).ok_or_else(|| {
            GgufError::field(self.file, format_args!("{field}: value type"), id, "0 to 12")
        })
    }

    /// Walks over a value, checking all that decoding it later relies on.
    pub fn skip_value(&mut self, ty: ValueType, depth: usize, field: &dyn Display) -> Result<()> {
        match ty {
            ValueType::String => self.string(field).map(drop),
            ValueType::Array => {
                let Some(depth) = depth.checked_sub(1) else {
                    let given = format!("arrays nested deeper than {DEPTH}");
                    return Err(GgufError::field(
                        self.file,
                        field,
                        given,
                        format!("at most {DEPTH} levels"),
                    ));
                };
                let element = self.value_type(&format_args!("{field}: element"))?;
                let length = format_args!("{field}: array length");
                let count = self.u64(&length)?;
                let count = self.fits(count, element.least(), &length)?;
                match element.size() {
                    // Within what is left, as `fits` has checked.
                    Some(size) => self.fixed_values(element, count * size, field),
                    None => (0..count).try_for_each(|_| self.skip_value(element, depth, field)),
                }
            }
            _ => self.fixed_values(ty, ty.least(), field),
        }
    }

    fn fixed_values(&mut self, ty: ValueType, len: usize, field: &dyn Display) -> Result<()> {
        let bytes = self.take(len, field)?;
        match bytes.iter().find(|&&byte| ty == ValueType::Bool && byte > 1) {
            Some(&given) => {
                Err(GgufError::field(self.file, format_args!("{field}: bool"), given, "0 or 1"))
            }
            None => Ok(()),
        }
    }
}
