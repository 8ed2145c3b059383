//! Whole layers: fused and not, every mode, every chunk, checked and not.

use strata_core::backend::ops::GateUpOrder;
use strata_core::prefill::{Chunk, QuantMode};
use strata_core::q8_1::Sums;
use strata_core::routing::{Gating, Norm, RouterOptions};
use strata_core::{Layout, WeightType};

use super::of;
use crate::ops::{LayerCase, LayerShape, SharedCase, Source, Trouble};
use crate::values::{Choice, Values};
use crate::{Case, Size};
use WeightType as T;

const fn shape(ty: WeightType, down: WeightType) -> LayerShape {
    LayerShape {
        experts: 8,
        k: 2,
        width: 256,
        ffn: 256,
        gate: ty,
        up: None,
        down,
        order: GateUpOrder::Split,
    }
}

/// SwiGLU + quantize against the two steps, and the whole fused layer against
/// the unfused one, for one type of gate, up and down: the yardstick is unfused.
pub fn fused(ty: WeightType) -> Vec<Case> {
    let mut cases = Vec::new();
    for order in [GateUpOrder::Split, GateUpOrder::Interleaved] {
        let shape = LayerShape { order, ..shape(ty, ty) };
        let case = LayerCase::new(shape, 33);
        for mode in QuantMode::ALL {
            for fused in [true, false] {
                cases.push(of(Size::Quick, LayerCase { mode, fused, ..case }));
            }
        }
    }
    // Sums of codes, in every mode, in one step and in two.
    if ty.layout() != Layout::D4 {
        let case = LayerCase { sums: Sums::Codes, ..LayerCase::new(shape(ty, ty), 33) };
        for (mode, fused) in QuantMode::ALL.into_iter().zip([true, false, true]) {
            cases.push(of(Size::Quick, LayerCase { mode, fused, ..case }));
        }
    }
    // Two tensors instead of one: the same rows, other launches.
    let case = LayerCase::new(LayerShape { up: Some(ty), ..shape(ty, ty) }, 9);
    for fused in [true, false] {
        cases.push(of(Size::Quick, LayerCase { fused, ..case }));
        let values = Values::ScaleOverflow;
        cases.push(of(Size::Quick, LayerCase { fused, values, checked: false, ..case }));
    }
    cases
}

/// Gate, up (where apart), down: layouts that differ from step to step.
const MIXED: &[(WeightType, Option<WeightType>, WeightType)] = &[
    (T::Q4_K, None, T::Q6_K),
    (T::Q4_K, Some(T::Q4_K), T::Q6_K),
    (T::Q2_K, Some(T::Q3_K), T::Q4_K),
    (T::Q8_0, Some(T::Q4_1), T::Q2_K),
    (T::IQ2_XS, None, T::IQ4_XS),
    (T::MXFP4, Some(T::MXFP4), T::Q8_0),
];

const SHARED: &[SharedCase] = &[
    SharedCase { ffn: 512, ty: T::Q8_0, gated: true },
    SharedCase { ffn: 256, ty: T::Q4_K, gated: false },
    SharedCase { ffn: 32, ty: T::Q4_0, gated: true },
];

/// Errors of the checked call: type of gate and up, type of down, source, trouble, words.
type Checked = (WeightType, WeightType, Source, &'static [Trouble], &'static str);

const CHECKED: &[Checked] = &[
    (
        T::Q8_0,
        T::Q8_0,
        Source::Router,
        &[Trouble::Input(13, f32::NAN), Trouble::Input(14, f32::INFINITY)],
        "token 13: an input value is not finite",
    ),
    (
        T::Q4_K,
        T::Q4_K,
        Source::Router,
        &[Trouble::Input(20, f32::NEG_INFINITY)],
        "token 20: an input value is not finite",
    ),
    (
        T::Q2_K,
        T::Q2_K,
        Source::Routes(Choice::Random),
        &[Trouble::Input(0, f32::NAN), Trouble::Input(20, f32::NAN)],
        "token 0: an input value is not finite",
    ),
    (
        T::Q4_1,
        T::Q8_0,
        Source::Router,
        &[Trouble::Row(17, 2048.0)],
        "token 17: a scale or sum of the quantized input is not finite",
    ),
    (
        T::Q4_K,
        T::Q8_0,
        Source::Scores,
        &[Trouble::Row(3, 2048.0)],
        "token 3: a scale or sum of the quantized input is not finite",
    ),
    (
        T::Q5_K,
        T::Q8_0,
        Source::Router,
        &[Trouble::Row(20, -2048.0)],
        "token 20: a scale or sum of the quantized input is not finite",
    ),
    (
        T::Q5_1,
        T::Q8_0,
        Source::Routes(Choice::Repeats),
        &[Trouble::Row(1, 2048.0), Trouble::Row(2, f32::NAN)],
        "token 1: a scale or sum of the quantized input is not finite",
    ),
    (
        T::Q8_0,
        T::Q8_0,
        Source::Scores,
        &[Trouble::Score(9, f32::NAN), Trouble::Score(10, f32::NAN)],
        "token 9: a router score is not finite",
    ),
    (
        T::Q8_0,
        T::Q8_0,
        Source::Scores,
        &[Trouble::Score(20, f32::INFINITY)],
        "token 20: a router score is not finite",
    ),
    // The input of the same token comes before its score.
    (
        T::Q8_0,
        T::Q8_0,
        Source::Scores,
        &[Trouble::Score(9, f32::NAN), Trouble::Input(9, f32::NAN)],
        "token 9: an input value is not finite",
    ),
    (
        T::Q8_0,
        T::Q8_0,
        Source::Router,
        &[Trouble::Row(11, 1e22)],
        "token 11: a hidden activation or its quantized scale or sum is not finite",
    ),
    // Finite hidden values whose scale overflows f16 in the layout of the down product.
    (
        T::Q8_0,
        T::Q4_1,
        Source::Scores,
        &[Trouble::Row(11, 1e7)],
        "token 11: a hidden activation or its quantized scale or sum is not finite",
    ),
];

