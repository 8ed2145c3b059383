//! What a case hands back: whole buffers, and which bytes of them an operation owns.

use std::ops::Range;

use strata_core::{Layout, q8_1};

use crate::poisoned::POISON;

/// Which bytes of an output buffer the operation writes, and how to name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Rows of f32, `stride` values apart.
    Matrix {
        /// First byte.
        start: usize,
        /// Rows.
        rows: usize,
        /// Columns that are written.
        cols: usize,
        /// Values from one row to the next.
        stride: usize,
    },
    /// q8_1 blocks.
    Q8 {
        /// First byte.
        start: usize,
        /// What the headers hold.
        layout: Layout,
        /// Rows.
        rows: usize,
        /// Columns, without padding.
        cols: usize,
    },
    /// 32-bit words.
    Words {
        /// First byte.
        start: usize,
        /// How many.
        len: usize,
    },
    /// Blocks of some other format.
    Blocks {
        /// Bytes of a block.
        block: usize,
        /// Bytes of all blocks.
        bytes: usize,
    },
    /// A message.
    Text,
    /// Nothing may be written.
    Untouched,
}

impl Shape {
    /// The bytes that the operation writes, in ascending order, of a buffer of `len`.
    #[allow(clippy::single_range_in_vec_init)] // one range is a common case of several
    fn inside(&self, len: usize) -> Vec<Range<usize>> {
        match *self {
            Self::Matrix { start, rows, cols, stride } if stride == cols => {
                vec![start..start + 4 * rows * cols]
            }
            Self::Matrix { start, rows, cols, stride } => (0..rows)
                .map(|row| start + 4 * row * stride..start + 4 * (row * stride + cols))
                .collect(),
            Self::Q8 { start, rows, cols, .. } => {
                vec![start..start + q8_1::k_blocks(cols) * rows * q8_1::BLOCK_BYTES]
            }
            Self::Words { start, len } => vec![start..start + 4 * len],
            Self::Blocks { bytes, .. } => vec![0..bytes],
            Self::Text => vec![0..len],
            Self::Untouched => vec![],
        }
    }

    /// What the byte at `at` is part of.
    fn locate(&self, at: usize) -> String {
        match *self {
            Self::Matrix { start, rows, cols, stride } if at >= start && rows > 0 => {
                let value = (at - start) / 4;
                let (row, col) = (value / stride.max(1), value % stride.max(1));
                match row < rows && col < cols {
                    true => format!("row {row}, column {col}"),
                    false => format!("outside: row {row} of {rows}, column {col} of {cols}"),
                }
            }
            Self::Q8 { start, layout, rows, cols } if at >= start && rows > 0 => {
                let block = (at - start) / q8_1::BLOCK_BYTES;
                let (k_block, row) = (block / rows, block % rows);
                if k_block >= q8_1::k_blocks(cols) {
                    return format!("outside: behind {rows} rows of {cols}");
                }
                let field = q8_field(layout, (at - start) % q8_1::BLOCK_BYTES);
                format!("row {row}, columns from {}, {field}", k_block * q8_1::BLOCK_VALUES)
            }
            Self::Words { start, len } if at >= start => {
                let word = (at - start) / 4;
                match word < len {
                    true => format!("word {word}"),
                    false => format!("outside: word {word} of {len}"),
                }
            }
            Self::Blocks { block, .. } => format!("block {}, byte {}", at / block, at % block),
            Self::Text => format!("character {at}"),
            Self::Untouched => "outside: nothing may be written".into(),
            _ => "outside: before the output".into(),
        }
    }
}

fn q8_field(layout: Layout, byte: usize) -> String {
    if byte >= q8_1::HEADER_BYTES {
        return format!("q[{}]", byte - q8_1::HEADER_BYTES);
    }
    match layout {
        Layout::D4 => format!("d[{}]", byte / 4),
        Layout::DS4 if byte % 4 < 2 => format!("d[{}]", byte / 4),
        Layout::DS4 => format!("s[{}]", byte / 4),
        Layout::D2S6 if byte < 4 => format!("d[{}]", byte / 2),
        Layout::D2S6 => format!("s[{}]", byte / 2 - 2),
    }
}

/// One buffer after a case has run.
#[derive(Debug, Clone)]
pub struct Output {
    /// Which buffer of the case.
    pub what: String,
    /// All its bytes, the poison around the output included.
    pub bytes: Vec<u8>,
    /// Which of them the operation writes.
    pub shape: Shape,
    /// What they must be, where the case itself knows; otherwise the yardstick says.
    pub expected: Option<Vec<u8>>,
}

impl Output {
    /// A message that must be exactly `expected`.
    pub fn text(what: impl Into<String>, given: &str, expected: &str) -> Self {
        Self {
            what: what.into(),
            bytes: given.as_bytes().to_vec(),
            shape: Shape::Text,
            expected: Some(expected.as_bytes().to_vec()),
        }
    }

    /// Bytes that were made on the host and must be exactly `expected`.
    pub fn blocks(
        what: impl Into<String>,
        given: Vec<u8>,
        block: usize,
        expected: Vec<u8>,
    ) -> Self {
        let shape = Shape::Blocks { block, bytes: given.len() };
        Self { what: what.into(), bytes: given, shape, expected: Some(expected) }
    }

