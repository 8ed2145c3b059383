//! `strata generate`: text in, text out.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::json;
use strata::Error;
use strata::model::sample::{Options, Sampler, Stops};
use strata::model::template::Date;
use strata::model::{Session, State, Token};

use super::output::Output;
use super::text::{Loaded, ModelArgs, PromptArgs, checksum, rate};
use super::{Failure, Outcome, files, note, print, print_json, signals};

/// Continue a text, or answer a message.
///
/// The text goes to standard output as it comes, everything else to standard error.
/// With temperature 0, the default, the same prompt gives the same text on every
/// backend and for every chunk; with another, so does the same seed. Ctrl-C ends the
/// text where it is.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    prompt: PromptArgs,

    /// New tokens at most
    #[arg(
        short = 'n',
        long,
        value_name = "N",
        default_value_t = 128,
        allow_negative_numbers = true
    )]
    tokens: usize,

    /// Take the prompt as a user's message, through the model's chat template
    #[arg(long)]
    chat: bool,

    /// The date that a chat template may show, as 2026-11-30 [default: today, UTC]
    #[arg(long, value_name = "DATE", requires = "chat", value_parser = date)]
    date: Option<Date>,

    /// 0 takes the most probable token always; more is more varied
    #[arg(long, value_name = "T", default_value_t = 0.0, allow_negative_numbers = true)]
    temperature: f32,

    /// Only the K most probable tokens; 0 for all
    #[arg(long, value_name = "K", default_value_t = 0)]
    top_k: usize,

    /// Only the fewest tokens whose probabilities sum to P
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f32,

    /// Only tokens at least P times as probable as the first
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,

    /// Seed of the random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,

    /// End the text in front of this; may be given several times
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,

    /// Go on from a text that --save-state wrote; the prompt, if there is one, comes after it
    #[arg(long, value_name = "FILE", conflicts_with = "chat")]
    load_state: Option<PathBuf>,

    /// Write the text's state to this file, to go on from with --load-state: on any backend, with
    /// the same bytes
    #[arg(long, value_name = "FILE")]
    save_state: Option<PathBuf>,

    /// Print a JSON document instead of the text
    #[arg(long)]
    json: bool,
}

/// A date as 2026-11-30.
fn date(text: &str) -> Result<Date, String> {
    let parts: Vec<u16> = text.split('-').filter_map(|part| part.parse::<u16>().ok()).collect();
    match (parts.as_slice(), text.len()) {
        (&[year, month, day], 10) => {
            Date::new(year, month as u8, day as u8).map_err(|error| error.to_string())
        }
        _ => Err("expected year-month-day, as 2026-11-30".to_owned()),
    }
}

/// Where the text begins.
struct Begun {
    session: Session,
    /// All tokens that are given.
    prompt: Vec<u32>,
    /// Of these, those that the session has not read.
    unread: usize,
    /// New tokens that there may be.
    most: usize,
    /// Random numbers drawn before.
    drawn: u64,
}

/// What came of it.
#[derive(Default)]
struct Generated {
    tokens: Vec<u32>,
    text: String,
    checksum: Option<String>,
    reading: Duration,
    writing: Duration,
    end: &'static str,
}

pub fn run(args: &Args) -> Outcome {
    let sampler = Sampler::new(Options {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        seed: args.seed,
    })
    .map_err(Failure::usage)?;
    let stops = Stops::new(args.stop.clone()).map_err(Failure::usage)?;
    let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let date = match (args.chat, args.date) {
        (false, _) => None,
        (true, Some(date)) => Some(date),
        (true, None) => Some(Date::from_unix(today)?),
    };
    let out = args.save_state.as_deref().map(Output::create).transpose()?;
    if let Some(out) = &out {
        if out.is_stdout() {
            return Err(Failure::Usage("--save-state: standard output has the text".to_owned()));
        }
        out.keeps(args.prompt.file())?;
    }
    let saved = args.load_state.as_deref().map(files::read).transpose()?;
    signals::ask_first();
    let loaded = args.model.load()?;
    if let Some(out) = &out {
        out.keeps(loaded.files())?;
    }
    let mut begun = match (&saved, &args.load_state) {
        (Some(bytes), Some(path)) => resumed(args, &loaded, bytes, path)?,
        _ => fresh(args, &loaded, args.prompt.ids(&loaded, date)?)?,
    };
    let generated = generate(args, &loaded, &mut begun, sampler, stops)?;
    let interrupted = generated.end == INTERRUPTED;
    if let Some(out) = out
        && !interrupted
    {
        save(&loaded, &mut begun, &generated, out)?;
    }
    if args.json {
        print_json(&json!({
            "prompt_tokens": begun.prompt,
            "tokens": generated.tokens,
            "text": generated.text,
            "end": generated.end,
            "logits_checksum": generated.checksum,
            "seed": args.seed,
            "rope_factors": loaded.model.config().factors.map(|factors| format!("{factors:?}")),
            "timings": {
                "load_ms": loaded.loading.as_secs_f64() * 1e3,
                "prompt_ms": generated.reading.as_secs_f64() * 1e3,
                "generate_ms": generated.writing.as_secs_f64() * 1e3,
            },
        }))?;
    } else {
        let (read, wrote) = (begun.unread, generated.tokens.len());
        note(&format!(
            "prompt {read} tokens, {}; {wrote} new tokens, {}; {}",
            rate(read, generated.reading),
            rate(wrote, generated.writing),
            generated.end
        ));
    }
    match interrupted {
        true => Err(Failure::Interrupted),
        false => Ok(()),
    }
}

