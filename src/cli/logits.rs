//! `strata logits`: what a model says of a prompt, as numbers.

use std::path::PathBuf;

use strata::{Error, npy};

use super::Outcome;
use super::output::{self, Output};
use super::text::{ModelArgs, PromptArgs, checksum};

/// Compute the logits behind a prompt, and print their checksum.
///
/// The checksum is SHA-256 of the logits as little-endian f32: the same on every
/// backend and for every chunk.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,

    #[command(flatten)]
    prompt: PromptArgs,

    /// Behind each token, not the last alone
    #[arg(long)]
    all: bool,

    /// Write them to this .npy file: tokens x vocabulary; `-` is standard output
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

pub fn run(args: &Args) -> Outcome {
    let out = args.out.as_deref().map(Output::create).transpose()?;
    if let Some(out) = &out {
        out.keeps(args.prompt.file())?;
    }
    let loaded = args.model.load()?;
    if let Some(out) = &out {
        out.keeps(loaded.files())?;
    }
    let ids = args.prompt.ids(&loaded, None)?;
    if ids.is_empty() || ids.len() > loaded.context {
        let expected = format!("1 to {}, the context", loaded.context);
        return Err(Error::invalid("tokens of the prompt", ids.len(), expected).into());
    }
    let mut session = loaded.session(ids.len())?;
    let rows = loaded.read(&mut session, &ids, args.all)?;
    let values = rows.concat();
    let to_stdout = out.as_ref().is_some_and(Output::is_stdout);
    if let Some(out) = out {
        let header = npy::Header::write(rows.len(), loaded.model.config().vocab);
        out.finish(&[&header, bytemuck::cast_slice(&values)])?;
    }
    output::report(to_stdout, &format!("{}\n", checksum(&values)))
}
