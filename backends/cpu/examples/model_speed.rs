//! Speed of attention, and of products with few rows, on this machine.
//!
//! `cargo run --release -p strata-cpu --example model_speed [attention | type ...]`: one thread, and the time that Linux
//! gave it instead of the clock's, so that others may use the machine meanwhile. Products with few rows read
//! each weight once: beside them stands a sum of the same bytes. `STRATA_CPU_ISA` picks one instruction set.

use std::time::Duration;

use strata_core::attention::{AttentionShape, Reach};
use strata_core::backend::ops::{
    AppendKv, Attend, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows, Rows, Weights,
};
use strata_core::backend::{Backend, BatchLimits, KvCache, TokenBatch};
use strata_core::format::random_blocks;
use strata_core::prefill::normals;
use strata_core::{Result, WeightType, q8_1};
use strata_cpu::{CpuBackend, CpuOptions, Isa};

/// Time on a processor of this thread.
fn now() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split_whitespace().next().and_then(|n| n.parse().ok());
    Duration::from_nanos(first.expect("a Linux that counts time per thread"))
}

/// Mean seconds of a run, after one to warm up.
fn time(mut f: impl FnMut() -> Result<()>) -> Result<f64> {
    f()?;
    let (start, mut runs) = (now(), 0.0);
    while now() - start < Duration::from_millis(150) {
        f()?;
        runs += 1.0;
    }
    Ok((now() - start).as_secs_f64() / runs)
}

fn main() -> Result<()> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let want =
        |name: &str| wanted.is_empty() || wanted.iter().any(|w| w.eq_ignore_ascii_case(name));
    let isas: Vec<Isa> = match std::env::var("STRATA_CPU_ISA") {
        Ok(name) => vec![name.parse()?],
        Err(_) => Isa::supported().collect(),
    };
    for isa in isas {
        let backend: Box<dyn Backend> =
            Box::new(CpuBackend::new(CpuOptions { isa: Some(isa), threads: Some(1) })?);
        println!("{isa}");
        if want("attention") {
            for (size, group) in [(64, 3), (128, 8)] {
                attention(&*backend, size, group)?;
            }
        }
        for &ty in WeightType::ALL {
            if want(ty.name()) {
                few_rows(&*backend, ty)?;
            }
        }
    }
    Ok(())
}

fn attention(backend: &dyn Backend, size: usize, group: usize) -> Result<()> {
    const TOKENS: usize = 2048;
    let shape = AttentionShape {
        heads: group,
        kv_heads: 1,
        key: size,
        value: size,
        scale: 0.1,
        softcap: None,
        reach: Reach::All,
    };
    let pages = TOKENS / 64;
    let limits = BatchLimits { vocabulary: 1, sequences: 1, pages_per_sequence: pages, pages };
    let mut batch = TokenBatch::with_capacity(backend, TOKENS, limits)?;
    batch.set_pages(backend, &Vec::from_iter(0..pages as u32))?;
    let mut cache = KvCache::new(backend, shape.layout(), pages)?;
    let positions = Vec::from_iter(0..TOKENS as u32);
    batch.set(backend, &vec![0; TOKENS], &vec![0; TOKENS], &positions)?;
    let kv = backend.from_slice(&normals(1, TOKENS * size))?;
    let queries = backend.from_slice(&normals(2, TOKENS * group * size))?;
    let mut out = backend.alloc::<f32>(TOKENS * group * size)?;
    let kv = Matrix::dense("kv", &kv, TOKENS, size)?;
    let append = time(|| AppendKv::new(kv, kv, &batch, &mut cache)?.launch(backend))?;
    let mut attend = |batch: &TokenBatch| {
        let n = batch.tokens();
        time(|| {
            let queries = Matrix::dense("q", &queries, n, group * size)?;
            let out = MatrixMut::dense("out", &mut out, n, group * size)?;
            Attend::new(shape, queries, None, batch, &cache, out)?.launch(backend)
        })
    };
    let pairs = (TOKENS * (TOKENS + 1) / 2 * group) as f64;
    let prompt = attend(&batch)?;
    batch.set(backend, &[0], &[0], &[TOKENS as u32 - 1])?;
    let one = attend(&batch)?;
    println!(
        "  attention {group} heads of {size}, {TOKENS} tokens: {:.0} GFLOPS (4 a pair and value), \
         append {:.1} us a token and head; last token {:.0} us, {:.1} GB/s of the cache",
        pairs * 4.0 * size as f64 / prompt * 1e-9,
        append / TOKENS as f64 * 1e6,
        one * 1e6,
        (pages * shape.layout().bytes()) as f64 / one * 1e-9,
    );
    Ok(())
}

/// Seconds of a product of weights with the codes of so many rows.
fn product_time(backend: &dyn Backend, weights: Weights<'_>, tokens: usize) -> Result<f64> {
    let (layout, rows, cols) = (weights.ty().layout(), weights.rows(), weights.cols());
    let x = backend.from_slice(&normals(3, tokens * cols))?;
    let x = Matrix::dense("x", &x, tokens, cols)?;
    let mut q8 = backend.alloc::<u8>(q8_1::bytes(tokens, cols)?)?;
    QuantizeRows::new(x, Q8RowsMut::new(&mut q8, layout, tokens, cols)?)?.launch(backend)?;
    let q8 = Q8Rows::new(&q8, layout, tokens, cols)?;
    let mut out = backend.alloc::<f32>(tokens * rows)?;
    time(|| {
        let out = MatrixMut::dense("out", &mut out, tokens, rows)?;
        Product::new(weights, q8, Rows::Dense, out)?.launch(backend)
    })
}

fn few_rows(backend: &dyn Backend, ty: WeightType) -> Result<()> {
    const COLS: usize = 2048;
    const ROWS: usize = 16384;
    let bytes = random_blocks(ty, 1, ROWS * COLS / ty.block_values());
    let weights = backend.from_slice(&bytes)?;
    let view = Weights::dense("weights", &weights, ty, 1, ROWS, COLS)?;
    let words: &[u64] = bytemuck::cast_slice(&bytes[..bytes.len() / 8 * 8]);
    let read = time(|| {
        std::hint::black_box(words.iter().fold(0u64, |a, b| a.wrapping_add(*b)));
        Ok(())
    })?;
    let speed = |seconds: f64| bytes.len() as f64 / seconds * 1e-9;
    print!("  {:8} GB/s: reading alone {:4.1}", ty.name(), speed(read));
    for tokens in [1, 2, 4, 8] {
        let product = product_time(backend, view, tokens)?;
        print!(", {tokens} rows {:4.1}", speed(product));
    }
    print!("; GOPS");
    const FEWER: usize = 1024;
    let bytes = &bytes[..bytes.len() / ROWS * FEWER];
    let weights = backend.from_slice(bytes)?;
    let view = Weights::dense("weights", &weights, ty, 1, FEWER, COLS)?;
    for tokens in [8, 32, 128, 512] {
        let product = product_time(backend, view, tokens)?;
        print!(", {tokens} {:.0}", (2 * tokens * FEWER * COLS) as f64 / product * 1e-9);
    }
    println!();
    Ok(())
}