    /// The same buffer, which must be exactly `expected`.
    #[must_use]
    pub fn expecting(mut self, expected: Vec<u8>) -> Self {
        self.expected = Some(expected);
        self
    }

    /// The bytes that the operation wrote.
    pub fn written(&self) -> Vec<u8> {
        let ranges = self.shape.inside(self.bytes.len());
        ranges.into_iter().flat_map(|r| self.bytes[r].iter().copied()).collect()
    }

    /// Puts `values` where the operation writes; the rest stays.
    ///
    /// # Panics
    /// Where there are more or fewer of them than the operation writes.
    #[must_use]
    pub fn with_written(&self, values: &[u8]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        let mut from = 0;
        for range in self.shape.inside(bytes.len()) {
            let len = range.len();
            bytes[range].copy_from_slice(&values[from..from + len]);
            from += len;
        }
        assert_eq!(from, values.len(), "{}: as many bytes as the operation writes", self.what);
        bytes
    }

    /// Compares with the expected buffer; outside the operation's bytes only
    /// poison will do, whatever is expected there.
    pub fn compare(&self, expected: &[u8]) -> Option<Mismatch> {
        if self.bytes.len() != expected.len() && self.shape != Shape::Text {
            return Some(Mismatch::Length { given: self.bytes.len(), expected: expected.len() });
        }
        let mut found = Found::default();
        let mut last = 0;
        for range in self.shape.inside(self.bytes.len()) {
            found.poison(&self.bytes, last..range.start);
            found.differ(&self.bytes, expected, range.clone());
            last = range.end;
        }
        found.poison(&self.bytes, last..self.bytes.len());
        if self.shape == Shape::Text && self.bytes != expected {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            return Some(Mismatch::Text { given: text(&self.bytes), expected: text(expected) });
        }
        let first = found.first?;
        // The whole word for what has words.
        let word = match self.shape {
            Shape::Matrix { .. } | Shape::Words { .. } => first / 4 * 4..first / 4 * 4 + 4,
            _ => first..(first + 8).min(self.bytes.len()),
        };
        let of = |bytes: &[u8]| bytes[word.clone()].to_vec();
        let inside = self.shape.inside(self.bytes.len()).iter().any(|r| r.contains(&first));
        let poison = vec![POISON; word.len()];
        Some(Mismatch::Bytes {
            first,
            location: self.shape.locate(first),
            given: of(&self.bytes),
            expected: if inside { of(expected) } else { poison },
            float: matches!(self.shape, Shape::Matrix { .. }),
            differing: found.differing,
            outside: found.outside,
        })
    }
}

#[derive(Default)]
struct Found {
    first: Option<usize>,
    differing: u64,
    outside: u64,
}

impl Found {
    fn poison(&mut self, bytes: &[u8], range: Range<usize>) {
        for at in range {
            if bytes[at] != POISON {
                self.first.get_or_insert(at);
                self.differing += 1;
                self.outside += 1;
            }
        }
    }

    fn differ(&mut self, given: &[u8], expected: &[u8], range: Range<usize>) {
        // Slices compare fast; single bytes are looked at where they differ.
        const PIECE: usize = 4096;
        for start in range.clone().step_by(PIECE) {
            let piece = start..range.end.min(start + PIECE);
            if given.get(piece.clone()) == expected.get(piece.clone()) {
                continue;
            }
            for at in piece {
                if given.get(at) != expected.get(at) {
                    self.first.get_or_insert(at);
                    self.differing += 1;
                }
            }
        }
    }
}

/// How a buffer differs from what was expected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mismatch {
    /// Bytes differ, or poison was overwritten.
    Bytes {
        /// The first such byte, counted from the start of the buffer.
        first: usize,
        /// The row, column or field it is part of.
        location: String,
        /// The bytes from there, or the word it is part of.
        given: Vec<u8>,
        /// What they should be.
        expected: Vec<u8>,
        /// Whether the word is an f32.
        float: bool,
        /// Bytes that differ in all.
        differing: u64,
        /// Those of them that the operation should not have written.
        outside: u64,
    },
    /// Another message.
    Text {
        /// The message.
        given: String,
        /// What it should be.
        expected: String,
    },
    /// A buffer of another length.
    Length {
        /// Its bytes.
        given: usize,
        /// What they should be.
        expected: usize,
    },
    /// The operation failed, or a check inside the case did.
    Failed(String),
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes { first, location, given, expected, float, differing, outside } => {
                write!(f, "{differing} bytes differ")?;
                if *outside > 0 {
                    write!(f, " ({outside} of them outside the output)")?;
                }
                write!(f, ", the first at byte {first} ({location}): ")?;
                write!(f, "given {}, expected {}", show(given, *float), show(expected, *float))
            }
            Self::Text { given, expected } => {
                write!(f, "given \"{given}\", expected \"{expected}\"")
            }
            Self::Length { given, expected } => {
                write!(f, "given {given} bytes, expected {expected}")
            }
            Self::Failed(message) => f.write_str(message),
        }
    }
}

fn show(bytes: &[u8], float: bool) -> String {
    let hex: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    match (float, bytes.try_into()) {
        (true, Ok(word)) => format!("{} ({:e})", hex.join(" "), f32::from_le_bytes(word)),
        _ => hex.join(" "),
    }
}
