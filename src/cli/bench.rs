//! `strata bench`: steps alone, beside what the memory allows at best.

use std::time::Duration;

use serde_json::{Value, json};
use strata::backend::ops::{
    GateUpOrder, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows,
    QuantizeScatter, Rows, Weights,
};
use strata::backend::{Backend, BackendKind, DeviceRoutes, RoutingMap};
use strata::format::random::SplitMix64;
use strata::format::random_blocks;
use strata::prefill::{Options, QuantMode, Routing, Synthetic, Workspace, normals};
use strata::routing::Routes;
use strata::{Layout, Result, WeightType, q8_1};

use super::args::{self, DeviceArgs};
use super::measure::{self, Bandwidth, POISON};
use super::report::{self, bytes, ms, ops_rate, significant};
use super::{Failure, Outcome, print, print_json, progress};

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

    /// Numbers of tokens [default: 512,2048, on a GPU 512,2048,8192,32768]
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

/// Runs it.
pub fn run(args: &Args) -> Outcome {
    let types = types(args)?;
    let backend = args.device.open()?;
    let gpu = backend.id().kind != BackendKind::Cpu;
    let or = |given: &[usize], cpu: &[usize], other: &[usize]| {
        if given.is_empty() { if gpu { other } else { cpu }.to_vec() } else { given.to_vec() }
    };
    let experts = or(&args.experts, &[32], &[512]);
    let k = args.k.unwrap_or(if gpu { 10 } else { 4 });
    if let Some(few) = experts.iter().find(|&&experts| experts < k) {
        return Err(Failure::Usage(format!("--k: given {k}, expected at most {few}, the experts")));
    }
    for ty in types.iter().filter(|_| matches!(args.what, What::Mmq | What::Layer)) {
        ty.row_bytes(args.cols).map_err(Failure::usage)?;
    }
    if args.what == What::Layer && !args.rows.is_multiple_of(2) {
        return Err(Failure::Usage(format!(
            "--rows: given {}, expected an even number",
            args.rows
        )));
    }
    let bandwidth = Bandwidth::measure(&*backend)?;
    let bench = Bench {
        backend: &*backend,
        args,
        bar: progress::spinner("measuring"),
        bandwidth,
        types,
        tokens: or(&args.tokens, &[512, 2048], &[512, 2048, 8192, 32768]),
        experts,
        k,
    };
    let table = match args.what {
        What::Quantize => bench.quantize(),
        What::Map => bench.map(),
        What::Mmq => bench.mmq(),
        What::Layer => bench.layer(),
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
            "{}\nmemory: {} GB/s ({}); medians of {} runs, {k} experts per token\n\n{}",
            args::device_text(backend.device()),
            significant(bench.bandwidth.bytes_per_second / 1e9),
            bench.bandwidth.how,
            args.runs,
            report::table(&table.head, &table.rows)
        )),
    }
}

