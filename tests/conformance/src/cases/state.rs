//! Repetition, streams, threads, memory in flight.

use strata_core::backend::ops::GateUpOrder;
use strata_core::prefill::{Chunk, QuantMode};
use strata_core::{Layout, WeightType};

use crate::ops::{
    Concurrent, CopyCase, DropInFlight, HandedOver, LayerCase, LayerShape, MapCase, MmqCase,
    QuantCase, QuantRows, RowMode, Runs, ScoresOverwritten, Streams, TooMuch,
};
use crate::values::{Choice, Routing};
use crate::{Case, Op, Size};

const MANY: Routing = Routing::new(512, 10, 300, Choice::Skewed);

fn map() -> MapCase {
    MapCase { routing: MANY, spare: 0, launches: 1, seed: 1 }
}

fn scatter(layout: Layout) -> QuantCase {
    QuantCase::new(layout.into(), QuantRows::Scatter(Routing::new(64, 10, 50, Choice::Random)), 128)
}

fn product(ty: WeightType, mode: RowMode) -> MmqCase {
    MmqCase::new(ty, mode, Routing::new(9, 3, 40, Choice::Skewed), 37, 256)
}

const fn layer(mode: QuantMode, chunk: usize, ty: WeightType, tokens: usize) -> LayerCase {
    let shape = LayerShape {
        experts: 8,
        k: 2,
        width: 64,
        ffn: 64,
        gate: ty,
        up: None,
        down: ty,
        order: GateUpOrder::Split,
    };
    let chunk = Chunk::Tokens(chunk);
    LayerCase { mode, chunk, checked: false, ..LayerCase::new(shape, tokens) }
}

fn named(name: impl std::fmt::Display, op: impl Op + 'static) -> Case {
    Case { name: format!("state/{name}"), size: Size::Quick, op: Box::new(op) }
}

pub(super) fn add(cases: &mut Vec<Case>) {
    use WeightType::{Q2_0, Q2_K, Q4_1, Q4_K, Q8_0};
    fn runs(op: impl Op + std::fmt::Display + 'static) -> Case {
        const RUNS: usize = 1000;
        named(format!("runs={RUNS}/{op}"), Runs { op: Box::new(op), runs: RUNS })
    }
    cases.push(runs(map()));
    cases.push(runs(scatter(Layout::DS4)));
    cases.push(runs(product(Q4_K, RowMode::Experts)));
    cases.push(runs(product(Q2_K, RowMode::Indexed)));
    cases.push(runs(layer(QuantMode::Scatter, 11, Q8_0, 40)));

    let four = |op: fn(usize) -> Box<dyn Op>| (0..4).map(op).collect::<Vec<_>>();
    let rounds = 25;
    let ops = four(|_| Box::new(map()));
    cases.push(named("threads=4/map", Concurrent { ops, rounds }));
    let ops = four(|i| Box::new(scatter(Layout::ALL[i % 3])));
    cases.push(named("threads=4/scatter", Concurrent { ops, rounds }));
    let ops = four(|i| Box::new(product([Q8_0, Q4_1, Q2_K, Q4_K][i], RowMode::ALL[i % 3])));
    cases.push(named("threads=4/mmq", Concurrent { ops, rounds }));
    let ops =
        four(|i| Box::new(layer(QuantMode::ALL[i % 3], 7 + i, [Q8_0, Q4_1, Q2_0, Q8_0][i], 50)));
    cases.push(named("threads=4/layer", Concurrent { ops, rounds }));
    let ops: Vec<Box<dyn Op>> = vec![
        Box::new(map()),
        Box::new(scatter(Layout::D4)),
        Box::new(product(Q4_K, RowMode::Experts)),
        Box::new(layer(QuantMode::Indexed, 9, Q8_0, 50)),
    ];
    cases.push(named("threads=4/each-another-operation", Concurrent { ops, rounds }));

    for (chunk, name) in [(8192, "whole"), (7, "chunked")] {
        let of = [
            layer(QuantMode::Scatter, chunk, Q8_0, 50),
            layer(QuantMode::Indexed, chunk, Q4_1, 37),
        ];
        cases.push(named(format!("streams=2/{name}"), Streams { cases: of, calls: 5 }));
    }
    for (bytes, from, to) in
        [(0, 0, 0), (1, 3, 1), (4097, 0, 0), (4097, 1, 2), (3 << 20, 4, 3), ((5 << 20) + 1, 0, 1)]
    {
        let op = CopyCase { bytes, from, to };
        cases.push(named(op.to_string(), op));
    }
    for (by_event, how) in [(false, ""), (true, "-by-event")] {
        let op = HandedOver { routing: MANY, turns: 6, by_event };
        cases.push(named(format!("streams=2/map-handed-over{how}"), op));
    }
    for (experts, k, tokens) in [(512, 10, 4096), (64, 64, 4096)] {
        let routing = Routing::new(experts, k, tokens, Choice::Random);
        let op = ScoresOverwritten { routing, rounds: 20 };
        cases.push(named(format!("scores-overwritten/E={experts},k={k}/T={tokens}"), op));
    }
    for (ty, rounds) in [(Q8_0, 4), (Q4_K, 4)] {
        let op = DropInFlight { ty, rows: 300, m: 257, cols: 1024, rounds };
        cases.push(named(format!("drop-in-flight/{ty}"), op));
    }
    cases.push(named("out-of-memory", TooMuch));
}
