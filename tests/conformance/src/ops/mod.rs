//! One kind of case per operation.
//!
//! An op holds the data of one case, builds its inputs, launches, and hands
//! back whole output buffers. It names no backend and no expected byte: those
//! come from running the same case on the yardstick, unless they are golden.

mod attention;
mod elementwise;
mod form;
mod host_layer;
mod invariance;
mod large;
mod layer;
mod mmq;
mod model;
mod prefill;
mod quantize;
mod recurrent;
mod refuse;
mod routing;
mod state;

pub mod golden;

pub use attention::AttentionCase;
pub use elementwise::{CombineCase, SharedKind, SwiGluCase};
pub use form::{Form, Operand};
pub use host_layer::host_layer;
pub use invariance::InvarianceCase;
pub use large::{LargeCase, LargeKind};
pub use layer::{LayerCase, LayerShape, SharedCase, Source, Trouble};
pub use mmq::{Gaps, MmqCase, RowMode};
pub use model::{ModelCase, ModelStep, NormForm, Stored};
pub use prefill::PrefillCase;
pub use quantize::{QuantCase, QuantRows};
pub use recurrent::{RecurrentCase, RecurrentStep};
pub use refuse::RefuseCase;
pub(crate) use refuse::table as refuse_table;
pub use routing::{MapCase, RouterCase, Scores, TopKCase};
pub use state::{
    Concurrent, CopyCase, DropInFlight, HandedOver, Runs, ScoresOverwritten, Streams, TooMuch,
};

use strata_core::Result;
use strata_core::backend::ops::{MapRoutes, Matrix};
use strata_core::backend::{Backend, Buffer, DeviceRoutes, Report, RoutingMap};
use strata_core::routing::Routes;

use crate::output::{Output, Shape};

/// What lies between the rows of an input: a NaN, so that a value read from there shows.
const GAP: f32 = f32::from_bits(0x7fab_cdef);

/// A matrix of f32 on a device, strided and offset, with NaN around its rows.
#[derive(Debug)]
struct InMatrix {
    buffer: Buffer<f32>,
    rows: usize,
    cols: usize,
    stride: usize,
    offset: usize,
}

impl InMatrix {
    /// `values`: rows without gaps; on the device `cols + gap` apart, starting
    /// `offset` values into the buffer.
    fn new(
        backend: &dyn Backend,
        values: &[f32],
        rows: usize,
        cols: usize,
        gap: usize,
        offset: usize,
    ) -> Result<Self> {
        let stride = cols + gap;
        let mut host = vec![GAP; offset + rows * stride + 64];
        for row in 0..rows {
            host[offset + row * stride..][..cols].copy_from_slice(&values[row * cols..][..cols]);
        }
        Ok(Self { buffer: backend.from_slice(&host)?, rows, cols, stride, offset })
    }

    fn dense(backend: &dyn Backend, values: &[f32], rows: usize, cols: usize) -> Result<Self> {
        Self::new(backend, values, rows, cols, 0, 0)
    }

    fn view(&self) -> Result<Matrix<'_>> {
        let data = self.buffer.slice(self.offset..)?;
        Matrix::new("input", data, self.rows, self.cols, self.stride)
    }
}

/// Routes and their map on a device. The map's own kernel makes the map: its
/// cases come first.
struct Mapped {
    routes: DeviceRoutes,
    map: RoutingMap,
}

impl Mapped {
    fn new(backend: &dyn Backend, host: &Routes) -> Result<Self> {
        let routes = DeviceRoutes::upload(backend, host)?;
        let mut map = RoutingMap::with_capacity(backend, host.tokens(), host.k(), host.experts())?;
        MapRoutes::new(routes.view(), &mut map)?.launch(backend)?;
        Ok(Self { routes, map })
    }
}

/// The report's word as an output.
fn report_output(backend: &dyn Backend, report: &Report) -> Result<Output> {
    let text = match report.check(backend, 0) {
        Ok(()) => "nothing reported".to_owned(),
        Err(error @ strata_core::Error::NonFinite { .. }) => error.to_string(),
        Err(error) => return Err(error),
    };
    Ok(Output {
        what: "report".into(),
        bytes: text.into_bytes(),
        shape: Shape::Text,
        expected: None,
    })
}
