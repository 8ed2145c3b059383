//! `strata bench`: steps alone, beside what the memory allows at best.

mod layer;
mod model;
mod routers;
mod steps;
mod watched;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value, json};
use strata::WeightType;
use strata::backend::ops::MapRoutes;
use strata::backend::{Backend, BackendKind, DeviceRoutes, RoutingMap};
use strata::format::random::SplitMix64;
use strata::routing::Routes;

use super::args::{self, DeviceArgs};
use super::measure::Bandwidth;
use super::report::{self, significant};
use super::{Failure, Outcome, print, print_json, progress, text};

/// Measure steps on random inputs: medians of several runs, beside the floor, the time
/// in which the memory moves the bytes that the step must read and write. How fast the
/// memory is, is measured in the same run.
#[derive(clap::Args)]
pub struct Args {
    /// Which step
    #[arg(value_enum)]
    what: What,

    #[command(flatten)]
    device: DeviceArgs,

    /// Weight types, or all [default: eight of them; for layer the first]
    #[arg(long, value_name = "TYPES", value_delimiter = ',')]
    types: Vec<String>,

    /// Numbers of tokens, of a model those of the prompt [default: 512,2048, on a GPU
    /// 512,2048,8192,32768]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = args::count)]
    tokens: Vec<usize>,

    /// Numbers of experts [default: 32, on a GPU 512]
    #[arg(long, value_name = "E,...", value_delimiter = ',', value_parser = args::count)]
    experts: Vec<usize>,

    /// Experts that each token uses [default: 4, on a GPU 10]
    #[arg(long, visible_alias = "top-k", value_name = "K", value_parser = args::count)]
    k: Option<usize>,

    /// Rows of a weight matrix; for layer twice the hidden values
    #[arg(long, value_name = "N", default_value_t = 1280, value_parser = args::count)]
    rows: usize,

    /// Columns: values of a token
    #[arg(long, value_name = "N", default_value_t = 2560, value_parser = args::count)]
    cols: usize,

    /// Of a model: a GGUF file or the first of its parts
    #[arg(long, value_name = "FILE", required_if_eq("what", "model"))]
    model: Option<PathBuf>,

    /// Of a model: tokens that are written behind each prompt
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = args::count)]
    new: usize,

    /// Of a model: tokens that go through it at once
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = args::count)]
    chunk: usize,

    /// Runs of each, after one to warm up
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = args::count)]
    runs: usize,

    /// Seed of the inputs
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Print a JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Quantization of the tokens into expert order: scatter, gather and indexed
    Quantize,
    /// The routing map
    Map,
    /// The products of all experts, one type after the other
    Mmq,
    /// A whole layer, phase by phase
    Layer,
    /// A whole layer with each kind of router, and without checks, in turns with the usual one
    Routers,
    /// A whole model: reading prompts and writing text, step by step
    Model,
}

impl What {
    /// Whether it is about whole layers.
    fn is_layer(self) -> bool {
        matches!(self, Self::Layer | Self::Routers)
    }
}

/// Types of every layout and family, where none are named.
const TYPES: [WeightType; 8] = [
    WeightType::Q8_0,
    WeightType::Q2_0,
    WeightType::IQ2_XS,
    WeightType::Q4_1,
    WeightType::Q2_K,
    WeightType::Q4_K,
    WeightType::Q6_K,
    WeightType::MXFP4,
];

/// What the columns of growth mean.
const LEGEND: &str = "
floor: the bytes at the speed of the memory; x floor: times that
x tokens: growth of the time over growth of the tokens, 1.00 is linear
x experts: growth of the time from the fewer experts above
to the first: median of the ratios to the run of the first line just before
";

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let types = types(args)?;
    let loaded = match (args.what, &args.model) {
        (What::Model, Some(path)) => Some(text::load(&args.device, path, None, args.chunk)?),
        (_, Some(_)) => return Err(Failure::Usage("--model: only a model has one".to_owned())),
        (_, None) => None,
    };
    let own;
    let backend: &dyn Backend = match &loaded {
        Some(loaded) => &*loaded.backend,
        None => {
            own = args.device.open()?;
            &*own
        }
    };
    let gpu = backend.id().kind != BackendKind::Cpu;
    let or = |given: &[usize], cpu: &[usize], other: &[usize]| {
        if given.is_empty() { if gpu { other } else { cpu }.to_vec() } else { given.to_vec() }
    };
    let experts = or(&args.experts, &[32], &[512]);
    let k = args.k.unwrap_or(if gpu { 10 } else { 4 });
    if let Some(few) = experts.iter().find(|&&experts| experts < k) {
        return Err(Failure::Usage(format!("--k: given {k}, expected at most {few}, the experts")));
    }
    if let Some(many) = experts.iter().find(|&&experts| experts > i32::MAX as usize) {
        return Err(Failure::Usage(format!("--experts: given {many}, expected below 2^31")));
    }
    for ty in types.iter().filter(|_| args.what == What::Mmq || args.what.is_layer()) {
        ty.row_bytes(args.cols).map_err(Failure::usage)?;
    }
    if args.what.is_layer() && !args.rows.is_multiple_of(2) {
        return Err(Failure::Usage(format!(
            "--rows: given {}, expected an even number",
            args.rows
        )));
    }
    let bandwidth = Bandwidth::measure(backend)?;
    let bench = Bench {
        backend,
        args,
        bar: progress::spinner("measuring"),
        bandwidth,
        types,
        tokens: or(&args.tokens, &[512, 2048], &[512, 2048, 8192, 32768]),
        experts,
        k,
    };
    let table = match (args.what, &loaded) {
        (_, Some(loaded)) => bench.model(loaded),
        (What::Quantize, None) => bench.quantize(),
        (What::Map, None) => bench.map(),
        (What::Mmq, None) => bench.mmq(),
        (What::Layer, None) => bench.layer(),
        (What::Routers, None) => bench.routers(),
        (What::Model, None) => Err(Failure::Usage("--model: given none".to_owned())),
    };
    bench.bar.finish_and_clear();
    let table = table?;
    match args.json {
        true => print_json(&json!({
            "device": args::device_json(backend.device()),
            "bandwidth": {
                "bytes_per_second": bench.bandwidth.bytes_per_second,
                "how": bench.bandwidth.how,
            },
            "runs": args.runs,
            "k": k,
            "results": table.json,
        })),
        false => print(&format!(
            "{}\nmemory: {} GB/s ({}, past any cache); medians of {} runs, {k} experts per token\n\n{}{}",
            args::device_text(backend.device()),
            significant(bench.bandwidth.bytes_per_second / 1e9),
            bench.bandwidth.how,
            args.runs,
            report::table(&table.head, &table.rows),
            LEGEND
        )),
    }
}

