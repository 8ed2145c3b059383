//! The cases, as data. Adding one adds a line here and no code to a backend.

mod elementwise;
mod form;
mod layer;
mod mmq;
mod model;
pub mod quantize;
mod routing;
mod state;

use strata_core::WeightType;

use crate::ops::{LargeCase, LargeKind, PrefillCase, refuse_table};
use crate::{Case, Op, Size};

pub use layer::fused;

/// Every case of every size, in the order in which operations build on each
/// other: the map comes before what reads one.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    routing::add(&mut cases);
    quantize::add(&mut cases);
    elementwise::add(&mut cases);
    mmq::add(&mut cases);
    cases.extend(prefill_mmq_scatter());
    layer::add(&mut cases);
    form::add(&mut cases);
    model::add(&mut cases);
    state::add(&mut cases);
    cases.extend(refuse_table().into_iter().map(|case| of(Size::Quick, case)));
    cases.extend(LargeKind::ALL.map(|kind| of(Size::Large, LargeCase(kind))));
    cases
}

/// The 25 cases of the scatter change: every layout, one to 2,099 tokens.
pub fn prefill_mmq_scatter() -> Vec<Case> {
    use WeightType::{IQ2_XS, Q2_0, Q2_K, Q4_1, Q8_0};
    let types = [Q2_0, Q8_0, IQ2_XS, Q4_1, Q2_K];
    let cases = types.into_iter().flat_map(|ty| {
        [1, 2, 7, 600, 2099].map(|tokens| of(Size::Quick, PrefillCase { ty, tokens }))
    });
    cases.collect()
}

/// A case that goes by its data.
fn of(size: Size, op: impl Op + std::fmt::Display + 'static) -> Case {
    Case { name: op.to_string(), size, op: Box::new(op) }
}
