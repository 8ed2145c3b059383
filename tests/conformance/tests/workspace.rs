//! What a workspace takes is what `Workspace::bytes` says of it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use strata_core::WeightType;
use strata_core::backend::Backend;
use strata_core::backend::ops::{CombineOptions, GateUpOrder};
use strata_core::prefill::{Chunk, MoeLayer, Options, QuantMode, SharedExpert, Synthetic};
use strata_core::prefill::{GateUpWeights, Workspace};

/// Counts the buffers of the CPU backend: it asks for zeros at an alignment of 16, and 256 bytes
/// more than the buffer has.
struct Counting;

const ALIGN: usize = 16;
const MORE: usize = 256;

static BUFFERS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator does all; the counts change nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() == ALIGN {
            BUFFERS.fetch_add(1, Relaxed);
            BYTES.fetch_add(layout.size() - MORE, Relaxed);
        }
        // SAFETY: the caller's.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn layer(backend: &dyn Backend, k: usize, shared: bool, weighed: bool) -> MoeLayer {
    let synthetic = Synthetic {
        experts: 5,
        k,
        width: 544,
        ffn: 96,
        gate_up: WeightType::Q8_0,
        order: GateUpOrder::Split,
        down: WeightType::Q8_0,
        seed: 1,
    };
    let mut layer = synthetic.layer(backend).unwrap();
    if shared {
        let tensor = |rows, cols| {
            let host = vec![0u8; rows * cols / 32 * 34].into();
            let ty = WeightType::Q8_0;
            strata_core::prefill::Tensor::dense(backend, "t", host, ty, 1, rows, cols).unwrap()
        };
        let gate_up = GateUpWeights::Separate { gate: tensor(160, 544), up: tensor(160, 544) };
        let expert = SharedExpert { gate_up, down: tensor(544, 160), gate: None };
        layer = layer.with_shared(expert).unwrap();
    }
    match weighed {
        true => layer.with_factors(CombineOptions { weighed: false, ..CombineOptions::default() }),
        false => layer,
    }
}

#[test]
fn it_takes_what_it_says() {
    let cpu = strata_cpu::CpuBackend::new(strata_cpu::CpuOptions::default()).unwrap();
    let backend: &dyn Backend = &cpu;
    let mut sizes = Vec::new();
    for bits in 0..32 {
        let is = |bit: usize| bits >> bit & 1 == 1;
        let k = if is(0) { 2 } else { 1 };
        let layer = layer(backend, k, is(1), is(2));
        for quant in QuantMode::ALL {
            let chunk = Chunk::Tokens(if is(4) { 7 } else { 3 });
            let options = Options { quant, fused: is(3), chunk, ..Options::default() };
            let bytes = Workspace::bytes(&layer, if is(4) { 7 } else { 3 }, &options).unwrap();
            BUFFERS.store(0, Relaxed);
            BYTES.store(0, Relaxed);
            let _workspace = Workspace::new(backend, &layer, 100, options).unwrap();
            let (buffers, taken) = (BUFFERS.load(Relaxed), BYTES.load(Relaxed));
            // An empty buffer has a byte.
            let empty = taken.wrapping_sub(bytes);
            assert!(empty <= buffers.min(4), "{bits:05b} {quant}: {taken} of {bytes}");
            sizes.push(bytes);
        }
    }
    sizes.sort_unstable();
    sizes.dedup();
    assert!(sizes.len() > 30, "{sizes:?}");
}