fn types(args: &Args) -> Outcome<Vec<WeightType>> {
    match &args.types[..] {
        [] if args.what == What::Layer => Ok(vec![WeightType::Q4_K]),
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

fn shown(growth: Option<f64>) -> String {
    growth.map_or(String::new(), significant)
}

impl Bench<'_> {
    /// Random distinct experts for each token.
    fn routes(&self, tokens: usize, experts: usize) -> Result<Routes> {
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
        Routes::new(ids, weights, self.k, experts)
    }

    fn mapped(&self, tokens: usize, experts: usize) -> Result<(DeviceRoutes, RoutingMap)> {
        let routes = DeviceRoutes::upload(self.backend, &self.routes(tokens, experts)?)?;
        let mut map = RoutingMap::with_capacity(self.backend, tokens, self.k, experts)?;
        MapRoutes::new(routes.view(), &mut map)?.launch(self.backend)?;
        Ok((routes, map))
    }

    fn quantize(&self) -> Outcome<Table> {
        let mut table = Table::new(vec![
            "layout",
            "experts",
            "tokens",
            "scatter ms",
            "floor",
            "x floor",
            "gather ms",
            "gather/scatter",
            "indexed ms",
            "floor",
            "x floor",
            "x tokens",
        ]);
        let (backend, cols) = (self.backend, self.args.cols);
        for layout in Layout::ALL {
            for &experts in &self.experts {
                let mut growth = Growth(None);
                for &tokens in &self.tokens {
                    self.bar.set_message(format!("{layout}, {tokens} tokens"));
                    args::host_room(tokens.checked_mul(cols).and_then(|n| n.checked_mul(8)))?;
                    let (_routes, map) = self.mapped(tokens, experts)?;
                    let x = backend.from_slice(&normals(self.args.seed, tokens * cols))?;
                    let x = Matrix::dense("input", &x, tokens, cols)?;
                    let rows_bytes = q8_1::bytes(map.rows(), cols)?;
                    let mut out = backend.alloc::<u8>(rows_bytes)?;
                    let poison = |out: &mut _| backend.fill(&mut *out, POISON);
                    let mut time = |mode: QuantMode| {
                        measure::time(backend, self.args.runs, &mut out, poison, |out| {
                            let rows = if mode == QuantMode::Indexed { tokens } else { map.rows() };
                            let to = Q8RowsMut::new(&mut *out, layout, rows, cols)?;
                            match mode {
                                QuantMode::Scatter => {
                                    QuantizeScatter::new(x, &map, to)?.launch(backend)
                                }
                                QuantMode::Gather => {
                                    QuantizeRows::gather(x, &map, to)?.launch(backend)
                                }
                                QuantMode::Indexed => QuantizeRows::new(x, to)?.launch(backend),
                            }
                        })
                    };
                    let scatter = time(QuantMode::Scatter)?;
                    let gather = time(QuantMode::Gather)?;
                    let indexed = time(QuantMode::Indexed)?;
                    let read = tokens * cols * 4;
                    let floor = self.bandwidth.floor((read + rows_bytes) as u64);
                    let once = self.bandwidth.floor((read + q8_1::bytes(tokens, cols)?) as u64);
                    let grown = growth.next(tokens, scatter);
                    table.rows.push(vec![
                        layout.to_string(),
                        experts.to_string(),
                        tokens.to_string(),
                        ms(scatter),
                        ms(floor),
                        significant(ratio(scatter, floor)),
                        ms(gather),
                        significant(ratio(gather, scatter)),
                        ms(indexed),
                        ms(once),
                        significant(ratio(indexed, once)),
                        shown(grown),
                    ]);
                    table.json.push(json!({
                        "layout": layout.name(), "experts": experts, "tokens": tokens, "cols": cols,
                        "scatter_seconds": scatter.as_secs_f64(),
                        "gather_seconds": gather.as_secs_f64(),
                        "indexed_seconds": indexed.as_secs_f64(),
                        "floor_seconds": floor.as_secs_f64(),
                        "indexed_floor_seconds": once.as_secs_f64(),
                        "growth": grown,
                    }));
                }
            }
        }
        Ok(table)
    }

    fn map(&self) -> Outcome<Table> {
        let head = vec!["experts", "tokens", "ms", "bytes", "floor", "x floor", "x tokens"];
        let mut table = Table::new(head);
        let backend = self.backend;
        for &experts in &self.experts {
            let mut growth = Growth(None);
            for &tokens in &self.tokens {
                self.bar.set_message(format!("{experts} experts, {tokens} tokens"));
                let routes = DeviceRoutes::upload(backend, &self.routes(tokens, experts)?)?;
                // A map cannot be poisoned from outside: each run gets one that maps nothing.
                let mut map = RoutingMap::with_capacity(backend, tokens, self.k, experts)?;
                let fresh = |_: &mut _| Ok(());
                let time = measure::time(backend, self.args.runs, &mut map, fresh, |map| {
                    MapRoutes::new(routes.view(), map)?.launch(backend)
                })?;
                // Ids in, slots and sources out, and the bounds.
                let moved = 4 * (3 * tokens * self.k + experts + 1) as u64;
                let floor = self.bandwidth.floor(moved);
                let grown = growth.next(tokens, time);
                table.rows.push(vec![
                    experts.to_string(),
                    tokens.to_string(),
                    ms(time),
                    bytes(moved),
                    ms(floor),
                    significant(ratio(time, floor)),
                    shown(grown),
                ]);
                table.json.push(json!({
                    "experts": experts, "tokens": tokens,
                    "seconds": time.as_secs_f64(),
                    "bytes": moved,
                    "floor_seconds": floor.as_secs_f64(),
                    "growth": grown,
                }));
            }
        }
        Ok(table)
    }

    fn mmq(&self) -> Outcome<Table> {
        let mut table = Table::new(vec![
            "type", "experts", "tokens", "ms", "rate", "bytes", "floor", "x floor", "x tokens",
        ]);
        for &ty in &self.types {
            for &experts in &self.experts {
                let mut growth = Growth(None);
                for &tokens in &self.tokens {
                    self.bar.set_message(format!("{ty}, {experts} experts, {tokens} tokens"));
                    let (time, moved, ops) = self.product(ty, experts, tokens)?;
                    let floor = self.bandwidth.floor(moved);
                    let grown = growth.next(tokens, time);
                    table.rows.push(vec![
                        ty.to_string(),
                        experts.to_string(),
                        tokens.to_string(),
                        ms(time),
                        ops_rate(ops, time),
                        bytes(moved),
                        ms(floor),
                        significant(ratio(time, floor)),
                        shown(grown),
                    ]);
                    table.json.push(json!({
                        "type": ty.name(), "experts": experts, "tokens": tokens,
                        "rows": self.args.rows, "cols": self.args.cols,
                        "seconds": time.as_secs_f64(),
                        "ops": ops,
                        "gops": ops as f64 / report::seconds(time) / 1e9,
                        "bytes": moved,
                        "floor_seconds": floor.as_secs_f64(),
                        "growth": grown,
                    }));
                }
            }
        }
        Ok(table)
    }

    /// One product over all experts: its time, bytes and operations.
    fn product(
        &self,
        ty: WeightType,
        experts: usize,
        tokens: usize,
    ) -> Outcome<(Duration, u64, u64)> {
        let (backend, rows, cols) = (self.backend, self.args.rows, self.args.cols);
        let weight_bytes =
            ty.row_bytes(cols)?.checked_mul(rows).and_then(|bytes| bytes.checked_mul(experts));
        args::host_room(weight_bytes)?;
        let blocks = weight_bytes.unwrap_or(0) / ty.block_bytes();
        let weights = backend.import(random_blocks(ty, self.args.seed, blocks).into())?;
        let weights = Weights::dense("weights", &weights, ty, experts, rows, cols)?;
        args::host_room(tokens.checked_mul(cols).and_then(|n| n.checked_mul(8)))?;
        let (_routes, map) = self.mapped(tokens, experts)?;
        let x = backend.from_slice(&normals(self.args.seed, tokens * cols))?;
        let x = Matrix::dense("input", &x, tokens, cols)?;
        let q8_bytes = q8_1::bytes(map.rows(), cols)?;
        let mut q8 = backend.alloc::<u8>(q8_bytes)?;
        let to = Q8RowsMut::new(&mut q8, ty.layout(), map.rows(), cols)?;
        QuantizeScatter::new(x, &map, to)?.launch(backend)?;
        let activations = Q8Rows::new(&q8, ty.layout(), map.rows(), cols)?;
        let mut y = backend.alloc::<f32>(map.rows() * rows)?;
        let poison = |y: &mut _| backend.fill(&mut *y, POISON);
        let time = measure::time(backend, self.args.runs, &mut y, poison, |y| {
            let to = MatrixMut::dense("output", &mut *y, map.rows(), rows)?;
            Product::new(weights, activations, Rows::Experts(&map), to)?.launch(backend)
        })?;
        let moved = weight_bytes.unwrap_or(0) + q8_bytes + 4 * map.rows() * rows;
        Ok((time, moved as u64, 2 * (map.rows() * rows * cols) as u64))
    }

    fn layer(&self) -> Outcome<Table> {
        let mut table =
            Table::new(vec!["phase", "ms", "bytes", "floor", "x floor", "rate", "x tokens"]);
        for &ty in &self.types {
            for &experts in &self.experts {
                let mut growth = Growth(None);
                for &tokens in &self.tokens {
                    for mode in QuantMode::ALL {
                        self.bar.set_message(format!("{ty}, {tokens} tokens, {mode}"));
                        self.layer_with(ty, experts, tokens, mode, &mut growth, &mut table)?;
                    }
                }
            }
        }
        Ok(table)
    }

    fn layer_with(
        &self,
        ty: WeightType,
        experts: usize,
        tokens: usize,
        quant: QuantMode,
        growth: &mut Growth,
        table: &mut Table,
    ) -> Outcome {
        let (backend, width, ffn) = (self.backend, self.args.cols, self.args.rows / 2);
        let fits = ffn.is_multiple_of(ty.block_values());
        let synthetic = Synthetic {
            experts,
            k: self.k,
            width,
            ffn,
            gate_up: ty,
            order: GateUpOrder::Split,
            down: if fits { ty } else { WeightType::Q8_0 },
            seed: self.args.seed,
        };
        args::host_room(
            ty.row_bytes(width)?.checked_mul(3 * ffn).and_then(|b| b.checked_mul(experts)),
        )?;
        let layer = synthetic.layer(backend)?;
        let options = Options { quant, timed: true, ..Options::default() };
        let mut workspace = Workspace::new(backend, &layer, tokens, options)?;
        args::host_room(tokens.checked_mul(width).and_then(|n| n.checked_mul(8)))?;
        let x = backend.from_slice(&synthetic.input(tokens))?;
        let x = Matrix::dense("input", &x, tokens, width)?;
        let mut y = backend.alloc::<f32>(tokens * width)?;
        let mut runs = Vec::new();
        for run in 0..=self.args.runs {
            backend.fill(&mut y, POISON)?;
            let mut to = MatrixMut::dense("output", &mut y, tokens, width)?;
            let timings = layer.forward(backend, &mut workspace, x, Routing::Router, &mut to)?;
            if run > 0 {
                runs.push(timings);
            }
        }
        let Some(first) = runs.first() else { return Ok(()) };
        let title = format!("{ty}, {experts} experts, {tokens} tokens, {quant}");
        table.rows.push(vec![title]);
        let mut phases = Vec::new();
        for (i, phase) in first.phases.iter().enumerate() {
            let mut times: Vec<Duration> =
                runs.iter().filter_map(|run| Some(run.phases.get(i)?.time)).collect();
            let time = measure::median(&mut times).unwrap_or_default();
            let floor = self.bandwidth.floor(phase.bytes);
            table.rows.push(vec![
                format!("  {}", phase.phase.name()),
                ms(time),
                bytes(phase.bytes),
                ms(floor),
                significant(ratio(time, floor)),
                if phase.ops > 0 { ops_rate(phase.ops, time) } else { String::new() },
                String::new(),
            ]);
            phases.push(json!({
                "phase": phase.phase.name(),
                "seconds": time.as_secs_f64(),
                "bytes": phase.bytes,
                "floor_seconds": floor.as_secs_f64(),
                "ops": phase.ops,
            }));
        }
        let mut totals: Vec<Duration> = runs.iter().map(strata::prefill::Timings::total).collect();
        let total = measure::median(&mut totals).unwrap_or_default();
        let moved: u64 = first.phases.iter().map(|p| p.bytes).sum();
        let ops: u64 = first.phases.iter().map(|p| p.ops).sum();
        let floor = self.bandwidth.floor(moved);
        // Growth compares one mode with itself.
        let grown = (quant == QuantMode::Scatter).then(|| growth.next(tokens, total)).flatten();
        table.rows.push(vec![
            "  total".to_owned(),
            ms(total),
            bytes(moved),
            ms(floor),
            significant(ratio(total, floor)),
            ops_rate(ops, total),
            shown(grown),
        ]);
        table.json.push(json!({
            "type": ty.name(), "down_type": synthetic.down.name(), "experts": experts,
            "tokens": tokens, "width": width, "ffn": ffn, "quant": quant.name(),
            "phases": phases,
            "seconds": total.as_secs_f64(),
            "growth": grown,
        }));
        Ok(())
    }
}
