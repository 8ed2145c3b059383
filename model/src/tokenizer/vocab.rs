//! The words of a vocabulary: their texts, kinds and roles, as the metadata gives them.

use std::collections::HashMap;

use strata_core::gguf::{Gguf, Value};
use strata_core::{Error, Result};

/// What a word is (`tokenizer.ggml.token_type`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A piece of text (1; also 0, which old files wrote).
    Normal,
    /// The word for what has no other (2).
    Unknown,
    /// A control token (3): never made from a user's text, never shown.
    Control,
    /// A piece of text that is cut out before anything else (4).
    UserDefined,
    /// A row without a meaning (5): never chosen.
    Unused,
    /// One byte, written `<0xXX>` (6).
    Byte,
}

/// Texts that end a generation wherever a vocabulary has them, beside the ids that the metadata
/// names. The list is llama.cpp's.
const ENDS: [&str; 25] = [
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "<end_of_utterance>",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "<｜end▁of▁sentence｜>",
    "[e~[",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
];

/// A vocabulary.
#[derive(Debug)]
pub(super) struct Vocab {
    /// The text of every word, as the file has it.
    pub texts: Vec<Box<[u8]>>,
    pub kinds: Vec<Kind>,
    pub ids: HashMap<Box<[u8]>, u32>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub add_bos: Option<bool>,
    pub add_eos: bool,
    /// The ids that end a generation, ascending.
    pub ends: Vec<u32>,
}

/// Reads an array of the metadata; `None` without the key.
pub(super) fn array<'a, T>(
    gguf: &'a Gguf,
    key: &str,
    expected: &str,
    convert: impl Fn(Value<'a>) -> Option<T>,
) -> Result<Option<Vec<T>>> {
    let Some(value) = gguf.value(key) else { return Ok(None) };
    let Some(array) = value.as_array() else {
        return Err(Error::invalid(
            key,
            format!("a {}", value.ty()),
            format!("an array of {expected}"),
        ));
    };
    let mut out = Vec::with_capacity(array.len());
    for (at, value) in array.iter().enumerate() {
        let ty = value.ty();
        let item = convert(value).ok_or_else(|| {
            Error::invalid(format!("{key}[{at}]"), format!("a {ty}"), expected.to_owned())
        })?;
        out.push(item);
    }
    Ok(Some(out))
}

/// The metadata key of a tokenizer's field.
pub(super) fn key(name: &str) -> String {
    format!("tokenizer.ggml.{name}")
}

impl Vocab {
    /// Reads the words. `bos`, `eos` and `unknown` are what the model has without keys.
    pub fn load(gguf: &Gguf, [bos, eos, unknown]: [Option<u32>; 3]) -> Result<Self> {
        let tokens = key("tokens");
        let texts = array(gguf, &tokens, "strings", |value| match value {
            Value::String(bytes) => Some(bytes),
            _ => None,
        })?
        .ok_or_else(|| Error::invalid(&tokens, "nothing", "the words of the vocabulary"))?;
        let count = u32::try_from(texts.len()).ok().filter(|&count| count > 0);
        let Some(count) = count else {
            return Err(Error::invalid(&tokens, format!("{} words", texts.len()), "1 to 2^32 - 1"));
        };
        let kinds = Self::kinds(gguf, texts.len())?;

        let mut ids = HashMap::with_capacity(texts.len());
        for (id, text) in (0..count).zip(&texts) {
            // Rows that pad a vocabulary may all be called "": nothing is ever looked up by it.
            if text.is_empty() {
                continue;
            }
            if let Some(first) = ids.insert(Box::from(*text), id) {
                let text = String::from_utf8_lossy(text).escape_debug().to_string();
                let given = format!("{text} at {first} and {id}");
                return Err(Error::invalid(tokens, given, "each word once"));
            }
        }
        let id = |name: &str, default: Option<u32>| -> Result<Option<u32>> {
            let key = key(name);
            match gguf.head().u64(&key)? {
                // A default counts where the word is what it says, not a piece of text.
                None => Ok(default.filter(|&id| {
                    let kind = kinds.get(id as usize);
                    matches!(kind, Some(Kind::Control | Kind::Unknown))
                })),
                // What writers put where there is none.
                Some(0xffff_ffff) => Ok(None),
                Some(given) => match u32::try_from(given) {
                    Ok(id) if id < count => Ok(Some(id)),
                    _ => Err(Error::invalid(key, given, format!("less than {count}, the words"))),
                },
            }
        };
        let [bos, eos, unknown] =
            [id("bos_token_id", bos)?, id("eos_token_id", eos)?, id("unknown_token_id", unknown)?];
        let mut named = vec![eos];
        for name in ["eot", "eom", "fim_pad", "fim_rep", "fim_sep"] {
            named.push(id(&format!("{name}_token_id"), None)?);
        }
        let mut vocab = Self {
            bos,
            eos,
            unknown,
            add_bos: gguf.head().bool(&key("add_bos_token"))?,
            add_eos: gguf.head().bool(&key("add_eos_token"))?.unwrap_or(false),
            ends: Vec::new(),
            texts: texts.into_iter().map(Box::from).collect(),
            kinds,
            ids,
        };
        vocab.find_ends(&named);
        Ok(vocab)
    }

