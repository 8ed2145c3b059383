//! Layers of SmolLM2-135M-Instruct as mixtures of experts: real weights.
//!
//! `STRATA_SMOLLM2` names the model; `scripts/fetch-smollm2.sh` fetches it and prints
//! where it is. Without it the tests count as ignored, and say so.

mod dense;
mod file;

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
    let path = model.clone();
    let read = move || file::is_read_whole(&open(path.as_deref())?);
    let mut trials = vec![Trial::test("the_file_is_read_whole", read)];
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
    let ffn = dense::Ffn::new(gguf, layer)?;
    let x = normals(1, given.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|v| v * v).sum::<f64>().sqrt();
    let mut fails = String::new();
    for (activations, what, most) in [
        // The product as it is defined: what is left are roundings to f32, and the few codes of
        // hidden values that they tip over.
        (dense::Activations::Quantized, "q8_1 activations", 1e-2),
        // Eight bits for x and for the hidden values. The sums that q8_1 stores are of the exact
        // values, so the errors of the codes meet the unsigned codes of Q4_1 and not the weights,
        // which are a third of that: 2 to 3 percent, on any engine that multiplies so.
        (dense::Activations::Exact, "exact activations", 4e-2),
    ] {
        let expected = ffn.forward(&x, activations);
        let pairs = || given.iter().map(|&v| f64::from(v)).zip(&expected);
        let error = norm(&mut pairs().map(|(g, e)| g - e)) / norm(&mut expected.iter().copied());
        let line = format!("layer {layer} as {experts}, {what}: relative error {error:.1e}");
        println!("{line}");
        if error > most {
            fails.push_str(&format!("{line}, expected at most {most}\n"));
        }
    }
    if fails.is_empty() { Ok(()) } else { Err(fails.into()) }
}

/// Every mode, chunk, number of threads and instruction set gives the same bytes.
fn same_in_every_way(gguf: &Gguf, layer: usize, experts: usize) -> Result<(), Failed> {
    let backend = cpu(None, None)?;
    let expected = run(gguf, layer, experts, TOKENS, &*backend, Options::default())?;
    for isa in Isa::supported() {
        for threads in [1, 2] {
            let backend = cpu(Some(threads), Some(isa))?;
            for quant in QuantMode::ALL {
                // A token's result does not depend on the others: small chunks need no long prompt.
                for (chunk, tokens) in [(1, 9), (7, 50), (512, TOKENS), (TOKENS, TOKENS)] {
                    let options =
                        Options { quant, chunk: Chunk::Tokens(chunk), ..Options::default() };
                    let y = run(gguf, layer, experts, tokens, &*backend, options)?;
                    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits();
                    if let Some(at) = y.iter().zip(&expected).position(differs) {
                        let way = format!("{isa}, {threads} threads, {quant}, chunks of {chunk}");
                        return Err(format!("{way}: value {at} differs").into());
                    }
                }
            }
        }
    }
    Ok(())
}
