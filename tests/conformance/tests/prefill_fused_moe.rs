//! SwiGLU and quantization in one step, and whole layers of them, against the two steps: all types but the IQ ones.

use strata_conformance::ReferenceBackend;
use strata_conformance::{Summary, cases, run_cases};
use strata_core::WeightType;
use strata_cpu::{CpuBackend, CpuOptions};

/// For each type of gate, up and down: split and interleaved rows, one tensor
/// and two, scatter, gather and indexed, fused and not. The yardstick takes
/// the two steps over the plain reference, so all of these are the same bytes.
#[test]
fn prefill_fused_moe() {
    let types = WeightType::ALL.iter().copied().filter(|ty| !ty.name().starts_with("iq"));
    let cases: Vec<_> = types.flat_map(cases::fused).collect();
    // 16 a type, and 3 with sums of codes where headers have sums.
    assert_eq!(cases.len(), 16 * 16 + 6 * 3);
    let backend = CpuBackend::new(CpuOptions::default()).unwrap();
    let summary: Summary = run_cases(&backend, &ReferenceBackend::new(), &cases, &mut ());
    println!("{summary}");
    assert_eq!((summary.passed, summary.differing.len()), (cases.len(), 0), "{summary}");
}