    fn kinds(gguf: &Gguf, count: usize) -> Result<Vec<Kind>> {
        let key = key("token_type");
        let Some(types) = array(gguf, &key, "small integers", |value| value.as_u64())? else {
            return Ok(vec![Kind::Normal; count]);
        };
        if types.len() != count {
            return Err(Error::invalid(key, types.len(), format!("{count}, one for each word")));
        }
        let kind = |(id, ty): (usize, u64)| match ty {
            0 | 1 => Ok(Kind::Normal),
            2 => Ok(Kind::Unknown),
            3 => Ok(Kind::Control),
            4 => Ok(Kind::UserDefined),
            5 => Ok(Kind::Unused),
            6 => Ok(Kind::Byte),
            _ => Err(Error::invalid(format!("{key}[{id}]"), ty, "0 to 6")),
        };
        types.into_iter().enumerate().map(kind).collect()
    }

    /// Collects the ids that end a generation. A word that ends one is a control token, whatever
    /// the file says: its text must not come of a user's.
    fn find_ends(&mut self, named: &[Option<u32>]) {
        let has = |text: &str| self.ids.get(text.as_bytes()).copied();
        let mut ends: Vec<u32> = ENDS.iter().filter_map(|text| has(text)).collect();
        // Where a turn goes on after <|end|>, as in Harmony, it ends nothing.
        let harmony = has("<|call|>").is_some() && has("<|return|>").is_some()
            || has("<|calls|>").is_some() && has("<|flush|>").is_some();
        let inner = has("<|end|>").filter(|_| harmony);
        // Where </s> is an ordinary word, it is a piece of HTML.
        let text = has("</s>").filter(|&id| self.kinds[id as usize] == Kind::Normal);
        ends.retain(|id| Some(*id) != inner && Some(*id) != text);
        ends.extend(named.iter().flatten());
        ends.sort_unstable();
        ends.dedup();
        for &id in &ends {
            self.kinds[id as usize] = Kind::Control;
        }
        if let Some(bos) = self.bos
            && self.kinds[bos as usize] == Kind::Normal
        {
            self.kinds[bos as usize] = Kind::Control;
        }
        self.ends = ends;
    }

    /// Whether a model may choose a word: not a row without a meaning.
    pub fn selectable(&self, id: u32) -> bool {
        let at = id as usize;
        match self.kinds.get(at) {
            None | Some(Kind::Unused) => false,
            Some(Kind::Control) => !self.texts[at].windows(6).any(|window| window == b"unused"),
            Some(_) => true,
        }
    }

    /// The byte that a word of kind [`Kind::Byte`] stands for: `<0x0A>`.
    pub fn byte(&self, id: u32) -> Option<u8> {
        let at = id as usize;
        if self.kinds.get(at) != Some(&Kind::Byte) {
            return None;
        }
        let text = std::str::from_utf8(&self.texts[at]).ok()?;
        let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
        u8::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 2)
    }
}
