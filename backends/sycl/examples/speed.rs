//! The SYCL backend beside the CPU backend on the same cores, in one run.
//!
//! `cargo run --release -p strata-sycl --example speed [TEXT ...]`: quantization,
//! the map, products of 32 experts (top-4, 1280 x 2560, 512 tokens), and a
//! layer of them; with texts, the rows whose names contain one of them. The two
//! backends take turns. Each row gives the least wall time of all runs, and the
//! median over the turns of the processor time of all threads per run, which
//! other programs on the machine disturb less; and how many times as fast as
//! the CPU backend SYCL is by each.

use std::time::Instant;

use strata_core::backend::ops::{
    GateUpOrder, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows,
    QuantizeScatter, Rows, Weights,
};
use strata_core::backend::{Backend, DeviceRoutes, RoutingMap};
use strata_core::format::random_blocks;
use strata_core::prefill::{Options, Routing, Synthetic, Workspace, normals};
use strata_core::routing::{RouterBias, RouterOptions, Routes};
use strata_core::{Layout, Result, WeightType, q8_1};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_sycl::SyclBackend;

const EXPERTS: usize = 32;
const K: usize = 4;
const TOKENS: usize = 512;
const ROWS: usize = 1280;
const WIDTH: usize = 2560;

/// Processor seconds of all threads of this process so far.
fn processor() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the name in parentheses, fields 14 and 15 are user and system ticks of 10 ms.
    let fields = text.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.skip(11).take(2).filter_map(|t| t.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// Turns that each backend has.
const TURNS: usize = 5;

/// Least wall seconds, and processor seconds per run.
fn time(
    backend: &dyn Backend,
    run: &mut dyn FnMut(&dyn Backend) -> Result<()>,
) -> Result<(f64, f64)> {
    run(backend)?;
    backend.synchronize()?;
    let (start, before) = (Instant::now(), processor());
    let (mut best, mut runs) = (f64::INFINITY, 0);
    while processor() - before < 0.5 && start.elapsed().as_secs_f64() < 5.0 {
        let one = Instant::now();
        run(backend)?;
        backend.synchronize()?;
        best = best.min(one.elapsed().as_secs_f64());
        runs += 1;
    }
    Ok((best, (processor() - before) / f64::from(runs)))
}

/// Something measured on a backend.
type Measure<'a> = &'a dyn Fn(&dyn Backend) -> Result<(f64, f64)>;

/// The two backends, and which rows are wanted.
struct Bench<'a> {
    backends: [&'a dyn Backend; 2],
    texts: &'a [String],
}

impl Bench<'_> {
    /// Measures and prints a row; `work` per run, in billions of `unit`.
    fn row(&self, name: &str, work: f64, unit: &str, measure: Measure<'_>) -> Result<()> {
        if !self.texts.is_empty() && !self.texts.iter().any(|text| name.contains(text)) {
            return Ok(());
        }
        let mut turns = [(); 2].map(|()| Vec::with_capacity(TURNS));
        for _ in 0..TURNS {
            for (backend, turns) in self.backends.iter().zip(&mut turns) {
                turns.push(measure(*backend)?);
            }
        }
        let [cpu, sycl] = turns.map(|turns| {
            let wall = turns.iter().map(|t| t.0).fold(f64::INFINITY, f64::min);
            let mut processor: Vec<f64> = turns.iter().map(|t| t.1).collect();
            processor.sort_by(f64::total_cmp);
            (wall, processor[TURNS / 2])
        });
        println!(
            "{name:16} cpu {:7.2} ms {:6.1} {unit}, processor {:7.2} ms   sycl {:7.2} ms {:6.1} {unit}, processor {:7.2} ms   \
             wall x{:.2} processor x{:.2}",
            cpu.0 * 1e3,
            work / cpu.0,
            cpu.1 * 1e3,
            sycl.0 * 1e3,
            work / sycl.0,
            sycl.1 * 1e3,
            cpu.0 / sycl.0,
            cpu.1 / sycl.1,
        );
        Ok(())
    }
}

fn routes(tokens: usize, experts: usize, k: usize) -> Result<Routes> {
    let scores = normals(7, tokens * experts);
    Routes::top_k(&scores, experts, k, &RouterOptions::SOFTMAX_OF_CHOSEN, RouterBias::default())
}

fn map(backend: &dyn Backend, routes: &Routes) -> Result<(DeviceRoutes, RoutingMap)> {
    let device = DeviceRoutes::upload(backend, routes)?;
    let mut map =
        RoutingMap::with_capacity(backend, routes.tokens(), routes.k(), routes.experts())?;
    MapRoutes::new(device.view(), &mut map)?.launch(backend)?;
    Ok((device, map))
}

/// Which rows q8_1 is made for.
#[derive(Clone, Copy, PartialEq)]
enum How {
    Identity,
    Gather,
    Scatter,
}

impl How {
    fn name(self) -> &'static str {
        match self {
            Self::Identity => "quantize",
            Self::Gather => "gather",
            Self::Scatter => "scatter",
        }
    }
}

