//! A program that has a queue and unified shared memory runs a layer on them.
//!
//! `cargo run --release -p strata-sycl --example engine` needs a SYCL runtime and a device. It
//! prints the output's SHA-256, which is that of the CPU, and what was allocated, copied and waited
//! for on the way: nothing.

use std::error::Error;
use std::sync::Arc;

use bytemuck::Pod;
use sha2::{Digest, Sha256};
use strata_core::backend::ops::{GateUpOrder, Matrix, MatrixMut};
use strata_core::backend::{Backend, Buffer};
use strata_core::prefill::{Options, Routing, Synthetic, SyntheticWeights, Workspace};
use strata_core::{Result, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_sycl::{SyclBackend, environment};
use sycl_bindgen::{Options as RuntimeOptions, Queue, Runtime, UsmBuffer, restart_with};

const TOKENS: usize = 600;

/// Without a check of the values, whose result the host waits for and copies.
fn options() -> Options {
    Options { checked: false, ..Options::default() }
}

fn synthetic() -> Synthetic {
    Synthetic {
        experts: 32,
        k: 4,
        width: 1024,
        ffn: 512,
        gate_up: WeightType::Q4_K,
        order: GateUpOrder::Split,
        down: WeightType::Q8_0,
        seed: 7,
    }
}

/// Values in the program's memory.
fn upload<T: Pod>(
    queue: &Queue,
    values: &[T],
) -> std::result::Result<Arc<UsmBuffer>, sycl_bindgen::Error> {
    let bytes = bytemuck::cast_slice(values);
    let mut memory = queue.alloc(bytes.len() as u64)?;
    memory.upload(0, bytes)?;
    Ok(Arc::new(memory))
}

/// The program's memory as a buffer, which keeps it.
fn adopt<T: Pod>(sycl: &SyclBackend, memory: &Arc<UsmBuffer>) -> Result<Buffer<T>> {
    let (pointer, len) = (memory.as_ptr().cast(), memory.len() as usize / size_of::<T>());
    // SAFETY: so many values lie there, and are used in this queue alone until the buffer is
    // dropped.
    unsafe { sycl.adopt(pointer, len, Arc::clone(memory)) }
}

fn main() -> std::result::Result<(), Box<dyn Error>> {
    restart_with(&environment())?;
    // What the program has: a queue, and in device memory weights, tokens and room for the output.
    let synthetic = synthetic();
    let width = synthetic.width;
    let runtime = Runtime::load(RuntimeOptions::default())?;
    let devices = runtime.devices()?;
    let device = devices.iter().find(|device| device.aspects.source);
    let device = device.ok_or("no SYCL device takes kernels from source")?;
    let queue = Queue::open(runtime, device.index)?;
    let host = synthetic.weights()?;
    let (gate_up, down) = (upload(&queue, &host.gate_up)?, upload(&queue, &host.down)?);
    let router = upload(&queue, &host.router)?;
    let x = upload(&queue, &synthetic.input(TOKENS))?;
    let y = upload(&queue, &vec![f32::NAN; TOKENS * width])?;

    // SAFETY: the program's queue, of the runtime that is loaded, kept by its clone.
    let sycl = unsafe { SyclBackend::on_stream(queue.native()?, queue.clone())? };
    let backend: &dyn Backend = &sycl;
    let layer = synthetic.on_device(SyntheticWeights {
        gate_up: adopt(&sycl, &gate_up)?,
        down: adopt(&sycl, &down)?,
        router: adopt(&sycl, &router)?,
    })?;
    let (input, mut output) = (adopt(&sycl, &x)?, adopt(&sycl, &y)?);
    let mut workspace = Workspace::new(backend, &layer, TOKENS, options())?;
    let mut run = || -> Result<()> {
        let input = Matrix::dense("input", &input, TOKENS, width)?;
        let mut out = MatrixMut::dense("output", &mut output, TOKENS, width)?;
        layer.forward(backend, &mut workspace, input, Routing::Router, &mut out)?;
        Ok(())
    };
    // The first run loads kernels, and takes what launches work in.
    run()?;
    let before = sycl.counts();
    run()?;
    run()?;
    let after = sycl.counts();
    drop((layer, input, output));
    // The program goes on in its own queue, behind the layer.
    let memory = y;
    let mut y = vec![0f32; TOKENS * width];
    memory.download(0, bytemuck::cast_slice_mut(&mut y))?;
    println!("{}: SHA-256 of the output {}", backend.device().name, checksum(&y));
    let cpu = on_the_cpu(&synthetic)?;
    println!("on the CPU: SHA-256 of the output {}", checksum(&cpu));
    let allocations = after.allocations - before.allocations;
    let copies = after.copies - before.copies;
    let waits = after.waits - before.waits;
    println!(
        "in two runs of the layer: {allocations} allocations, {copies} copies, {waits} waits for the device"
    );
    assert_eq!(checksum(&y), checksum(&cpu));
    assert_eq!((allocations, copies, waits), (0, 0, 0));
    Ok(())
}

/// The same layer on the CPU.
fn on_the_cpu(synthetic: &Synthetic) -> Result<Vec<f32>> {
    let cpu = CpuBackend::new(CpuOptions::default())?;
    let backend: &dyn Backend = &cpu;
    let layer = synthetic.layer(backend)?;
    let mut workspace = Workspace::new(backend, &layer, TOKENS, options())?;
    let x = backend.from_slice(&synthetic.input(TOKENS))?;
    let mut y = backend.alloc(x.len())?;
    let input = Matrix::dense("input", &x, TOKENS, synthetic.width)?;
    let mut out = MatrixMut::dense("output", &mut y, TOKENS, synthetic.width)?;
    layer.forward(backend, &mut workspace, input, Routing::Router, &mut out)?;
    backend.download(&y)
}

fn checksum(values: &[f32]) -> String {
    let digest = Sha256::digest(bytemuck::cast_slice(values));
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
