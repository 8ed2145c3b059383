//! What operations say they must move and compute, against figures worked out by hand.

use strata_core::attention::{AttentionShape, Reach};
use strata_core::backend::ops::{
    Attend, Combine, Cost, Launch, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, RouterScores,
    Rows, Weights,
};
use strata_core::backend::{Backend, BatchLimits, DeviceRoutes, KvCache, RoutingMap, TokenBatch};
use strata_core::prefill::{Options, Phase, QuantMode, Routing, Synthetic, Workspace};
use strata_core::routing::Routes;
use strata_core::{WeightType, q8_1};
use strata_cpu::{CpuBackend, CpuOptions};

fn cpu() -> Box<dyn Backend> {
    Box::new(CpuBackend::new(CpuOptions::default()).unwrap())
}

fn cost(op: impl Launch) -> (u64, u64) {
    let Cost { bytes, ops } = op.cost();
    (bytes, ops)
}

#[test]
fn a_product_reads_the_experts_that_it_has_rows_for() {
    let backend = &*cpu();
    let (experts, rows, cols, k) = (8, 16, 256, 2);
    // 34 bytes for 32 values.
    let expert = (rows * cols / 32 * 34) as u64;
    let data = backend.alloc::<u8>(experts * expert as usize).unwrap();
    let weights = Weights::dense("w", &data, WeightType::Q8_0, experts, rows, cols).unwrap();
    for (tokens, used) in [(1, 2), (3, 6), (4, 8), (9, 8)] {
        let ids = (0..tokens * k).map(|i| (i % experts) as i32).collect();
        let routes = Routes::new(ids, vec![1.0; tokens * k], k, experts).unwrap();
        let routes = DeviceRoutes::upload(backend, &routes).unwrap();
        let mut map = RoutingMap::with_capacity(backend, tokens, k, experts).unwrap();
        let op = MapRoutes::new(routes.view(), &mut map).unwrap();
        let routed = (tokens * k) as u64;
        assert_eq!(cost(op), (4 * (3 * routed + 9), 0));
        MapRoutes::new(routes.view(), &mut map).unwrap().launch(backend).unwrap();
        // Activations by token, 576 bytes for up to 512 values; `src` and the bounds; f32 out.
        let bytes = used * expert + 576 * tokens as u64 + 4 * (9 + routed) + 4 * routed * 16;
        let acts = backend.alloc::<u8>(q8_1::bytes(tokens, cols).unwrap()).unwrap();
        let acts = Q8Rows::new(&acts, WeightType::Q8_0.layout(), tokens, cols).unwrap();
        let mut out = backend.alloc::<f32>(tokens * k * rows).unwrap();
        let out = MatrixMut::dense("out", &mut out, tokens * k, rows).unwrap();
        let op = Product::new(weights, acts, Rows::Indexed(&map), out).unwrap();
        assert_eq!(cost(op), (bytes, 2 * routed * 16 * 256), "{tokens} tokens");
    }
}

#[test]
fn attention_reads_each_page_that_is_seen_once() {
    let backend = &*cpu();
    let limits = BatchLimits { vocabulary: 1, sequences: 2, pages_per_sequence: 4, pages: 8 };
    let mut batch = TokenBatch::with_capacity(backend, 4, limits).unwrap();
    batch.set_pages(backend, &[0, 1, 2, 3, 4, 5, 6, 7]).unwrap();
    // Of sequence 0 positions 130 and 131, of sequence 1 positions 0 and 200.
    batch.set(backend, &[0; 4], &[0, 1, 0, 1], &[130, 0, 131, 200]).unwrap();
    for (reach, pages, seen) in [
        // 0 to 2 and 0 to 3.
        (Reach::All, 7, 131 + 132 + 1 + 201),
        // 127 to 131: pages 1 and 2; 0; 197 to 200: page 3.
        (Reach::Window(4), 4, 4 + 4 + 1 + 4),
        // 128 to 131; 0; 192 to 200.
        (Reach::Chunk(64), 3, 3 + 4 + 1 + 9),
    ] {
        let shape = AttentionShape {
            heads: 4,
            kv_heads: 2,
            key: 8,
            value: 12,
            scale: 1.0,
            softcap: None,
            reach,
        };
        let cache = KvCache::new(backend, shape.layout(), 8).unwrap();
        let (q, mut y) = (backend.alloc::<f32>(4 * 32).unwrap(), backend.alloc(4 * 48).unwrap());
        let q = Matrix::dense("queries", &q, 4, 32).unwrap();
        let to = MatrixMut::dense("out", &mut y, 4, 48).unwrap();
        let op = Attend::new(shape, q, None, &batch, &cache, to).unwrap();
        // Of each page and head 64 keys and values in two digits, and two scales.
        let page = 2 * 64 * (2 * (8 + 12) + 8);
        let bytes = 4 * (4 * 32 + 4 * 48) + pages * page;
        assert_eq!(cost(op), (bytes, seen * 4 * 2 * (8 + 12)), "{reach:?}");
    }
}

