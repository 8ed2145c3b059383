//! The steps of a whole model.

use strata_core::WeightType;
use strata_core::attention::{AttentionShape, Pairs, Reach};
use strata_core::backend::ops::{DeltaShape, KeyHeads};
use strata_core::floats::FloatType;

use super::of;
use crate::ops::{
    AttentionCase, ModelCase, ModelStep, NormForm, RecurrentCase, RecurrentStep, Stored,
};
use crate::values::Values;
use crate::{Case, Size};

/// Rows, columns, gap, offset.
const SHAPES: &[(usize, usize, usize, usize)] = &[
    (0, 64, 0, 0),
    (1, 1, 0, 0),
    (1, 576, 0, 0),
    (3, 2048, 0, 0),
    (17, 300, 3, 1),
    (33, 2880, 0, 2),
];

const VALUES: &[Values] = &[
    Values::Mixed,
    Values::Huge,
    Values::Subnormal,
    Values::Nans,
    Values::Infinities,
    Values::NegativeZero,
    Values::Zero,
];

const BASE: AttentionShape = AttentionShape {
    heads: 4,
    kv_heads: 2,
    key: 64,
    value: 64,
    scale: 0.125,
    softcap: None,
    reach: Reach::All,
};

pub(super) fn add(cases: &mut Vec<Case>) {
    let mut push = |step, (rows, cols, gap, offset), values| {
        cases.push(of(Size::Quick, ModelCase { step, rows, cols, values, gap, offset }));
    };
    let pointwise = [
        ModelStep::Norm(NormForm::Plain, 0),
        ModelStep::Norm(NormForm::Rms, 0),
        ModelStep::Norm(NormForm::Layer, 0),
        ModelStep::Norm(NormForm::L2, 0),
        ModelStep::AddNorm(NormForm::Rms),
        ModelStep::AddNorm(NormForm::Layer),
        ModelStep::Add,
        ModelStep::Bias,
        ModelStep::Scale(12.5),
        ModelStep::Softcap(30.0),
        ModelStep::Gate(1),
        ModelStep::SiluGate(1),
        ModelStep::Multiply,
        ModelStep::Copy,
    ];
    for step in pointwise {
        let of_width = |cols| match step {
            ModelStep::Norm(form, _) => ModelStep::Norm(form, cols),
            step => step,
        };
        for &shape in SHAPES {
            push(of_width(shape.1), shape, Values::Normal);
        }
        for &values in VALUES {
            push(of_width(300), (7, 300, 0, 0), values);
        }
    }
    // Norms and gates of heads.
    for (group, heads) in [(64, 9), (100, 3), (128, 4), (256, 3), (257, 2)] {
        for form in [NormForm::Plain, NormForm::Rms, NormForm::L2] {
            push(ModelStep::Norm(form, group), (5, group * heads, 1, 0), Values::Wide);
        }
        push(ModelStep::Gate(group), (5, group * heads, 1, 0), Values::Normal);
        push(ModelStep::SiluGate(group), (5, group * heads, 1, 0), Values::Normal);
    }
    for pairs in [Pairs::Interleaved, Pairs::Halves] {
        for (head, turned) in
            [(64, 32), (128, 64), (128, 32), (100, 50), (96, 48), (80, 40), (6, 1), (64, 0)]
        {
            push(ModelStep::Rope(pairs, head, turned), (1, 3 * head, 0, 0), Values::Normal);
            push(ModelStep::Rope(pairs, head, turned), (70, 3 * head, 2, 1), Values::Normal);
        }
        for &values in VALUES {
            push(ModelStep::Rope(pairs, 64, 32), (9, 128, 0, 0), values);
        }
    }
    for &ty in WeightType::ALL {
        let stored = Stored::Quantized(ty);
        push(ModelStep::Embed(stored, 40, None), (19, 512, 3, 1), Values::Normal);
    }
    for ty in FloatType::ALL {
        push(ModelStep::Embed(Stored::Floats(ty), 40, None), (19, 130, 3, 1), Values::Mixed);
        push(ModelStep::Embed(Stored::Floats(ty), 7, Some(25.3)), (1, 640, 0, 0), Values::Mixed);
        for (m, rows, cols) in
            [(1, 1, 1), (16, 1, 576), (17, 1, 300), (33, 70, 257), (8, 3, 2048), (0, 3, 64)]
        {
            push(ModelStep::FloatProduct(ty, m), (rows, cols, 0, 0), Values::Normal);
        }
        push(ModelStep::FloatProduct(ty, 19), (9, 513, 3, 1), Values::Mixed);
    }
    attention(cases);
    recurrent(cases);
}

