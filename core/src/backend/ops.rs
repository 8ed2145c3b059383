//! The checked arguments of every step.
//!
//! Each operation is built from views that know their shape, checks that they
//! fit together, and is launched by its `launch`, which checks that everything
//! lives on the backend's device and hands it over as [`Checked`]. What a backend
//! reads through the accessors therefore holds: shapes agree, no index leaves its
//! buffer, no size overflows. Where it writes, only [`Checked`] tells.
//!
//! An operation without a value to write never reaches the backend, except
//! [`MapRoutes`], whose bounds are written for no tokens too.

use super::buffer::View;
use super::routes::MAX_TOKENS;
use super::{
    Backend, Checked, DeviceId, DeviceRoutes, KvCache, Report, RoutesView, RoutingMap, Slice,
    SliceMut, TokenBatch,
};
use crate::error::{NonFinite, agree, same_device};
use crate::q8_1::{self, Headers, Layout};
use crate::routing::RouterOptions;
use crate::{Error, Result, WeightType};

mod attention;
mod cost;
mod launch;
mod matrix;
mod model;
mod moe;
mod norm;
mod product;
mod quantize;
mod recurrent;
mod routing;

pub use attention::*;
pub use cost::Cost;
use cost::Moved;
use launch::{Admission, Operation};
pub use launch::{Launch, Output};
pub use matrix::{Matrix, MatrixMut, MatrixOf, Q8Rows, Q8RowsMut, Q8RowsOf, Strides, Weights};
pub use model::*;
pub use moe::*;
pub use norm::*;
pub use product::*;
pub use quantize::*;
pub use recurrent::*;
pub use routing::*;

/// Where an operation reports a token, and as what.
pub struct ReportTo<'a> {
    word: SliceMut<'a, u32>,
    value: NonFinite,
    header: NonFinite,
}

impl<'a> ReportTo<'a> {
    fn new(report: &'a mut Report, value: NonFinite, header: NonFinite) -> Self {
        Self { word: report.word(), value, header }
    }

    fn device(&self) -> DeviceId {
        self.word.device()
    }

    /// The word that takes the minimum of `token << 3 | kind`.
    pub fn word(&mut self) -> SliceMut<'_, u32> {
        self.word.reborrow()
    }

    /// The kind for a value that is not finite.
    pub fn value_kind(&self) -> u32 {
        self.value as u32
    }

    /// The kind for a stored scale or sum that is not finite.
    pub fn header_kind(&self) -> u32 {
        self.header as u32
    }
}
