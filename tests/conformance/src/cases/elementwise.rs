//! SwiGLU, fused and not, and combine.

use strata_core::Layout;
use strata_core::activation::Activation;
use strata_core::backend::ops::{CombineOptions, GateUpOrder};
use strata_core::q8_1::{Headers, Sums};

use super::of;
use crate::ops::{CombineCase, SharedKind, SwiGluCase};
use crate::values::Choice::{All, Fixed, Only, Random, Repeats};
use crate::values::{Choice, Routing, Values};
use crate::{Case, Size};

/// E, k, T, hidden values, gap, offset.
const SWIGLUS: &[(usize, usize, usize, usize, usize, usize)] = &[
    (8, 2, 0, 64, 0, 0),
    (1, 1, 1, 1, 0, 0),
    (1, 1, 3, 127, 0, 0),
    (8, 2, 17, 128, 0, 0),
    (8, 3, 11, 640, 0, 0),
    (8, 2, 9, 33, 2, 1),
    (8, 2, 9, 203, 0, 3),
    (512, 10, 30, 640, 0, 0),
    (4, 1, 5, 1536, 4, 4),
    (8, 2, 3, 2817, 0, 0),
    (64, 8, 8193, 8, 0, 0),
];

/// E, k, T, columns, choice, gap, offset.
const COMBINES: &[(usize, usize, usize, usize, Choice, usize, usize)] = &[
    (8, 2, 0, 64, Random, 0, 0),
    (1, 1, 1, 1, Only(0), 0, 0),
    (8, 2, 3, 33, Random, 0, 0),
    (512, 10, 33, 2560, Random, 0, 0),
    (16, 3, 40, 129, Random, 3, 1),
    (16, 5, 40, 131, Repeats, 1, 3),
    (16, 6, 40, 512, Only(7), 0, 2),
    (144, 6, 9, 100, Fixed(&[121, 62, 117, 62, 32, 13]), 0, 0),
    (12, 12, 21, 576, All, 0, 0),
    (70, 64, 5, 64, Random, 0, 0),
    (64, 8, 8193, 7, Random, 0, 0),
];

const VALUES: &[Values] = &[
    Values::Normal,
    Values::Mixed,
    Values::Wide,
    Values::Huge,
    Values::Subnormal,
    Values::Nans,
    Values::Infinities,
    Values::NegativeZero,
    Values::ScaleOverflow,
];

/// Hidden values as f32, and fused with every kind of headers.
fn fused() -> [Option<Headers>; 6] {
    let of_codes = |layout: Layout| Some(layout.with(Sums::Codes));
    let [d4, ds4, d2s6] = Layout::ALL.map(|layout| Some(Headers::from(layout)));
    [None, d4, ds4, d2s6, of_codes(Layout::DS4), of_codes(Layout::D2S6)]
}