fn quantize(backend: &dyn Backend, layout: Layout, how: How) -> Result<(f64, f64)> {
    let (tokens, k) = (2048, 10);
    let routes = routes(tokens, 512, k)?;
    let (_, map) = map(backend, &routes)?;
    let x = backend.from_slice(&normals(3, tokens * WIDTH))?;
    let rows = if how == How::Identity { tokens } else { tokens * k };
    let mut out = backend.alloc::<u8>(q8_1::bytes(rows, WIDTH)?)?;
    time(backend, &mut |backend| {
        let x = Matrix::dense("x", &x, tokens, WIDTH)?;
        let out = Q8RowsMut::new(&mut out, layout, rows, WIDTH)?;
        match how {
            How::Identity => QuantizeRows::new(x, out)?.launch(backend),
            How::Gather => QuantizeRows::gather(x, &map, out)?.launch(backend),
            How::Scatter => QuantizeScatter::new(x, &map, out)?.launch(backend),
        }
    })
}

fn map_time(backend: &dyn Backend) -> Result<(f64, f64)> {
    let routes = routes(8192, 512, 10)?;
    let (device, mut map) = map(backend, &routes)?;
    time(backend, &mut |backend| MapRoutes::new(device.view(), &mut map)?.launch(backend))
}

fn mmq(backend: &dyn Backend, ty: WeightType) -> Result<(f64, f64)> {
    let routes = routes(TOKENS, EXPERTS, K)?;
    let (_, map) = map(backend, &routes)?;
    let x = backend.from_slice(&normals(3, TOKENS * WIDTH))?;
    let blocks = EXPERTS * ROWS * WIDTH / ty.block_values();
    let weights = backend.from_slice(&random_blocks(ty, 5, blocks))?;
    let mut q8 = backend.alloc::<u8>(q8_1::bytes(TOKENS * K, WIDTH)?)?;
    let out = Q8RowsMut::new(&mut q8, ty.layout(), TOKENS * K, WIDTH)?;
    QuantizeScatter::new(Matrix::dense("x", &x, TOKENS, WIDTH)?, &map, out)?.launch(backend)?;
    let mut dst = backend.alloc::<f32>(TOKENS * K * ROWS)?;
    time(backend, &mut |backend| {
        let weights = Weights::dense("weights", &weights, ty, EXPERTS, ROWS, WIDTH)?;
        let acts = Q8Rows::new(&q8, ty.layout(), TOKENS * K, WIDTH)?;
        let dst = MatrixMut::dense("out", &mut dst, TOKENS * K, ROWS)?;
        Product::new(weights, acts, Rows::Experts(&map), dst)?.launch(backend)
    })
}

fn layer(backend: &dyn Backend, ty: WeightType) -> Result<(f64, f64)> {
    let synthetic = Synthetic {
        experts: EXPERTS,
        k: K,
        width: WIDTH,
        ffn: ROWS / 2,
        gate_up: ty,
        order: GateUpOrder::Split,
        // The down tensor's columns are no multiple of 256.
        down: WeightType::Q8_0,
        seed: 1,
    };
    let layer = synthetic.layer(backend)?;
    let mut workspace = Workspace::new(backend, &layer, TOKENS, Options::default())?;
    let x = backend.from_slice(&synthetic.input(TOKENS))?;
    let mut out = backend.alloc::<f32>(TOKENS * WIDTH)?;
    time(backend, &mut |backend| {
        let x = Matrix::dense("x", &x, TOKENS, WIDTH)?;
        let mut out = MatrixMut::dense("out", &mut out, TOKENS, WIDTH)?;
        layer.forward(backend, &mut workspace, x, Routing::Router, &mut out).map(drop)
    })
}

fn main() -> Result<()> {
    sycl_bindgen::restart_with(&strata_sycl::environment()).expect("the program starts again");
    let texts: Vec<String> = std::env::args().skip(1).collect();
    let (cpu, sycl) = (CpuBackend::new(CpuOptions::default())?, SyclBackend::open(0)?);
    let bench = Bench { backends: [&cpu, &sycl], texts: &texts };
    for backend in bench.backends {
        println!("{}: {:?}", backend.id(), backend.device());
    }
    let bytes = |rows: usize| 1e-9 * (2048 * WIDTH * 4 + rows * WIDTH / 128 * 144) as f64;
    for (how, rows) in [(How::Identity, 2048), (How::Gather, 20480), (How::Scatter, 20480)] {
        for layout in Layout::ALL {
            let name = format!("{} {layout}", how.name());
            bench.row(&name, bytes(rows), "GB/s", &|b| quantize(b, layout, how))?;
        }
    }
    bench.row("map", 1e-9 * 81920.0 * 12.0, "GB/s", &map_time)?;
    let ops = |rows: usize, cols: usize| 2e-9 * (TOKENS * K * rows * cols) as f64;
    use WeightType::*;
    let types = [Q8_0, Q4_K, Q2_0, IQ2_XS];
    for ty in types {
        bench.row(&format!("mmq {ty}"), ops(ROWS, WIDTH), "GOPS", &|b| mmq(b, ty))?;
    }
    for ty in types {
        let work = ops(ROWS, WIDTH) + ops(WIDTH, ROWS / 2);
        bench.row(&format!("layer {ty}"), work, "GOPS", &|b| layer(b, ty))?;
    }
    Ok(())
}
