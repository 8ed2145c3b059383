//! Layers of every form, and every operand of a layer with a value that is not finite.

use strata_core::WeightType as T;
use strata_core::activation::Activation;
use strata_core::backend::ops::{CombineOptions, GateUpOrder};
use strata_core::prefill::{Chunk, QuantMode};
use strata_core::routing::{Gating, GroupScore, Groups, Norm, RouterOptions};

use super::of;
use crate::ops::{Form, LayerCase, LayerShape, Operand, SharedCase, Source, Trouble};
use crate::values::Choice;
use crate::{Case, Size};

const SIGMOID: RouterOptions =
    RouterOptions { gating: Gating::Sigmoid, ..RouterOptions::SOFTMAX_OF_CHOSEN };
const SUM: Norm = Norm::Sum { epsilon: 1e-20, least: 0.0 };

/// Small experts of types of two layouts.
const SMALL: LayerShape = LayerShape {
    experts: 8,
    k: 2,
    width: 64,
    ffn: 96,
    gate: T::Q8_0,
    up: None,
    down: T::Q4_1,
    order: GateUpOrder::Split,
};

/// What today's architectures compute: the router, the form, the choices, whether a shared expert
/// is there.
fn forms() -> Vec<(RouterOptions, Form, usize, bool)> {
    const PLAIN: Form = Form::PLAIN;
    let groups = |score| Some(Groups { count: 4, used: 2, score });
    let both = Form { score_bias: true, selection_bias: true, ..PLAIN };
    let chosen = Form { selection_bias: true, ..PLAIN };
    let by = |activation| Form { activation, ..PLAIN };
    let oai = by(Activation::SwiGluOai { alpha: 1.702, limit: 0.9 });
    let alone = |activation| Form { activation, up_only: true, ..PLAIN };
    let softmax = RouterOptions::SOFTMAX;
    let default = CombineOptions { weighed: true, shared: 1.0, sum: 1.0 };
    vec![
        (RouterOptions { norm: SUM, scale: 2.5, ..SIGMOID }, chosen, 2, true),
        (
            RouterOptions { norm: SUM, groups: groups(GroupScore::TopTwo), ..SIGMOID },
            chosen,
            3,
            true,
        ),
        (RouterOptions { groups: groups(GroupScore::Max), ..softmax }, PLAIN, 3, true),
        (
            RouterOptions { norm: Norm::Sum { epsilon: 0.0, least: 1e-2 }, ..softmax },
            chosen,
            3,
            true,
        ),
        (softmax, both, 2, false),
        (
            RouterOptions::SOFTMAX_OF_CHOSEN,
            Form { biased: true, score_bias: true, ..oai },
            4,
            false,
        ),
        (RouterOptions::SOFTMAX_OF_CHOSEN, Form { scaled: true, biased: true, ..PLAIN }, 2, true),
        (SIGMOID, Form { factors: CombineOptions { weighed: false, ..default }, ..PLAIN }, 1, true),
        (
            RouterOptions::SOFTMAX_OF_CHOSEN,
            Form { own_input: true, scaled: true, ..by(Activation::GeluTanh) },
            2,
            false,
        ),
        (SIGMOID, Form { own_input: true, ..by(Activation::Relu) }, 2, false),
        (
            RouterOptions { norm: SUM, ..SIGMOID },
            Form { selection_bias: true, scaled: true, ..alone(Activation::ReluSquared) },
            3,
            true,
        ),
        (softmax, Form { biased: true, ..alone(Activation::GeluErf) }, 2, false),
        (
            RouterOptions { gating: Gating::Sparsemixer { near: 0.02 }, ..softmax },
            Form { score_bias: true, ..PLAIN },
            2,
            false,
        ),
        (RouterOptions { softcap: 2.0, ..softmax }, by(Activation::GeluTanh), 2, false),
        (
            RouterOptions { gating: Gating::SqrtSoftplus, norm: SUM, scale: 1.5, ..softmax },
            Form { selection_bias: true, ..by(Activation::SwiGluLimited { limit: 0.75 }) },
            3,
            true,
        ),
        (SIGMOID, by(Activation::SwiGluClamped { limit: 0.75 }), 2, true),
        (
            SIGMOID,
            Form { factors: CombineOptions { shared: 0.5, sum: 0.5, ..default }, ..PLAIN },
            2,
            true,
        ),
        (SIGMOID, by(Activation::Situ { beta: 1.5, linear: 2.5 }), 2, true),
    ]
}

