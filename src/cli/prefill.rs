//! `strata prefill`: a layer over a prompt.

mod report;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use strata::backend::ops::{GateUpOrder, Matrix, MatrixMut};
use strata::backend::{Backend, BackendKind, DeviceRoutes};
use strata::gguf::{FfnRole, GgufFile};
use strata::prefill::{
    Chunk, MoeLayer, Options, QuantMode, Routing, Synthetic, Timings, Workspace, load_dense,
    load_moe, try_normals,
};
use strata::routing::Routes;
use strata::{WeightType, npy};

use super::args::{self, DeviceArgs};
use super::files::read_npy;
use super::output::{self, Output};
use super::{Failure, Outcome, model, note, progress};

/// Run a layer over a prompt, and print what each phase took and a checksum.
///
/// Without --model the layer is made from a seed: 2560 wide, 640 hidden values per
/// expert, 10 experts per token; 64 experts and 512 tokens on a CPU, 512 experts
/// and 8192 tokens on a GPU that has room for them. The checksum is SHA-256 of the
/// output as little-endian f32: the same arguments give the same on every backend,
/// in every mode and for every chunk.
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    device: DeviceArgs,

    /// Take the layer from this GGUF model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["experts", "top_k", "width", "ffn", "ty", "down_type", "interleaved"])]
    model: Option<PathBuf>,

    /// Which block of the model [default: the first with experts, else 0]
    #[arg(long, value_name = "N", requires = "model")]
    layer: Option<usize>,

    /// View the dense network of the block as so many experts, all of them used
    #[arg(long, value_name = "E", requires = "model", value_parser = args::count)]
    split_dense: Option<usize>,

    /// Tokens of the prompt [default: 512, on a GPU 8192]
    #[arg(long, value_name = "N", value_parser = args::count)]
    tokens: Option<usize>,

    /// Take the tokens from this .npy file: tokens x width, little-endian f32
    #[arg(long, value_name = "FILE", conflicts_with = "tokens")]
    input: Option<PathBuf>,

    /// Take from this .npy file what the router reads, in models whose router reads another input
    /// than the experts (gemma4, smallthinker): tokens x width [default: made from the seed, as the
    /// tokens are]
    #[arg(long, value_name = "FILE", requires = "model")]
    router_input: Option<PathBuf>,

    /// Write the result to this .npy file; - is standard output, and the report then goes to
    /// standard error
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// How tokens reach the rows of their experts: scatter, gather or indexed
    /// [default: scatter, or gather where STRATA_QUANT_GATHER=1]
    #[arg(long, value_name = "MODE")]
    quant: Option<QuantMode>,

    /// Tokens that go through the layer at once; auto:N picks the largest equal
    /// chunks of at most N that fit the device
    #[arg(long, value_name = "N", default_value_t)]
    chunk: Chunk,

    /// Seed of the synthetic layer and of the tokens
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Do not look for values that are not finite
    #[arg(long)]
    no_check: bool,

    /// Run SwiGLU and the quantization after it as two steps
    #[arg(long)]
    unfused: bool,

    /// Run so many times and show the fastest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    runs: u32,

    /// Experts of the synthetic layer
    #[arg(long, value_name = "N", value_parser = args::count)]
    experts: Option<usize>,

    /// Experts that each token uses
    #[arg(long, value_name = "K", default_value_t = 10, value_parser = args::count)]
    top_k: usize,

    /// Values of a token
    #[arg(long, value_name = "N", default_value_t = 2560, value_parser = args::count)]
    width: usize,

    /// Hidden values of an expert
    #[arg(long, value_name = "N", default_value_t = 640, value_parser = args::count)]
    ffn: usize,

    /// Weight type of gate and up, as ggml spells it: q4_K, iq2_xs, mxfp4
    #[arg(long = "type", value_name = "TYPE", default_value = "q4_K")]
    ty: WeightType,

    /// Weight type of down [default: that of gate and up where its blocks fit, else q8_0]
    #[arg(long, value_name = "TYPE")]
    down_type: Option<WeightType>,

    /// Gate and up rows in turns, as some models have them
    #[arg(long)]
    interleaved: bool,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