pub(super) fn add(cases: &mut Vec<Case>) {
    for &ty in WeightType::ALL {
        cases.extend(fused(ty));
    }
    let chunked = |case: LayerCase, chunks: &[usize], cases: &mut Vec<Case>| {
        for mode in QuantMode::ALL {
            for &chunk in chunks {
                let chunk = Chunk::Tokens(chunk);
                cases.push(of(Size::Quick, LayerCase { mode, chunk, ..case }));
            }
            let (chunk, checked) = (Chunk::Auto(100), false);
            cases.push(of(Size::Quick, LayerCase { mode, chunk, checked, ..case }));
        }
    };
    // Chunks of 1, 7, 512 and all at once.
    let small = LayerShape { width: 64, ffn: 32, ..shape(T::Q8_0, T::Q8_0) };
    chunked(LayerCase::new(small, 1050), &[1, 7, 512, 8192], cases);
    let shared = Some(SHARED[0]);
    let (source, router) = (Source::Router, RouterOptions::SOFTMAX.scaled(2.5));
    let case = LayerCase { shared, source, router, ..LayerCase::new(shape(T::Q4_K, T::Q6_K), 40) };
    chunked(case, &[1, 7, 512], cases);
    let case = LayerCase { source: Source::Routes(Choice::Repeats), gap: 3, ..case };
    chunked(case, &[7], cases);
    chunked(LayerCase { source: Source::Scores, ..case }, &[7], cases);

    // Each router at the layer.
    const SIGMOID: RouterOptions =
        RouterOptions { gating: Gating::Sigmoid, ..RouterOptions::SOFTMAX };
    for router in [
        SIGMOID.scaled(2.5),
        RouterOptions { norm: Norm::Sum { epsilon: 1e-20, least: 0.0 }, ..SIGMOID },
        RouterOptions { gating: Gating::SqrtSoftplus, ..SIGMOID },
        RouterOptions { gating: Gating::Sparsemixer { near: 0.02 }, ..SIGMOID },
    ] {
        for mode in QuantMode::ALL {
            let case = LayerCase::new(shape(T::Q8_0, T::Q4_1), 21);
            cases.push(of(Size::Quick, LayerCase { router, shared, mode, ..case }));
        }
    }

    for &(gate, up, down) in MIXED {
        let shape = LayerShape { up, ..shape(gate, down) };
        for shared in [None, Some(SHARED[0]), Some(SHARED[1]), Some(SHARED[2])] {
            for mode in QuantMode::ALL {
                let case = LayerCase::new(shape, 21);
                cases.push(of(Size::Quick, LayerCase { shared, mode, ..case }));
            }
        }
    }
    // Two calls in a row; no token; one; every token to every expert, to one, to the odd ones.
    let case = LayerCase::new(shape(T::Q4_0, T::Q5_0), 30);
    cases.push(of(Size::Quick, LayerCase { calls: 3, ..case }));
    let chunk = Chunk::Tokens(4);
    cases.push(of(Size::Quick, LayerCase { calls: 3, chunk, checked: false, ..case }));
    for tokens in [0, 1] {
        for mode in QuantMode::ALL {
            cases.push(of(Size::Quick, LayerCase { tokens, mode, ..case }));
        }
    }
    let all = LayerShape { experts: 12, k: 12, ffn: 32, ..shape(T::Q4_1, T::Q4_1) };
    for mode in QuantMode::ALL {
        let source = Source::Routes(Choice::All);
        cases.push(of(Size::Quick, LayerCase { source, mode, ..LayerCase::new(all, 19) }));
        for choice in [Choice::Only(5), Choice::Odd, Choice::Skewed] {
            let source = Source::Routes(choice);
            cases.push(of(Size::Quick, LayerCase { source, mode, ..case }));
        }
    }
    for values in Values::ALL {
        cases.push(of(Size::Quick, LayerCase { values, checked: false, ..case }));
    }
    for &(gate, down, source, trouble, words) in CHECKED {
        for chunk in [8192, 7, 1] {
            for (mode, fused) in QuantMode::ALL.into_iter().zip([true, false, true]) {
                let case = LayerCase::new(shape(gate, down), 21);
                let (trouble, chunk) = (Some((trouble, words)), Chunk::Tokens(chunk));
                cases.push(of(
                    Size::Quick,
                    LayerCase { source, trouble, chunk, mode, fused, ..case },
                ));
            }
        }
    }
    model(cases);
}

/// The model's own shape, in a small prompt.
fn model(cases: &mut Vec<Case>) {
    let shape = LayerShape {
        experts: 64,
        k: 10,
        width: 2560,
        ffn: 640,
        gate: T::Q2_0,
        up: None,
        down: T::Q8_0,
        order: GateUpOrder::Interleaved,
    };
    for mode in QuantMode::ALL {
        for chunk in [Chunk::Tokens(8192), Chunk::Tokens(7)] {
            cases.push(of(Size::Full, LayerCase { mode, chunk, ..LayerCase::new(shape, 16) }));
        }
    }
}