#[test]
fn views_count_what_is_in_them_and_not_what_is_between() {
    let backend = &*cpu();
    let (x, w) = (backend.alloc::<f32>(100).unwrap(), backend.alloc::<f32>(20).unwrap());
    let mut out = backend.alloc::<f32>(100).unwrap();
    let x = Matrix::new("x", &x, 3, 5, 30).unwrap();
    let w = Matrix::dense("w", &w, 4, 5).unwrap();
    let to = MatrixMut::new("out", &mut out, 3, 4, 40).unwrap();
    let op = RouterScores::new(x, w, to).unwrap();
    assert_eq!(cost(op), (4 * (15 + 20 + 12), 2 * 3 * 4 * 5));
}

#[test]
fn the_phases_of_a_layer_are_their_operations() {
    let backend = &*cpu();
    let (tokens, k, experts, width, ffn) = (6usize, 2usize, 3usize, 512usize, 256usize);
    let synthetic = Synthetic {
        experts,
        k,
        width,
        ffn,
        gate_up: WeightType::Q8_0,
        order: strata_core::backend::ops::GateUpOrder::Split,
        down: WeightType::Q8_0,
        seed: 1,
    };
    let layer = synthetic.layer(backend).unwrap();
    let x = backend.from_slice(&synthetic.input(tokens)).unwrap();
    let x = Matrix::dense("input", &x, tokens, width).unwrap();
    let mut y = backend.alloc::<f32>(tokens * width).unwrap();
    let options = Options { quant: QuantMode::Indexed, timed: true, ..Options::default() };
    let mut workspace = Workspace::new(backend, &layer, tokens, options).unwrap();
    let mut to = MatrixMut::dense("output", &mut y, tokens, width).unwrap();
    let timings = layer.forward(backend, &mut workspace, x, Routing::Router, &mut to).unwrap();
    let (rows, q8, weight) = (tokens * k, 576, 34 * width * ffn / 32);
    let bounds = experts + 1;
    let expected = [
        (
            Phase::Router,
            4 * (tokens * (width + experts) + experts * width),
            tokens * experts * width,
        ),
        (Phase::TopK, 4 * tokens * experts + 8 * rows, 0),
        (Phase::Map, 4 * (3 * rows + bounds), 0),
        (Phase::Quantize, (4 * width + q8) * tokens, 0),
        (
            Phase::GateUp,
            2 * experts * weight + q8 * tokens + 4 * (rows + bounds) + 8 * rows * ffn,
            2 * rows * ffn * width,
        ),
        (Phase::SwiGluQuantize, (8 * ffn + q8) * rows, 0),
        (
            Phase::Down,
            experts * weight + q8 * rows + 4 * bounds + 4 * rows * width,
            rows * ffn * width,
        ),
        (Phase::Combine, 4 * (rows + tokens) * width + 8 * rows, 0),
    ];
    let given: Vec<_> = timings.phases.iter().map(|p| (p.phase, p.cost)).collect();
    let expected = expected.map(|(phase, bytes, products)| {
        (phase, Cost { bytes: bytes as u64, ops: 2 * products as u64 })
    });
    assert_eq!(given, expected);
}

#[test]
fn a_sum_reads_the_shared_expert_too() {
    use strata_core::backend::ops::SharedOutput;
    let backend = &*cpu();
    let routes = Routes::new(vec![0, 1, 1, 0], vec![0.5; 4], 2, 2).unwrap();
    let routes = DeviceRoutes::upload(backend, &routes).unwrap();
    let mut map = RoutingMap::with_capacity(backend, 2, 2, 2).unwrap();
    MapRoutes::new(routes.view(), &mut map).unwrap().launch(backend).unwrap();
    let y = backend.alloc::<f32>(4 * 10).unwrap();
    let (shared, score) = (backend.alloc::<f32>(2 * 10).unwrap(), backend.alloc::<f32>(2).unwrap());
    let mut out = backend.alloc::<f32>(2 * 10).unwrap();
    let shared = SharedOutput {
        y: Matrix::dense("shared", &shared, 2, 10).unwrap(),
        score: Some(Matrix::dense("score", &score, 2, 1).unwrap()),
    };
    let y = Matrix::dense("y", &y, 4, 10).unwrap();
    let to = MatrixMut::dense("out", &mut out, 2, 10).unwrap();
    let op = Combine::new(y, &map, routes.view(), Some(shared), to).unwrap();
    // Rows, `slot` and weights, the shared expert's rows and scores, tokens.
    assert_eq!(cost(op), (4 * (40 + 4 + 4 + 20 + 2 + 20), 0));
}
