//! GPT-2's alphabet: a printable character for each byte.
//!
//! Bytes that print in Latin-1 stand for themselves; the others, ascending, are U+0100 and on.

/// Whether a byte stands for itself.
fn printable(byte: u8) -> bool {
    matches!(byte, 0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff)
}

/// The alphabet: the character of every byte.
pub(super) fn alphabet() -> [char; 256] {
    let mut next = 0x100u32;
    std::array::from_fn(|byte| {
        let byte = byte as u8;
        if printable(byte) {
            return char::from(byte);
        }
        let character = char::from_u32(next).unwrap_or_default();
        next += 1;
        character
    })
}

/// The bytes that a word stands for, and whether all of it is in the alphabet. A character outside
/// of it stands for itself, in UTF-8: some vocabularies have words in plain text.
pub(super) fn decode(text: &[u8], alphabet: &[char; 256]) -> (Box<[u8]>, bool) {
    let Ok(text) = std::str::from_utf8(text) else { return (text.into(), false) };
    let mut out = Vec::with_capacity(text.len());
    let mut pure = true;
    for character in text.chars() {
        let byte = match u32::from(character) {
            code @ 0..=0xff if printable(code as u8) => Some(code as u8),
            code @ 0x100..=0x143 => {
                (0..=255u8).find(|&byte| u32::from(alphabet[usize::from(byte)]) == code)
            }
            _ => None,
        };
        match byte {
            Some(byte) => out.push(byte),
            None => {
                out.extend(character.encode_utf8(&mut [0; 4]).bytes());
                pure = false;
            }
        }
    }
    (out.into(), pure)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_is_gpt2s() {
        let alphabet = alphabet();
        assert_eq!(alphabet[usize::from(b' ')], '\u{120}');
        assert_eq!(alphabet[usize::from(b'\n')], '\u{10a}');
        assert_eq!(alphabet[0xad], '\u{143}');
        assert_eq!(alphabet[usize::from(b'a')], 'a');
        let all: String = alphabet.iter().collect();
        assert_eq!(decode(all.as_bytes(), &alphabet), ((0..=255).collect(), true));
    }

    #[test]
    fn other_characters_stand_for_themselves() {
        assert_eq!(decode("中a".as_bytes(), &alphabet()), ("中a".as_bytes().into(), false));
        assert_eq!(decode(&[0xff, 0xfe], &alphabet()), ([0xff, 0xfe].into(), false));
    }
}
