//! The yardstick itself: the reference backend, and the layer over it, against
//! the reference's functions put together by hand.

use strata_conformance::ops::golden::{Input, Q8Vector};
use strata_conformance::ops::{Form, LayerCase, LayerShape, SharedCase, Source, host_layer};
use strata_conformance::values::{Choice, Values};
use strata_conformance::{Op, ReferenceBackend, Selection, Stage, run};
use strata_core::activation::Activation;
use strata_core::backend::ops::{CombineOptions, GateUpOrder};
use strata_core::numerics::f16_to_f32;
use strata_core::prefill::{Chunk, QuantMode};
use strata_core::q8_1::{BLOCK_BYTES, Sums};
use strata_core::routing::{Gating, RouterOptions};
use strata_core::{Layout, WeightType as T, reference};

fn layers() -> Vec<LayerCase> {
    let shape = LayerShape {
        experts: 6,
        k: 3,
        width: 256,
        ffn: 64,
        gate: T::Q4_K,
        up: None,
        down: T::Q5_1,
        order: GateUpOrder::Interleaved,
    };
    let case = LayerCase { checked: false, ..LayerCase::new(shape, 23) };
    let apart = LayerShape { up: Some(T::IQ2_XS), gate: T::Q2_K, down: T::NVFP4, ..shape };
    let shared = |gated| Some(SharedCase { ffn: 96, ty: T::Q8_0, gated });
    let biased = Form {
        activation: Activation::SwiGluOai { alpha: 1.702, limit: 0.9 },
        biased: true,
        score_bias: true,
        ..Form::PLAIN
    };
    let alone = Form {
        activation: Activation::ReluSquared,
        up_only: true,
        scaled: true,
        selection_bias: true,
        ..Form::PLAIN
    };
    let of = |weighed, shared, sum| Form {
        factors: CombineOptions { weighed, shared, sum },
        ..Form::PLAIN
    };
    let (weighed, factors) = (of(false, 1.0, 1.0), of(true, 0.3, 0.6));
    let sigmoid = RouterOptions { gating: Gating::Sigmoid, ..RouterOptions::SOFTMAX };
    // Columns of 256 are needed by gate and up alone; 64 and 96 are whole blocks of the rest.
    vec![
        case,
        LayerCase { shape: apart, ..case },
        LayerCase { shape: apart, source: Source::Scores, ..case },
        LayerCase { source: Source::Routes(Choice::Repeats), ..case },
        LayerCase { source: Source::Routes(Choice::Only(2)), gap: 5, ..case },
        LayerCase { router: RouterOptions::SOFTMAX.scaled(2.5), ..case },
        LayerCase { shared: shared(true), ..case },
        LayerCase { shared: shared(false), shape: apart, ..case },
        LayerCase { values: Values::Mixed, ..case },
        LayerCase { sums: Sums::Codes, ..case },
        LayerCase { sums: Sums::Codes, shared: shared(true), shape: apart, ..case },
        LayerCase { form: biased, shared: shared(true), ..case },
        LayerCase { form: Form { scaled: true, ..biased }, shape: apart, ..case },
        LayerCase { form: alone, router: sigmoid, shared: shared(false), ..case },
        LayerCase { form: weighed, shape: LayerShape { k: 1, ..shape }, router: sigmoid, ..case },
        LayerCase { form: Form { own_input: true, ..factors }, shared: shared(true), ..case },
    ]
}

#[test]
fn layer_is_the_references_functions() {
    let backend = ReferenceBackend::new();
    for case in layers() {
        let expected: Vec<u8> = host_layer(&case).into_iter().flat_map(f32::to_le_bytes).collect();
        for mode in QuantMode::ALL {
            for fused in [false, true] {
                for chunk in [Chunk::Tokens(5), Chunk::Tokens(100)] {
                    let case = LayerCase { mode, fused, chunk, ..case };
                    let outputs = case.run(&Stage { backend: &backend, plain: false });
                    let output = &outputs.unwrap_or_else(|stop| panic!("{case}: {stop}"))[0];
                    assert!(output.written() == expected, "{case}");
                }
            }
        }
    }
}

#[test]
fn golden_vectors_of_the_reference() {
    let selection = Selection::quick().matching("golden/");
    let summary = run(&ReferenceBackend::new(), &selection, &mut ());
    println!("{summary}");
    // q8_1: 4 inputs in 3 layouts; weights: 25 types, twice; rows: 2 inputs in 3 formats.
    assert_eq!((summary.passed, summary.differing.len()), (12 + 50 + 6, 0), "{summary}");
}

/// Fused and not, every mode and chunk, checked and not: also over the reference one answer.
#[test]
fn layers_over_the_reference() {
    for text in ["layer/q4_K,q6_K/", "layer/q4_0,q5_0/", "error=", "refuse/", "state/streams"] {
        let selection = Selection::quick().matching(text);
        let summary = run(&ReferenceBackend::new(), &selection, &mut ());
        assert!(summary.is_clean(), "{summary}");
    }
}

/// Sums of codes change the sums and nothing else, and by no more than rounding to codes lost.
#[test]
fn sums_of_codes_are_near_those_of_the_values() {
    let half = |bytes: &[u8]| f64::from(f16_to_f32(u16::from_le_bytes([bytes[0], bytes[1]])));
    // Where the sums stand, and the scale that each has.
    let ds4: Vec<_> = [2, 6, 10, 14].into_iter().map(|at| (at, at - 2)).collect();
    let d2s6: Vec<_> = (0..6).map(|j| (4 + 2 * j, 2 * (j / 4))).collect();
    for (layout, sums, count) in [(Layout::DS4, ds4, 32.0), (Layout::D2S6, d2s6, 16.0)] {
        let x = Values::Normal.fill(3, 1, 2048);
        let mut of_values = reference::quantize_row(&x, layout);
        let of_codes = reference::quantize_row(&x, layout.with(Sums::Codes));
        let mut differing = 0;
        let blocks = of_values.chunks_exact_mut(BLOCK_BYTES);
        for (of_values, of_codes) in blocks.zip(of_codes.chunks_exact(BLOCK_BYTES)) {
            for &(at, scale) in &sums {
                let (was, is) = (half(&of_values[at..]), half(&of_codes[at..]));
                let most = half(&of_codes[scale..]) * count / 2.0 + 2f64.powi(-10) * was.abs();
                assert!((was - is).abs() <= most, "{layout}: {was}, {is}");
                differing += usize::from(was != is);
                of_values[at..at + 2].copy_from_slice(&of_codes[at..at + 2]);
            }
        }
        assert!(differing > sums.len(), "{layout}: {differing}");
        assert_eq!(of_values, of_codes, "{layout}");
    }
}

/// The list of rows that depart from the vectors is no longer than it must be.
#[test]
fn only_rows_that_differ_are_exempt() {
    for input in Input::ALL {
        for layout in Layout::ALL {
            let vector = Q8Vector { input, layout };
            let differs = |row: &usize| {
                let (theirs, ours) = vector.row(*row);
                theirs != ours
            };
            let differing: Vec<usize> = (0..vector.rows()).filter(differs).collect();
            assert_eq!(differing, input.exempt(layout), "{vector}");
        }
    }
}
