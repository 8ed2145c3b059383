//! Memory and streams of an engine: used as they are, and kept until no stream needs them.

use std::sync::Arc;

use strata_core::backend::ops::{GateUpOrder, Matrix, MatrixMut, Q8RowsMut, QuantizeRows};
use strata_core::backend::{Backend, DeviceInfo};
use strata_core::prefill::{Options, Routing, Synthetic, SyntheticWeights, Workspace};
use strata_core::{Layout, WeightType, q8_1};
use strata_gpu::{Driver, GpuOptions, StreamHandle};

use crate::double::{Card, Double, Gpu, Vendor, card};
use crate::pattern;

/// Device memory and a stream that are not ours.
struct Engine<V: Vendor> {
    card: Arc<Card>,
    driver: Double<V>,
    stream: StreamHandle,
    memory: Vec<u64>,
}

impl<V: Vendor> Engine<V> {
    fn new(card: &Arc<Card>, info: &DeviceInfo, sizes: &[usize]) -> Arc<Self> {
        let driver = Double::open(info).unwrap();
        let memory = sizes.iter().map(|&bytes| card.engine_memory(bytes)).collect();
        let stream = driver.new_stream().unwrap();
        Arc::new(Self { card: Arc::clone(card), stream, driver, memory })
    }
}

impl<V: Vendor> Drop for Engine<V> {
    fn drop(&mut self) {
        // The double panics where a stream still needs any of it, and where we gave it back.
        for &address in &self.memory {
            self.card.give_back(address);
        }
        // SAFETY: made by `new`; nothing is used after.
        unsafe { self.driver.end_stream(self.stream).unwrap() };
    }
}

fn on<V: Vendor>(index: u32, engine: &Arc<Engine<V>>) -> Gpu<V> {
    let (options, stream) = (GpuOptions::default(), engine.stream.0);
    // SAFETY: the engine's own stream, kept by its clone.
    unsafe { Gpu::on_stream(index, options, stream, Arc::clone(engine)) }.unwrap()
}

fn device<V: Vendor>() -> (u32, Arc<Card>, DeviceInfo) {
    let (index, card) = card(1 << 30);
    (index, card, Double::<V>::describe(index).unwrap())
}

fn memory_and_streams_are_used_without_copies<V: Vendor>() {
    let (index, card, info) = device::<V>();
    let (rows, cols) = (64, 256);
    let q8_bytes = q8_1::bytes(rows, cols).unwrap();
    let engine = Engine::<V>::new(&card, &info, &[rows * cols * 4, q8_bytes]);
    let gpu = on(index, &engine);
    assert_eq!(gpu.stream_address(), engine.stream.0);
    let ours: &dyn Backend = &gpu;
    let before = (gpu.counts(), card.asked());
    // SAFETY: so many values lie there, kept by their owner, and used in this stream alone.
    let (x, mut q8) = unsafe {
        (
            gpu.adopt::<f32>(engine.memory[0], rows * cols, Arc::clone(&engine)).unwrap(),
            gpu.adopt::<u8>(engine.memory[1], q8_bytes, Arc::clone(&engine)).unwrap(),
        )
    };
    assert_eq!(gpu.address(&x).unwrap(), engine.memory[0]);
    assert_eq!(gpu.address(x.slice(4..).unwrap()).unwrap(), engine.memory[0] + 16);
    assert_eq!(gpu.address_mut(&mut q8).unwrap(), engine.memory[1]);
    let matrix = Matrix::dense("x", &x, rows, cols).unwrap();
    let out = Q8RowsMut::new(&mut q8, Layout::D4, rows, cols).unwrap();
    QuantizeRows::new(matrix, out).unwrap().launch(ours).unwrap();
    ours.fill(&mut q8, 7).unwrap();
    assert_eq!((gpu.counts(), card.asked()), before, "no memory, no copy, no wait");
    // What a launch still uses may go at once: the owner stays until the stream has passed.
    drop((x, q8));
    assert_eq!(Arc::strong_count(&engine), 4);
    ours.synchronize().unwrap();
    assert_eq!(Arc::strong_count(&engine), 2);
    // Nobody else gets it.
    let new = ours.alloc::<u8>(q8_bytes).unwrap();
    assert!(!engine.memory.contains(&gpu.address(&new).unwrap()));

    for wrong in [0, engine.memory[0] + 4] {
        // SAFETY: refused before anything is read.
        let error = unsafe { gpu.adopt::<f32>(wrong, 1, ()) }.unwrap_err().to_string();
        assert!(error.contains("multiple of 16"), "{error}");
    }
    // The handle leaves the stream, and another handle on it goes on.
    let again = on(index, &engine);
    drop((new, gpu));
    let again: &dyn Backend = &again;
    let mut dying = again.alloc::<u8>(70_000).unwrap();
    again.fill(&mut dying, 0xee).unwrap();
    drop(dying);
    let own = again.from_slice(&pattern(70_000, 3)).unwrap();
    assert!(again.download(&own).unwrap() == pattern(70_000, 3));
}