pub(super) fn add(cases: &mut Vec<Case>) {
    for (i, (router, form, k, shared)) in forms().into_iter().enumerate() {
        let order = [GateUpOrder::Split, GateUpOrder::Interleaved][i % 2];
        let up = (i % 3 == 0 && !form.up_only).then_some(T::Q4_1);
        let shape = LayerShape { k, order, up, ..SMALL };
        let shared = shared.then_some(SharedCase { ffn: 64, ty: T::Q8_0, gated: i % 4 == 0 });
        for mode in QuantMode::ALL {
            for fused in [true, false] {
                let chunk = Chunk::Tokens(if fused { 8192 } else { 7 });
                let case = LayerCase { router, form, shared, ..LayerCase::new(shape, 21) };
                cases.push(of(Size::Quick, LayerCase { mode, fused, chunk, ..case }));
            }
        }
    }
    spoiled(cases);
    operands(cases);
    bounds(cases);
}

const NAN: u16 = 0x7e00;
const INFINITE: u16 = 0x7c00;
const LARGEST: u16 = 0x7bff;

const SCORE: &str = "token 0: a router score is not finite";
const HIDDEN: &str = "token 0: a hidden activation or its quantized scale or sum is not finite";
const SHARED_HIDDEN: &str =
    "token 0: a hidden activation of the shared expert or its quantized scale or sum is not finite";
const GATE: &str = "token 0: the score of the shared expert's gate is not finite";
const OUTPUT: &str = "token 0: an output value is not finite";

/// A layer all of whose experts every token goes through, with a shared one.
fn through_all() -> LayerCase {
    let shape = LayerShape {
        experts: 12,
        k: 12,
        width: 256,
        ffn: 32,
        up: Some(T::Q8_0),
        down: T::Q8_0,
        ..SMALL
    };
    let shared = Some(SharedCase { ffn: 64, ty: T::Q8_0, gated: true });
    LayerCase { shared, ..LayerCase::new(shape, 19) }
}

fn push(cases: &mut Vec<Case>, case: LayerCase) {
    let spoils = case.trouble.map_or(&[][..], |(trouble, _)| trouble);
    let spoils = spoils.iter().map(Trouble::to_string).collect::<Vec<_>>().join(",");
    cases.push(Case { name: format!("{case}/{spoils}"), ..of(Size::Quick, case) });
}

/// Weights of every product with a scale that is not finite, or that overflows: what the checked
/// call says of it.
fn spoiled(cases: &mut Vec<Case>) {
    let overflow = "token 13: an output value is not finite";
    let table: [(&'static [Trouble], &'static str); 12] = [
        (&[Trouble::Weights("gate", NAN)], HIDDEN),
        (&[Trouble::Weights("up", INFINITE)], HIDDEN),
        (&[Trouble::Weights("down", NAN)], OUTPUT),
        (&[Trouble::Weights("down", INFINITE)], OUTPUT),
        (&[Trouble::Row(13, 1e17), Trouble::Weights("down", LARGEST)], overflow),
        (&[Trouble::Weights("shared gate", NAN)], SHARED_HIDDEN),
        (&[Trouble::Weights("shared up", INFINITE)], SHARED_HIDDEN),
        (&[Trouble::Weights("shared down", NAN)], OUTPUT),
        (&[Trouble::Row(13, 1e17), Trouble::Weights("shared down", LARGEST)], overflow),
        (&[Trouble::Operand(Operand::SharedGate, f32::NAN)], GATE),
        (&[Trouble::Operand(Operand::SharedGate, f32::NEG_INFINITY)], GATE),
        (
            &[
                Trouble::Weights("shared down", NAN),
                Trouble::Operand(Operand::SharedGate, f32::NAN),
            ],
            GATE,
        ),
    ];
    for (i, (trouble, words)) in table.into_iter().enumerate() {
        let case = LayerCase {
            source: Source::Routes(Choice::All),
            mode: QuantMode::ALL[i % 3],
            fused: i % 2 == 0,
            chunk: Chunk::Tokens(if i % 4 < 2 { 8192 } else { 7 }),
            trouble: Some((trouble, words)),
            ..through_all()
        };
        push(cases, case);
    }
}