pub(super) fn add(cases: &mut Vec<Case>) {
    let fused = fused();
    let swiglu = |routing, ffn, order, fused, values, (gap, offset)| {
        let (activation, scaled, biased) = (Activation::SwiGlu, false, false);
        of(
            Size::Quick,
            SwiGluCase {
                routing,
                ffn,
                order,
                fused,
                activation,
                scaled,
                biased,
                values,
                gap,
                offset,
            },
        )
    };
    for fused in fused {
        for order in [GateUpOrder::Split, GateUpOrder::Interleaved] {
            for &(experts, k, tokens, ffn, gap, offset) in SWIGLUS {
                let routing = Routing::new(experts, k, tokens, Random);
                let place = (gap, offset);
                cases.push(swiglu(routing, ffn, order, fused, Values::Normal, place));
            }
            for &values in VALUES {
                let routing = Routing::new(8, 2, 13, Random);
                cases.push(swiglu(routing, 300, order, fused, values, (0, 0)));
            }
        }
        // Every exponent goes through exp: a wide sweep.
        let routing = Routing::new(8, 2, 2048, Random);
        let case = SwiGluCase {
            routing,
            ffn: 640,
            order: GateUpOrder::Split,
            fused,
            activation: Activation::SwiGlu,
            scaled: false,
            biased: false,
            values: Values::Mixed,
            gap: 0,
            offset: 0,
        };
        cases.push(of(Size::Full, case));
    }
    for shared in [SharedKind::None, SharedKind::Plain, SharedKind::Gated] {
        for &(experts, k, tokens, width, choice, gap, offset) in COMBINES {
            let routing = Routing::new(experts, k, tokens, choice);
            let values = Values::Normal;
            let case = CombineCase { shared, values, gap, offset, ..combine(routing, width) };
            cases.push(of(Size::Quick, case));
        }
        for &values in VALUES {
            let routing = Routing::new(8, 3, 13, Random);
            let case = CombineCase { shared, values, ..combine(routing, 200) };
            cases.push(of(Size::Quick, case));
            let case = CombineCase { scaled: true, biased: true, ..case };
            cases.push(of(Size::Quick, case));
        }
        for &(experts, k, tokens, width, choice, gap, offset) in &COMBINES[1..9] {
            let routing = Routing::new(experts, k, tokens, choice);
            for (scaled, biased) in [(true, false), (false, true), (true, true)] {
                let case =
                    CombineCase { shared, scaled, biased, gap, offset, ..combine(routing, width) };
                cases.push(of(Size::Quick, case));
            }
            let case = CombineCase { shared, gap, offset, ..combine(routing, width) };
            let options = [
                CombineOptions { weighed: false, ..CombineOptions::default() },
                CombineOptions { shared: 0.3, sum: 0.6, weighed: true },
            ];
            for options in options {
                cases.push(of(Size::Quick, CombineCase { options, ..case }));
            }
        }
    }
    activations(cases);
}

/// A combine of normal values.
fn combine(routing: Routing, width: usize) -> CombineCase {
    CombineCase {
        routing,
        width,
        shared: SharedKind::None,
        scaled: false,
        biased: false,
        options: CombineOptions::default(),
        values: Values::Normal,
        gap: 0,
        offset: 0,
    }
}

/// Every activation, with and without gates, scales and biases.
fn activations(cases: &mut Vec<Case>) {
    let activations = [
        Activation::SwiGlu,
        Activation::SwiGluClamped { limit: 0.75 },
        Activation::SwiGluLimited { limit: 0.75 },
        Activation::SwiGluOai { alpha: 1.702, limit: 0.9 },
        Activation::GeluTanh,
        Activation::GeluErf,
        Activation::Relu,
        Activation::ReluSquared,
        Activation::Situ { beta: 1.5, linear: 2.5 },
        Activation::Situ { beta: 0.5, linear: 0.0 },
    ];
    let orders = [GateUpOrder::Split, GateUpOrder::Interleaved, GateUpOrder::UpOnly];
    for activation in activations {
        for order in orders {
            if order == GateUpOrder::UpOnly && !activation.works_without_gates() {
                continue;
            }
            for fused in fused() {
                let case = SwiGluCase {
                    routing: Routing::new(8, 2, 13, Random),
                    ffn: 300,
                    order,
                    fused,
                    activation,
                    scaled: false,
                    biased: false,
                    values: Values::Normal,
                    gap: 0,
                    offset: 0,
                };
                let mut add = |case| cases.push(of(Size::Quick, case));
                // Plain SwiGLU of all values stands above.
                if activation != Activation::SwiGlu {
                    VALUES.iter().for_each(|&values| add(SwiGluCase { values, ..case }));
                }
                for (scaled, biased) in [(true, false), (false, true), (true, true)] {
                    add(SwiGluCase { scaled, biased, ..case });
                    for &(experts, k, tokens, ffn, gap, offset) in &SWIGLUS[1..7] {
                        let routing = Routing::new(experts, k, tokens, Random);
                        add(SwiGluCase { routing, ffn, gap, offset, scaled, biased, ..case });
                    }
                }
            }
        }
    }
}
