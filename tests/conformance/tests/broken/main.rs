//! A suite is worth what it can catch: backends with one fault each, and the
//! cases that must find it, or the refusal that must follow.

mod backend;
mod order;

use backend::{Broken, Fault};
use strata_conformance::output::Mismatch;
use strata_conformance::{Difference, Selection, run};

macro_rules! names {
    ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => { &[$($($name),*),*] };
}
/// What every operation is called.
const OPERATIONS: &[&str] = strata_core::for_each_operation!(names);

/// Runs the cases of one text on a backend of one fault.
fn differences(fault: Fault, text: &str) -> (usize, Vec<Difference>) {
    let summary = run(&Broken::new(fault), &Selection::quick().matching(text), &mut ());
    assert!(summary.cases > 0, "no case is named {text}");
    (summary.cases, summary.differing)
}

#[test]
fn every_fault_is_caught() {
    // The fault, and cases that must see it; the same cases pass without it.
    let table = [
        (Fault::Output("quantize", "rows", 0), "quantize/D4/identity/T=17/"),
        (Fault::Output("quantize", "rows", 0), "golden/q8_1/DS4/edge"),
        (Fault::Output("quantize", "gather", 0), "quantize/D2S6/gather/E=16"),
        (Fault::Output("scatter", "", 0), "quantize/DS4/scatter/E=16"),
        (Fault::Output("scatter", "", 0), "prefill_mmq_scatter/q8_0,D4/E=512,k=10,random/T=7/"),
        (Fault::Output("product", "", 0), "mmq/q4_K/dense/T=67"),
        (Fault::Output("product", "", 0), "mmq/q8_0/experts/E=9"),
        (Fault::Output("product", "indexed", 0), "mmq/q2_K/indexed/E=9"),
        (
            Fault::Output("product", "indexed", 0),
            "prefill_mmq_scatter/q2_K,D2S6/E=512,k=10,random/T=7/",
        ),
        (Fault::Output("router", "", 0), "router/E=65"),
        (Fault::Output("top-k", "", 0), "top-k/E=33"),
        (Fault::Output("top-k", "", 1), "top-k/E=65"),
        (Fault::Output("map", "", 0), "map/E=255"),
        (Fault::Output("map", "", 1), "map/E=7,"),
        (Fault::Output("map", "", 2), "map/E=256,"),
        (Fault::Output("swiglu", "", 0), "swiglu/split/E=8,k=3"),
        (Fault::Output("swiglu + quantize", "", 0), "swiglu-quantize/DS4/interleaved/E=8,k=3"),
        (Fault::Output("swiglu + quantize", "", 0), "layer/mxfp4,mxfp4/"),
        (Fault::Output("combine", "", 0), "combine/alone/E=16,k=3"),
        (Fault::Output("combine", "shared", 0), "combine/shared-gated/E=16,k=3"),
        (Fault::Output("embed", "quantized", 0), "embed/q4_K/"),
        (Fault::Output("embed", "floats", 0), "embed/BF16/table=40"),
        (Fault::Output("norm", "rms", 0), "norm/rms/group=64/"),
        (Fault::Output("norm", "layer", 0), "norm/layer/group=300/T=17"),
        (Fault::Output("add + norm", "", 0), "add-norm/rms/T=17"),
        (Fault::Output("add + norm", "", 1), "add-norm/rms/T=17"),
        (Fault::Output("pointwise", "add", 0), "pointwise/add/T=17"),
        (Fault::Output("pointwise", "gate", 0), "pointwise/gate=64/"),
        (Fault::Output("pointwise", "silu gate", 0), "pointwise/silu-gate=64/"),
        (Fault::Output("pointwise", "multiply", 0), "pointwise/multiply/T=17"),
        (Fault::Output("pointwise", "copy", 0), "pointwise/copy/T=17"),
        (Fault::Output("norm", "l2", 0), "norm/l2/group=128/"),
        (Fault::Output("rope", "halves", 0), "rope/halves/head=128,pairs=32/"),
        (Fault::Output("float product", "", 0), "float-product/F16/m=19"),
        (Fault::Output("append", "", 0), "attention/heads=4:2,size=64:64/T=200/chunk=63"),
        (Fault::Output("attention", "", 0), "attention/heads=4:2,size=64:64/T=65/"),
        (Fault::Output("convolution", "silu", 0), "convolution/cols=64,taps=4,silu/T=9/"),
        (Fault::Output("convolution", "plain", 1), "convolution/cols=300,taps=3/T=9/"),
        (Fault::Output("delta net", "", 0), "delta-net/heads=4:2,size=32:32/T=130/chunk=63"),
        (Fault::Output("delta net", "", 1), "delta-net/heads=4:2,size=32:32/T=130/chunk=63"),
        (Fault::NoProduct, "mmq/q5_0/dense/T=67"),
        (Fault::NoReport, "quantize/D4/identity/T=11/cols=580/one-nan/checked"),
        (Fault::NoReport, "error=token-13-an-input-value-is-not-finite/"),
        (Fault::NoReport, "error=token-0-an-output-value"),
        (Fault::NoReport, "combine/shared-gated/E=8,k=3,random/T=13/width=200/nans"),
        (Fault::ProductGap, "row-gap"),
        (Fault::RareProduct, "state/runs=1000/mmq/q2_K"),
        (Fault::LateRows, "invariance/q8_0/"),
        (Fault::NoCopy, "state/copy/bytes=4097"),
        (Fault::Error, "mmq/q5_1/dense/T=67"),
        (Fault::Panic, "mmq/q5_1/dense/T=67"),
    ];
    for &name in OPERATIONS {
        let spoiled = |fault: &Fault| matches!(fault, Fault::Output(op, ..) if *op == name);
        assert!(table.iter().any(|(fault, _)| spoiled(fault)), "no wrong {name} is tried");
    }
    for (fault, text) in table {
        let text = text.trim_end_matches("is-not-finite/");
        let (_, without) = differences(Fault::None, text);
        assert_eq!(without, [], "{text}, without a fault");
        let (cases, with) = differences(fault, text);
        assert!(!with.is_empty(), "{fault:?} in {text}: none of {cases} cases saw it");
    }
}

