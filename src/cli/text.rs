//! What commands on whole models have in common: the model, its tokenizer, a prompt, a session.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sha2::{Digest, Sha256};
use strata::Error;
use strata::backend::Backend;
use strata::gguf::Gguf;
use strata::model::template::{Conversation, Date, Template};
use strata::model::tokenizer::Tokenizer;
use strata::model::{Model, Session, Space, Token};

use super::args::{self, DeviceArgs};
use super::{Failure, Outcome, model, note, progress, signals};

/// Which model, and how much of a text it keeps.
#[derive(clap::Args)]
pub struct ModelArgs {
    #[command(flatten)]
    device: DeviceArgs,

    /// The model, a GGUF file or the first of its parts
    #[arg(long, value_name = "FILE")]
    model: PathBuf,

    /// The most tokens of a text [default: what the model was trained for]
    #[arg(long, value_name = "N", value_parser = args::count)]
    context: Option<usize>,

    /// Tokens that go through the model at once; changes no byte of the result
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = args::count)]
    chunk: usize,
}

/// What the text begins with.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct PromptArgs {
    /// The prompt
    #[arg(long, value_name = "TEXT", group = "source")]
    prompt: Option<String>,

    /// Take the prompt from this file, every byte of it
    #[arg(long, value_name = "FILE", group = "source")]
    prompt_file: Option<PathBuf>,

    /// Take these token ids, as in 1,15043,3186
    #[arg(long, value_name = "IDS", value_delimiter = ',', group = "source")]
    token_ids: Option<Vec<u32>>,
}

/// A model on a device, ready for text.
pub struct Loaded {
    pub backend: Box<dyn Backend>,
    pub gguf: Gguf,
    pub model: Model,
    /// The tokenizer, or why there is none.
    pub tokenizer: Result<Tokenizer, String>,
    /// The most tokens of a text.
    pub context: usize,
    chunk: usize,
    pub loading: Duration,
}

impl ModelArgs {
    /// Opens the device and puts the model on it.
    pub fn load(&self) -> Outcome<Loaded> {
        load(&self.device, &self.model, self.context, self.chunk)
    }
}

/// Opens a device and puts a model on it, for texts of `context` tokens at most or as many as it
/// was trained for.
pub fn load(
    device: &DeviceArgs,
    path: &Path,
    context: Option<usize>,
    chunk: usize,
) -> Outcome<Loaded> {
    let start = Instant::now();
    let gguf = model::open(path)?;
    // Ids need none: what is wrong with it is told where text is wanted.
    let tokenizer = Tokenizer::load(&gguf).map_err(|error| error.to_string());
    for warning in tokenizer.iter().flat_map(Tokenizer::warnings) {
        note(warning);
    }
    let backend = device.open()?;
    let bar = progress::bytes("loading", gguf.tensors().map(|t| t.bytes() as u64).sum());
    let model = Model::load(&gguf, context, &*backend, &mut |at| bar.set_position(at.done));
    bar.finish_and_clear();
    let model = model?;
    if !model.config().unread.is_empty() {
        note(&format!("keys that nobody reads: {}", listed(&model.config().unread)));
    }
    if let Ok(tokenizer) = &tokenizer
        && tokenizer.len() > model.config().vocab
    {
        let most = format!("at most {}, the rows of the embedding", model.config().vocab);
        return Err(Error::invalid("tokenizer.ggml.tokens", tokenizer.len(), most).into());
    }
    let trained = model.config().context;
    let context = context.unwrap_or(trained);
    if context > trained {
        let most = format!("at most {trained}, which the model was trained for");
        return Err(Error::invalid("context", context, most).into());
    }
    let loading = start.elapsed();
    Ok(Loaded { backend, gguf, model, tokenizer, context, chunk, loading })
}

/// The first few of many names.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    match names.len() {
        0..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}