/// The same of every other operand, by the layer's router.
fn operands(cases: &mut Vec<Case>) {
    use Operand as O;
    use Trouble::{Operand as Spoil, RouterInput, Row};
    const ROUTED: Form = Form { score_bias: true, selection_bias: true, ..Form::PLAIN };
    const EXPERTS: Form = Form { scaled: true, biased: true, ..Form::PLAIN };
    const OWN: Form = Form { own_input: true, ..Form::PLAIN };
    const INF: f32 = f32::INFINITY;
    let softmax = RouterOptions::SOFTMAX_OF_CHOSEN;
    let score_13 = "token 13: a router score is not finite";
    let hidden_13 = "token 13: a hidden activation or its quantized scale or sum is not finite";
    let table: [(RouterOptions, Form, &'static [Trouble], &'static str); 34] = [
        (softmax, Form::PLAIN, &[Spoil(O::Router, f32::NAN)], SCORE),
        (softmax, Form::PLAIN, &[Spoil(O::Router, -INF)], SCORE),
        (softmax, Form::PLAIN, &[Spoil(O::Router, 1e34), Row(13, 1e5)], score_13),
        (SIGMOID, ROUTED, &[Spoil(O::Router, INF)], SCORE),
        (SIGMOID, ROUTED, &[Spoil(O::ScoreBias, f32::NAN)], SCORE),
        (SIGMOID, ROUTED, &[Spoil(O::ScoreBias, INF)], SCORE),
        (SIGMOID, ROUTED, &[Spoil(O::ScoreBias, -INF)], SCORE),
        (
            softmax,
            ROUTED,
            &[Spoil(O::ScoreBias, f32::MAX), Spoil(O::Router, 1e30), Row(13, 1e5)],
            score_13,
        ),
        (SIGMOID, ROUTED, &[Spoil(O::SelectionBias, f32::NAN)], SCORE),
        (SIGMOID, ROUTED, &[Spoil(O::SelectionBias, INF)], SCORE),
        (SIGMOID, ROUTED, &[Spoil(O::SelectionBias, -INF)], SCORE),
        (
            softmax,
            ROUTED,
            &[Spoil(O::SelectionBias, f32::MAX), Spoil(O::Router, 1e30), Row(13, 1e5)],
            score_13,
        ),
        (softmax, OWN, &[RouterInput(13, f32::NAN)], score_13),
        (SIGMOID, OWN, &[RouterInput(13, INF)], score_13),
        (
            SIGMOID,
            OWN,
            &[RouterInput(13, INF), Row(13, f32::NAN)],
            "token 13: an input value is not finite",
        ),
        (softmax, EXPERTS, &[Spoil(O::Scale, f32::NAN)], HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::Scale, INF)], HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::Scale, f32::MAX)], HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::Bias, f32::NAN)], HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::Bias, -INF)], HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::Bias, 1e25), Row(13, 1e16)], hidden_13),
        (softmax, EXPERTS, &[Spoil(O::DownScale, f32::NAN)], OUTPUT),
        (softmax, EXPERTS, &[Spoil(O::DownScale, -INF)], OUTPUT),
        (softmax, EXPERTS, &[Spoil(O::DownScale, f32::MAX)], OUTPUT),
        (softmax, EXPERTS, &[Spoil(O::DownBias, f32::NAN)], OUTPUT),
        (softmax, EXPERTS, &[Spoil(O::DownBias, INF)], OUTPUT),
        (softmax, EXPERTS, &[Spoil(O::SharedScale, f32::NAN)], SHARED_HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::SharedScale, INF)], SHARED_HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::SharedScale, f32::MAX)], SHARED_HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::SharedBias, f32::NAN)], SHARED_HIDDEN),
        (softmax, EXPERTS, &[Spoil(O::SharedBias, -INF)], SHARED_HIDDEN),
        (softmax, Form::PLAIN, &[Spoil(O::SharedGate, INF)], GATE),
        (
            softmax,
            Form::PLAIN,
            &[Spoil(O::SharedGate, 1e34), Row(13, 1e5)],
            "token 13: the score of the shared expert's gate is not finite",
        ),
        // Everything at once: the first step of the first token.
        (
            softmax,
            EXPERTS,
            &[
                Spoil(O::DownBias, f32::NAN),
                Spoil(O::SharedBias, f32::NAN),
                Spoil(O::Bias, f32::NAN),
            ],
            HIDDEN,
        ),
    ];
    for (i, (router, form, trouble, words)) in table.into_iter().enumerate() {
        for fused in [true, false] {
            let chunk = Chunk::Tokens(if fused == (i % 2 == 0) { 8192 } else { 7 });
            let mode = QuantMode::ALL[i % 3];
            let trouble = Some((trouble, words));
            let case = LayerCase { router, form, trouble, chunk, ..through_all() };
            push(cases, LayerCase { mode, fused, ..case });
        }
    }
}

