//! Scatter, gather and indexed: the same bytes, in 25 cases.

use strata_conformance::{Selection, cases, run};
use strata_cpu::{CpuBackend, CpuOptions};

/// D4 with Q2_0, Q8_0 and IQ2_XS, DS4 with Q4_1, D2S6 with Q2_K; 1, 2, 7, 600
/// and 2,099 tokens; 10 of 512 experts; 2,560 columns; one token all zeros. The
/// case names its modes itself: STRATA_QUANT_GATHER has no say here.
#[test]
fn prefill_mmq_scatter() {
    assert_eq!(cases::prefill_mmq_scatter().len(), 25);
    let backend = CpuBackend::new(CpuOptions::default()).unwrap();
    let selection = Selection::quick().matching("prefill_mmq_scatter/");
    let summary = run(&backend, &selection, &mut ());
    println!("{summary}");
    assert_eq!((summary.passed, summary.differing.len()), (25, 0), "{summary}");
}
