//! The steps between the products against the reference, byte for byte.

mod support;

use proptest::prelude::*;
use strata_core::backend::ops::{
    Combine, GateUp, GateUpOrder, Matrix, MatrixMut, Q8RowsMut, RouterScores, SharedOutput, SwiGlu,
    SwiGluQuantize, TopK,
};
use strata_core::backend::{Backend, DeviceRoutes, Report};
use strata_core::error::NonFinite;
use strata_core::format::random::SplitMix64;
use strata_core::q8_1::{self, Sums};
use strata_core::routing::{RouterBias, RouterOptions, Routes};
use strata_core::{Error, Layout, reference};
use support::{backends, below, routing, same_f32, values};

const POISON: f32 = f32::from_bits(0xa5a5_a5a5);

/// Values of all sizes; some not finite.
fn mixed(random: &mut SplitMix64, count: usize) -> Vec<f32> {
    let mut x = values(random, count);
    for v in &mut x {
        match below(random, 40) {
            0 => *v *= 200.0,
            1 => *v *= 1e-40,
            2 => *v = 0.0,
            3 => *v = -0.0,
            4 => *v *= 3e38,
            5 => *v = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][below(random, 3)],
            _ => *v *= 10.0,
        }
    }
    x
}

/// `values` as rows `stride` apart, NaN between them.
fn strided(values: &[f32], cols: usize, stride: usize) -> Vec<f32> {
    let mut out = vec![f32::NAN; values.len() / cols * stride];
    for (to, from) in out.chunks_exact_mut(stride).zip(values.chunks_exact(cols)) {
        to[..cols].copy_from_slice(from);
    }
    out
}

/// What a poisoned output of rows `stride` apart must hold in the end.
fn in_poison(values: &[f32], cols: usize, stride: usize) -> Vec<f32> {
    let mut out = strided(values, cols, stride);
    for row in out.chunks_exact_mut(stride) {
        row[cols..].fill(POISON);
    }
    out
}

fn scores(backend: &dyn Backend, seed: u64, [tokens, experts, width, gap]: [usize; 4]) {
    let what = format!("scores {tokens} x {experts} x {width} with {}", backend.device().arch);
    let mut random = SplitMix64::new(seed);
    let (x, w) = (mixed(&mut random, tokens * width), values(&mut random, experts * width));
    let expected = reference::router_scores(&x, &w, width);
    let (x_stride, stride) = (width + gap, experts + gap);
    let x = backend.from_slice(&strided(&x, width, x_stride)).unwrap();
    let w = backend.from_slice(&w).unwrap();
    let mut out = backend.from_slice(&vec![POISON; tokens * stride]).unwrap();
    RouterScores::new(
        Matrix::new("x", &x, tokens, width, x_stride).unwrap(),
        Matrix::dense("w", &w, experts, width).unwrap(),
        MatrixMut::new("out", &mut out, tokens, experts, stride).unwrap(),
    )
    .unwrap()
    .launch(backend)
    .unwrap();
    same_f32(&what, &backend.download(&out).unwrap(), &in_poison(&expected, experts, stride));
}

