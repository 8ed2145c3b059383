//! Text to ids and back, from the metadata of a GGUF file.
//!
//! Two kinds of vocabulary are read: `gpt2` (byte-pair encoding over bytes, after the text was cut
//! into pieces by the rules that `tokenizer.ggml.pre` names) and `llama` (byte-pair encoding over
//! characters, by scores, as SentencePiece does it). `docs/tokenizers.md` has the rules.
//!
//! Control tokens never come of a user's text: [`Tokenizer::encode`] makes them only where it is
//! told to, and a [`Prompt`] says which places of a text are a user's.

mod bytes;
mod decode;
mod merge;
mod special;
mod split;
mod vocab;

use std::borrow::Cow;
use std::collections::HashMap;

use strata_core::gguf::Gguf;
use strata_core::{Error, Result};

pub use decode::Decoder;
pub use vocab::Kind;

use merge::Merger;
use special::{Part, Specials};
use split::Splitter;
use vocab::{Vocab, array, key};

/// What llama vocabularies have for a space.
const SPACE: &str = "\u{2581}";

/// Text with the places that no control token may span.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Places in `text`, in bytes, ascending: a control token that has one of them inside of it
    /// is text like any other. A template sets them within and around what came from a user.
    pub guards: Vec<usize>,
}

/// A tokenizer.
pub struct Tokenizer {
    vocab: Vocab,
    specials: Specials,
    model: Model,
    /// The bytes of every word that has text.
    pieces: Vec<Box<[u8]>>,
    add_bos: bool,
    add_space: bool,
    warnings: Vec<String>,
}

enum Model {
    Gpt2(Box<Gpt2>),
    Llama(Llama),
}

/// Byte-pair encoding over bytes.
struct Gpt2 {
    splitter: Splitter,
    ignore_merges: bool,
    /// The symbol of every byte. Symbols below the number of words are words.
    symbols: [u32; 256],
    /// Rank and merged symbol of a pair of symbols.
    merges: HashMap<(u32, u32), (u32, u32)>,
    /// Words by their bytes.
    words: HashMap<Box<[u8]>, u32>,
    count: u32,
}

/// Byte-pair encoding over characters, by scores.
struct Llama {
    /// Word and rank of a text; the smaller rank is the higher score.
    words: HashMap<Box<[u8]>, (u32, i64)>,
    /// The most bytes of a word.
    longest: u32,
    bytes: [Option<u32>; 256],
}

/// A symbol of a llama text that is no word.
const NO_WORD: u32 = u32::MAX;

impl Tokenizer {
    /// Reads a model's tokenizer.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the key: for a model or `pre` that is not known, without words or
    /// (gpt2) merges, for words that occur twice, for ids past the words, for values of a wrong
    /// type.
    pub fn load(gguf: &Gguf) -> Result<Self> {
        let head = gguf.head();
        let model_key = key("model");
        let model = head.str(&model_key)?.ok_or_else(|| {
            Error::invalid(&model_key, "nothing", "gpt2 or llama: a model with a tokenizer")
        })?;
        let mut warnings = Vec::new();
        let defaults = match model {
            "gpt2" => [Some(11), Some(11), None],
            "llama" => [Some(1), Some(2), Some(0)],
            other => {
                let expected = "gpt2 (byte-pair encoding over bytes) or llama (by scores)";
                return Err(Error::invalid(model_key, other.escape_debug(), expected));
            }
        };
        let mut vocab = Vocab::load(gguf, defaults)?;
        let (model, pieces, add_bos, add_space) = if model == "gpt2" {
            let name = head.str(&key("pre"))?;
            if name.is_none() {
                warnings.push(format!(
                    "{}: nothing given, taken as default: text may be cut as the model never saw it",
                    key("pre")
                ));
            }
            let pre = split::pre(name.unwrap_or("default"))?;
            // GLM's files have no BOS unless they name one.
            if matches!(name, Some("glm4" | "glm5" | "chatglm-bpe"))
                && gguf.value(&key("bos_token_id")).is_none()
            {
                vocab.bos = None;
            }
            let (model, pieces) = Gpt2::load(gguf, &vocab, pre)?;
            (Model::Gpt2(Box::new(model)), pieces, pre.add_bos, false)
        } else {
            let add_space = head.bool(&key("add_space_prefix"))?.unwrap_or(true);
            let (model, pieces) = Llama::load(gguf, &vocab)?;
            (Model::Llama(model), pieces, true, add_space)
        };
        let add_bos = vocab.add_bos.unwrap_or(add_bos);
        if add_bos && vocab.bos.is_none() {
            let given = "nothing, with add_bos_token true";
            return Err(Error::invalid(key("bos_token_id"), given, "the id of a word"));
        }
        if vocab.add_eos && vocab.eos.is_none() {
            let given = "nothing, with add_eos_token true";
            return Err(Error::invalid(key("eos_token_id"), given, "the id of a word"));
        }
        let specials = Specials::new(&vocab)?;
        Ok(Self { vocab, specials, model, pieces, add_bos, add_space, warnings })
    }

