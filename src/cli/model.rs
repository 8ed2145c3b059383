//! What of a model runs: one answer for `prefill`, which runs it, and `inspect`, which says so.

use std::path::Path;

use strata::Error;
use strata::gguf::{DenseTensors, Gguf};
use strata::prefill::{MoePlan, plan_dense, plan_moe};

use super::{Failure, Outcome, signals};

/// A block that runs.
pub enum Layer {
    Experts(Box<MoePlan>),
    Dense(Box<DenseTensors>),
}

/// Opens a model, one that may be cut short while it is read.
pub fn open(path: &Path) -> Outcome<Gguf> {
    signals::watch_model(path);
    let gguf = Gguf::open(path)?;
    let kind = gguf.head().str("general.type").ok().flatten().unwrap_or("model");
    let architecture = gguf.head().str("general.architecture").ok().flatten();
    let what = match (kind, architecture) {
        ("adapter", _) => "an adapter (LoRA), which has parts of weights: merge it into its model",
        ("mmproj", _) | (_, Some("clip")) => "an mmproj file, which turns images into tokens",
        ("imatrix", _) => "an importance matrix, which quantization reads",
        _ => return Ok(gguf),
    };
    Err(Error::invalid(path.display().to_string(), what, "a model").into())
}

/// What a block computes, or why `prefill` does not run it.
pub fn layer(gguf: &Gguf, block: usize, experts: bool) -> Result<Layer, Error> {
    if !experts {
        return Ok(Layer::Dense(Box::new(plan_dense(gguf, block)?)));
    }
    Ok(Layer::Experts(Box::new(plan_moe(gguf, block)?)))
}

/// An error with the name of the file that it is about.
pub fn named(path: &Path, error: Error) -> Failure {
    let (path, text) = (path.display().to_string(), error.to_string());
    match text.contains(&path) {
        true => Failure::Failed(text),
        false => Failure::Failed(format!("{path}: {text}")),
    }
}
