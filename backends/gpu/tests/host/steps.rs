//! Launches: every kernel by its name, with its arguments, in blocks that fit work and device.

use std::collections::BTreeSet;
use std::sync::Arc;

use strata_conformance::{Case, Size, cases, run_cases};
use strata_core::backend::ops::{
    GateUp, GateUpOrder, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows,
    QuantizeScatter, Rows, SwiGluQuantize, Weights,
};
use strata_core::backend::{Backend, Buffer, DeviceRoutes, RoutingMap};
use strata_core::routing::Routes;
use strata_core::{Layout, WeightType, q8_1};
use strata_gpu::GpuOptions;

use crate::double::{Card, Gpu, Vendor, card};

/// A handle on a device of its own.
fn open<V: Vendor>(options: GpuOptions) -> (Arc<Card>, Gpu<V>) {
    let (index, card) = card(1 << 30);
    (card, Gpu::<V>::new(index, options).unwrap())
}

/// The map of `tokens` tokens over eight experts, two each.
fn map(gpu: &dyn Backend, tokens: usize) -> RoutingMap {
    map_over(gpu, tokens, 8)
}

fn map_over(gpu: &dyn Backend, tokens: usize, experts: usize) -> RoutingMap {
    let k = 2;
    let ids: Vec<i32> = (0..tokens * k).map(|i| (i % experts) as i32).collect();
    let routes = Routes::new(ids, vec![0.5; tokens * k], k, experts).unwrap();
    let routes = DeviceRoutes::upload(gpu, &routes).unwrap();
    let mut map = RoutingMap::with_capacity(gpu, tokens, k, experts).unwrap();
    MapRoutes::new(routes.view(), &mut map).unwrap().launch(gpu).unwrap();
    map
}

/// A product over the map's experts, of activations of no particular value.
fn product(gpu: &dyn Backend, map: &RoutingMap) -> Buffer<f32> {
    let (ty, rows, cols, all) = (WeightType::Q8_0, 64, 256, 2 * map.tokens());
    let q8 = gpu.alloc::<u8>(q8_1::bytes(all, cols).unwrap()).unwrap();
    let experts = map.experts();
    let blocks = gpu.alloc::<u8>(experts * rows * ty.row_bytes(cols).unwrap()).unwrap();
    let weights = Weights::dense("weights", &blocks, ty, experts, rows, cols).unwrap();
    let acts = Q8Rows::new(&q8, Layout::D4, all, cols).unwrap();
    let mut y = gpu.alloc::<f32>(all * rows).unwrap();
    let dst = MatrixMut::dense("y", &mut y, all, rows).unwrap();
    Product::new(weights, acts, Rows::Experts(map), dst).unwrap().launch(gpu).unwrap();
    y
}

/// The front of a layer.
fn front(gpu: &dyn Backend, tokens: usize) {
    let (cols, rows, all) = (256, 64, 2 * tokens);
    let map = map(gpu, tokens);
    let x = gpu.from_slice(&vec![1f32; tokens * cols]).unwrap();
    let x = Matrix::dense("x", &x, tokens, cols).unwrap();
    let mut q8 = gpu.alloc::<u8>(q8_1::bytes(all, cols).unwrap()).unwrap();
    let out = Q8RowsMut::new(&mut q8, Layout::D4, all, cols).unwrap();
    QuantizeRows::gather(x, &map, out).unwrap().launch(gpu).unwrap();
    let y = product(gpu, &map);
    let gate_up = Matrix::dense("gate and up", &y, all, rows).unwrap();
    let gate_up = GateUp::new(gate_up, GateUpOrder::Split).unwrap();
    let mut h = gpu.alloc::<u8>(q8_1::bytes(all, rows / 2).unwrap()).unwrap();
    let out = Q8RowsMut::new(&mut h, Layout::DS4, all, rows / 2).unwrap();
    SwiGluQuantize::new(gate_up, out).unwrap().launch(gpu).unwrap();
    gpu.synchronize().unwrap();
}