fn top_k(
    backend: &dyn Backend,
    seed: u64,
    [tokens, experts, k]: [usize; 3],
    options: &RouterOptions,
) {
    let what = format!("top {k} of {experts}, {tokens} tokens, with {}", backend.device().arch);
    let mut random = SplitMix64::new(seed);
    let mut scores = values(&mut random, tokens * experts);
    // Few distinct scores: ties everywhere.
    scores.iter_mut().for_each(|s| *s = (*s * 4.0).round() * 0.5);
    for _ in 0..below(&mut random, 3) {
        let special = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY];
        scores[below(&mut random, tokens * experts)] = special[below(&mut random, 3)];
    }
    let bad = scores.iter().position(|s| !s.is_finite()).map(|at| at / experts);
    let expected = Routes::top_k(&scores, experts, k, options, RouterBias::default()).unwrap();
    let scores = backend.from_slice(&scores).unwrap();
    let scores = Matrix::dense("scores", &scores, tokens, experts).unwrap();
    let mut routes = DeviceRoutes::with_capacity(backend, tokens + 2, k, experts).unwrap();
    let mut report = Report::new(backend).unwrap();
    let op = TopK::new(scores, options, &mut routes).unwrap().report(Some(&mut report));
    op.launch(backend).unwrap();
    let view = routes.view();
    assert_eq!(backend.download(view.ids()).unwrap(), expected.ids(), "{what}");
    same_f32(&what, &backend.download(view.weights()).unwrap(), expected.weights());
    match (report.check(backend, 0), bad) {
        (Ok(()), None) => {}
        (Err(Error::NonFinite { token, what: NonFinite::Score }), Some(bad)) => {
            assert_eq!(token, bad, "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

fn swiglu(backend: &dyn Backend, seed: u64, [rows, ffn, gap]: [usize; 3], order: GateUpOrder) {
    let what = format!("swiglu {rows} x {ffn} {order:?} with {}", backend.device().arch);
    let mut random = SplitMix64::new(seed);
    let gate_up = mixed(&mut random, rows * 2 * ffn);
    let hidden = reference::swiglu(&gate_up, ffn, order);
    let (in_stride, out_stride) = (2 * ffn + gap, ffn + gap);
    let gate_up = backend.from_slice(&strided(&gate_up, 2 * ffn, in_stride)).unwrap();
    let gate_up = Matrix::new("gate and up", &gate_up, rows, 2 * ffn, in_stride).unwrap();
    let gate_up = GateUp::new(gate_up, order).unwrap();
    let mut out = backend.from_slice(&vec![POISON; rows * out_stride]).unwrap();
    let view = MatrixMut::new("out", &mut out, rows, ffn, out_stride).unwrap();
    SwiGlu::new(gate_up, view).unwrap().launch(backend).unwrap();
    same_f32(&what, &backend.download(&out).unwrap(), &in_poison(&hidden, ffn, out_stride));

    let all = Layout::ALL.into_iter().flat_map(|layout| Sums::ALL.map(|sums| layout.with(sums)));
    for headers in all {
        let layout = headers.layout;
        let expected = reference::quantize(&hidden, rows, ffn, ffn, None, headers);
        let mut out = backend.from_slice(&vec![0xa5u8; expected.len() + 16]).unwrap();
        let (_, _, _, map) = routing(backend, &mut random, rows, 1, 5);
        let src = backend.download(map.src()).unwrap();
        let mut report = Report::new(backend).unwrap();
        let view = Q8RowsMut::new(&mut out, headers, rows, ffn).unwrap();
        let op = SwiGluQuantize::new(gate_up, view).unwrap();
        op.report(Some(&mut report), Some(&map)).unwrap().launch(backend).unwrap();
        let given = backend.download(&out).unwrap();
        assert!(given[..expected.len()] == expected, "{what} {layout}");
        assert!(given[expected.len()..].iter().all(|&b| b == 0xa5), "{what} {layout}");
        let overflows = |row: usize| {
            (0..q8_1::k_blocks(ffn)).any(|k| {
                let header = &expected[(k * rows + row) * q8_1::BLOCK_BYTES..][..16];
                match layout {
                    Layout::D4 => header
                        .chunks_exact(4)
                        .any(|d| !f32::from_le_bytes(d.try_into().unwrap()).is_finite()),
                    _ => header.chunks_exact(2).any(|h| h[1] & 0x7c == 0x7c),
                }
            })
        };
        let bad = |row: usize| {
            overflows(row) || hidden[row * ffn..][..ffn].iter().any(|v| !v.is_finite())
        };
        let expected = (0..rows).filter(|&row| bad(row)).map(|row| src[row] as usize).min();
        match report.check(backend, 0) {
            Ok(()) => assert_eq!(expected, None, "{what} {layout}"),
            Err(Error::NonFinite { token, what: NonFinite::Hidden }) => {
                assert_eq!(Some(token), expected, "{what} {layout}");
            }
            Err(other) => panic!("{what}: {other}"),
        }
    }
}

fn combine(backend: &dyn Backend, seed: u64, [tokens, k, width, gap]: [usize; 4], shared: usize) {
    let what = format!("combine {tokens} x {k} x {width} with {}", backend.device().arch);
    let mut random = SplitMix64::new(seed);
    let (host_map, host_routes, routes, map) = routing(backend, &mut random, tokens, k, 4);
    let y = mixed(&mut random, tokens * k * width);
    let shared_y = mixed(&mut random, tokens * width);
    let score = mixed(&mut random, tokens);
    let with = match shared {
        0 => None,
        1 => Some((&shared_y[..], None)),
        _ => Some((&shared_y[..], Some(&score[..]))),
    };
    let weights = host_routes.weights();
    let with = reference::CombineWith { shared: with, ..Default::default() };
    let expected = reference::combine(&y, width, &host_map.slot, weights, k, &with);
    let stride = width + gap;
    let y = backend.from_slice(&strided(&y, width, stride)).unwrap();
    let shared_y = backend.from_slice(&shared_y).unwrap();
    let score = backend.from_slice(&score).unwrap();
    let score = Matrix::dense("score", &score, tokens, 1).unwrap();
    let output = SharedOutput {
        y: Matrix::dense("shared", &shared_y, tokens, width).unwrap(),
        score: (shared == 2).then_some(score),
    };
    let mut out = backend.from_slice(&vec![POISON; tokens * stride]).unwrap();
    Combine::new(
        Matrix::new("y", &y, tokens * k, width, stride).unwrap(),
        &map,
        routes.view(),
        (shared > 0).then_some(output),
        MatrixMut::new("out", &mut out, tokens, width, stride).unwrap(),
    )
    .unwrap()
    .launch(backend)
    .unwrap();
    same_f32(&what, &backend.download(&out).unwrap(), &in_poison(&expected, width, stride));
}

const ORDERS: [GateUpOrder; 2] = [GateUpOrder::Split, GateUpOrder::Interleaved];

#[test]
fn every_step_and_isa() {
    for (_, backend) in backends() {
        let backend = &*backend;
        scores(backend, 1, [1, 1, 1, 0]);
        scores(backend, 2, [70, 33, 300, 3]);
        scores(backend, 3, [7, 64, 512, 0]);
        for options in [RouterOptions::SOFTMAX_OF_CHOSEN, RouterOptions::SOFTMAX.scaled(2.5)] {
            let norm = &options;
            top_k(backend, 4, [1, 1, 1], norm);
            top_k(backend, 5, [33, 512, 10], norm);
            top_k(backend, 6, [20, 7, 7], norm);
        }
        for order in ORDERS {
            swiglu(backend, 7, [1, 1, 0], order);
            swiglu(backend, 8, [37, 640, 0], order);
            swiglu(backend, 9, [19, 131, 5], order);
        }
        for shared in 0..3 {
            combine(backend, 10, [1, 1, 1, 0], shared);
            combine(backend, 11, [40, 3, 77, 2], shared);
            combine(backend, 12, [17, 10, 256, 0], shared);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn any_shape(
        (a, b, c) in (1usize..40, 1usize..70, 1usize..300),
        gap in 0usize..5,
        seed in any::<u64>(),
        interleaved in any::<bool>(),
        shared in 0usize..3,
    ) {
        for (_, backend) in backends() {
            scores(&*backend, seed, [a, b, c, gap]);
            top_k(&*backend, seed, [a, b, b.min(a)], &RouterOptions::SOFTMAX_OF_CHOSEN);
            swiglu(&*backend, seed, [a, c, gap], ORDERS[usize::from(interleaved)]);
            combine(&*backend, seed, [a, 1 + b % 5, c, gap], shared);
        }
    }
}
