//! Activations as NumPy writes them: `.npy`, two dimensions, little-endian f32
//! in C order. Everything else is refused by name.

use crate::{Error, Result};

const MAGIC: &[u8; 6] = b"\x93NUMPY";
/// Headers are a line of text; NumPy itself refuses longer ones by default.
const LONGEST_HEADER: usize = 10_000;

/// The shape of an array, and where its values begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// First byte of the values, which are the rest of the file.
    pub data: usize,
}

impl Header {
    /// Reads the header at the start of a file of `len` bytes; `start` holds
    /// the file's beginning, all of it or at least [`Header::most`] bytes.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming `file` and the field that is not as it should be.
    pub fn parse(file: &str, start: &[u8], len: u64) -> Result<Self> {
        let invalid = |what: &str, given: String, expected: &str| {
            Err(Error::invalid(format!("{file}: {what}"), given, expected))
        };
        let Some((magic, rest)) = start.split_first_chunk::<6>() else {
            return invalid("size", format!("{len} bytes"), "an .npy file");
        };
        if magic != MAGIC {
            return invalid("magic", format!("\"{}\"", magic.escape_ascii()), "\"\\x93NUMPY\"");
        }
        let (size, before) = match rest {
            [1, 0, a, b, ..] => (usize::from(u16::from_le_bytes([*a, *b])), 10),
            [2 | 3, 0, a, b, c, d, ..] => (u32::from_le_bytes([*a, *b, *c, *d]) as usize, 12),
            [major, minor, ..] => {
                return invalid("version", format!("{major}.{minor}"), "1.0, 2.0 or 3.0");
            }
            _ => return invalid("size", format!("{len} bytes"), "a whole header"),
        };
        if size > LONGEST_HEADER {
            let expected = format!("at most {LONGEST_HEADER} bytes");
            return invalid("header length", size.to_string(), &expected);
        }
        let Some(text) = start.get(before..before + size) else {
            return invalid("size", format!("{len} bytes"), "a whole header");
        };
        let Ok(text) = std::str::from_utf8(text) else {
            return invalid("header", "bytes that are not UTF-8".into(), "a Python dictionary");
        };
        let fields = match Fields::parse(text) {
            Ok(fields) => fields,
            Err(at) => {
                let given: String = text[at..].chars().take(24).collect();
                let given = format!("{given:?} at byte {at}");
                let expected = "{'descr': ..., 'fortran_order': ..., 'shape': (...)}";
                return invalid("header", given, expected);
            }
        };
        if fields.descr != "<f4" {
            let given = format!("'{}'", fields.descr.escape_debug());
            let expected = "'<f4', little-endian f32: x.astype('<f4') makes it";
            return invalid("descr", given, expected);
        }
        if fields.fortran_order {
            let expected = "False: numpy.ascontiguousarray(x) makes it";
            return invalid("fortran_order", "True".into(), expected);
        }
        let [rows, cols] = fields.shape[..] else {
            let given = format!("{} dimensions", fields.shape.len());
            return invalid("shape", given, "2: tokens, columns");
        };
        let data = before + size;
        let bytes = rows.checked_mul(cols).and_then(|n| n.checked_mul(4));
        if bytes.and_then(|bytes| bytes.checked_add(data)).map(|n| n as u64) != Some(len) {
            let expected = match bytes {
                Some(bytes) => format!("{data} + {bytes} bytes for {rows} x {cols}"),
                None => format!("a shape below 2^64 bytes, not {rows} x {cols}"),
            };
            return invalid("size", format!("{len} bytes"), &expected);
        }
        Ok(Self { rows, cols, data })
    }

    /// Bytes that hold any header that is accepted.
    pub const fn most() -> usize {
        12 + LONGEST_HEADER
    }

    /// The header of a file of `rows` x `cols` values, which follow it.
    pub fn write(rows: usize, cols: usize) -> Vec<u8> {
        let mut text =
            format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}");
        // The values begin at a multiple of 64.
        let unpadded = 10 + text.len() + 1;
        text.push_str(&" ".repeat(unpadded.next_multiple_of(64) - unpadded));
        text.push('\n');
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((text.len() as u16).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }
}

struct Fields {
    descr: String,
    fortran_order: bool,
    shape: Vec<usize>,
}

impl Fields {
    /// Reads the dictionary; an error is the byte where it stops being one.
    fn parse(text: &str) -> Result<Self, usize> {
        let mut at = Cursor { text, at: 0 };
        let (mut descr, mut fortran_order, mut shape) = (None, None, None);
        at.expect('{')?;
        while !at.takes('}') {
            let key_at = at.at;
            let key = at.string()?;
            at.expect(':')?;
            let fresh = match key {
                "descr" => descr.replace(at.string()?.to_owned()).is_none(),
                "fortran_order" => fortran_order.replace(at.boolean()?).is_none(),
                "shape" => shape.replace(at.tuple()?).is_none(),
                _ => false,
            };
            if !fresh {
                return Err(key_at);
            }
            if !at.takes(',') {
                at.expect('}')?;
                break;
            }
        }
        at.blanks();
        match (descr, fortran_order, shape) {
            (Some(descr), Some(fortran_order), Some(shape)) if at.rest().is_empty() => {
                Ok(Self { descr, fortran_order, shape })
            }
            _ => Err(at.at),
        }
    }
}

struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\r', '\n']).len();
    }

    fn takes(&mut self, wanted: char) -> bool {
        self.blanks();
        let taken = self.rest().starts_with(wanted);
        self.at += if taken { wanted.len_utf8() } else { 0 };
        taken
    }

    fn expect(&mut self, wanted: char) -> Result<(), usize> {
        if self.takes(wanted) { Ok(()) } else { Err(self.at) }
    }

    /// A string between quotes of one kind, without escapes.
    fn string(&mut self) -> Result<&'a str, usize> {
        self.blanks();
        let rest = self.rest();
        let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"')).ok_or(self.at)?;
        let end = rest[1..].find([quote, '\\']).ok_or(self.at)?;
        if !rest[1 + end..].starts_with(quote) {
            return Err(self.at + 1 + end);
        }
        self.at += end + 2;
        Ok(&rest[1..1 + end])
    }

    fn boolean(&mut self) -> Result<bool, usize> {
        self.blanks();
        for (word, value) in [("True", true), ("False", false)] {
            if self.rest().starts_with(word) {
                self.at += word.len();
                return Ok(value);
            }
        }
        Err(self.at)
    }

    fn tuple(&mut self) -> Result<Vec<usize>, usize> {
        let mut values = Vec::new();
        self.expect('(')?;
        while !self.takes(')') {
            let rest = self.rest();
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            values.push(rest[..digits].parse().map_err(|_| self.at)?);
            self.at += digits;
            if !self.takes(',') {
                self.expect(')')?;
                break;
            }
        }
        Ok(values)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([1, 0]);
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header.as_bytes());
        bytes
    }

    fn refusal(header: &str, data: u64) -> String {
        let bytes = file(header);
        Header::parse("x.npy", &bytes, bytes.len() as u64 + data).unwrap_err().to_string()
    }

    #[test]
    fn what_is_written_is_read() {
        for (rows, cols) in [(0, 1), (1, 1), (7, 2560), (123_456_789, 4096)] {
            let bytes = Header::write(rows, cols);
            assert_eq!(bytes.len() % 64, 0);
            let len = (bytes.len() + rows * cols * 4) as u64;
            let header = Header::parse("x.npy", &bytes, len).unwrap();
            assert_eq!(header, Header { rows, cols, data: bytes.len() });
        }
    }

    #[test]
    fn other_spellings_are_read() {
        for header in [
            "{'descr':'<f4','fortran_order':False,'shape':(2,3)}",
            "{\"shape\": (2, 3,), 'fortran_order': False, 'descr': '<f4', }   \n",
        ] {
            let bytes = file(header);
            let parsed = Header::parse("x.npy", &bytes, bytes.len() as u64 + 24).unwrap();
            assert_eq!((parsed.rows, parsed.cols), (2, 3));
        }
    }

    #[test]
    fn refusals_name_the_field() {
        let head = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
        for (header, data, wanted) in [
            (format!("{head}(2, 3)}}"), 23, "x.npy: size: given 90 bytes, expected 67 + 24 bytes"),
            (format!("{head}(6,)}}"), 24, "x.npy: shape: given 1 dimensions, expected 2"),
            (format!("{head}(2, 3, 4)}}"), 96, "x.npy: shape: given 3 dimensions"),
            (format!("{head}(4294967296, 4294967296)}}"), 0, "below 2^64 bytes"),
            (format!("{head}(99999999999999999999, 1)}}"), 0, "x.npy: header: given \"99999"),
            (format!("{head}(-2, 3)}}"), 24, "x.npy: header: given \"-2"),
            (head.replace("<f4", "<f8") + "(2, 3)}", 48, "x.npy: descr: given '<f8'"),
            (head.replace("<f4", ">f4") + "(2, 3)}", 24, "x.npy: descr: given '>f4'"),
            (head.replace("False", "True") + "(2, 3)}", 24, "x.npy: fortran_order: given True"),
            ("{'shape': (2, 3)}".into(), 24, "x.npy: header: given \"\" at byte 17"),
            ("{'shape': (2, 3), 'shape': (2, 3)}".into(), 0, "x.npy: header: given \"'shape'"),
            ("{'descr': '<f4\\'', 'shape'".into(), 0, "x.npy: header: given"),
            (String::new(), 0, "x.npy: header: given \"\" at byte 0"),
        ] {
            let error = refusal(&header, data);
            assert!(error.contains(wanted), "{header}: {error}, expected {wanted}");
        }
        for (bytes, wanted) in [
            (&b""[..], "x.npy: size: given 0 bytes"),
            (b"PK\x03\x04..", "x.npy: magic: given"),
            (b"\x93NUMPY", "a whole header"),
            (b"\x93NUMPY\x04\x00\x00\x00", "x.npy: version: given 4.0"),
            (b"\x93NUMPY\x01\x00\x76\x00{", "a whole header"),
            (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", "x.npy: header length: given 4294967295"),
        ] {
            let error = Header::parse("x.npy", bytes, bytes.len() as u64).unwrap_err().to_string();
            assert!(error.contains(wanted), "{error}, expected {wanted}");
        }
    }
}