/// A layer, and where it came from.
struct Source {
    layer: MoeLayer,
    text: String,
    json: Value,
    tokens: usize,
    synthetic: Option<Synthetic>,
}

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let quant = args.quant.map_or_else(QuantMode::from_env, Ok)?;
    let out = args.out.as_deref().map(Output::create).transpose()?;
    if let Some(out) = &out {
        out.keeps(args.input.iter().chain(&args.router_input).chain(&args.model))?;
    }
    let input = args.input.as_deref().map(read_npy).transpose()?;
    let router_input = args.router_input.as_deref().map(read_npy).transpose()?;
    let backend = args.device.open()?;
    let backend = &*backend;

    let loading = Instant::now();
    let source = match &args.model {
        Some(path) => load(args, path, out.as_ref(), backend)?,
        None => synthetic(args, backend)?,
    };
    let loading = loading.elapsed();
    let width = source.layer.width();
    let (x, tokens) = match input {
        Some((x, tokens, cols)) if cols == width => (x, tokens),
        Some((_, _, cols)) => {
            let expected = format!("{width}, the width of the layer");
            return Err(strata::Error::invalid("input: columns", cols, expected).into());
        }
        None => {
            let tokens = args.tokens.unwrap_or(source.tokens);
            // On a CPU the tokens, the result, and its copy that is printed; elsewhere the first or
            // the last on the host, and room to make them.
            args::host_room(tokens.checked_mul(width).and_then(|n| n.checked_mul(3 * 4)))?;
            let x = match &source.synthetic {
                Some(synthetic) => synthetic.try_input(tokens)?,
                None => try_normals(args.seed, tokens * width)?,
            };
            (x, tokens)
        }
    };

    let router_x = match (source.layer.router_has_own_input(), router_input) {
        (false, None) => None,
        (false, Some(_)) => {
            let what = format!("{}: --router-input", source.text);
            let expected = "none: the router reads what the experts read";
            return Err(strata::Error::invalid(what, "a file", expected).into());
        }
        (true, Some((x, rows, cols))) if (rows, cols) == (tokens, width) => Some(x),
        (true, Some((_, rows, cols))) => {
            let (given, expected) = (format!("{rows} x {cols}"), format!("{tokens} x {width}"));
            return Err(strata::Error::invalid("router's input", given, expected).into());
        }
        (true, None) if args.input.is_some() => {
            let what = format!("{}: --router-input", source.text);
            let expected = "a file beside --input: the router reads another input than the experts";
            return Err(strata::Error::invalid(what, "none", expected).into());
        }
        (true, None) => {
            args::host_room(tokens.checked_mul(width).and_then(|n| n.checked_mul(2 * 4)))?;
            note("the router reads another input than the experts: made from the seed too");
            Some(try_normals(args.seed.wrapping_add(1), tokens * width)?)
        }
    };
    let options = Options {
        quant,
        chunk: args.chunk,
        checked: !args.no_check,
        fused: !args.unfused,
        timed: true,
    };
    let spinner = progress::spinner(&format!("{tokens} tokens on {}", backend.id()));
    let mut workspace = Workspace::new(backend, &source.layer, tokens, options)?;
    let (timings, y) =
        forward(args, backend, &source.layer, &mut workspace, (x, router_x), tokens)?;
    spinner.finish_and_clear();

    // Little-endian, as everything that reads weights and blocks where they lie.
    let y: &[u8] = bytemuck::cast_slice(&y);
    let mut checksum = String::with_capacity(64);
    for byte in Sha256::digest(y) {
        checksum.push_str(&format!("{byte:02x}"));
    }
    let workspace_bytes =
        Workspace::bytes(&source.layer, workspace.chunk(), workspace.options())? as u64;
    let to_stdout = out.as_ref().is_some_and(Output::is_stdout);
    if let Some(out) = out {
        out.finish(&[&npy::Header::write(tokens, width), y])?;
    }
    let run = Run { tokens, timings, loading, workspace_bytes, checksum, cold: args.runs == 1 };
    let text = match args.json {
        true => format!("{:#}\n", report::json(backend, &source, workspace.options(), &run)),
        false => report::text(backend, &source, workspace.options(), &run),
    };
    output::report(to_stdout, &text)
}

/// What is printed.
struct Run {
    tokens: usize,
    timings: Timings,
    loading: Duration,
    workspace_bytes: u64,
    checksum: String,
    /// Whether the times are of a first run.
    cold: bool,
}

fn forward(
    args: &Args,
    backend: &dyn Backend,
    layer: &MoeLayer,
    workspace: &mut Workspace,
    (x, router_x): (Vec<f32>, Option<Vec<f32>>),
    tokens: usize,
) -> Outcome<(Timings, Vec<f32>)> {
    let width = layer.width();
    let on_device = backend.from_slice(&x)?;
    drop(x);
    let router_x = router_x.map(|x| backend.from_slice(&x)).transpose()?;
    let x = Matrix::dense("input", &on_device, tokens, width)?;
    let mut y = backend.alloc::<f32>(tokens * width)?;
    let routes = match layer.has_router() {
        true => None,
        false => Some(DeviceRoutes::upload(backend, &Routes::all(tokens, layer.experts())?)?),
    };
    let routing = match (&routes, &router_x) {
        (Some(routes), _) => Routing::Routes(routes),
        (None, Some(x)) => Routing::Input(Matrix::dense("router's input", x, tokens, width)?),
        (None, None) => Routing::Router,
    };
    let mut fastest: Option<Timings> = None;
    for _ in 0..args.runs {
        let mut to = MatrixMut::dense("output", &mut y, tokens, width)?;
        let timings = layer.forward(backend, workspace, x, routing, &mut to)?;
        if fastest.as_ref().is_none_or(|best| timings.total() < best.total()) {
            fastest = Some(timings);
        }
    }
    Ok((fastest.unwrap_or_default(), backend.download(&y)?))
}