    /// What is doubtful about the vocabulary, in words for the user.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// Words. A model may have more rows: they have no text and are never chosen.
    pub fn len(&self) -> usize {
        self.vocab.texts.len()
    }

    /// Whether there are no words; never so, a vocabulary without words is refused.
    pub fn is_empty(&self) -> bool {
        self.vocab.texts.is_empty()
    }

    /// What a word is; `None` past the vocabulary.
    pub fn kind(&self, id: u32) -> Option<Kind> {
        self.vocab.kinds.get(id as usize).copied()
    }

    /// The id of a word, by its text in the file.
    pub fn id(&self, text: &str) -> Option<u32> {
        self.vocab.ids.get(text.as_bytes()).copied()
    }

    /// The text of a word in the file: GPT-2's alphabet or U+2581 is not undone. Bytes that are
    /// no UTF-8 are U+FFFD.
    pub fn token(&self, id: u32) -> Option<Cow<'_, str>> {
        self.vocab.texts.get(id as usize).map(|text| String::from_utf8_lossy(text))
    }

    /// The id that begins a text, if the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    /// The id that ends a text, if the vocabulary has one.
    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// Whether a prompt begins with [`Tokenizer::bos`].
    pub fn adds_bos(&self) -> bool {
        self.add_bos
    }

    /// The ids that end a generation, ascending.
    pub fn ends(&self) -> &[u32] {
        &self.vocab.ends
    }

    /// Whether an id ends a generation.
    pub fn is_end(&self, id: u32) -> bool {
        self.vocab.ends.binary_search(&id).is_ok()
    }

    /// Whether a model may choose an id: a word, and not one that the vocabulary calls unused.
    pub fn selectable(&self, id: u32) -> bool {
        self.vocab.selectable(id)
    }

    /// The texts of the control tokens, longest first.
    pub fn controls(&self) -> impl Iterator<Item = &[u8]> {
        self.specials.controls()
    }

    /// Ids of a text, without BOS and EOS. With `control`, the texts of control tokens become
    /// control tokens; without, they are text: for everything that a user wrote.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a text of 2^31 bytes or more, and for a byte that no word covers.
    pub fn encode(&self, text: &str, control: bool) -> Result<Vec<u32>> {
        self.encode_parts(text, control, &[])
    }

    /// Ids of a prompt whose text may hold control tokens, but for its guards.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`].
    pub fn encode_prompt(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        self.encode_parts(&prompt.text, true, &prompt.guards)
    }

    /// Adds BOS and EOS to the ids of a whole text, where the vocabulary wants them and they are
    /// not there: never a second one. What continues a text is not given here.
    pub fn with_ends(&self, mut ids: Vec<u32>) -> Vec<u32> {
        if let (Some(bos), true) = (self.vocab.bos, self.add_bos)
            && ids.first() != Some(&bos)
        {
            ids.insert(0, bos);
        }
        if let (Some(eos), true) = (self.vocab.eos, self.vocab.add_eos)
            && ids.last() != Some(&eos)
        {
            ids.push(eos);
        }
        ids
    }

    fn encode_parts(&self, text: &str, control: bool, guards: &[usize]) -> Result<Vec<u32>> {
        if text.len() >= 1 << 30 {
            return Err(Error::invalid("text", format!("{} bytes", text.len()), "less than 2^30"));
        }
        let mut out = Vec::new();
        let mut after_special = true;
        for part in self.specials.parts(text, control, guards) {
            let text = match part {
                Part::Word(id) => {
                    out.push(id);
                    after_special = true;
                    continue;
                }
                Part::Text(text) => text,
            };
            match &self.model {
                Model::Gpt2(model) => model.encode(text, &self.vocab, &mut out)?,
                Model::Llama(model) => {
                    let mut escaped = text.replace(' ', SPACE);
                    if self.add_space && after_special {
                        escaped.insert_str(0, SPACE);
                    }
                    model.encode(&escaped, &self.vocab, &mut out)?;
                }
            }
            after_special = false;
        }
        Ok(out)
    }

    /// The bytes of a word; control tokens and ids past the vocabulary have none.
    pub fn bytes_of(&self, id: u32) -> Cow<'_, [u8]> {
        match self.pieces.get(id as usize) {
            Some(piece) => Cow::Borrowed(piece),
            None => Cow::Borrowed(&[]),
        }
    }

    /// Whether the first space of a text is the tokenizer's own.
    fn strips_space(&self) -> bool {
        self.add_space
    }
}