fn types(args: &Args) -> Outcome<Vec<WeightType>> {
    match &args.types[..] {
        [] if args.what.is_layer() => Ok(vec![WeightType::Q4_K]),
        [] => Ok(TYPES.to_vec()),
        [all] if all == "all" => Ok(WeightType::ALL.to_vec()),
        names => names.iter().map(|name| name.parse().map_err(Failure::usage)).collect(),
    }
}

struct Bench<'a> {
    backend: &'a dyn Backend,
    args: &'a Args,
    bar: indicatif::ProgressBar,
    bandwidth: Bandwidth,
    types: Vec<WeightType>,
    tokens: Vec<usize>,
    experts: Vec<usize>,
    k: usize,
}

/// What is printed, for readers and for scripts.
struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    json: Vec<Value>,
}

impl Table {
    fn new(head: Vec<&'static str>) -> Self {
        Self { head, rows: Vec::new(), json: Vec::new() }
    }
}

/// How a time compares with another.
fn ratio(time: Duration, to: Duration) -> f64 {
    report::seconds(time) / report::seconds(to)
}

/// How a time grew where the work grew by a factor: 1 is linear. Empty for a first line.
struct Growth(Option<(usize, Duration)>);

impl Growth {
    fn next(&mut self, size: usize, time: Duration) -> Option<f64> {
        let last = self.0.replace((size, time));
        last.map(|(before, was)| ratio(time, was) / (size as f64 / before as f64))
    }
}

/// Times of one number of experts, token count by token count, to compare the next with.
#[derive(Default)]
struct Fewer(Vec<Duration>);

impl Fewer {
    /// How the time of token count `i` grew from the last number of experts.
    fn next(&mut self, i: usize, time: Duration) -> Option<f64> {
        match self.0.get_mut(i) {
            Some(last) => Some(ratio(time, std::mem::replace(last, time))),
            None => {
                self.0.push(time);
                None
            }
        }
    }
}

fn shown(growth: Option<f64>) -> String {
    growth.map_or(String::new(), significant)
}

impl Bench<'_> {
    /// Random distinct experts for each token.
    fn routes(&self, tokens: usize, experts: usize) -> Outcome<Routes> {
        // Ids and weights here and on the device, and the map's slots and sources.
        args::host_room(tokens.checked_mul(self.k).and_then(|rows| rows.checked_mul(6 * 4)))?;
        let mut random = SplitMix64::new(self.args.seed ^ tokens as u64);
        let mut ids: Vec<i32> = Vec::with_capacity(tokens * self.k);
        for token in 0..tokens {
            while ids.len() < (token + 1) * self.k {
                let id = ((random.next_u64() >> 32) * experts as u64) >> 32;
                if !ids[token * self.k..].contains(&(id as i32)) {
                    ids.push(id as i32);
                }
            }
        }
        let weights = vec![1.0 / self.k as f32; ids.len()];
        Ok(Routes::new(ids, weights, self.k, experts)?)
    }

    fn mapped(&self, tokens: usize, experts: usize) -> Outcome<(DeviceRoutes, RoutingMap)> {
        let routes = DeviceRoutes::upload(self.backend, &self.routes(tokens, experts)?)?;
        let mut map = RoutingMap::with_capacity(self.backend, tokens, self.k, experts)?;
        MapRoutes::new(routes.view(), &mut map)?.launch(self.backend)?;
        Ok((routes, map))
    }
}
