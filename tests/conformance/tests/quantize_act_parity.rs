//! The row-major activation formats against the vectors of another implementation.

use strata_conformance::{ReferenceBackend, Selection, cases, run};

#[test]
fn quantize_act_parity() {
    assert_eq!(cases::quantize::act_vectors().len(), 6);
    // They are made on the host: no backend has a part in them.
    let selection = Selection::quick().matching("golden/act/");
    let summary = run(&ReferenceBackend::new(), &selection, &mut ());
    println!("{summary}");
    assert_eq!((summary.passed, summary.differing.len()), (6, 0), "{summary}");
}