#[test]
fn a_difference_says_where() {
    let (_, found) = differences(
        Fault::Output("quantize", "rows", 0),
        "quantize/D4/identity/T=5/cols=129/normal",
    );
    let [difference] = &found[..] else { panic!("{found:?}") };
    // 4 blocks each of 5 rows: the fifth of 20 blocks begins at byte 720, behind 512 bytes of poison.
    let expected = "quantize/D4/identity/T=5/cols=129/normal/checked: q8_1 rows: 1 bytes differ, \
                    the first at byte 1232 (row 0, columns from 128, d[0]): ";
    assert!(difference.to_string().starts_with(expected), "{difference}");

    let (_, found) =
        differences(Fault::Output("product", "", 0), "mmq/q8_0/dense/T=19/m=18,K=256,row-gap");
    let shown = found[0].to_string();
    assert!(shown.contains("row 9, column 9"), "{shown}");
    let Mismatch::Bytes { given, expected, differing, outside, float, .. } = &found[0].mismatch
    else {
        panic!("{shown}");
    };
    assert!(given.len() == 4 && given != expected && *differing == 1 && *outside == 0 && *float);

    let (_, found) = differences(Fault::ProductGap, "mmq/q8_0/dense/T=19/m=18,K=256,row-gap");
    let shown = found[0].to_string();
    assert!(shown.contains("(1 of them outside the output)"), "{shown}");
    assert!(shown.contains("outside: row 0 of 19, column 18 of 18"), "{shown}");
    assert!(shown.contains("expected a5 a5 a5 a5"), "{shown}");

    let (_, found) = differences(Fault::RareProduct, "state/runs=1000/mmq/q2_K");
    assert!(found[0].to_string().contains("run 700 of 1000: product: 1 bytes differ"));
    let (_, found) = differences(Fault::Error, "mmq/q5_1/dense/T=67");
    let words = "the backend failed: product: given this one, expected another";
    assert!(found[0].to_string().ends_with(words), "{}", found[0]);
    let (_, found) = differences(Fault::Panic, "mmq/q5_1/dense/T=67");
    assert!(found[0].to_string().ends_with("panicked: a product that panics"), "{}", found[0]);
}
