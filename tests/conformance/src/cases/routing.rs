//! Maps, top-k, router scores.

use strata_core::routing::{Gating, GroupScore, Groups, Norm, RouterOptions};

use super::of;
use crate::ops::{MapCase, RouterCase, Scores, TopKCase};
use crate::values::Choice::{All, Fixed, Odd, Only, Random, Repeats, Skewed};
use crate::values::{Choice, Routing, Values};
use crate::{Case, Size};

/// E, k, T, choice.
type Map = (usize, usize, usize, Choice);

const MAPS: &[Map] = &[
    // A token that names an expert twice.
    (144, 6, 9, Fixed(&[121, 62, 117, 62, 32, 13])),
    (144, 6, 9, Repeats),
    (7, 5, 300, Repeats),
    // Everything to one expert; experts without rows; no token; one.
    (1, 1, 1, Only(0)),
    (1, 1, 1000, Only(0)),
    (512, 10, 333, Only(511)),
    (512, 10, 333, Only(0)),
    (512, 3, 700, Odd),
    (8, 2, 0, Random),
    (512, 10, 0, Random),
    (512, 10, 1, Random),
    (512, 1, 1, Random),
    (2, 1, 513, Random),
    (3, 2, 97, Skewed),
    // Choices that no specialised path has; as many as experts.
    (16, 1, 257, Random),
    (16, 3, 257, Random),
    (16, 5, 257, Random),
    (16, 6, 257, Random),
    (16, 7, 257, Random),
    (64, 8, 257, Random),
    (64, 10, 257, Random),
    (6, 6, 130, All),
    (48, 48, 65, All),
    (300, 300, 3, All),
    // Expert counts about a warp, a wave, a block.
    (31, 4, 600, Random),
    (32, 4, 600, Random),
    (33, 4, 600, Random),
    (63, 4, 600, Random),
    (64, 4, 600, Random),
    (65, 4, 600, Random),
    (255, 4, 600, Skewed),
    (256, 8, 2040, Random),
    (257, 4, 600, Skewed),
    (1023, 4, 600, Random),
    (1025, 4, 600, Random),
    (5000, 2, 600, Random),
    // The model's own, at the sizes of its chunks.
    (512, 10, 600, Random),
    (512, 10, 2048, Random),
    (512, 10, 2099, Skewed),
    (128, 8, 2048, Random),
    (2048, 8, 2048, Random),
    // More than 65,535 rows; tokens just past what shared memory of a map kernel may hold.
    (512, 8, 8192, Random),
    (512, 10, 8192, Random),
    (512, 1, 65_537, Random),
    (512, 1, 12_289, Random),
    (512, 1, 16_385, Random),
    (512, 1, 25_345, Random),
    (512, 1, 58_113, Skewed),
    (512, 10, 12_289, Random),
    (512, 10, 16_385, Skewed),
    (8, 2, 40_000, Only(3)),
];

const LARGE_MAPS: &[Map] = &[
    (512, 10, 25_345, Random),
    (512, 10, 32_768, Random),
    (512, 10, 58_113, Random),
    (4, 2, 1_000_003, Skewed),
    (65_536, 2, 100_003, Random),
];

/// E, k, T, scores, gap.
const TOP_KS: &[(usize, usize, usize, Scores, usize)] = &[
    (512, 10, 67, Scores::Values(Values::Normal), 0),
    (512, 10, 67, Scores::Ties, 0),
    (512, 10, 33, Scores::Equal, 0),
    (512, 10, 67, Scores::Special, 0),
    (512, 10, 67, Scores::Values(Values::Wide), 3),
    (512, 10, 67, Scores::Values(Values::OneNan), 0),
    (512, 10, 67, Scores::Values(Values::Nans), 0),
    (512, 10, 67, Scores::Values(Values::Infinities), 0),
    (512, 10, 67, Scores::Values(Values::Huge), 0),
    (512, 10, 67, Scores::Values(Values::Subnormal), 0),
    (512, 10, 67, Scores::Values(Values::NegativeZero), 0),
    (512, 1, 40, Scores::Values(Values::Normal), 0),
    (1, 1, 40, Scores::Values(Values::Normal), 0),
    (1, 1, 40, Scores::Special, 0),
    (2, 2, 40, Scores::Ties, 1),
    (6, 6, 40, Scores::Special, 0),
    (33, 3, 40, Scores::Ties, 0),
    (64, 8, 300, Scores::Values(Values::Normal), 0),
    (65, 5, 40, Scores::Special, 2),
    (128, 8, 300, Scores::Ties, 0),
    (257, 64, 17, Scores::Values(Values::Normal), 0),
    (300, 300, 5, Scores::Ties, 0),
    (1000, 6, 40, Scores::Values(Values::Normal), 0),
    (5000, 33, 7, Scores::Ties, 0),
    (512, 10, 0, Scores::Values(Values::Normal), 0),
    (512, 10, 1, Scores::Values(Values::Normal), 0),
];

/// E, T, width, values, gap, offset.
const ROUTERS: &[(usize, usize, usize, Values, usize, usize)] = &[
    (512, 7, 2560, Values::Normal, 0, 0),
    (512, 0, 64, Values::Normal, 0, 0),
    (1, 1, 1, Values::Normal, 0, 0),
    (1, 40, 576, Values::Normal, 0, 0),
    (3, 5, 31, Values::Wide, 2, 1),
    (65, 33, 257, Values::Normal, 5, 3),
    (128, 130, 100, Values::Mixed, 0, 0),
    (8, 600, 64, Values::Normal, 0, 1),
    (8, 17, 64, Values::Nans, 0, 0),
    (8, 17, 64, Values::Infinities, 1, 0),
    (8, 17, 64, Values::Subnormal, 0, 0),
    (8, 17, 64, Values::Huge, 0, 0),
    (8, 17, 64, Values::NegativeZero, 0, 0),
    (1025, 3, 33, Values::Normal, 0, 0),
];

