//! q8_1 in its three layouts and three ways.

use strata_core::Layout;
use strata_core::q8_1::{Headers, Sums};
use strata_core::rows::RowFormat;

use super::of;
use crate::ops::golden::{ActVector, Input, Q8Vector};
use crate::ops::{QuantCase, QuantRows};
use crate::values::Choice::{All, Fixed, Odd, Only, Random, Repeats};
use crate::values::{Choice, Routing, Values};
use crate::{Case, Size};

/// T, columns.
const IDENTITY: &[(usize, usize)] = &[
    (0, 512),
    (1, 1),
    (1, 512),
    (2, 3),
    (3, 31),
    (3, 32),
    (5, 33),
    (5, 127),
    (5, 128),
    (5, 129),
    (7, 511),
    (7, 513),
    (17, 516),
    (4, 576),
    (33, 640),
    (8, 1025),
    (64, 2560),
    (65_537, 32),
    (1, 50_001),
];

/// E, k, T, columns, choice.
const ROUTED: &[(usize, usize, usize, usize, Choice)] = &[
    (8, 2, 0, 256, Random),
    (8, 1, 1, 256, Random),
    (512, 10, 1, 2560, Random),
    (512, 10, 7, 2560, Random),
    (144, 6, 9, 516, Fixed(&[121, 62, 117, 62, 32, 13])),
    (5, 5, 33, 100, Repeats),
    (6, 6, 21, 640, All),
    (16, 3, 130, 129, Odd),
    (9, 4, 65, 33, Only(8)),
    (64, 10, 100, 1027, Random),
    (70, 64, 5, 64, Random),
    // More than 65,535 rows.
    (512, 8, 8193, 32, Random),
];

/// Gap, offset: strided inputs, and inputs that start at an odd multiple of 4 bytes.
const PLACES: &[(usize, usize)] =
    &[(0, 1), (0, 2), (0, 3), (1, 0), (3, 1), (4, 0), (4, 4), (64, 5)];

pub(super) fn add(cases: &mut Vec<Case>) {
    for input in Input::ALL {
        cases.extend(Layout::ALL.map(|layout| of(Size::Quick, Q8Vector { input, layout })));
    }
    cases.extend(act_vectors());
    // Sums of codes where there are sums; shapes and places are those of any.
    let all = Layout::ALL.map(Headers::from).into_iter();
    for headers in all.chain([Layout::DS4, Layout::D2S6].map(|layout| layout.with(Sums::Codes))) {
        for &(rows, cols) in IDENTITY {
            let case = QuantCase::new(headers, QuantRows::Identity(rows), cols);
            cases.push(of(Size::Quick, QuantCase { report: true, ..case }));
        }
        for &(experts, k, tokens, cols, choice) in ROUTED {
            let routing = Routing::new(experts, k, tokens, choice);
            for rows in [QuantRows::Gather(routing), QuantRows::Scatter(routing)] {
                let case = QuantCase { report: true, ..QuantCase::new(headers, rows, cols) };
                cases.push(of(Size::Quick, case));
            }
        }
        let routing = Routing::new(16, 3, 11, Random);
        let ways =
            [QuantRows::Identity(11), QuantRows::Gather(routing), QuantRows::Scatter(routing)];
        for values in Values::ALL {
            for rows in ways {
                for report in [false, true] {
                    let case = QuantCase::new(headers, rows, 580);
                    cases.push(of(Size::Quick, QuantCase { values, report, ..case }));
                }
            }
        }
        for &(gap, offset) in PLACES {
            for rows in ways {
                for cols in [200, 203, 512] {
                    let case = QuantCase::new(headers, rows, cols);
                    let values = Values::Mixed;
                    cases.push(of(Size::Quick, QuantCase { gap, offset, values, ..case }));
                }
            }
        }
        for rows in ways {
            let case = QuantCase::new(headers, rows, 300);
            cases.push(of(Size::Quick, QuantCase { launches: 3, report: true, ..case }));
        }
        // The model's own, at the size of a chunk.
        let routing = Routing::new(512, 10, 8192, Random);
        for rows in [QuantRows::Gather(routing), QuantRows::Scatter(routing)] {
            let case = QuantCase::new(headers, rows, 640);
            cases.push(of(Size::Full, QuantCase { values: Values::Mixed, report: true, ..case }));
        }
        let case = QuantCase::new(headers, QuantRows::Identity(8192), 2560);
        cases.push(of(Size::Full, QuantCase { values: Values::Mixed, ..case }));
    }
}

/// The row-major golden vectors.
pub fn act_vectors() -> Vec<Case> {
    let inputs = [Input::Normal, Input::Edge];
    let cases = inputs.into_iter().flat_map(|input| {
        RowFormat::ALL.map(|format| of(Size::Quick, ActVector { input, format }))
    });
    cases.collect()
}
