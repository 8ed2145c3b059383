//! `strata score`: how well a model foresees a text.

use std::path::PathBuf;

use serde_json::json;
use strata::{Error, npy};

use super::Outcome;
use super::output::{self, Output};
use super::text::{ModelArgs, read_text};

/// Score a text: the negative log probability of its tokens, and the perplexity.
///
/// The text is cut into windows of the context; each token but a window's first is
/// scored from those before it in its window. Where the vocabulary begins texts with
/// a token of its own, so does each window.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    /// The text
    #[arg(value_name = "FILE")]
    text: PathBuf,

    /// Write the log probability of every scored token to this .npy file; `-` is standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

pub fn run(args: &Args) -> Outcome {
    let out = args.out.as_deref().map(Output::create).transpose()?;
    if let Some(out) = &out {
        out.keeps([&args.text])?;
    }
    let text = read_text(&args.text)?;
    let loaded = args.model.load()?;
    if let Some(out) = &out {
        out.keeps(loaded.files())?;
    }
    let tokenizer = loaded.tokenizer()?;
    let ids = tokenizer.encode(&text, false)?;
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let window = loaded.context - usize::from(bos.is_some());
    if window < 2 {
        return Err(Error::invalid("context", loaded.context, "room for two tokens").into());
    }
    let mut session = loaded.session(loaded.context.min(ids.len() + 1))?;
    let mut scores: Vec<f32> = Vec::new();
    for ids in ids.chunks(window) {
        session.truncate(0, 0)?;
        let ids: Vec<u32> = bos.into_iter().chain(ids.iter().copied()).collect();
        // What the last token says is of a token that is not there.
        let logits = loaded.read(&mut session, &ids[..ids.len() - 1], true)?;
        for (row, &next) in logits.iter().zip(&ids[1..]) {
            scores.push(log_probability(row, next));
        }
    }
    if scores.is_empty() {
        let what = args.text.display().to_string();
        return Err(Error::invalid(what, "no token to score", "two tokens or more").into());
    }
    let nll = -scores.iter().map(|&score| f64::from(score)).sum::<f64>();
    let perplexity = (nll / scores.len() as f64).exp();
    let to_stdout = out.as_ref().is_some_and(Output::is_stdout);
    if let Some(out) = out {
        let header = npy::Header::write(1, scores.len());
        out.finish(&[&header, bytemuck::cast_slice(&scores)])?;
    }
    let tokens = scores.len();
    let text = match args.json {
        true => {
            format!("{:#}\n", json!({ "tokens": tokens, "nll": nll, "perplexity": perplexity }))
        }
        false => format!("{tokens} tokens, {nll:.3} nats, perplexity {perplexity:.4}\n"),
    };
    output::report(to_stdout, &text)
}

/// The log of a token's probability, in f64.
fn log_probability(logits: &[f32], id: u32) -> f32 {
    let most = logits.iter().fold(f32::NEG_INFINITY, |most, &logit| most.max(logit));
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit - most).exp()).sum();
    let own = logits.get(id as usize).copied().unwrap_or(f32::NAN);
    (f64::from(own - most) - sum.ln()) as f32
}