/// Kernels that were launched, with their blocks, threads and shared memory.
fn launched(card: &Card) -> Vec<(String, u32, u32, u32)> {
    card.launched().into_iter().map(|l| (l.kernel, l.blocks, l.threads, l.shared)).collect()
}

fn launches_are_bounded_by_work_and_device<V: Vendor>() {
    let (card, gpu) = open::<V>(GpuOptions::default());
    front(&gpu, 1000);
    let tile = "strata_mmq_tile128";
    let [_, _, threads, shared, ..] = V::tile(tile).unwrap();
    let expected = [
        // 2,000 routes in chunks of 256, one block each; experts one to a wave.
        ("strata_map_count", 8, 256, 0),
        ("strata_map_chunks", V::WAVE / 32, 256, 0),
        ("strata_map_bounds", 1, 256, 0),
        ("strata_map_rank", 8, V::WAVE, 0),
        // 2,000 rows of four blocks (512 values of padding), eight a turn, but 32 blocks
        // run at once and four turns are enough.
        ("strata_quantize_D4", 128, 256, 0),
        ("strata_map_tiles", 1, 256, 0),
        // At most 15 full tiles and one more for each expert; a block of each unit runs.
        (tile, 4, threads, shared),
        ("strata_swiglu_quantize_DS4", 128, 256, 0),
    ];
    assert_eq!(launched(&card), expected.map(|(name, a, b, c)| (name.to_owned(), a, b, c)));
}

fn nothing_is_launched_for_no_tokens_but_the_bounds<V: Vendor>() {
    let (card, gpu) = open::<V>(GpuOptions::default());
    front(&gpu, 0);
    let names: Vec<_> = launched(&card).into_iter().map(|l| l.0).collect();
    assert_eq!(names, ["strata_map_chunks", "strata_map_bounds"]);
}

fn less_shared_memory_takes_smaller_tiles_and_too_little_is_an_error<V: Vendor>() {
    for (kib, tile) in V::TILE_OF {
        let options = GpuOptions { shared_bytes: Some(kib << 10), ..GpuOptions::default() };
        let (card, gpu) = open::<V>(options);
        product(&gpu, &map(&gpu, 1000));
        let tile = format!("strata_mmq_tile{tile}");
        assert!(launched(&card).iter().any(|l| l.0 == tile), "{kib} KiB: {tile}");
    }
    let (card, gpu) = open::<V>(GpuOptions { shared_bytes: Some(1024), ..GpuOptions::default() });
    let map = map(&gpu, 10);
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| product(&gpu, &map)));
    let told = told.err().unwrap();
    let told = told.downcast_ref::<String>().unwrap();
    assert!(told.contains("shared memory of a block"), "{told}");
    assert!(!launched(&card).iter().any(|l| l.0.starts_with("strata_mmq")));
    let (_, gpu) = open::<V>(GpuOptions { tile: Some(100), ..GpuOptions::default() });
    let map = self::map(&gpu, 10);
    let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| product(&gpu, &map)));
    let told = told.err().unwrap();
    assert!(
        told.downcast_ref::<String>()
            .unwrap()
            .contains(&format!("STRATA_{}_TILE", V::KIND.name().to_uppercase()))
    );
}

fn scratch_memory_is_the_streams_own<V: Vendor>() {
    let (index, card) = card(1 << 30);
    let first: Box<dyn Backend> = Box::new(Gpu::<V>::new(index, GpuOptions::default()).unwrap());
    let second = first.fork().unwrap();
    // Maps and products whose lists grow, in two streams that run when all is launched: the
    // double panics where a kernel does not find in scratch memory what was left for it.
    for tokens in [10, 100, 1000, 3000, 9000, 50] {
        let (a, b) = (map_over(&*first, tokens, 256), map_over(&*second, tokens, 256));
        drop((product(&*first, &a), product(&*second, &b)));
    }
    second.synchronize().unwrap();
    first.synchronize().unwrap();
    // Once it is large enough, nothing is taken any more.
    let all = |backend: &dyn Backend| {
        let y = product(backend, &map(backend, 9000));
        backend.synchronize().unwrap();
        drop(y);
    };
    // The pool has at most some blocks of each size that streams have yet to pass.
    (0..5).for_each(|_| all(&*first));
    let before = card.asked().0;
    for _ in 0..20 {
        all(&*first);
    }
    assert_eq!(card.asked().0, before);
}

