//! Layers of SmolLM2-135M-Instruct as mixtures of experts: real weights.
//!
//! `STRATA_SMOLLM2` names the model; `scripts/fetch-smollm2.sh` fetches it and prints
//! where it is. Without it the tests count as ignored, and say so.

mod dense;

use libtest_mimic::{Arguments, Failed, Trial};
use strata::backend::Backend;
use strata::backend::DeviceRoutes;
use strata::backend::ops::{Matrix, MatrixMut};
use strata::gguf::Gguf;
use strata::prefill::{Chunk, Options, QuantMode, Routing, Workspace, load_dense, normals};
use strata::routing::Routes;
use strata_cpu::{CpuBackend, CpuOptions, Isa};

const VARIABLE: &str = "STRATA_SMOLLM2";
/// More than one chunk of 512.
const TOKENS: usize = 520;

fn main() -> std::process::ExitCode {
    let arguments = Arguments::from_args();
    let model = std::env::var(VARIABLE).ok().filter(|path| !path.is_empty());
    if model.is_none() {
        println!(
            "skipped: {VARIABLE} is not set; `export {VARIABLE}=$(scripts/fetch-smollm2.sh)` fetches the model"
        );
    }
    let mut trials = Vec::new();
    for layer in [0, 29] {
        for experts in [1, 12, 48] {
            let name = format!("layer_{layer}_as_{experts}_is_the_dense_product");
            let path = model.clone();
            let dense = move || near_dense(&open(path.as_deref())?, layer, experts);
            trials.push(Trial::test(name, dense));
            let name = format!("layer_{layer}_as_{experts}_is_the_same_in_every_way");
            let path = model.clone();
            let same = move || same_in_every_way(&open(path.as_deref())?, layer, experts);
            trials.push(Trial::test(name, same));
        }
    }
    let ignored = model.is_none();
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(ignored)).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn open(path: Option<&str>) -> Result<Gguf, Failed> {
    Ok(Gguf::open(path.ok_or_else(|| format!("{VARIABLE} is not set"))?)?)
}

fn cpu(threads: Option<usize>, isa: Option<Isa>) -> Result<Box<dyn Backend>, Failed> {
    Ok(Box::new(CpuBackend::new(CpuOptions { threads, isa })?))
}

/// The layer's output for tokens of seed 1.
fn run(
    gguf: &Gguf,
    layer: usize,
    experts: usize,
    tokens: usize,
    backend: &dyn Backend,
    options: Options,
) -> Result<Vec<f32>, Failed> {
    let layer = load_dense(gguf, layer, experts, backend, &mut |_| ())?;
    let width = layer.width();
    let x = backend.from_slice(&normals(1, tokens * width))?;
    let mut y = backend.alloc::<f32>(tokens * width)?;
    let routes = DeviceRoutes::upload(backend, &Routes::all(tokens, experts)?)?;
    let mut workspace = Workspace::new(backend, &layer, tokens, options)?;
    layer.forward(
        backend,
        &mut workspace,
        Matrix::dense("input", &x, tokens, width)?,
        Routing::Routes(&routes),
        &mut MatrixMut::dense("output", &mut y, tokens, width)?,
    )?;
    Ok(backend.download(&y)?)
}

/// The sum of the experts against the dense network in f64.
fn near_dense(gguf: &Gguf, layer: usize, experts: usize) -> Result<(), Failed> {
    let tokens = 40;
    let given = run(gguf, layer, experts, tokens, &*cpu(None, None)?, Options::default())?;
    let expected = dense::Ffn::new(gguf, layer)?.forward(&normals(1, given.len()));
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let pairs = || given.iter().map(|&v| f64::from(v)).zip(&expected);
    let error = norm(&mut pairs().map(|(g, e)| g - e)) / norm(&mut expected.iter().copied());
    println!("layer {layer} as {experts} experts: relative error {error:.2e}");
    match error <= 1e-2 {
        true => Ok(()),
        false => Err(format!("relative error {error:.3e}, expected at most 1e-2").into()),
    }
}

/// Every mode, chunk, number of threads and instruction set gives the same bytes.
fn same_in_every_way(gguf: &Gguf, layer: usize, experts: usize) -> Result<(), Failed> {
    let mut first: Option<(String, Vec<u32>)> = None;
    for isa in Isa::supported() {
        for threads in [1, 2] {
            let backend = cpu(Some(threads), Some(isa))?;
            for quant in QuantMode::ALL {
                for chunk in [1, 7, 512, TOKENS] {
                    let options =
                        Options { quant, chunk: Chunk::Tokens(chunk), ..Options::default() };
                    let y = run(gguf, layer, experts, TOKENS, &*backend, options)?;
                    let bits: Vec<u32> = y.into_iter().map(f32::to_bits).collect();
                    let way = format!("{isa}, {threads} threads, {quant}, chunks of {chunk}");
                    match &first {
                        None => first = Some((way, bits)),
                        Some((_, same)) if *same == bits => {}
                        Some((other, same)) => {
                            let at = same.iter().zip(&bits).position(|(a, b)| a != b);
                            let text = format!("{way} differs from {other} at value {at:?}");
                            return Err(text.into());
                        }
                    }
                }
            }
        }
    }
    Ok(())
}
