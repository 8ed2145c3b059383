//! Shapes that nobody thought of: random cases of every operation against the reference.

use proptest::prelude::*;
use strata_conformance::ops::{
    CombineCase, Gaps, LayerCase, LayerShape, MapCase, MmqCase, QuantCase, QuantRows, RouterCase,
    RowMode, Scores, SharedKind, Source, SwiGluCase, TopKCase,
};
use strata_conformance::values::{Choice, Routing, Values, WeightValues};
use strata_conformance::{Case, Op, ReferenceBackend, Size, run_cases};
use strata_core::activation::Activation;
use strata_core::backend::ops::{CombineOptions, GateUpOrder};
use strata_core::prefill::{Chunk, QuantMode};
use strata_core::q8_1::Sums;
use strata_core::routing::RouterOptions;
use strata_core::{Layout, WeightType};
use strata_cpu::{CpuBackend, CpuOptions};

fn holds(op: impl Op + std::fmt::Display + 'static) -> Result<(), TestCaseError> {
    let backend = CpuBackend::new(CpuOptions::default()).unwrap();
    let case = Case { name: op.to_string(), size: Size::Quick, op: Box::new(op) };
    let summary = run_cases(&backend, &ReferenceBackend::new(), &[case], &mut ());
    prop_assert!(summary.is_clean(), "{summary}");
    Ok(())
}

fn any_of<T: Copy + std::fmt::Debug + 'static>(values: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(values)
}

fn routing(most: usize) -> impl Strategy<Value = Routing> {
    let choice = any_of(&[Choice::Random, Choice::Skewed, Choice::Repeats, Choice::Only(0)]);
    (1usize..70, 0..most, choice).prop_flat_map(|(experts, tokens, choice)| {
        (1..=experts.min(11)).prop_map(move |k| Routing::new(experts, k, tokens, choice))
    })
}

fn values() -> impl Strategy<Value = Values> {
    any_of(&Values::ALL)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn maps(routing in routing(700), spare in 0usize..40, launches in 1usize..3, seed: u64) {
        holds(MapCase { routing, spare, launches, seed })?;
    }

    #[test]
    fn quantization(
        layout in any_of(&Layout::ALL),
        sums in any_of(&Sums::ALL),
        routing in routing(25),
        way in 0..3,
        cols in 0usize..1200,
        values in values(),
        (gap, offset) in (0usize..5, 0usize..5),
        (report, launches, seed) in (any::<bool>(), 1usize..3, any::<u64>()),
    ) {
        let rows = match way {
            0 => QuantRows::Identity(routing.tokens),
            1 => QuantRows::Gather(routing),
            _ => QuantRows::Scatter(routing),
        };
        let headers = layout.with(sums);
        holds(QuantCase { headers, rows, cols, values, gap, offset, report, launches, seed })?;
    }

    #[test]
    fn products(
        ty in any_of(WeightType::ALL),
        mode in any_of(&RowMode::ALL),
        routing in routing(30),
        (m, blocks) in (1usize..40, 1usize..5),
        values in values(),
        weights in any_of(&[WeightValues::Random, WeightValues::Bits, WeightValues::LargeScales]),
        (weight_row, expert, output, output_offset) in (0usize..4, 0usize..4, 0usize..5, 0usize..4),
        seed: u64,
    ) {
        let block = ty.block_bytes();
        let gaps = Gaps {
            weight_row: weight_row * block,
            expert: expert * block,
            output,
            output_offset,
            ..Gaps::NONE
        };
        let routing = match mode {
            RowMode::Dense => Routing::new(1, 1, routing.tokens, Choice::Only(0)),
            _ => routing,
        };
        let case = MmqCase::new(ty, mode, routing, m, blocks * ty.block_values());
        holds(MmqCase { values, weights, gaps, seed, ..case })?;
    }

    #[test]
    fn top_k(
        (experts, tokens) in (1usize..300, 0usize..20),
        part in 1usize..300,
        scores in prop_oneof![
            values().prop_map(Scores::Values),
            any_of(&[Scores::Ties, Scores::Equal, Scores::Special]),
        ],
        options in any_of(&[RouterOptions::SOFTMAX_OF_CHOSEN, RouterOptions::SOFTMAX]),
        (scale, gap) in (0.1f32..4.0, 0usize..4),
    ) {
        let k = part.min(experts);
        let options = options.scaled(scale);
        let (score_bias, selection_bias) = (false, false);
        let case =
            TopKCase { experts, k, tokens, scores, options, score_bias, selection_bias, gap };
        holds(case)?;
    }

    #[test]
    fn router(
        (tokens, experts, width) in (0usize..20, 1usize..80, 1usize..300),
        values in values(),
        (gap, offset) in (0usize..5, 0usize..5),
    ) {
        holds(RouterCase { tokens, experts, width, values, gap, offset })?;
    }

    #[test]
    fn swiglu(
        routing in routing(20),
        ffn in 1usize..700,
        order in any_of(&[GateUpOrder::Split, GateUpOrder::Interleaved]),
        fused in any_of(&[None, Some(Layout::D4), Some(Layout::DS4), Some(Layout::D2S6)]),
        sums in any_of(&Sums::ALL),
        activation in any_of(&[
            Activation::SwiGlu,
            Activation::GeluTanh,
            Activation::SwiGluOai { alpha: 1.702, limit: 7.0 },
        ]),
        (scaled, biased) in (any::<bool>(), any::<bool>()),
        values in values(),
        (gap, offset) in (0usize..5, 0usize..5),
    ) {
        let fused = fused.map(|layout: Layout| layout.with(sums));
        holds(SwiGluCase {
            routing, ffn, order, fused, activation, scaled, biased, values, gap, offset,
        })?;
    }

    #[test]
    fn combine(
        routing in routing(30),
        width in 1usize..300,
        shared in any_of(&[SharedKind::None, SharedKind::Plain, SharedKind::Gated]),
        (scaled, biased, weighed) in (any::<bool>(), any::<bool>(), any::<bool>()),
        values in values(),
        (gap, offset) in (0usize..5, 0usize..5),
    ) {
        let options = CombineOptions { weighed, ..CombineOptions::default() };
        holds(CombineCase { routing, width, shared, scaled, biased, options, values, gap, offset })?;
    }

    #[test]
    fn layers(
        (gate, down) in (any_of(WeightType::ALL), any_of(WeightType::ALL)),
        (experts, part, tokens) in (1usize..12, 1usize..12, 0usize..40),
        (width, ffn) in (1usize..3, 1usize..3),
        order in any_of(&[GateUpOrder::Split, GateUpOrder::Interleaved]),
        source in any_of(&[Source::Router, Source::Scores, Source::Routes(Choice::Repeats)]),
        mode in any_of(&QuantMode::ALL),
        (chunk, fused, calls, gap) in (1usize..50, any::<bool>(), 1usize..3, 0usize..4),
    ) {
        let shape = LayerShape {
            experts,
            k: part.min(experts),
            width: width * gate.block_values(),
            ffn: ffn * down.block_values(),
            gate,
            up: None,
            down,
            order,
        };
        let chunk = Chunk::Tokens(chunk);
        let case = LayerCase { source, mode, chunk, fused, calls, gap, ..LayerCase::new(shape, tokens) };
        holds(case)?;
    }
}