fn a_layer_on_an_engines_memory_takes_and_copies_nothing<V: Vendor>() {
    let (index, card, info) = device::<V>();
    let synthetic = Synthetic {
        experts: 8,
        k: 2,
        width: 256,
        ffn: 256,
        gate_up: WeightType::Q4_K,
        order: GateUpOrder::Split,
        down: WeightType::Q8_0,
        seed: 1,
    };
    let (tokens, width) = (100, synthetic.width);
    let host = synthetic.weights().unwrap();
    let values = tokens * width;
    let sizes =
        [host.gate_up.len(), host.down.len(), 4 * host.router.len(), 4 * values, 4 * values];
    let engine = Engine::<V>::new(&card, &info, &sizes);
    let gpu = on(index, &engine);
    let ours: &dyn Backend = &gpu;
    // SAFETY: so much memory lies there, kept by its owner, and is used in this stream alone.
    let bytes = |i: usize| unsafe { gpu.adopt(engine.memory[i], sizes[i], Arc::clone(&engine)) };
    // SAFETY: as above.
    let floats = |i: usize| unsafe {
        gpu.adopt::<f32>(engine.memory[i], sizes[i] / 4, Arc::clone(&engine)).unwrap()
    };
    let (gate_up, down) = (bytes(0).unwrap(), bytes(1).unwrap());
    let weights = SyntheticWeights { gate_up, down, router: floats(2) };
    let layer = synthetic.on_device(weights).unwrap();
    let (x, mut y) = (floats(3), floats(4));
    let options = Options { checked: false, ..Options::default() };
    let mut workspace = Workspace::new(ours, &layer, tokens, options).unwrap();
    let mut run = || {
        let x = Matrix::dense("x", &x, tokens, width).unwrap();
        let mut y = MatrixMut::dense("y", &mut y, tokens, width).unwrap();
        layer.forward(ours, &mut workspace, x, Routing::Router, &mut y).unwrap();
    };
    run();
    // From the second time on launches have what they work in.
    let before = (gpu.counts(), card.asked());
    card.launched();
    run();
    run();
    assert_eq!((gpu.counts(), card.asked()), before, "no memory, no copy, no wait");
    assert!(card.launched().len() > 10);
    drop((layer, x, y));
    drop(workspace);
    ours.synchronize().unwrap();
    assert_eq!(Arc::strong_count(&engine), 2, "the engine has it all back");
}

fn a_stream_of_another_device_is_refused<V: Vendor>() {
    let (index, _, _) = device::<V>();
    // Made after others, so that its number is no stream of the first device.
    let (_, card, info) = device::<V>();
    let engine = Engine::<V>::new(&card, &info, &[]);
    let other = engine.driver.new_stream().unwrap();
    let options = GpuOptions::default();
    // SAFETY: refused before it is used.
    let error = unsafe { Gpu::<V>::on_stream(index, options, other.0, ()) }.err().unwrap();
    assert!(error.to_string().starts_with("stream: given another device's"), "{error}");
}

fn what_a_stream_may_still_touch_is_kept_when_that_cannot_be_known<V: Vendor>() {
    let (index, card, info) = device::<V>();
    let engine = Engine::<V>::new(&card, &info, &[4096]);
    let gpu = on(index, &engine);
    let ours: &dyn Backend = &gpu;
    // SAFETY: as above.
    let mut adopted =
        unsafe { gpu.adopt::<u8>(engine.memory[0], 4096, Arc::clone(&engine)) }.unwrap();
    ours.fill(&mut adopted, 1).unwrap();
    card.refuse_records(true);
    drop(adopted);
    card.refuse_records(false);
    ours.synchronize().unwrap();
    assert_eq!(Arc::strong_count(&engine), 3, "its owner stays for good");
}

on_both! {
    memory_and_streams_are_used_without_copies
    a_layer_on_an_engines_memory_takes_and_copies_nothing
    a_stream_of_another_device_is_refused
    what_a_stream_may_still_touch_is_kept_when_that_cannot_be_known
}
