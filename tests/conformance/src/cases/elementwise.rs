//! SwiGLU, fused and not, and combine.

use strata_core::Layout;
use strata_core::backend::ops::GateUpOrder;

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

pub(super) fn add(cases: &mut Vec<Case>) {
    let fused = [None, Some(Layout::D4), Some(Layout::DS4), Some(Layout::D2S6)];
    let swiglu = |routing, ffn, order, fused, values, (gap, offset)| {
        of(Size::Quick, SwiGluCase { routing, ffn, order, fused, values, gap, offset })
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
            let case = CombineCase { routing, width, shared, values, gap, offset };
            cases.push(of(Size::Quick, case));
        }
        for &values in VALUES {
            let routing = Routing::new(8, 3, 13, Random);
            let case = CombineCase { routing, width: 200, shared, values, gap: 0, offset: 0 };
            cases.push(of(Size::Quick, case));
        }
    }
}
