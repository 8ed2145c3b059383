//! `strata inspect`: the expert tensors of a model, and what is computed of the whole.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};
use strata::backend::Backend;
use strata::gguf::{FfnRole, Gguf, GgufFile, TensorInfo, TensorType};
use strata::model::config::{Config, Mixer};
use strata::{Device, WeightType};

use super::model::{self, Layer};
use super::report::{self, bytes};
use super::{Outcome, print, print_json};

/// List the expert tensors of a GGUF model by block: types, shapes, sizes, and which
/// backends of this machine multiply them. Dense networks are listed where a block has
/// no experts: `prefill --split-dense` runs them as some. One line says what `generate`,
/// `logits` and `score` compute of the whole model.
#[derive(clap::Args)]
pub struct Args {
    /// The model; of a split one, any part
    file: PathBuf,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let gguf = model::open(&args.file)?;
    let meta = gguf.model_meta()?;
    let backends: Vec<Box<dyn Backend>> = Device::list()
        .into_iter()
        .filter(|state| state.devices.as_ref().is_ok_and(|devices| !devices.is_empty()))
        .filter_map(|state| Device::open(state.kind.name()).ok())
        .collect();
    let (mut blocks, moe_blocks) = (Vec::new(), gguf.moe_blocks());
    for (number, tensors) in gguf.ffn_tensors() {
        let experts = moe_blocks.contains(&number);
        let described = model::layer(&gguf, number, experts).map(|layer| match layer {
            Layer::Experts(plan) => {
                let moe = &plan.tensors;
                let shared = if moe.shared.is_some() { ", a shared expert" } else { "" };
                let router =
                    if plan.own_input { ", a router with an input of its own" } else { "" };
                let (e, k, w, f) = (moe.experts, moe.used, moe.width, moe.ffn);
                format!("{e} experts, {k} per token, {w} wide, {f} hidden{shared}{router}")
            }
            Layer::Dense(dense) => format!("dense, {} wide, {} hidden", dense.width, dense.ffn),
        });
        let described = described.map_err(|error| error.to_string());
        blocks.push(Block { number, experts, described, tensors });
    }
    let whole = whole(&gguf);
    match args.json {
        true => {
            let blocks: Vec<Value> = blocks.iter().map(|block| block.json(&backends)).collect();
            print_json(&json!({
                "file": args.file.display().to_string(),
                "parts": gguf.parts().iter().map(GgufFile::name).collect::<Vec<_>>(),
                "version": gguf.head().version(),
                "architecture": meta.architecture,
                "tensors": gguf.tensors().count(),
                "experts": meta.experts,
                "experts_used": meta.used,
                "whole": match &whole {
                    Ok(config) => json!({
                        "error": null,
                        "mixers": mixers(config).collect::<Vec<_>>(),
                        "skipped": config.skipped.iter().cloned().collect::<BTreeMap<_, _>>(),
                        "unread": config.unread,
                    }),
                    Err(error) => json!({ "error": error }),
                },
                "blocks": blocks,
            }))
        }
        false => print(&text(&gguf, &meta.architecture, &whole, &blocks, &backends)),
    }
}

/// What `generate`, `logits` and `score` compute of a file, or why they do not.
fn whole(gguf: &Gguf) -> Result<Config, String> {
    let config = Config::load(gguf, None).map_err(|error| error.to_string())?;
    let used = |name: &str| !config.skipped.iter().any(|(skipped, _)| skipped == name);
    for tensor in gguf.tensors().filter(|tensor| used(tensor.name())) {
        let ty = tensor.tensor_type();
        let float = matches!(ty, TensorType::F32 | TensorType::F16 | TensorType::BF16);
        if !float && ty.weight().is_none() {
            let name = tensor.name().escape_debug();
            return Err(format!("tensor {name}: {ty} is neither F32, F16, BF16 nor quantized"));
        }
    }
    Ok(config)
}

/// What mixes the tokens of each block.
fn mixers(config: &Config) -> impl Iterator<Item = &'static str> {
    config.layers.iter().map(|layer| match layer.mixer {
        Mixer::Attention(_) => "attention",
        Mixer::Mla(_) => "attention over a compressed row",
        Mixer::DeltaNet(_) => "gated delta net",
        Mixer::ShortConv(_) => "short convolution",
    })
}

