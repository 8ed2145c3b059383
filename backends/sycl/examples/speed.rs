//! The SYCL backend beside the CPU backend on the same cores, in one run.
//!
//! `cargo run --release -p strata-sycl --example speed [TYPE ...]`: quantization,
//! the map, products of 32 experts (top-4, 1280 x 2560, 512 tokens), and a
//! layer of them. Each row gives wall time (the best of its runs) and the
//! processor time of all threads per run, which other programs on the machine
//! disturb less, and how many times as fast as the CPU backend SYCL is by each.

use std::time::Instant;

use strata_core::backend::ops::{
    GateUpOrder, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows,
    QuantizeScatter, Rows, Weights,
};
use strata_core::backend::{Backend, DeviceRoutes, RoutingMap};
use strata_core::format::random_blocks;
use strata_core::prefill::{Options, Routing, Synthetic, Workspace, normals};
use strata_core::routing::{RouterNorm, Routes};
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

/// Best wall seconds, and processor seconds per run.
fn time(
    backend: &dyn Backend,
    run: &mut dyn FnMut(&dyn Backend) -> Result<()>,
) -> Result<(f64, f64)> {
    run(backend)?;
    backend.synchronize()?;
    let (start, before) = (Instant::now(), processor());
    let (mut best, mut runs) = (f64::INFINITY, 0);
    while processor() - before < 1.0 && start.elapsed().as_secs_f64() < 10.0 {
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

/// Prints a row; `work` per run, in billions of `unit`.
fn row(name: &str, work: f64, unit: &str, results: [(f64, f64); 2]) {
    let [cpu, sycl] = results;
    println!(
        "{name:24} cpu {:8.2} ms {:7.1} {unit}   sycl {:8.2} ms {:7.1} {unit}   wall x{:.2}  processor x{:.2}",
        cpu.0 * 1e3,
        work / cpu.0,
        sycl.0 * 1e3,
        work / sycl.0,
        cpu.0 / sycl.0,
        cpu.1 / sycl.1,
    );
}

fn routes(tokens: usize, experts: usize, k: usize) -> Result<Routes> {
    let scores = normals(7, tokens * experts);
    Routes::top_k(&scores, experts, k, RouterNorm::Chosen, 1.0)
}

fn map(backend: &dyn Backend, routes: &Routes) -> Result<(DeviceRoutes, RoutingMap)> {
    let device = DeviceRoutes::upload(backend, routes)?;
    let mut map =
        RoutingMap::with_capacity(backend, routes.tokens(), routes.k(), routes.experts())?;
    MapRoutes::new(device.view(), &mut map)?.launch(backend)?;
    Ok((device, map))
}

fn quantize(backend: &dyn Backend, layout: Layout, scatter: bool) -> Result<(f64, f64)> {
    let (tokens, k) = (2048, 10);
    let routes = routes(tokens, 512, k)?;
    let (_, map) = map(backend, &routes)?;
    let x = backend.from_slice(&normals(3, tokens * WIDTH))?;
    let rows = if scatter { tokens * k } else { tokens };
    let mut out = backend.alloc::<u8>(q8_1::bytes(rows, WIDTH)?)?;
    time(backend, &mut |backend| {
        let x = Matrix::dense("x", &x, tokens, WIDTH)?;
        let out = Q8RowsMut::new(&mut out, layout, rows, WIDTH)?;
        match scatter {
            true => QuantizeScatter::new(x, &map, out)?.launch(backend),
            false => QuantizeRows::new(x, out)?.launch(backend),
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
    let names: Vec<String> = std::env::args().skip(1).collect();
    let mut types: Vec<WeightType> = names.iter().map(|n| n.parse()).collect::<Result<_>>()?;
    if types.is_empty() {
        use WeightType::*;
        types = vec![Q8_0, Q4_K, Q2_0, IQ2_XS];
    }
    let (cpu, sycl) = (CpuBackend::new(CpuOptions::default())?, SyclBackend::open(0)?);
    let both: [&dyn Backend; 2] = [&cpu, &sycl];
    for backend in both {
        println!("{}: {:?}", backend.id(), backend.device());
    }
    let each = |f: Measure<'_>| -> Result<[(f64, f64); 2]> { Ok([f(both[0])?, f(both[1])?]) };
    if names.is_empty() {
        let bytes = |rows: usize| 1e-9 * (2048 * WIDTH * 4 + rows * WIDTH / 128 * 144) as f64;
        for layout in Layout::ALL {
            let name = format!("quantize {layout}");
            row(&name, bytes(2048), "GB/s", each(&|b| quantize(b, layout, false))?);
            let name = format!("scatter {layout}");
            row(&name, bytes(20480), "GB/s", each(&|b| quantize(b, layout, true))?);
        }
        row("map", 1e-9 * 81920.0 * 12.0, "GB/s", each(&map_time)?);
    }
    let ops = |rows: usize, cols: usize| 2e-9 * (TOKENS * K * rows * cols) as f64;
    for &ty in &types {
        let name = format!("mmq {ty}");
        row(&name, ops(ROWS, WIDTH), "GOPS", each(&|b| mmq(b, ty))?);
    }
    for &ty in &types {
        let name = format!("layer {ty}");
        let work = ops(ROWS, WIDTH) + ops(WIDTH, ROWS / 2);
        row(&name, work, "GOPS", each(&|b| layer(b, ty))?);
    }
    Ok(())
}
