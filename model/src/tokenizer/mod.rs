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
mod gpt2;
mod llama;
mod merge;
mod special;
mod split;
mod vocab;

use std::borrow::Cow;

use strata_core::gguf::Gguf;
use strata_core::{Error, Result};

pub use decode::Decoder;
pub use vocab::Kind;

use gpt2::Gpt2;
use llama::Llama;
use special::{Part, Specials};
use vocab::{Vocab, key};

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
    Llama(Box<Llama>),
}

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
            (Model::Llama(Box::new(model)), pieces, true, add_space)
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
