//! Speed of every step on this machine, per type and instruction set.
//!
//! `cargo run --release --example mmq_speed [type or step ...]`: products of 32
//! experts, top-4, 1280 x 2560, 512 tokens, and the quantizers and the map
//! beside a memcpy of the bytes they must move. The median of several runs,
//! and the best. `STRATA_CPU_ISA` picks one instruction set.
//!
//! With `on-cpu` among the arguments: one thread, and the time that Linux gave
//! it instead of the clock's, for machines that others use meanwhile.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use strata_core::backend::ops::{
    MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows, QuantizeScatter, Rows,
    Weights,
};
use strata_core::backend::{Backend, DeviceRoutes, RoutingMap};
use strata_core::format::random::SplitMix64;
use strata_core::format::random_blocks;
use strata_core::prefill::normals;
use strata_core::routing::Routes;
use strata_core::{Layout, Result, WeightType, q8_1};
use strata_cpu::{CpuBackend, CpuOptions, Isa};

const RUNS: usize = 9;

/// Whether to count time on the processor.
static ON_CPU: AtomicBool = AtomicBool::new(false);

/// Seconds since some moment, or seconds this thread has run.
fn now() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    if ON_CPU.load(Ordering::Relaxed) {
        // The first figure is nanoseconds on a processor.
        let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
        let first = text.split_whitespace().next().and_then(|n| n.parse::<f64>().ok());
        return first.expect("a Linux that counts time per thread") * 1e-9;
    }
    START.get_or_init(Instant::now).elapsed().as_secs_f64()
}

/// Median and best seconds of `RUNS` runs, after one to warm up.
fn time(mut f: impl FnMut() -> Result<()>) -> Result<(f64, f64)> {
    f()?;
    if ON_CPU.load(Ordering::Relaxed) {
        // The kernel counts in ticks of some milliseconds.
        let (start, mut runs) = (now(), 0.0);
        while now() - start < 0.25 {
            f()?;
            runs += 1.0;
        }
        let mean = (now() - start) / runs;
        return Ok((mean, mean));
    }
    let mut times = Vec::new();
    for _ in 0..RUNS {
        let start = now();
        f()?;
        times.push(now() - start);
    }
    times.sort_by(f64::total_cmp);
    Ok((times[RUNS / 2], times[0]))
}

fn main() -> Result<()> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let all = wanted.len();
    wanted.retain(|w| w != "on-cpu");
    let on_cpu = wanted.len() < all;
    ON_CPU.store(on_cpu, Ordering::Relaxed);
    let want =
        |name: &str| wanted.is_empty() || wanted.iter().any(|w| w.eq_ignore_ascii_case(name));
    let isas: Vec<Isa> = match std::env::var("STRATA_CPU_ISA") {
        Ok(name) => vec![name.parse()?],
        Err(_) => Isa::supported().filter(|isa| *isa != Isa::Plain).collect(),
    };
    for isa in isas {
        let cpu = CpuBackend::new(CpuOptions { isa: Some(isa), threads: on_cpu.then_some(1) })?;
        let backend: &dyn Backend = &cpu;
        println!("{isa}, {} threads", cpu.threads());
        for &ty in WeightType::ALL {
            if want(ty.name()) || wanted.iter().any(|w| w == "mmq") {
                mmq(backend, ty)?;
            }
        }
        if want("quantize") {
            quantize(backend)?;
        }
        if want("map") {
            map(backend)?;
        }
    }
    Ok(())
}

fn routes(tokens: usize, k: usize, experts: usize) -> Result<Routes> {
    let mut random = SplitMix64::new(1);
    let ids = (0..tokens * k).map(|_| (random.next_u64() % experts as u64) as i32).collect();
    Routes::new(ids, vec![1.0; tokens * k], k, experts)
}

fn mapped(backend: &dyn Backend, tokens: usize, k: usize, experts: usize) -> Result<RoutingMap> {
    let routes = DeviceRoutes::upload(backend, &routes(tokens, k, experts)?)?;
    let mut map = RoutingMap::with_capacity(backend, tokens, k, experts)?;
    MapRoutes::new(routes.view(), &mut map)?.launch(backend)?;
    Ok(map)
}