impl Loaded {
    /// The files of the model, which no result may replace.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.gguf.parts().iter().map(|part| Path::new(part.name()))
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> Outcome<&Tokenizer> {
        self.tokenizer.as_ref().map_err(|error| Failure::Failed(error.clone()))
    }

    /// A session for texts of so many tokens.
    pub fn session(&self, tokens: usize) -> Outcome<Session> {
        let space = Space::new(tokens.max(1)).in_chunks_of(self.chunk.min(tokens.max(1)));
        Ok(Session::new(&*self.backend, &self.model, space)?)
    }

    /// The logits behind the last of some tokens, or behind each; with a bar for long texts.
    pub fn read(&self, session: &mut Session, ids: &[u32], all: bool) -> Outcome<Vec<Vec<f32>>> {
        let bar = progress::counted("tokens read", ids.len() as u64);
        let mut logits = Vec::new();
        for (at, chunk) in ids.chunks(self.chunk).enumerate() {
            if signals::interrupted() {
                return Err(Failure::Interrupted);
            }
            let last = |i: usize| at * self.chunk + i + 1 == ids.len();
            let token = |(i, &id): (usize, &u32)| Token { id, sequence: 0, logits: all || last(i) };
            let tokens: Vec<Token> = chunk.iter().enumerate().map(token).collect();
            logits.extend(session.append(&*self.backend, &self.model, &tokens)?);
            bar.inc(chunk.len() as u64);
        }
        bar.finish_and_clear();
        Ok(logits)
    }
}

impl PromptArgs {
    /// The file of the prompt, if it is in one.
    pub fn file(&self) -> Option<&Path> {
        self.prompt_file.as_deref()
    }

    /// The ids of text that goes on where another ended: the prompt's alone, which may be absent.
    pub fn more(&self, loaded: &Loaded) -> Outcome<Vec<u32>> {
        let text = match (&self.token_ids, &self.prompt, &self.prompt_file) {
            (Some(ids), _, _) => return Ok(ids.clone()),
            (_, Some(text), _) => text.clone(),
            (_, _, Some(path)) => read_text(path)?,
            _ => return Ok(Vec::new()),
        };
        Ok(loaded.tokenizer()?.encode(&text, false)?)
    }

    /// The ids of the prompt. With `chat` it is a user's message, through the model's template.
    pub fn ids(&self, loaded: &Loaded, chat: Option<Date>) -> Outcome<Vec<u32>> {
        if let Some(ids) = &self.token_ids {
            if chat.is_some() {
                return Err(Failure::Usage("--chat is for text, not for --token-ids".to_owned()));
            }
            return Ok(ids.clone());
        }
        let text = match (&self.prompt, &self.prompt_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => read_text(path)?,
            (None, None) => {
                let expected = "one of --prompt, --prompt-file and --token-ids is needed";
                return Err(Failure::Usage(expected.to_owned()));
            }
        };
        let tokenizer = loaded.tokenizer()?;
        let ids = match chat {
            None => tokenizer.encode(&text, false)?,
            Some(date) => {
                let template = Template::load(&loaded.gguf, None)?;
                let conversation = Conversation::of_user(&text, date);
                tokenizer.encode_prompt(&template.render(tokenizer, &conversation)?)?
            }
        };
        Ok(tokenizer.with_ends(ids))
    }
}

/// A file's text.
pub fn read_text(path: &Path) -> Outcome<String> {
    let bytes = std::fs::read(path).map_err(|error| Failure::from(Error::io(path, error)))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let what = path.display().to_string();
        Error::invalid(what, format!("a byte at offset {at} that is no UTF-8"), "UTF-8").into()
    })
}

/// SHA-256 of values as little-endian f32.
pub fn checksum(values: &[f32]) -> String {
    let digest = Sha256::digest(bytemuck::cast_slice(values));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Tokens a second, for a reader.
pub fn rate(tokens: usize, time: Duration) -> String {
    format!("{:.1} tokens/s", tokens as f64 / time.as_secs_f64().max(1e-9))
}