/// Activations with bounds hide nothing: the infinite products of gate and up are found. Nor do
/// weights on inputs.
fn bounds(cases: &mut Vec<Case>) {
    const GATE_UP: [&[Trouble]; 4] = [
        &[Trouble::Weights("gate", INFINITE)],
        &[Trouble::Weights("up", INFINITE)],
        &[Trouble::Weights("gate", NAN)],
        &[Trouble::Weights("up", NAN)],
    ];
    const SHARED: [&[Trouble]; 2] =
        [&[Trouble::Weights("shared gate", INFINITE)], &[Trouble::Weights("shared up", INFINITE)]];
    let activations = [
        Activation::SwiGluClamped { limit: 0.75 },
        Activation::SwiGluLimited { limit: 0.75 },
        Activation::SwiGluOai { alpha: 1.702, limit: 0.9 },
        Activation::GeluTanh,
        Activation::GeluErf,
        Activation::Relu,
        Activation::ReluSquared,
        Activation::Situ { beta: 1.5, linear: 2.5 },
    ];
    let mut spoil = |activation, up_only, troubles: &[&'static [Trouble]], words| {
        for (i, &trouble) in troubles.iter().enumerate() {
            for fused in [true, false] {
                let form = Form { activation, up_only, ..Form::PLAIN };
                let (trouble, mode) = (Some((trouble, words)), QuantMode::ALL[i % 3]);
                push(cases, LayerCase { form, trouble, mode, fused, ..through_all() });
            }
        }
    };
    for activation in activations {
        spoil(activation, false, &GATE_UP, HIDDEN);
        spoil(activation, false, &SHARED, SHARED_HIDDEN);
        if activation.works_without_gates() {
            spoil(activation, true, &[GATE_UP[1], GATE_UP[3]], HIDDEN);
            spoil(activation, true, &SHARED[1..], SHARED_HIDDEN);
        }
    }
    // A merged tensor; a weight that is more than 1 on an expert's input.
    for fused in [true, false] {
        let merged = LayerShape { up: None, ..through_all().shape };
        for scale in
            [&[Trouble::Weights("gate and up", INFINITE)], &[Trouble::Weights("gate and up", NAN)]]
        {
            let trouble = Some((&scale[..], HIDDEN));
            push(cases, LayerCase { shape: merged, trouble, fused, ..through_all() });
        }
        let factors = CombineOptions { weighed: false, shared: 1.0, sum: 1.0 };
        for activation in [Activation::SwiGlu, Activation::SwiGluLimited { limit: 0.75 }] {
            let shape = LayerShape { experts: 1, k: 1, ..through_all().shape };
            let form = Form { activation, factors, ..Form::PLAIN };
            let case = LayerCase { shape, form, fused, ..through_all() };
            let trouble: [(&'static [Trouble], _, _); 3] = [
                (&[], SIGMOID.scaled(f32::MAX), HIDDEN),
                (
                    &[Trouble::Input(13, f32::NAN)],
                    SIGMOID,
                    "token 13: an input value is not finite",
                ),
                (&[Trouble::Operand(Operand::Router, f32::NAN)], SIGMOID, SCORE),
            ];
            for (trouble, router, words) in trouble {
                push(cases, LayerCase { router, trouble: Some((trouble, words)), ..case });
            }
        }
    }
}