/// The same in a line.
fn whole_line(whole: &Result<Config, String>) -> String {
    let config = match whole {
        Ok(config) => config,
        Err(error) => return format!("as a whole model: not computed: {error}"),
    };
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for mixer in mixers(config) {
        match kinds.iter_mut().find(|(kind, _)| *kind == mixer) {
            Some((_, count)) => *count += 1,
            None => kinds.push((mixer, 1)),
        }
    }
    let kinds: Vec<String> =
        kinds.iter().map(|(kind, count)| format!("{count} of {kind}")).collect();
    let mut line = format!("as a whole model: blocks: {}", kinds.join(", "));
    for (what, count) in
        [("tensors left out", config.skipped.len()), ("keys not read", config.unread.len())]
    {
        if count > 0 {
            line.push_str(&format!("; {count} {what}"));
        }
    }
    line
}

struct Block<'a> {
    number: usize,
    experts: bool,
    described: Result<String, String>,
    tensors: Vec<(FfnRole, &'a TensorInfo)>,
}

impl Block<'_> {
    /// The devices that compute with a tensor: none where the block does not run. Routers are
    /// computed in f32 by all, floats are quantized to Q8_0.
    fn runs_on(
        &self,
        role: FfnRole,
        tensor: &TensorInfo,
        backends: &[Box<dyn Backend>],
    ) -> Vec<String> {
        let router = matches!(role, FfnRole::Router | FfnRole::SharedRouter);
        let ty = tensor.tensor_type().weight().unwrap_or(WeightType::Q8_0);
        let on = backends.iter().filter(|b| self.described.is_ok() && (router || b.supports(ty)));
        on.map(|backend| backend.id().to_string()).collect()
    }

    fn json(&self, backends: &[Box<dyn Backend>]) -> Value {
        let tensors: Vec<Value> = self
            .tensors
            .iter()
            .map(|&(role, tensor)| {
                json!({
                    "name": tensor.name(),
                    "type": tensor.tensor_type().to_string(),
                    "dims": tensor.dims(),
                    "bytes": tensor.bytes(),
                    "part": tensor.part(),
                    "runs_on": self.runs_on(role, tensor, backends),
                })
            })
            .collect();
        json!({
            "block": self.number,
            "experts": self.experts,
            "description": self.described.as_ref().ok(),
            "error": self.described.as_ref().err(),
            "tensors": tensors,
        })
    }
}

fn text(
    gguf: &Gguf,
    architecture: &str,
    whole: &Result<Config, String>,
    blocks: &[Block<'_>],
    backends: &[Box<dyn Backend>],
) -> String {
    let mut text = format!(
        "{}: GGUF {}, {}, {} tensors in {} part{}\n",
        gguf.head().name(),
        gguf.head().version(),
        architecture.escape_debug(),
        gguf.tensors().count(),
        gguf.parts().len(),
        if gguf.parts().len() == 1 { "" } else { "s" }
    );
    text.push_str(&whole_line(whole));
    text.push('\n');
    if blocks.is_empty() {
        text.push_str("no feed-forward tensors\n");
    }
    for block in blocks {
        text.push_str(&format!("\nblock {}: ", block.number));
        match &block.described {
            Ok(described) => text.push_str(&format!("{described}\n")),
            Err(error) => text.push_str(&format!("cannot run: {error}\n")),
        }
        let rows: Vec<Vec<String>> = block
            .tensors
            .iter()
            .map(|&(role, tensor)| {
                let dims: Vec<String> = tensor.dims().iter().rev().map(u64::to_string).collect();
                let runs = block.runs_on(role, tensor, backends);
                vec![
                    tensor.name().escape_debug().to_string(),
                    tensor.tensor_type().to_string(),
                    dims.join(" x "),
                    bytes(tensor.bytes() as u64),
                    if runs.is_empty() { "nothing here".to_owned() } else { runs.join(", ") },
                ]
            })
            .collect();
        text.push_str(&report::table(&["tensor", "type", "shape", "bytes", "runs on"], &rows));
    }
    text
}
