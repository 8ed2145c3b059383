//! On a real GPU: the suite in every tile, and what needs a device to be seen.
//!
//! The binary can be carried to a machine with a GPU and no compiler. Without a
//! driver every test is counted as ignored and says why.
//! `STRATA_CUDA_DEVICE` names another device than the first that is supported.

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use strata_conformance::{Selection, run_against};
use strata_core::backend::ops::{GateUpOrder, Matrix, MatrixMut};
use strata_core::backend::{Backend, Buffer};
use strata_core::prefill::{Chunk, MoeLayer, Options, QuantMode, Routing, Synthetic, Workspace};
use strata_core::{Error, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_cuda::{CudaBackend, CudaOptions, best, devices};

fn main() -> std::process::ExitCode {
    let mut arguments = Arguments::from_args();
    // Tests that take all memory and tests that time share one card.
    arguments.test_threads.get_or_insert(1);
    let device = match std::env::var("STRATA_CUDA_DEVICE") {
        Ok(text) => text.parse().map_err(|_| format!("STRATA_CUDA_DEVICE: {text}")),
        Err(_) => best().map_err(|error| error.to_string()),
    };
    let trial = |name: &'static str, test: fn(u32) -> Result<(), Failed>| {
        let device = device.clone();
        Trial::ignorable_test(name, move || match device {
            Ok(device) => test(device).map(|()| Completion::Completed),
            Err(reason) => Ok(Completion::ignored_with(format!("skipped: {reason}"))),
        })
    };
    let trials = vec![
        trial("quick_suite", quick_suite),
        trial("products_in_every_tile", products_in_every_tile),
        trial("products_in_little_shared_memory", products_in_little_shared_memory),
        trial("too_little_shared_memory_is_an_error", too_little_shared_memory),
        trial("scatter_in_the_order_of_the_output", scatter_in_order),
        trial("layer_is_the_cpu_s_in_any_chunk_and_mode", layer_in_any_chunk_and_mode),
        trial("a_thousand_runs_give_one_answer", a_thousand_runs),
        trial("two_threads_and_streams", two_threads_and_streams),
        with_another("two_devices_at_once", device.clone(), two_devices),
        trial("the_steady_state_allocates_nothing", steady_state),
        trial("out_of_memory_says_the_figures", out_of_memory),
        trial("a_launch_of_nothing_leaves_no_error", launch_of_nothing),
    ];
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test that takes a second device, too.
fn with_another(
    name: &'static str,
    device: Result<u32, String>,
    test: fn(u32, u32) -> Result<(), Failed>,
) -> Trial {
    Trial::ignorable_test(name, move || {
        let both = device.and_then(|first| {
            let all = devices().map_err(|error| error.to_string())?;
            let second = all.iter().map(|info| info.id.index).find(|&index| index != first);
            second.map(|second| (first, second)).ok_or_else(|| "one NVIDIA GPU, needs two".into())
        });
        match both {
            Ok((first, second)) => test(first, second).map(|()| Completion::Completed),
            Err(reason) => Ok(Completion::ignored_with(format!("skipped: {reason}"))),
        }
    })
}

fn gpu(index: u32, options: CudaOptions) -> Result<Box<dyn Backend>, Failed> {
    Ok(Box::new(CudaBackend::new(index, options)?))
}

fn cpu() -> Result<Box<dyn Backend>, Failed> {
    Ok(Box::new(CpuBackend::new(CpuOptions::default())?))
}

fn check(holds: bool, what: impl FnOnce() -> String) -> Result<(), Failed> {
    if holds { Ok(()) } else { Err(what().into()) }
}

/// The selected cases against the CPU, which has its own run against the reference.
fn suite(backend: &dyn Backend, selection: &Selection) -> Result<(), Failed> {
    let summary = run_against(backend, &*cpu()?, selection, &mut ());
    println!("{summary}");
    check(summary.is_clean(), || format!("{} cases differ", summary.differing.len()))
}

fn quick_suite(index: u32) -> Result<(), Failed> {
    suite(&*gpu(index, CudaOptions::default())?, &Selection::quick())
}

fn products_in_every_tile(index: u32) -> Result<(), Failed> {
    for tile in [128, 96, 64, 32, 16] {
        println!("tile of {tile} tokens");
        let options = CudaOptions { tile: Some(tile), ..CudaOptions::default() };
        suite(&*gpu(index, options)?, &Selection::quick().matching("mmq"))?;
    }
    Ok(())
}

fn products_in_little_shared_memory(index: u32) -> Result<(), Failed> {
    for kib in [28, 48, 64] {
        println!("{kib} KiB of shared memory");
        let options = CudaOptions { shared_bytes: Some(kib << 10), ..CudaOptions::default() };
        suite(&*gpu(index, options)?, &Selection::quick().matching("mmq"))?;
    }
    Ok(())
}

/// The scatter for many rows, for few as well: one chunk, and chunks of some tokens.
fn scatter_in_order(index: u32) -> Result<(), Failed> {
    for (kib, cases) in [(None, "scatter"), (Some(12), "quantize/")] {
        let options = CudaOptions {
            shared_bytes: kib.map(|kib| kib << 10),
            scatter_in_order_from: Some(0),
            ..CudaOptions::default()
        };
        suite(&*gpu(index, options)?, &Selection::quick().matching(cases))?;
    }
    Ok(())
}

fn too_little_shared_memory(index: u32) -> Result<(), Failed> {
    let options = CudaOptions { shared_bytes: Some(1024), ..CudaOptions::default() };
    let summary = run_against(
        &*gpu(index, options)?,
        &*cpu()?,
        &Selection::quick().matching("mmq/q8_0/dense"),
        &mut (),
    );
    let told = summary.differing.iter().all(|d| d.to_string().contains("shared memory of a block"));
    check(told && !summary.differing.is_empty(), || summary.to_string())
}

/// A layer small enough for a CPU, of many experts.
fn synthetic() -> Synthetic {
    Synthetic {
        experts: 64,
        k: 6,
        width: 768,
        ffn: 384,
        gate_up: WeightType::Q4_K,
        order: GateUpOrder::Split,
        down: WeightType::Q8_0,
        seed: 11,
    }
}

/// The layer's output, as bits.
fn run(
    backend: &dyn Backend,
    layer: &MoeLayer,
    workspace: &mut Workspace,
    x: &Buffer<f32>,
    y: &mut Buffer<f32>,
) -> Result<Vec<u32>, Error> {
    let width = layer.width();
    let tokens = x.len() / width;
    let out = &mut MatrixMut::dense("output", &mut *y, tokens, width)?;
    layer.forward(
        backend,
        workspace,
        Matrix::dense("input", x, tokens, width)?,
        Routing::Router,
        out,
    )?;
    Ok(backend.download::<f32>(&*y)?.into_iter().map(f32::to_bits).collect())
}

fn once(backend: &dyn Backend, tokens: usize, options: Options) -> Result<Vec<u32>, Error> {
    let synthetic = synthetic();
    let layer = synthetic.layer(backend)?;
    let x = backend.from_slice(&synthetic.input(tokens))?;
    let mut y = backend.alloc(tokens * synthetic.width)?;
    let mut workspace = Workspace::new(backend, &layer, tokens, options)?;
    run(backend, &layer, &mut workspace, &x, &mut y)
}

fn layer_in_any_chunk_and_mode(index: u32) -> Result<(), Failed> {
    let (gpu, cpu) = (gpu(index, CudaOptions::default())?, cpu()?);
    for tokens in [1, 7, 600, 2048] {
        let expected = once(&*cpu, tokens, Options::default())?;
        for quant in QuantMode::ALL {
            for fused in [false, true] {
                for chunk in [1, 7, 512, 4096].into_iter().filter(|&c| c > 7 || tokens <= 600) {
                    let options =
                        Options { quant, fused, chunk: Chunk::Tokens(chunk), ..Options::default() };
                    check(once(&*gpu, tokens, options)? == expected, || {
                        format!("T={tokens} {quant} fused={fused} chunk={chunk} differs")
                    })?;
                }
            }
        }
    }
    Ok(())
}

fn a_thousand_runs(index: u32) -> Result<(), Failed> {
    let gpu = gpu(index, CudaOptions::default())?;
    let (synthetic, tokens) = (synthetic(), 300);
    let layer = synthetic.layer(&*gpu)?;
    let x = gpu.from_slice(&synthetic.input(tokens))?;
    let mut y = gpu.alloc(tokens * synthetic.width)?;
    let mut workspace = Workspace::new(&*gpu, &layer, tokens, Options::default())?;
    let first = run(&*gpu, &layer, &mut workspace, &x, &mut y)?;
    for round in 1..1000 {
        let again = run(&*gpu, &layer, &mut workspace, &x, &mut y)?;
        check(again == first, || format!("run {round} differs from the first"))?;
    }
    Ok(())
}

fn two_threads_and_streams(index: u32) -> Result<(), Failed> {
    let main = gpu(index, CudaOptions::default())?;
    let expected = once(&*main, 200, Options::default())?;
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let gpu = main.fork();
                let expected = &expected;
                scope.spawn(move || {
                    let gpu = gpu.map_err(|e| e.to_string())?;
                    for round in 0..20 {
                        let mine =
                            once(&*gpu, 200, Options::default()).map_err(|e| e.to_string())?;
                        if mine != *expected {
                            return Err(format!("thread {thread}, round {round} differs"));
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let ended = threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err("panic".into())));
        ended.filter_map(Result::err).collect()
    });
    check(failures.is_empty(), || failures.join("; "))
}

/// Two devices work for two threads, and neither takes what is the other's.
fn two_devices(first: u32, second: u32) -> Result<(), Failed> {
    let expected = once(&*cpu()?, 200, Options::default())?;
    let failures: Vec<String> = std::thread::scope(|scope| {
        let threads = [first, second].map(|index| {
            let expected = &expected;
            scope.spawn(move || {
                let gpu = CudaBackend::new(index, CudaOptions::default())?;
                for round in 0..50 {
                    if once(&gpu, 200, Options::default())? != *expected {
                        return Ok(Some(format!("cuda:{index}, round {round} differs")));
                    }
                }
                Ok::<_, Error>(None)
            })
        });
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(Ok(failure)) => failure,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("panic".to_owned()),
        });
        ended.flatten().collect()
    });
    check(failures.is_empty(), || failures.join("; "))?;
    let (one, other) = (gpu(first, CudaOptions::default())?, gpu(second, CudaOptions::default())?);
    let there = other.from_slice(&[1u8; 64])?;
    match one.download(&there) {
        Err(error @ Error::WrongDevice { .. }) => println!("{error}"),
        given => return Err(format!("memory of the other device: {given:?}").into()),
    }
    check(other.download(&there)? == [1; 64], || "the other device's memory changed".into())
}

