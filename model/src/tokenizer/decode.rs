//! Ids back to text.

use super::Tokenizer;
use super::vocab::Kind;

/// What a byte sequence that is no UTF-8 is shown as.
const REPLACEMENT: char = '\u{fffd}';

/// Turns ids into text as they come.
///
/// Only whole characters are given out; bytes that cannot become one are a U+FFFD each time, as
/// soon as that is certain. What the pieces give together is what all of the bytes give at once.
/// Control tokens have no text.
pub struct Decoder<'a> {
    tokenizer: &'a Tokenizer,
    held: Vec<u8>,
    /// Whether the next word is the first of a text, whose leading space is the tokenizer's.
    first: bool,
}

impl<'a> Decoder<'a> {
    pub(super) fn new(tokenizer: &'a Tokenizer, after: Option<u32>) -> Self {
        let first = after.is_none_or(|id| tokenizer.is_special(id));
        Self { tokenizer, held: Vec::new(), first }
    }

    /// The text that is certain after one more id. An id past the vocabulary has no text.
    pub fn push(&mut self, id: u32) -> String {
        let bytes = self.tokenizer.bytes_of(id);
        let mut bytes: &[u8] = &bytes;
        if self.first && self.tokenizer.strips_space() {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.first = self.tokenizer.is_special(id);
        self.held.extend_from_slice(bytes);
        self.take()
    }

    /// The end: an unfinished character becomes one U+FFFD.
    pub fn finish(&mut self) -> String {
        let mut text = self.take();
        if !self.held.is_empty() {
            self.held.clear();
            text.push(REPLACEMENT);
        }
        text
    }

    /// Takes what is certain out of the held bytes.
    fn take(&mut self) -> String {
        let mut text = String::new();
        let mut rest = self.held.as_slice();
        loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    self.held.clear();
                    return text;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    match error.error_len() {
                        // May still become a character.
                        None => {
                            self.held = after.to_vec();
                            return text;
                        }
                        Some(len) => {
                            text.push(REPLACEMENT);
                            rest = &after[len..];
                        }
                    }
                }
            }
        }
    }
}

impl Tokenizer {
    /// A decoder for ids that follow `after`, or that begin a text.
    pub fn decoder(&self, after: Option<u32>) -> Decoder<'_> {
        Decoder::new(self, after)
    }

    /// The text of ids from the beginning of a text.
    pub fn decode(&self, ids: &[u32]) -> String {
        let mut decoder = self.decoder(None);
        let mut text: String = ids.iter().map(|&id| decoder.push(id)).collect();
        text.push_str(&decoder.finish());
        text
    }

    /// Whether a word was cut out of the text as a whole.
    pub(super) fn is_special(&self, id: u32) -> bool {
        let kind = self.vocab.kinds.get(id as usize);
        matches!(kind, Some(Kind::Control | Kind::UserDefined | Kind::Unknown))
    }
}
