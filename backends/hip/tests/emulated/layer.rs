//! A whole small layer, in two chunks, against the CPU backend's bytes.

use libtest_mimic::{Failed, Trial};
use sha2::{Digest, Sha256};
use strata_core::backend::Backend;
use strata_core::backend::ops::{GateUpOrder, Matrix, MatrixMut};
use strata_core::prefill::{Chunk, Options, QuantMode, Routing, Synthetic, Workspace};
use strata_core::{Result, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};
use strata_hip::{HipBackend, HipOptions};

const TOKENS: usize = 5;
/// Two chunks: three tokens and two.
const CHUNK: usize = 3;

pub fn trial(arch: &str, index: u32) -> Trial {
    Trial::test(format!("{arch}/small-layer"), move || compare(index))
}

fn compare(index: u32) -> Result<(), Failed> {
    let hip = HipBackend::new(index, HipOptions::default())?;
    let cpu = CpuBackend::new(CpuOptions::default())?;
    for (gate_up, down) in [
        (WeightType::Q4_K, WeightType::Q6_K),
        (WeightType::Q2_0, WeightType::Q8_0),
        (WeightType::IQ2_XS, WeightType::Q4_1),
    ] {
        let layer = Synthetic {
            experts: 8,
            k: 2,
            width: 256,
            ffn: 256,
            gate_up,
            order: GateUpOrder::Interleaved,
            down,
            seed: 42,
        };
        // The CPU in one chunk, unfused, against the GPU in two.
        let plain = Options { chunk: Chunk::Tokens(TOKENS), fused: false, ..Options::default() };
        let expected = checksum(&run(&cpu, &layer, plain)?);
        for quant in QuantMode::ALL {
            for fused in [true, false] {
                let chunk = Chunk::Tokens(CHUNK);
                let options = Options { quant, chunk, fused, checked: true, timed: true };
                let given = checksum(&run(&hip, &layer, options)?);
                if given != expected {
                    return Err(format!(
                        "{gate_up} and {down}, {quant}, fused {fused}: given {given}, expected the CPU's {expected}"
                    )
                    .into());
                }
            }
        }
        print!("[{gate_up}+{down} {}] ", &expected[..16]);
    }
    Ok(())
}

fn run(backend: &dyn Backend, synthetic: &Synthetic, options: Options) -> Result<Vec<f32>> {
    let layer = synthetic.layer(backend)?;
    let width = synthetic.width;
    let x = backend.from_slice(&synthetic.input(TOKENS))?;
    let mut y = backend.alloc::<f32>(TOKENS * width)?;
    let mut workspace = Workspace::new(backend, &layer, TOKENS, options)?;
    layer.forward(
        backend,
        &mut workspace,
        Matrix::dense("input", &x, TOKENS, width)?,
        Routing::Router,
        &mut MatrixMut::dense("output", &mut y, TOKENS, width)?,
    )?;
    backend.download(&y)
}

/// SHA-256 of the values' little-endian bytes, as the command line prints it.
fn checksum(values: &[f32]) -> String {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
