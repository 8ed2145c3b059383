//! Products: every type in every row mode, ragged shapes, gaps, values, scales.

use strata_core::WeightType;

use super::of;
use crate::ops::golden::{WEIGHT_COLS, WEIGHT_ROWS, WeightVector};
use crate::ops::{Gaps, InvarianceCase, MmqCase, RowMode};
use crate::values::Choice::{All, Fixed, Odd, Only, Random, Repeats, Skewed};
use crate::values::{Choice, Routing, Values, WeightValues};
use crate::{Case, Size};
use WeightType as T;

/// E, k, T, choice, m, K; every type runs them in every row mode.
const SHAPES: &[(usize, usize, usize, Choice, usize, usize)] = &[
    // Runs of 0 to about 70 rows: every tail of a tile.
    (9, 3, 67, Skewed, 37, 512),
    (4, 2, 1, Random, 6, 256),
    (512, 10, 2, Random, 5, 256),
    (3, 1, 70, Only(1), 17, 1280),
    (6, 6, 5, All, 129, 256),
    (5, 2, 21, Repeats, 33, 768),
];

/// The same, with more work: minutes on a CPU.
const FULL_SHAPES: &[(usize, usize, usize, Choice, usize, usize)] =
    &[(8, 2, 200, Skewed, 300, 1536), (64, 8, 130, Random, 65, 2560), (4, 1, 517, Odd, 129, 512)];

/// Columns that end inside a tile: they are run by the types whose blocks divide them.
const COLUMNS: &[usize] = &[32, 64, 96, 128, 384, 576, 640, 1152, 2816];

/// Weight rows that no tile divides, and the shapes of vectors: m, K, T.
const ROWS: &[(usize, usize, usize)] = &[
    (1, 256, 3),
    (6, 256, 3),
    (17, 256, 9),
    (129, 256, 3),
    (4097, 256, 2),
    (1, 2048, 1),
    (1, 2048, 130),
    (2048, 256, 1),
];

/// One type or two of each layout and family.
const SOME: &[WeightType] =
    &[T::Q8_0, T::Q2_0, T::IQ2_XS, T::Q4_1, T::Q2_K, T::Q4_K, T::Q6_K, T::NVFP4];

/// Types with minimums, and some without, for what sums and scales do.
const FOR_VALUES: &[WeightType] = &[
    T::Q8_0,
    T::Q4_0,
    T::Q4_1,
    T::Q5_1,
    T::Q2_K,
    T::Q4_K,
    T::Q5_K,
    T::Q6_K,
    T::IQ1_S,
    T::MXFP4,
    T::NVFP4,
];

pub(super) fn add(cases: &mut Vec<Case>) {
    for &ty in WeightType::ALL {
        for source in ["quantized", "random"] {
            cases.push(of(Size::Quick, WeightVector { ty, source }));
        }
        of_every_type(cases, ty);
    }
    for &ty in FOR_VALUES {
        for values in Values::ALL {
            let dense = MmqCase::dense(ty, 5, 7, 512);
            cases.push(of(Size::Quick, MmqCase { values, ..dense }));
        }
    }
    for &ty in SOME {
        for &(m, cols, rows) in ROWS {
            cases.push(of(Size::Quick, MmqCase::dense(ty, rows, m, cols)));
        }
        // As many weight rows as a vocabulary has words.
        let narrow = ty.block_values().min(256);
        let size = if ty == T::Q8_0 || ty == T::Q4_K { Size::Quick } else { Size::Full };
        cases.push(of(size, MmqCase::dense(ty, 2, 120_818, narrow)));
    }
    from_reports(cases);
}

