//! What attention needs to know: its shape, which keys a token sees, and where
//! the pages of the cache keep keys and values as digits.
//!
//! A page holds [`PAGE`] positions of one sequence. For each head of keys and
//! values it has [`PageLayout::bytes`] bytes, one head after the other:
//!
//! | what | bytes | order |
//! |---|---|---|
//! | high digits of the keys | 64 * key | `[position][value]` |
//! | low digits of the keys | 64 * key | the same |
//! | high digits of the values | 64 * value | `[value][position]`: turned, as products contract over positions |
//! | low digits of the values | 64 * value | the same |
//! | scales of the keys | 256 | f32 per position |
//! | scales of the values | 256 | f32 per position |

use crate::{Error, Result};

/// Positions of a page, and keys of a block: blocks stand at multiples of it.
pub const PAGE: usize = 64;
/// The integer that the largest magnitude of a row becomes.
pub const DIGITS_TOP: f32 = 32512.0;
/// Rows whose largest magnitude is below this are zero; so are the weights of a block: 2^-100.
pub const DIGITS_TINY: f32 = f32::from_bits(0x0d80_0000);
/// The widest value.
pub const MOST_HEAD: usize = 512;
/// The widest key: MLA's, whose compressed row is as wide as the widest value, and 64 more turn.
pub const MOST_KEY: usize = 576;

/// Which keys a token at position p sees, of those at 0..=p.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// All of them.
    All,
    /// The last so many, its own among them.
    Window(u32),
    /// Those from the last multiple of so many on.
    Chunk(u32),
}

impl Reach {
    /// The first position that a token at `position` sees.
    #[inline]
    pub fn first(self, position: u32) -> u32 {
        match self {
            Self::All => 0,
            Self::Window(keys) => (position + 1).saturating_sub(keys),
            Self::Chunk(keys) => position - position % keys,
        }
    }
}

/// Which values of a head a rotation turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairs {
    /// 2 i and 2 i + 1.
    Interleaved,
    /// i and i + half of the turned values.
    Halves,
}

/// The numbers of an attention.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AttentionShape {
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values: each serves `heads / kv_heads` heads in a row.
    pub kv_heads: usize,
    /// Values of a query and of a key.
    pub key: usize,
    /// Values of a value.
    pub value: usize,
    /// What products of queries and keys are multiplied by; above 0.
    pub scale: f32,
    /// Scores become `cap * tanh(score / cap)`.
    pub softcap: Option<f32>,
    /// Which keys are seen.
    pub reach: Reach,
}

impl AttentionShape {
    /// Checks that the numbers can be.
    ///
    /// # Errors
    /// [`Error::Invalid`] with what was given and what is expected.
    pub fn check(&self) -> Result<()> {
        if self.kv_heads == 0 || self.heads == 0 || !self.heads.is_multiple_of(self.kv_heads) {
            return Err(Error::invalid(
                "attention: heads",
                format!("{} for {} of keys and values", self.heads, self.kv_heads),
                "a multiple, at least one",
            ));
        }
        self.layout().check()?;
        for (what, value) in [("scale", Some(self.scale)), ("softcap", self.softcap)] {
            if value.is_some_and(|v| !(v.is_finite() && v > 0.0)) {
                let given = value.unwrap_or_default();
                return Err(Error::invalid(format!("attention: {what}"), given, "above 0"));
            }
        }
        match self.reach {
            Reach::Window(0) | Reach::Chunk(0) => {
                Err(Error::invalid("attention: window", 0, "at least 1"))
            }
            _ => Ok(()),
        }
    }

    /// How a page of its keys and values is laid out.
    pub fn layout(&self) -> PageLayout {
        PageLayout { kv_heads: self.kv_heads, key: self.key, value: self.value }
    }
}

/// Where a page keeps what: see the [module](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLayout {
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Values of a key.
    pub key: usize,
    /// Values of a value.
    pub value: usize,
}

impl PageLayout {
    /// Checks that the numbers can be.
    ///
    /// # Errors
    /// [`Error::Invalid`] with what was given and what is expected.
    pub fn check(&self) -> Result<()> {
        for (what, size, most) in [("key", self.key, MOST_KEY), ("value", self.value, MOST_HEAD)] {
            if size == 0 || size > most || !size.is_multiple_of(4) {
                return Err(Error::invalid(
                    format!("attention: {what} size"),
                    size,
                    format!("a multiple of 4 up to {most}"),
                ));
            }
        }
        if self.kv_heads == 0 || self.kv_heads > 1 << 16 {
            return Err(Error::invalid("attention: heads of keys", self.kv_heads, "1 to 65536"));
        }
        Ok(())
    }

    /// Bytes of one head of a page.
    pub const fn head_bytes(&self) -> usize {
        2 * PAGE * (self.key + self.value) + 2 * 4 * PAGE
    }

    /// Bytes of a page.
    pub const fn bytes(&self) -> usize {
        self.kv_heads * self.head_bytes()
    }

    /// The first byte of a head of a page.
    pub const fn head(&self, page: usize, kv_head: usize) -> usize {
        page * self.bytes() + kv_head * self.head_bytes()
    }

    /// Within a head: high digits of the values. Those of the keys are first.
    pub const fn values_at(&self) -> usize {
        2 * PAGE * self.key
    }

    /// Within a head: scales of the keys; those of the values are 256 bytes on.
    pub const fn scales_at(&self) -> usize {
        2 * PAGE * (self.key + self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reach() {
        assert_eq!(Reach::All.first(70), 0);
        for (window, first) in [(1, 70), (64, 7), (70, 1), (71, 0), (72, 0), (u32::MAX, 0)] {
            assert_eq!(Reach::Window(window).first(70), first, "{window}");
        }
        for (position, first) in [(0, 0), (63, 0), (64, 64), (127, 64), (128, 128)] {
            assert_eq!(Reach::Chunk(64).first(position), first, "{position}");
        }
    }

    #[test]
    fn shapes_that_cannot_be() {
        let good = AttentionShape {
            heads: 8,
            kv_heads: 2,
            key: 192,
            value: 128,
            scale: 0.1,
            softcap: Some(30.0),
            reach: Reach::Window(5),
        };
        good.check().unwrap();
        for bad in [
            AttentionShape { heads: 9, ..good },
            AttentionShape { heads: 0, ..good },
            AttentionShape { kv_heads: 0, ..good },
            AttentionShape { key: 580, ..good },
            AttentionShape { value: 516, ..good },
            AttentionShape { value: 66, ..good },
            AttentionShape { scale: f32::NAN, ..good },
            AttentionShape { softcap: Some(0.0), ..good },
            AttentionShape { reach: Reach::Chunk(0), ..good },
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }
}