pub(super) fn add(cases: &mut Vec<Case>) {
    let map = |&(experts, k, tokens, choice): &Map| MapCase {
        routing: Routing::new(experts, k, tokens, choice),
        spare: 0,
        launches: 1,
        seed: 1,
    };
    for case in MAPS {
        cases.push(of(Size::Quick, map(case)));
    }
    for case in &MAPS[..20] {
        cases.push(of(Size::Quick, MapCase { spare: 33, launches: 2, ..map(case) }));
    }
    for case in LARGE_MAPS {
        cases.push(of(Size::Full, MapCase { spare: 1, ..map(case) }));
    }
    for &(experts, k, tokens, scores, gap) in TOP_KS {
        for options in [RouterOptions::SOFTMAX_OF_CHOSEN, RouterOptions::SOFTMAX.scaled(2.5)] {
            let (score_bias, selection_bias) = (false, false);
            let case =
                TopKCase { experts, k, tokens, scores, options, score_bias, selection_bias, gap };
            cases.push(of(Size::Quick, case));
        }
    }
    routers(cases);
    for &(experts, tokens, width, values, gap, offset) in ROUTERS {
        let case = RouterCase { tokens, experts, width, values, gap, offset };
        cases.push(of(Size::Quick, case));
    }
    let wide = RouterCase {
        tokens: 300,
        experts: 512,
        width: 2560,
        values: Values::Wide,
        gap: 0,
        offset: 0,
    };
    cases.push(of(Size::Full, wide));
}

/// E, k, T, scores, gap, groups, groups used.
const CHOICES: &[(usize, usize, usize, Scores, usize, usize, usize)] = &[
    (256, 8, 130, Scores::Values(Values::Normal), 0, 8, 4),
    (256, 8, 40, Scores::Ties, 0, 8, 4),
    (256, 8, 40, Scores::Special, 3, 8, 4),
    (256, 8, 9, Scores::Equal, 0, 8, 2),
    (160, 6, 40, Scores::Values(Values::Wide), 0, 8, 3),
    (512, 22, 33, Scores::Values(Values::Normal), 0, 1, 1),
    (1024, 32, 17, Scores::Values(Values::Normal), 0, 64, 5),
    (1024, 32, 5, Scores::Special, 0, 16, 16),
    (288, 8, 40, Scores::Values(Values::OneNan), 0, 9, 3),
    (64, 6, 40, Scores::Values(Values::Nans), 0, 64, 7),
    (33, 3, 40, Scores::Values(Values::Infinities), 1, 11, 2),
    (33, 3, 40, Scores::Values(Values::Huge), 0, 3, 1),
    (16, 2, 300, Scores::Values(Values::Normal), 0, 4, 2),
    (16, 2, 40, Scores::Values(Values::NegativeZero), 0, 4, 1),
    (7, 7, 20, Scores::Values(Values::Subnormal), 0, 7, 7),
    (128, 1, 40, Scores::Values(Values::Normal), 2, 2, 1),
    (1, 1, 3, Scores::Values(Values::Normal), 0, 1, 1),
    (256, 8, 0, Scores::Values(Values::Normal), 0, 8, 4),
    (256, 8, 1, Scores::Values(Values::Normal), 0, 8, 4),
];

/// Every router on every choice, and biases where it can have them.
fn routers(cases: &mut Vec<Case>) {
    const NONE: RouterOptions = RouterOptions::SOFTMAX;
    let sparsemixer = Gating::Sparsemixer { near: 0.02 };
    let sum = Norm::Sum { epsilon: 1e-20, least: 0.0 };
    let least = Norm::Sum { epsilon: 0.0, least: 1e-2 };
    let routers = [
        RouterOptions { gating: Gating::Sigmoid, ..NONE },
        RouterOptions { gating: Gating::Sigmoid, norm: sum, scale: 2.5, ..NONE },
        RouterOptions { gating: Gating::SqrtSoftplus, norm: sum, scale: 1.5, ..NONE },
        RouterOptions { norm: least, ..NONE },
        RouterOptions { softcap: 2.0, ..NONE },
        RouterOptions { gating: Gating::SoftmaxOfChosen, ..NONE },
        RouterOptions { gating: sparsemixer, ..NONE },
    ];
    for &(experts, k, tokens, scores, gap, count, used) in CHOICES {
        for (i, options) in routers.into_iter().enumerate() {
            let score = [GroupScore::TopTwo, GroupScore::Max][i % 2];
            let grouped = RouterOptions { groups: Some(Groups { count, used, score }), ..options };
            let mut add = |options, score_bias, selection_bias| {
                let case = TopKCase {
                    experts,
                    k,
                    tokens,
                    scores,
                    options,
                    score_bias,
                    selection_bias,
                    gap,
                };
                cases.push(of(Size::Quick, case));
            };
            add(options, i % 2 == 1, false);
            if options.gating != sparsemixer {
                add(options, false, true);
                add(grouped, false, false);
                add(grouped, true, true);
            }
        }
    }
}