fn steady_state(index: u32) -> Result<(), Failed> {
    let gpu = gpu(index, CudaOptions::default())?;
    let (synthetic, tokens) = (synthetic(), 500);
    let layer = synthetic.layer(&*gpu)?;
    let x = gpu.from_slice(&synthetic.input(tokens))?;
    let mut y = gpu.alloc(tokens * synthetic.width)?;
    let mut workspace = Workspace::new(&*gpu, &layer, tokens, Options::default())?;
    run(&*gpu, &layer, &mut workspace, &x, &mut y)?;
    let before = gpu.memory()?;
    for _ in 0..20 {
        run(&*gpu, &layer, &mut workspace, &x, &mut y)?;
    }
    let after = gpu.memory()?;
    check(before == after, || format!("{before:?} before, {after:?} after"))
}

fn out_of_memory(index: u32) -> Result<(), Failed> {
    let gpu = gpu(index, CudaOptions::default())?;
    let before = gpu.memory()?;
    // More than there is, then all of it in pieces, until one does not fit.
    let far = usize::try_from(before.total)? + (1 << 30);
    match gpu.alloc::<u8>(far) {
        Err(Error::OutOfMemory { asked, free, total, .. }) => {
            println!("asked for {asked}: {free} of {total} free");
            check(asked == far as u64 && total == before.total && free <= total, || {
                format!("asked {asked}, free {free}, total {total}")
            })?;
        }
        other => return Err(format!("{other:?}").into()),
    }
    let mut pieces: Vec<Buffer<u8>> = Vec::new();
    let error = loop {
        match gpu.alloc::<u8>(4 << 30) {
            Ok(piece) => pieces.push(piece),
            Err(error) => break error,
        }
    };
    check(matches!(error, Error::OutOfMemory { asked, .. } if asked == 4 << 30), || {
        error.to_string()
    })?;
    let taken = pieces.len();
    pieces.clear();
    let after = gpu.memory()?;
    println!("{taken} pieces of 4 GiB; {} free before, {} after", before.free, after.free);
    // Another program may share the card; what this one took is back.
    check(after.free + (1 << 30) >= before.free, || format!("{before:?} before, {after:?} after"))?;
    once(&*gpu, 10, Options::default())?;
    Ok(())
}

fn launch_of_nothing(index: u32) -> Result<(), Failed> {
    let gpu = gpu(index, CudaOptions::default())?;
    let expected = once(&*cpu()?, 3, Options::default())?;
    for _ in 0..3 {
        check(once(&*gpu, 0, Options::default())?.is_empty(), || "values of no token".into())?;
        gpu.synchronize()?;
        check(once(&*gpu, 3, Options::default())? == expected, || "3 tokens differ".into())?;
    }
    Ok(())
}