/// What is said of a text that Ctrl-C ended.
const INTERRUPTED: &str = "interrupted";

/// A text that begins with the prompt.
fn fresh(args: &Args, loaded: &Loaded, prompt: Vec<u32>) -> Outcome<Begun> {
    if prompt.is_empty() {
        let expected = "text, or ids: this vocabulary begins texts with nothing";
        return Err(Error::invalid("prompt", "nothing", expected).into());
    }
    let most = room(args, loaded, prompt.len())?;
    let session = loaded.session(prompt.len() + most)?;
    Ok(Begun { session, unread: prompt.len(), prompt, most, drawn: 0 })
}

/// One that goes on from a saved state.
fn resumed(args: &Args, loaded: &Loaded, bytes: &[u8], path: &Path) -> Outcome<Begun> {
    let named = |error: Error| Failure::Failed(format!("{}: {error}", path.display()));
    let state = State::read(bytes).map_err(named)?;
    let more = args.prompt.more(loaded)?;
    let prompt = [state.tokens(), &more].concat();
    let most = room(args, loaded, prompt.len())?;
    let mut session = loaded.session(prompt.len() + most)?;
    session.restore(&*loaded.backend, &loaded.model, 0, &state).map_err(named)?;
    if more.is_empty() && session.logits(0).is_none() {
        let expected = "one that ends with logits, or a prompt to go on with";
        return Err(named(Error::invalid("saved state", "no logits", expected)));
    }
    Ok(Begun { session, unread: more.len(), prompt, most, drawn: state.drawn() })
}

/// How many new tokens a prompt leaves room for.
fn room(args: &Args, loaded: &Loaded, prompt: usize) -> Outcome<usize> {
    if prompt > loaded.context {
        let most = format!("at most {}, the context", loaded.context);
        return Err(Error::invalid("tokens of the prompt", prompt, most).into());
    }
    Ok(args.tokens.min(loaded.context - prompt))
}

/// Writes the state behind all tokens, the last one too.
fn save(loaded: &Loaded, begun: &mut Begun, generated: &Generated, out: Output) -> Outcome {
    let (backend, model) = (&*loaded.backend, &loaded.model);
    let all = begun.prompt.len() + generated.tokens.len();
    if begun.session.len(0) < all
        && let Some(&id) = generated.tokens.last()
    {
        begun.session.append(backend, model, &[Token { id, sequence: 0, logits: true }])?;
    }
    let drawn = begun.drawn + generated.tokens.len() as u64;
    out.finish(&[&begun.session.save(backend, model, 0, drawn)?])
}

fn generate(
    args: &Args,
    loaded: &Loaded,
    begun: &mut Begun,
    sampler: Sampler,
    mut stops: Stops,
) -> Outcome<Generated> {
    let Begun { session, prompt, unread, most, drawn } = begun;
    let (most, full) = (*most, *most < args.tokens);
    let mut out = Generated {
        end: if full { "the context is full" } else { "as many as asked for" },
        ..Generated::default()
    };

    let start = Instant::now();
    let unread = &prompt[prompt.len() - *unread..];
    let mut logits = match loaded.read(session, unread, false)?.pop() {
        Some(logits) => logits,
        None => session.logits(0).unwrap_or_default().to_vec(),
    };
    out.checksum = Some(checksum(&logits));
    out.reading = start.elapsed();

    let start = Instant::now();
    let tokenizer = loaded.tokenizer.as_ref().ok();
    let mut decoder = tokenizer.map(|tokenizer| tokenizer.decoder(prompt.last().copied()));
    let selectable = |id: u32| tokenizer.is_none_or(|tokenizer| tokenizer.selectable(id));
    let show = |out: &mut Generated, text: String| -> Outcome {
        out.text.push_str(&text);
        match args.json || text.is_empty() {
            true => Ok(()),
            false => print(&text),
        }
    };
    while out.tokens.len() < most {
        if signals::interrupted() {
            out.end = INTERRUPTED;
            break;
        }
        let position = prompt.len() + out.tokens.len();
        let index = *drawn + out.tokens.len() as u64;
        let id = sampler.choose(&logits, selectable, position, index)?;
        out.tokens.push(id);
        if tokenizer.is_some_and(|tokenizer| tokenizer.is_end(id)) {
            out.end = "the model ended the text";
            break;
        }
        if let Some(decoder) = &mut decoder {
            let text = stops.push(&decoder.push(id));
            show(&mut out, text)?;
            if stops.stopped().is_some() {
                out.end = "a stop string";
                break;
            }
        }
        if out.tokens.len() < most {
            let token = Token { id, sequence: 0, logits: true };
            let next = session.append(&*loaded.backend, &loaded.model, &[token])?;
            logits = next.into_iter().next().unwrap_or_default();
        }
    }
    if stops.stopped().is_none()
        && let Some(decoder) = &mut decoder
    {
        let mut rest = stops.push(&decoder.finish());
        rest.push_str(&stops.finish());
        show(&mut out, rest)?;
    }
    out.writing = start.elapsed();
    Ok(out)
}
