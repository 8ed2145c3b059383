//! The CPU backend: the quick suite against the reference, and every
//! instruction set and number of threads against the CPU that passed it.

use strata_conformance::{ReferenceBackend, Selection, Size, Summary, cases, run, run_against};
use strata_cpu::{CpuBackend, CpuOptions, Isa};

fn cpu(isa: Option<Isa>, threads: Option<usize>) -> CpuBackend {
    CpuBackend::new(CpuOptions { isa, threads }).unwrap()
}

/// None differs, and none is skipped: a CPU runs everything but what needs more memory.
fn assert_all_passed(summary: &Summary) {
    println!("{summary}");
    assert!(summary.is_clean() && summary.passed == summary.cases, "{summary}");
}

/// `STRATA_CONFORMANCE_EVERY=4` takes one case of four, for emulated processors.
#[test]
fn quick() {
    let every = std::env::var("STRATA_CONFORMANCE_EVERY").map_or(1, |n| n.parse().unwrap());
    let summary = run(&cpu(None, None), &Selection::quick().one_of(every), &mut ());
    assert_all_passed(&summary);
    assert!(summary.cases > 6000 / every, "{} cases", summary.cases);
}

/// Each instruction set that this machine has, with as many threads as make a difference.
#[test]
fn instruction_sets_and_threads() {
    let trusted = cpu(None, None);
    for (isa, threads) in Isa::supported().zip([1, 2, 5]) {
        let summary =
            run_against(&cpu(Some(isa), Some(threads)), &trusted, &Selection::quick(), &mut ());
        println!("{} with {threads} threads", isa.name());
        assert_all_passed(&summary);
    }
}

#[test]
#[ignore = "several minutes: the full size against the reference"]
fn full() {
    assert_all_passed(&run(&cpu(None, None), &Selection::up_to(Size::Full), &mut ()));
}

#[test]
#[ignore = "up to 11 GB of memory; cases that need more than is free are listed as skipped"]
fn large() {
    let selection = Selection::up_to(Size::Large).matching("large/");
    let summary = run(&cpu(None, None), &selection, &mut ());
    println!("{summary}");
    assert!(summary.differing.is_empty(), "{summary}");
    assert_eq!(summary.passed + summary.skipped.len(), summary.cases, "{summary}");
}

#[test]
fn names_are_unique() {
    let mut names: Vec<String> = cases::all().into_iter().map(|case| case.name).collect();
    names.sort_unstable();
    for pair in names.windows(2) {
        assert_ne!(pair[0], pair[1]);
    }
}

#[test]
fn selections() {
    let all = cases::all();
    let count = |selection: &Selection| selection.select(cases::all()).len();
    let [quick, full, large] = Size::ALL.map(|size| count(&Selection::up_to(size)));
    assert!(quick < full && full < large && large == all.len(), "{quick} {full} {large}");
    let both = Selection::quick().matching("mmq/q4_K").matching("T=67");
    assert!((1..20).contains(&count(&both)), "{}", count(&both));
    assert_eq!(count(&Selection::quick().one_of(4)), quick.div_ceil(4));
    // A selection of nothing has proved nothing.
    let nothing =
        run(&ReferenceBackend::new(), &Selection::quick().matching("no such case"), &mut ());
    assert!(nothing.cases == 0 && !nothing.is_clean());
    assert_eq!(Size::ALL.map(|s| s.to_string().parse::<Size>().unwrap()), Size::ALL);
    let error = "medium".parse::<Size>().unwrap_err().to_string();
    assert_eq!(error, "size: given medium, expected quick, full or large");
}
