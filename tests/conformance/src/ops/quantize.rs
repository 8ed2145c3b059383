//! q8_1 of rows: in place, gathered, scattered.

use strata_core::backend::Report;
use strata_core::backend::ops::{QuantizeRows, QuantizeScatter};
use strata_core::q8_1::{Headers, Sums};

use super::{InMatrix, Mapped, report_output};
use crate::poisoned::OutQ8;
use crate::values::{Routing, Values};
use crate::{Op, Outputs, Stage};

/// How input rows become output rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuantRows {
    /// Row r to row r.
    Identity(usize),
    /// Each row from its token.
    Gather(Routing),
    /// Each token to its rows.
    Scatter(Routing),
}

/// A quantization.
#[derive(Debug, Clone, Copy)]
pub struct QuantCase {
    /// What the headers hold.
    pub headers: Headers,
    /// How rows correspond.
    pub rows: QuantRows,
    /// Columns.
    pub cols: usize,
    /// What the input holds.
    pub values: Values,
    /// Values between the rows of the input.
    pub gap: usize,
    /// Values before the first row of the input.
    pub offset: usize,
    /// Whether tokens that are not finite are reported.
    pub report: bool,
    /// Launches on the same buffers.
    pub launches: usize,
    /// What everything follows from.
    pub seed: u64,
}

impl QuantCase {
    /// A dense, aligned input of normal values.
    pub const fn new(headers: Headers, rows: QuantRows, cols: usize) -> Self {
        let (values, seed) = (Values::Normal, 1);
        Self { headers, rows, cols, values, gap: 0, offset: 0, report: false, launches: 1, seed }
    }

    /// Tokens of the input.
    pub const fn tokens(&self) -> usize {
        match self.rows {
            QuantRows::Identity(rows) => rows,
            QuantRows::Gather(routing) | QuantRows::Scatter(routing) => routing.tokens,
        }
    }
}

impl std::fmt::Display for QuantCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "quantize/{}/", self.headers.layout)?;
        if self.headers.sums == Sums::Codes {
            f.write_str("sums-of-codes/")?;
        }
        match self.rows {
            QuantRows::Identity(rows) => write!(f, "identity/T={rows}")?,
            QuantRows::Gather(routing) => write!(f, "gather/{routing}")?,
            QuantRows::Scatter(routing) => write!(f, "scatter/{routing}")?,
        }
        write!(f, "/cols={}", self.cols)?;
        if self.gap > 0 {
            write!(f, ",stride={}", self.cols + self.gap)?;
        }
        if self.offset > 0 {
            write!(f, ",offset={}", self.offset)?;
        }
        write!(f, "/{}", self.values)?;
        if self.report {
            f.write_str("/checked")?;
        }
        if self.launches > 1 {
            write!(f, "/launches={}", self.launches)?;
        }
        Ok(())
    }
}

impl Op for QuantCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let (backend, tokens) = (stage.backend, self.tokens());
        let values = self.values.fill(self.seed, tokens, self.cols);
        let x = InMatrix::new(backend, &values, tokens, self.cols, self.gap, self.offset)?;
        let mapped = match self.rows {
            QuantRows::Identity(_) => None,
            QuantRows::Gather(routing) | QuantRows::Scatter(routing) => {
                Some(Mapped::new(backend, &routing.routes(self.seed))?)
            }
        };
        let rows = mapped.as_ref().map_or(tokens, |mapped| mapped.map.rows());
        let mut out = OutQ8::new(backend, self.headers, rows, self.cols)?;
        let mut report = Report::new(backend)?;
        for _ in 0..self.launches {
            let report = self.report.then_some(&mut report);
            let (x, out) = (x.view()?, out.view()?);
            match (&self.rows, &mapped) {
                // The yardstick gathers: scatter has to give the same bytes.
                (QuantRows::Scatter(_), Some(mapped)) if !stage.plain => {
                    QuantizeScatter::new(x, &mapped.map, out)?.report(report).launch(backend)?;
                }
                (_, Some(mapped)) => {
                    QuantizeRows::gather(x, &mapped.map, out)?.report(report).launch(backend)?;
                }
                (_, None) => QuantizeRows::new(x, out)?.report(report).launch(backend)?,
            }
        }
        Ok(vec![out.read(backend, "q8_1 rows")?, report_output(backend, &report)?])
    }

    fn yardstick_key(&self) -> Option<String> {
        let rows = match self.rows {
            QuantRows::Scatter(routing) => QuantRows::Gather(routing),
            other => other,
        };
        Some(format!("{:?}", Self { rows, launches: 1, gap: 0, offset: 0, ..*self }))
    }
}
