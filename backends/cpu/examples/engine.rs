//! A program runs a layer on its own `Vec`s: weights, tokens and output stay where they are.
//!
//! `cargo run --release -p strata-cpu --example engine` prints the output's SHA-256, which is
//! that of a layer in the backend's own memory, and what was allocated and copied on the way: nothing.

use sha2::{Digest, Sha256};
use strata_core::backend::Backend;
use strata_core::backend::ops::{GateUpOrder, Matrix, MatrixMut};
use strata_core::prefill::{Options, Routing, Synthetic, SyntheticWeights, Workspace};
use strata_core::{Result, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};

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

fn main() -> Result<()> {
    let synthetic = synthetic();
    let width = synthetic.width;
    // What the program has.
    let SyntheticWeights { mut gate_up, mut down, mut router } = synthetic.weights()?;
    let mut x = synthetic.input(TOKENS);
    let mut y = vec![f32::NAN; TOKENS * width];

    let cpu = CpuBackend::new(CpuOptions::default())?;
    let backend: &dyn Backend = &cpu;
    // SAFETY: the vectors are as long as is said and live until the end of this function; they
    // are not touched while the buffers are.
    let (weights, input, mut output) = unsafe {
        let weights = SyntheticWeights {
            gate_up: cpu.adopt(gate_up.as_mut_ptr(), gate_up.len(), ())?,
            down: cpu.adopt(down.as_mut_ptr(), down.len(), ())?,
            router: cpu.adopt(router.as_mut_ptr(), router.len(), ())?,
        };
        let input = cpu.adopt(x.as_mut_ptr(), x.len(), ())?;
        (weights, input, cpu.adopt(y.as_mut_ptr(), y.len(), ())?)
    };
    let layer = synthetic.on_device(weights)?;
    let mut workspace = Workspace::new(backend, &layer, TOKENS, options())?;
    let mut run = || -> Result<()> {
        let input = Matrix::dense("input", &input, TOKENS, width)?;
        let mut out = MatrixMut::dense("output", &mut output, TOKENS, width)?;
        layer.forward(backend, &mut workspace, input, Routing::Router, &mut out)?;
        Ok(())
    };
    let before = cpu.counts();
    run()?;
    run()?;
    let after = cpu.counts();
    drop((layer, input, output));

    println!("{}: SHA-256 of the output {}", backend.device().name, checksum(&y));
    let allocations = after.allocations - before.allocations;
    let copies = after.copies - before.copies;
    println!("in two runs of the layer: {allocations} allocations, {copies} copies");
    let own = in_own_memory(backend, &synthetic)?;
    assert_eq!(checksum(&y), checksum(&own), "the same layer in memory of the backend");
    assert_eq!((allocations, copies), (0, 0));
    Ok(())
}

/// The same layer in memory of the backend.
fn in_own_memory(backend: &dyn Backend, synthetic: &Synthetic) -> Result<Vec<f32>> {
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