fn mmq(backend: &dyn Backend, ty: WeightType) -> Result<()> {
    let (experts, k, rows, cols, tokens) = (32, 4, 1280, 2560, 512);
    let map = mapped(backend, tokens, k, experts)?;
    let routed = tokens * k;
    let bytes = random_blocks(ty, 2, experts * rows * cols / ty.block_values());
    let weights = backend.import(bytes.into())?;
    let weights = Weights::dense("weights", &weights, ty, experts, rows, cols)?;
    let x = backend.from_slice(&normals(3, tokens * cols))?;
    let mut codes = backend.alloc::<u8>(q8_1::bytes(routed, cols)?)?;
    let x = Matrix::dense("x", &x, tokens, cols)?;
    QuantizeScatter::new(x, &map, Q8RowsMut::new(&mut codes, ty.layout(), routed, cols)?)?
        .launch(backend)?;
    let codes = Q8Rows::new(&codes, ty.layout(), routed, cols)?;
    let mut dst = backend.alloc::<f32>(routed * rows)?;
    let (median, best) = time(|| {
        let dst = MatrixMut::dense("dst", &mut dst, routed, rows)?;
        Product::new(weights, codes, Rows::Experts(&map), dst)?.launch(backend)
    })?;
    let gops = |t: f64| 2.0 * (routed * rows * cols) as f64 / t / 1e9;
    println!("  {:8} {:6.1} GOPS, best {:6.1}", ty.name(), gops(median), gops(best));
    Ok(())
}

/// Seconds of copying `bytes` bytes on the backend's threads.
fn memcpy(bytes: usize) -> Result<f64> {
    let (from, mut to) = (vec![1u8; bytes], vec![0u8; bytes]);
    let half = bytes / 2;
    let (median, _) = time(|| {
        let (a, b) = to.split_at_mut(half);
        let mut first = || a.copy_from_slice(&from[..half]);
        let mut second = || b.copy_from_slice(&from[half..]);
        if ON_CPU.load(Ordering::Relaxed) {
            first();
            second();
        } else {
            rayon::join(first, second);
        }
        Ok(())
    })?;
    Ok(median)
}

fn quantize(backend: &dyn Backend) -> Result<()> {
    let (cols, experts, k) = (2560, 512, 10);
    for tokens in [512, 4096] {
        let map = mapped(backend, tokens, k, experts)?;
        let x = backend.from_slice(&normals(3, tokens * cols))?;
        let x = Matrix::dense("x", &x, tokens, cols)?;
        let mut out = backend.alloc::<u8>(q8_1::bytes(tokens * k, cols)?)?;
        for layout in Layout::ALL {
            let once = q8_1::bytes(tokens, cols)?;
            let read = 4 * tokens * cols;
            // A copy of n bytes moves 2 n.
            let floor = |written: usize| memcpy((read + written) / 2);
            let (t, _) = time(|| {
                let out = Q8RowsMut::new(&mut out, layout, tokens, cols)?;
                QuantizeRows::new(x, out)?.launch(backend)
            })?;
            println!(
                "  indexed {layout:5} T={tokens}: {:.3} ms, {:.2} of memcpy",
                t * 1e3,
                t / floor(once)?
            );
            let (t, _) = time(|| {
                let out = Q8RowsMut::new(&mut out, layout, tokens * k, cols)?;
                QuantizeScatter::new(x, &map, out)?.launch(backend)
            })?;
            println!(
                "  scatter {layout:5} T={tokens}: {:.3} ms, {:.2} of memcpy",
                t * 1e3,
                t / floor(once * k)?
            );
            let (t, _) = time(|| {
                let out = Q8RowsMut::new(&mut out, layout, tokens * k, cols)?;
                QuantizeRows::gather(x, &map, out)?.launch(backend)
            })?;
            println!(
                "  gather  {layout:5} T={tokens}: {:.3} ms, {:.2} of memcpy",
                t * 1e3,
                t / floor(once * k)?
            );
        }
    }
    Ok(())
}

fn map(backend: &dyn Backend) -> Result<()> {
    for (tokens, k, experts) in [(512, 10, 512), (8192, 10, 512), (32768, 10, 512), (32768, 8, 128)]
    {
        let routes = DeviceRoutes::upload(backend, &routes(tokens, k, experts)?)?;
        let mut map = RoutingMap::with_capacity(backend, tokens, k, experts)?;
        let (t, _) = time(|| MapRoutes::new(routes.view(), &mut map)?.launch(backend))?;
        let copy = memcpy(4 * 3 * tokens * k / 2)?;
        println!(
            "  map T={tokens} k={k} E={experts}: {:.3} ms, {:.2} of memcpy ({:.3} ms)",
            t * 1e3,
            t / copy,
            copy * 1e3
        );
    }
    Ok(())
}
