//! A program that has its own memory and stream by `cudarc` runs a layer on them.
//!
//! `cargo run --release -p strata-cuda --example engine` needs an NVIDIA GPU. It prints the
//! output's SHA-256, which is that of the CPU, and what was allocated, copied and waited for on the way: nothing.
//! The binary needs nothing but the driver and can be carried to a machine that has one.

use std::sync::Arc;

use bytemuck::Pod;
use cudarc::driver::{CudaContext, CudaSlice, CudaStream, DevicePtr, DriverError};
use sha2::{Digest, Sha256};
use strata_core::backend::ops::{GateUpOrder, Matrix, MatrixMut};
use strata_core::backend::{Backend, Buffer};
use strata_core::prefill::{Options, Routing, Synthetic, SyntheticWeights, Workspace};
use strata_core::{Result, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_cuda::{CudaBackend, CudaOptions};

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

/// What ends the program.
#[derive(Debug)]
#[expect(dead_code, reason = "it is printed")]
struct Failure(String);

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Self {
        Self(format!("{error:?}"))
    }
}

impl From<strata_core::Error> for Failure {
    fn from(error: strata_core::Error) -> Self {
        Self(error.to_string())
    }
}

/// The program's slice as a buffer, which keeps it.
fn adopt<T: Pod>(
    gpu: &CudaBackend,
    stream: &CudaStream,
    slice: &Arc<CudaSlice<T>>,
) -> Result<Buffer<T>> {
    let (pointer, _) = slice.device_ptr(stream);
    // SAFETY: so many values lie there, in memory of the primary context, and are used in this
    // stream alone until the buffer is dropped.
    unsafe { gpu.adopt(pointer, slice.len(), Arc::clone(slice)) }
}

fn main() -> std::result::Result<(), Failure> {
    // What the program has: a stream, and in device memory weights, tokens and room for the output.
    let synthetic = synthetic();
    let width = synthetic.width;
    // First, so that a driver that is not there is an error and no panic of the binding.
    let _ = strata_cuda::devices()?;
    let stream = CudaContext::new(0)?.new_stream()?;
    let host = synthetic.weights()?;
    let gate_up = Arc::new(stream.clone_htod(&host.gate_up)?);
    let down = Arc::new(stream.clone_htod(&host.down)?);
    let router = Arc::new(stream.clone_htod(&host.router)?);
    let x = Arc::new(stream.clone_htod(&synthetic.input(TOKENS))?);
    let y = Arc::new(stream.alloc_zeros::<f32>(TOKENS * width)?);

    let raw = stream.cu_stream().cast();
    // SAFETY: the program's stream, of the device's primary context, kept by its clone.
    let gpu = unsafe { CudaBackend::on_stream(0, CudaOptions::default(), raw, stream.clone())? };
    let backend: &dyn Backend = &gpu;
    let layer = synthetic.on_device(SyntheticWeights {
        gate_up: adopt(&gpu, &stream, &gate_up)?,
        down: adopt(&gpu, &stream, &down)?,
        router: adopt(&gpu, &stream, &router)?,
    })?;
    let (input, mut output) = (adopt(&gpu, &stream, &x)?, adopt(&gpu, &stream, &y)?);
    let mut workspace = Workspace::new(backend, &layer, TOKENS, options())?;
    let mut run = || -> Result<()> {
        let input = Matrix::dense("input", &input, TOKENS, width)?;
        let mut out = MatrixMut::dense("output", &mut output, TOKENS, width)?;
        layer.forward(backend, &mut workspace, input, Routing::Router, &mut out)?;
        Ok(())
    };
    // The first run loads kernels, and takes what launches work in.
    run()?;
    let before = gpu.counts();
    run()?;
    run()?;
    let after = gpu.counts();
    drop((layer, input, output));
    // The program goes on in its own stream, behind the layer.
    let y = stream.clone_dtoh(&*y)?;
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