/// A layer of a model: its experts, or its dense network seen as experts.
fn load(
    args: &Args,
    path: &std::path::Path,
    out: Option<&Output>,
    backend: &dyn Backend,
) -> Outcome<Source> {
    let gguf = model::open(path)?;
    if let Some(out) = out {
        out.keeps(gguf.parts().iter().map(GgufFile::name))?;
    }
    let moe_blocks = gguf.moe_blocks();
    let block = args.layer.unwrap_or_else(|| moe_blocks.first().copied().unwrap_or(0));
    let bar = progress::bytes(&format!("block {block}"), 0);
    let mut show = |at: strata::prefill::LoadProgress<'_>| {
        bar.set_length(at.total);
        bar.set_position(at.done);
        if let Some(ty) = at.quantized {
            note(&format!("{} holds {ty}: quantized to q8_0 as it is loaded", at.tensor));
        }
    };
    let has_experts = moe_blocks.contains(&block);
    // A dense network is a mixture of one expert.
    let alone = !has_experts && args.split_dense.is_none();
    let has_network = gguf.tensor(&FfnRole::Up.name(block)).is_some();
    if alone && !has_network {
        // Why there are no experts is the question that was asked.
        model::layer(&gguf, block, true).map_err(|error| model::named(path, error))?;
    }
    if alone {
        note(&format!("block {block} has no experts: its dense network runs as one"));
    }
    let (layer, dense) = match args.split_dense.or(alone.then_some(1)) {
        Some(experts) => (load_dense(&gguf, block, experts, backend, &mut show), true),
        None => {
            let checked = model::layer(&gguf, block, true);
            (checked.and_then(|_| load_moe(&gguf, block, backend, &mut show)), false)
        }
    };
    let layer = layer.map_err(|error| model::named(path, error))?;
    bar.finish_and_clear();
    let kind = if dense { ", a dense network" } else { "" };
    let json = json!({ "model": path.display().to_string(), "layer": block, "dense": dense });
    let text = format!("{}, block {block}{kind}", path.display());
    let tokens = if backend.id().kind == BackendKind::Cpu { 512 } else { 8192 };
    Ok(Source { layer, text, json, tokens, synthetic: None })
}

/// The synthetic layer, as large as the device can take.
fn synthetic(args: &Args, backend: &dyn Backend) -> Outcome<Source> {
    let fits = |ty: WeightType| args.ffn.is_multiple_of(ty.block_values());
    let down = args.down_type.unwrap_or(if fits(args.ty) { args.ty } else { WeightType::Q8_0 });
    let order = if args.interleaved { GateUpOrder::Interleaved } else { GateUpOrder::Split };
    let (most, tokens) = match backend.id().kind {
        BackendKind::Cpu => (64, 512),
        _ => (512, 8192),
    };
    let expert = (|| {
        let gate_up = args.ty.row_bytes(args.width)?.checked_mul(2 * args.ffn);
        let down = down.row_bytes(args.ffn)?.checked_mul(args.width);
        Ok(gate_up.and_then(|bytes| bytes.checked_add(down?)))
    })()
    .map_err(|error: strata::Error| Failure::usage(error))?;
    let experts = match args.experts {
        Some(experts) => experts,
        None => {
            // Half of the memory for weights leaves the rest to a chunk.
            let room = usize::try_from(backend.memory()?.free / 2).unwrap_or(usize::MAX);
            most.min(room / expert.unwrap_or(usize::MAX).max(1)).max(args.top_k)
        }
    };
    if args.top_k > experts {
        let text =
            format!("--top-k: given {}, expected at most {experts}, the experts", args.top_k);
        return Err(Failure::Usage(text));
    }
    args::host_room(expert.and_then(|bytes| bytes.checked_mul(experts)))?;
    let synthetic = Synthetic {
        experts,
        k: args.top_k,
        width: args.width,
        ffn: args.ffn,
        gate_up: args.ty,
        order,
        down,
        seed: args.seed,
    };
    let spinner = progress::spinner(&format!("making {experts} experts"));
    let layer = synthetic.layer(backend)?;
    spinner.finish_and_clear();
    let json = json!({ "model": null, "seed": args.seed });
    let text = format!("synthetic, seed {}", args.seed);
    Ok(Source { layer, text, json, tokens, synthetic: Some(synthetic) })
}