fn recurrent(cases: &mut Vec<Case>) {
    let mut push = |step, lens, chunk, values, gap| {
        cases.push(of(Size::Quick, RecurrentCase { step, lens, chunk, values, gap }));
    };
    let base = DeltaShape {
        key_heads: 2,
        value_heads: 4,
        key: 32,
        value: 32,
        order: KeyHeads::Grouped,
        scale: 0.176_776_7,
    };
    let normal = Values::Normal;
    for (cols, taps, silu) in [(64, 4, true), (300, 3, false), (17, 1, true), (33, 2, false)] {
        let step = RecurrentStep::Convolve(cols, taps, silu);
        for lens in [&[1u32], &[2], &[3], &[9]] {
            push(step, lens, 0, normal, 0);
        }
        for chunk in [0, 1, 2, 3, 7] {
            push(step, &[40, 1, 13, 2], chunk, normal, 3);
        }
    }
    push(RecurrentStep::Convolve(5, 16, true), &[40, 3], 4, normal, 0);
    push(RecurrentStep::Convolve(1, 4, false), &[11], 4, normal, 1);
    for order in [KeyHeads::Grouped, KeyHeads::Modulo] {
        for (key_heads, value_heads, key, value) in [
            (1, 1, 128, 128),
            (2, 4, 128, 128),
            (2, 2, 64, 64),
            (3, 6, 16, 40),
            (1, 3, 7, 5),
            (2, 2, 1, 1),
            (1, 1, 33, 130),
        ] {
            let shape = DeltaShape { key_heads, value_heads, key, value, order, ..base };
            push(RecurrentStep::DeltaNet(shape), &[9, 1], 4, normal, 3);
        }
    }
    let step = RecurrentStep::DeltaNet(base);
    for chunk in [0, 1, 7, 63, 64, 65] {
        push(step, &[130], chunk, normal, 0);
        push(step, &[1, 70, 64, 3], chunk, normal, 1);
    }
    for &values in VALUES.iter().chain(&[Values::OneNan, Values::Wide, Values::Spike]) {
        push(RecurrentStep::Convolve(64, 4, true), &[40, 9], 16, values, 0);
        push(step, &[20, 9], 6, values, 0);
    }
}

fn attention(cases: &mut Vec<Case>) {
    let base = AttentionCase {
        shape: BASE,
        lens: &[70],
        chunk: 0,
        sinks: false,
        values: Values::Normal,
        gap: 0,
    };
    let mut push = |size, case: AttentionCase| cases.push(of(size, case));
    for (key, value) in
        [(64, 64), (80, 80), (96, 96), (100, 100), (128, 128), (192, 128), (256, 256), (4, 12)]
    {
        let shape = AttentionShape { key, value, ..BASE };
        push(Size::Quick, AttentionCase { shape, gap: 3, ..base });
    }
    // MLA: one compressed row for all heads.
    let shape = AttentionShape { heads: 7, kv_heads: 1, key: 576, value: 512, ..BASE };
    push(Size::Quick, AttentionCase { shape, lens: &[70, 3], chunk: 50, ..base });
    for values in [Values::SumOverflow, Values::Spike] {
        push(Size::Quick, AttentionCase { shape, values, ..base });
    }
    for (heads, kv_heads) in [(1, 1), (3, 1), (8, 1), (16, 1), (32, 2), (3, 3)] {
        let shape = AttentionShape { heads, kv_heads, ..BASE };
        push(Size::Quick, AttentionCase { shape, lens: &[130], chunk: 50, ..base });
    }
    for lens in [&[1u32], &[2], &[63], &[64], &[65], &[127], &[128], &[129]] {
        push(Size::Quick, AttentionCase { lens, ..base });
    }
    // However a prompt is cut, and whatever else is in the batch.
    for chunk in [1, 7, 63, 64, 65, 129] {
        push(Size::Quick, AttentionCase { lens: &[200], chunk, ..base });
        let lens = &[1, 140, 64, 65, 3, 128, 129, 77];
        push(Size::Quick, AttentionCase { lens, chunk, sinks: true, ..base });
    }
    let windows = [1, 63, 64, 65, 150].map(Reach::Window);
    for reach in windows.into_iter().chain([40, 64, 100].map(Reach::Chunk)) {
        let shape = AttentionShape { reach, ..BASE };
        for chunk in [0, 33] {
            let case = AttentionCase { shape, lens: &[230, 90], chunk, sinks: true, ..base };
            push(Size::Quick, case);
        }
    }
    for softcap in [1.0, 30.0] {
        let shape = AttentionShape { softcap: Some(softcap), scale: 1.0, ..BASE };
        push(Size::Quick, AttentionCase { shape, lens: &[100], chunk: 41, ..base });
        push(Size::Quick, AttentionCase { shape, lens: &[100], sinks: true, ..base });
    }
    for &values in VALUES.iter().chain(&[Values::OneNan, Values::Wide, Values::Spike]) {
        push(Size::Quick, AttentionCase { values, lens: &[100], chunk: 37, ..base });
    }
    let shape = AttentionShape { heads: 2, kv_heads: 1, ..BASE };
    push(Size::Full, AttentionCase { shape, lens: &[3000], chunk: 1000, ..base });
}