fn of_every_type(cases: &mut Vec<Case>, ty: WeightType) {
    for (size, shapes) in [(Size::Quick, SHAPES), (Size::Full, FULL_SHAPES)] {
        for &(experts, k, tokens, choice, m, cols) in shapes {
            let routing = Routing::new(experts, k, tokens, choice);
            // Experts and indexed share a yardstick.
            for mode in [RowMode::Dense, RowMode::Experts, RowMode::Indexed] {
                let routing = match mode {
                    RowMode::Dense => Routing::new(1, 1, tokens, Only(0)),
                    _ => routing,
                };
                cases.push(of(size, MmqCase::new(ty, mode, routing, m, cols)));
            }
        }
    }
    let routing = Routing::new(6, 2, 19, Skewed);
    let case = MmqCase::new(ty, RowMode::Experts, routing, 11, 512);
    for weights in [WeightValues::Bits, WeightValues::LargeScales] {
        for values in [Values::Normal, Values::Mixed] {
            cases.push(of(Size::Quick, MmqCase { weights, values, ..case }));
        }
    }
    for weights in [WeightValues::GoldenQuantized, WeightValues::GoldenRandom] {
        let dense = MmqCase::dense(ty, 9, WEIGHT_ROWS, WEIGHT_COLS);
        cases.push(of(Size::Quick, MmqCase { weights, ..dense }));
    }
    // No token, and one expert of many.
    for mode in [RowMode::Experts, RowMode::Indexed] {
        let none = Routing::new(8, 2, 0, Random);
        cases.push(of(Size::Quick, MmqCase::new(ty, mode, none, 5, 256)));
    }
    cases.push(of(Size::Quick, MmqCase::dense(ty, 0, 5, 256)));

    let block = ty.block_bytes();
    let gaps = Gaps {
        weight_row: 2 * block,
        expert: 3 * block,
        weight_offset: 32,
        output: 3,
        output_offset: 1,
        overlap: None,
    };
    for mode in RowMode::ALL {
        let routing =
            if mode == RowMode::Dense { Routing::new(1, 1, 19, Only(0)) } else { routing };
        let case = MmqCase::new(ty, mode, routing, 18, 256);
        cases.push(of(Size::Quick, MmqCase { gaps, ..case }));
        cases.push(of(Size::Quick, MmqCase { gaps, launches: 2, ..case }));
    }
    for &cols in COLUMNS.iter().filter(|&cols| cols.is_multiple_of(ty.block_values())) {
        let case = MmqCase::new(ty, RowMode::Experts, routing, 21, cols);
        cases.push(of(Size::Quick, MmqCase { gaps, ..case }));
        // What lies behind a row may also be the next row's first block alone.
        cases.push(of(Size::Quick, MmqCase { weights: WeightValues::Bits, ..case }));
    }
    let batches: &[usize] = &[5, 8, 2099];
    cases.push(of(Size::Quick, InvarianceCase { ty, m: 9, cols: 256, batches }));
    let batches: &[usize] = &[2, 5, 8, 9, 16, 17, 33, 64, 65, 128, 129, 2099];
    cases.push(of(Size::Full, InvarianceCase { ty, m: 130, cols: 512, batches }));
}

/// The shapes in which others failed, as their reports give them.
fn from_reports(cases: &mut Vec<Case>) {
    let overlap = |rows| Gaps { overlap: Some(rows), ..Gaps::NONE };
    for mode in [RowMode::Experts, RowMode::Indexed] {
        // A token that names an expert twice.
        let ids = Fixed(&[121, 62, 117, 62, 32, 13]);
        let twice = Routing::new(144, 6, 9, ids);
        let case = MmqCase::new(T::Q8_0, mode, twice, 2048, 4096);
        cases.push(of(Size::Full, MmqCase { gaps: overlap(16), ..case }));
        let case = MmqCase::new(T::Q8_0, mode, twice, 40, 4096);
        cases.push(of(Size::Quick, case));
        cases.push(of(Size::Quick, MmqCase { gaps: overlap(3), ..case }));
        // Rows past the end of an expert's tile.
        let many = Routing::new(256, 8, 2040, Random);
        let case = MmqCase::new(T::Q4_K, mode, many, 512, 2048);
        cases.push(of(Size::Full, MmqCase { gaps: overlap(16), ..case }));
        cases.push(of(Size::Quick, MmqCase { gaps: overlap(2), m: 9, ..case }));
        // More than 65,535 rows.
        let rows = Routing::new(512, 8, 8193, Random);
        cases.push(of(Size::Quick, MmqCase::new(T::Q8_0, mode, rows, 3, 32)));
        cases.push(of(Size::Full, MmqCase::new(T::Q4_K, mode, rows, 5, 256)));
    }
    cases.push(of(Size::Quick, MmqCase::dense(T::Q8_0, 5, 512, 2048)));
    cases.push(of(Size::Quick, MmqCase::dense(T::Q4_0, 65_537, 1, 32)));
    // The model's own products, on a small prompt and on one of several thousand rows.
    for ty in [T::Q4_K, T::IQ2_XS, T::Q2_0] {
        let routing = Routing::new(512, 10, 48, Random);
        let case = MmqCase::new(ty, RowMode::Experts, routing, 1280, 2560);
        cases.push(of(Size::Full, MmqCase { gaps: overlap(8), ..case }));
        let routing = Routing::new(512, 10, 2099, Random);
        cases.push(of(Size::Full, MmqCase::new(ty, RowMode::Indexed, routing, 20, 1280)));
    }
}