impl std::fmt::Debug for Tokenizer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokenizer").field("words", &self.len()).finish_non_exhaustive()
    }
}

/// The error for a byte that no word covers.
fn uncovered(byte: u8) -> Error {
    Error::invalid(
        "text",
        format!("byte {byte:#04x}"),
        "text that the vocabulary has words for: it has none for this byte, nor an unknown word",
    )
}

impl Gpt2 {
    fn load(gguf: &Gguf, vocab: &Vocab, pre: split::Pre) -> Result<(Self, Vec<Box<[u8]>>)> {
        let alphabet = bytes::alphabet();
        let count = vocab.texts.len() as u32;
        let mut words = HashMap::with_capacity(vocab.texts.len());
        let mut pieces = Vec::with_capacity(vocab.texts.len());
        for (id, (text, kind)) in (0..count).zip(vocab.texts.iter().zip(&vocab.kinds)) {
            let (piece, reached) = match (kind, vocab.byte(id)) {
                (Kind::Byte, Some(byte)) => ([byte].into(), true),
                (Kind::Normal | Kind::Byte, _) => bytes::decode(text, &alphabet),
                (Kind::UserDefined, _) => (text.clone(), false),
                (Kind::Unknown | Kind::Control | Kind::Unused, _) => (Box::default(), false),
            };
            // A word in plain text is no result of a merge: it is shown, and never made.
            if reached && !piece.is_empty() {
                words.entry(piece.clone()).or_insert(id);
            }
            pieces.push(piece);
        }

        // Merges may pass through texts that are no words: those get symbols past the words.
        let mut others: HashMap<Box<[u8]>, u32> = HashMap::new();
        let mut symbol = |text: &[u8]| -> u32 {
            if let Some(&id) = words.get(text) {
                return id;
            }
            let next = count + others.len() as u32;
            *others.entry(text.into()).or_insert(next)
        };
        let symbols = std::array::from_fn(|byte| symbol(&[byte as u8]));
        let merges_key = key("merges");
        let list = array(gguf, &merges_key, "strings of UTF-8", |value| value.as_str())?
            .ok_or_else(|| {
                Error::invalid(&merges_key, "nothing", "the merges, which a gpt2 vocabulary needs")
            })?;
        let mut merges = HashMap::with_capacity(list.len());
        for (rank, text) in (0u32..).zip(list) {
            // The first space after the first character: a left part may begin with one.
            let first = text.chars().next().map_or(0, char::len_utf8);
            let cut = text[first..].find(' ').map(|at| at + first);
            let Some((left, right)) = cut.map(|at| (&text[..at], &text[at + 1..])) else {
                let field = format!("{merges_key}[{rank}]");
                return Err(Error::invalid(field, text.escape_debug(), "two parts and a space"));
            };
            let (left, _) = bytes::decode(left.as_bytes(), &alphabet);
            let (right, _) = bytes::decode(right.as_bytes(), &alphabet);
            let merged = symbol(&[&*left, &*right].concat());
            let pair = (symbol(&left), symbol(&right));
            merges.entry(pair).or_insert((rank, merged));
        }
        let splitter = Splitter::new(pre)?;
        let ignore_merges = pre.ignore_merges;
        Ok((Self { splitter, ignore_merges, symbols, merges, words, count }, pieces))
    }