fn a_scatter_in_order_has_no_more_shared_memory_than_its_chunk<V: Vendor>() {
    let (card, gpu) =
        open::<V>(GpuOptions { scatter_in_order_from: Some(0), ..GpuOptions::default() });
    let (tokens, cols) = (100, 256);
    let map = map(&gpu, tokens);
    let ours: &dyn Backend = &gpu;
    let x = ours.from_slice(&vec![1f32; tokens * cols]).unwrap();
    let x = Matrix::dense("x", &x, tokens, cols).unwrap();
    let mut q8 = ours.alloc::<u8>(q8_1::bytes(2 * tokens, cols).unwrap()).unwrap();
    let out = Q8RowsMut::new(&mut q8, Layout::D4, 2 * tokens, cols).unwrap();
    QuantizeScatter::new(x, &map, out).unwrap().launch(ours).unwrap();
    ours.synchronize().unwrap();
    let launched = launched(&card);
    let (_, blocks, _, shared) = launched.last().unwrap();
    // One chunk of all tokens: 144 bytes of each and 6 of each of its two rows.
    assert_eq!((*blocks, *shared), (4, 4160 + 100 * (144 + 2 * 6)), "{launched:?}");
    assert!(*shared < V::SHARED);
}

/// Parts of the names of cases that are about size, repetition or another backend's memory.
const LARGE: [&str; 8] =
    ["width=2560", "T=65537", "T=8193", "T=20", "T=1050", "T=600", "runs=1000", "m=120818"];

/// Cases of the suite are launched: no result is looked at, but what breaks a rule of the
/// double is.
fn cases_launch_kernels_as_their_sources_say<V: Vendor>() {
    let mut all = BTreeSet::new();
    for options in [
        GpuOptions::default(),
        GpuOptions { scatter_in_order_from: Some(0), ..GpuOptions::default() },
    ] {
        let (card, gpu) = open::<V>(options);
        let (_, other) = open::<V>(options);
        let quick = cases::all().into_iter().filter(|case| case.size == Size::Quick);
        let small = quick.filter(|case| !LARGE.iter().any(|part| case.name.contains(part)));
        // Of the many that differ in their values alone, some; few have scores of many tokens.
        let some =
            small.enumerate().filter(|(i, case)| i % 10 == 0 || case.name.contains("router/"));
        let cases: Vec<Case> = some.map(|(_, case)| case).collect();
        let summary = run_cases(&gpu, &other, &cases, &mut ());
        for difference in &summary.differing {
            let told = difference.to_string();
            assert!(!told.contains("the double"), "{told}");
        }
        all.extend(card.launched().into_iter().map(|launched| launched.kernel));
    }
    let units = V::units().values();
    let known: BTreeSet<String> =
        units.flat_map(|unit| unit.kernels.iter().map(|kernel| kernel.name.clone())).collect();
    let left: Vec<&String> = known.difference(&all).collect();
    // There is no tile by warpgroups here, and the others are a matter of size.
    assert!(left.iter().all(|name| name.starts_with("strata_mmq_tile")), "{left:?}");
}

on_both! {
    launches_are_bounded_by_work_and_device
    nothing_is_launched_for_no_tokens_but_the_bounds
    less_shared_memory_takes_smaller_tiles_and_too_little_is_an_error
    scratch_memory_is_the_streams_own
    a_scatter_in_order_has_no_more_shared_memory_than_its_chunk
    cases_launch_kernels_as_their_sources_say
}