    fn encode(&self, text: &str, vocab: &Vocab, out: &mut Vec<u32>) -> Result<()> {
        let mut merger = Merger::<u32>::new();
        for piece in self.splitter.pieces(text) {
            let bytes = piece.as_bytes();
            if (self.ignore_merges || bytes.len() == 1)
                && let Some(&id) = self.words.get(bytes)
            {
                out.push(id);
                continue;
            }
            merger.clear();
            for (at, &byte) in bytes.iter().enumerate() {
                merger.push(self.symbols[usize::from(byte)], at, 1);
            }
            merger.run(|left, right| self.merges.get(&(left.id, right.id)).copied());
            for symbol in merger.rest() {
                if symbol.id < self.count {
                    out.push(symbol.id);
                    continue;
                }
                for &byte in &bytes[symbol.range()] {
                    let id = self.symbols[usize::from(byte)];
                    let id = Some(id).filter(|&id| id < self.count).or(vocab.unknown);
                    out.push(id.ok_or_else(|| uncovered(byte))?);
                }
            }
        }
        Ok(())
    }
}

impl Llama {
    fn load(gguf: &Gguf, vocab: &Vocab) -> Result<(Self, Vec<Box<[u8]>>)> {
        let scores_key = key("scores");
        let scores = array(gguf, &scores_key, "f32", |value| value.as_f32())?;
        let scores = scores.unwrap_or_else(|| vec![0.0; vocab.texts.len()]);
        if scores.len() != vocab.texts.len() {
            let expected = format!("{}, one for each word", vocab.texts.len());
            return Err(Error::invalid(scores_key, scores.len(), expected));
        }
        if let Some(at) = scores.iter().position(|score| score.is_nan()) {
            return Err(Error::invalid(format!("{scores_key}[{at}]"), "NaN", "a number"));
        }
        let mut words = HashMap::with_capacity(vocab.texts.len());
        let mut pieces = Vec::with_capacity(vocab.texts.len());
        let mut bytes = [None; 256];
        let mut longest = 0;
        for (id, (text, kind)) in (0u32..).zip(vocab.texts.iter().zip(&vocab.kinds)) {
            let at = id as usize;
            let mut piece: Box<[u8]> = Box::default();
            match kind {
                Kind::Normal | Kind::UserDefined => {
                    piece = match std::str::from_utf8(text) {
                        Ok(text) => text.replace(SPACE, " ").into_bytes().into(),
                        Err(_) => text.clone(),
                    };
                    if !text.is_empty() {
                        // Ranks ascend as scores descend; -0 is 0.
                        let rank = -i64::from(ordered(scores[at] + 0.0));
                        words.insert(text.clone(), (id, rank));
                        longest = longest.max(text.len() as u32);
                    }
                }
                Kind::Byte => {
                    if let Some(byte) = vocab.byte(id) {
                        piece = [byte].into();
                        bytes[usize::from(byte)] = Some(id);
                    }
                }
                Kind::Unknown | Kind::Control | Kind::Unused => {}
            }
            pieces.push(piece);
        }
        Ok((Self { words, longest, bytes }, pieces))
    }

    fn encode(&self, text: &str, vocab: &Vocab, out: &mut Vec<u32>) -> Result<()> {
        let bytes = text.as_bytes();
        let word = |text: &[u8]| self.words.get(text).copied();
        let mut merger = Merger::<i64>::new();
        for (at, character) in text.char_indices() {
            let len = character.len_utf8();
            let id = word(&bytes[at..at + len]).map_or(NO_WORD, |(id, _)| id);
            merger.push(id, at, len);
        }
        merger.run(|left, right| {
            if left.len + right.len > self.longest {
                return None;
            }
            let (id, rank) = word(&bytes[left.range().start..right.range().end])?;
            Some((rank, id))
        });
        for symbol in merger.rest() {
            if symbol.id != NO_WORD {
                out.push(symbol.id);
                continue;
            }
            // One character that is no word: its bytes, or one unknown word for all of them.
            let character = &bytes[symbol.range()];
            let ids: Option<Vec<u32>> =
                character.iter().map(|&byte| self.bytes[usize::from(byte)]).collect();
            match (ids, vocab.unknown) {
                (Some(ids), _) => out.extend(ids),
                (None, Some(unknown)) => out.push(unknown),
                (None, None) => {
                    let missing = |byte: &&u8| self.bytes[usize::from(**byte)].is_none();
                    let byte = character.iter().find(missing).copied().unwrap_or_default();
                    return Err(uncovered(byte));
                }
            }
        }
        Ok(())
    }
}

/// A float's place in the order of all floats that are no NaN.
fn ordered(x: f32) -> i32 {
    let bits = x.to_bits() as i32;
    bits ^ (((bits >> 31) as u32) >> 1) as i32
}
