//! A feed-forward network: gate and up, hidden values, down.

use super::layer::{Affine, GateUpWeights, Tensor};
use super::timing::{Phase, Timeline};
use crate::Result;
use crate::backend::ops::{
    GateUp, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows, QuantizeScatter, Rows,
    SwiGlu, SwiGluQuantize,
};
use crate::backend::{Buffer, Report, RoutingMap};
use crate::q8_1::{Headers, Sums};

/// A network that each row goes through: one for all of them, or the row's expert.
pub(super) struct Ffn<'a> {
    pub(super) gate_up: &'a GateUpWeights,
    pub(super) down: &'a Tensor,
    pub(super) affine: &'a Affine,
    /// How rows read the input: row by row (one network), in the order of the experts, or through
    /// their map.
    pub(super) rows: Rows<'a>,
    /// The map that says which token a row of an expert is of. It has the bounds of that in `rows`.
    pub(super) map: Option<&'a RoutingMap>,
    /// Whether rows in the order of the experts are quantized one by one from their tokens, instead
    /// of once for all of a token's.
    pub(super) gather: bool,
    /// Whether SwiGLU and the quantization after it are one step.
    pub(super) fused: bool,
    /// What the sums in headers are of.
    pub(super) sums: Sums,
    /// Whether the quantization of the input reports.
    pub(super) looks: bool,
}

/// What a network works in. Its input is quantized into its own, as its types may want another
/// layout than another's.
#[derive(Debug)]
pub(super) struct FfnSpace {
    pub(super) input: Buffer<u8>,
    pub(super) gate_up: Buffer<f32>,
    pub(super) hidden: Buffer<f32>,
    pub(super) hidden_q8: Buffer<u8>,
    pub(super) down: Buffer<f32>,
}

impl Ffn<'_> {
    /// Rows of the network for an input of so many tokens.
    fn count(&self, tokens: usize) -> usize {
        match self.rows {
            Rows::Dense => tokens,
            Rows::Experts(map) | Rows::Indexed(map) => map.rows(),
        }
    }

    /// Headers of the activations that a product with `tensor` reads.
    fn headers(&self, tensor: &Tensor) -> Headers {
        tensor.ty().layout().with(self.sums)
    }

    /// A phase of the layer, or all of a network that every token goes through.
    fn phase(&self, phase: Phase) -> Phase {
        if self.map.is_some() { phase } else { Phase::Shared }
    }

    /// Leaves the rows' outputs, each as wide as `x`, in `space.down`.
    pub(super) fn run(
        &self,
        timeline: &mut Timeline<'_>,
        x: Matrix<'_>,
        space: &mut FfnSpace,
        mut report: Option<&mut Report>,
    ) -> Result<()> {
        let (rows, width, ffn) = (self.count(x.rows()), x.cols(), self.down.cols());
        let stride = self.gate_up.order().parts() * ffn;
        // Types of one layout share the blocks.
        let mut holds = None;
        for (tensor, column) in self.gate_up.products() {
            let wanted = self.headers(tensor);
            if holds != Some(wanted) {
                holds = Some(wanted);
                let report = report.as_deref_mut().filter(|_| self.looks);
                self.quantize(timeline, x, wanted, &mut space.input, report)?;
            }
            let read = if matches!(self.rows, Rows::Indexed(_)) { x.rows() } else { rows };
            let activations = Q8Rows::new(&space.input, wanted, read, width)?;
            let dst = space.gate_up.slice_mut(column..)?;
            let dst = MatrixMut::new("gate and up", dst, rows, tensor.rows(), stride)?;
            let product = Product::new(tensor.weights(), activations, self.rows, dst)?;
            timeline.launch(self.phase(Phase::GateUp), product)?;
        }

        self.hidden(timeline, rows, space, report)?;

        let activations = Q8Rows::new(&space.hidden_q8, self.headers(self.down), rows, ffn)?;
        let dst = MatrixMut::dense("down", &mut space.down, rows, width)?;
        let order = self.map.map_or(Rows::Dense, Rows::Experts);
        let product = Product::new(self.down.weights(), activations, order, dst)?;
        timeline.launch(self.phase(Phase::Down), product)
    }

    /// The input with `headers`, as the rows read it.
    fn quantize(
        &self,
        timeline: &mut Timeline<'_>,
        x: Matrix<'_>,
        headers: Headers,
        out: &mut Buffer<u8>,
        report: Option<&mut Report>,
    ) -> Result<()> {
        let phase = self.phase(Phase::Quantize);
        let q8 = |rows| Q8RowsMut::new(out, headers, rows, x.cols());
        match self.rows {
            Rows::Experts(map) if self.gather => {
                let gather = QuantizeRows::gather(x, map, q8(map.rows())?)?;
                timeline.launch(phase, gather.report(report))
            }
            Rows::Experts(map) => {
                let scatter = QuantizeScatter::new(x, map, q8(map.rows())?)?;
                timeline.launch(phase, scatter.report(report))
            }
            Rows::Dense | Rows::Indexed(_) => {
                let quantize = QuantizeRows::new(x, q8(x.rows())?)?;
                timeline.launch(phase, quantize.report(report))
            }
        }
    }

    /// SwiGLU, and the quantization of what it gives.
    fn hidden(
        &self,
        timeline: &mut Timeline<'_>,
        rows: usize,
        space: &mut FfnSpace,
        report: Option<&mut Report>,
    ) -> Result<()> {
        let (order, ffn) = (self.gate_up.order(), self.down.cols());
        let gate_up = Matrix::dense("gate and up", &space.gate_up, rows, order.parts() * ffn)?;
        let gate_up = self.affine.gate_up(GateUp::new(gate_up, order)?, self.map)?;
        let headers = self.headers(self.down);
        let out = Q8RowsMut::new(&mut space.hidden_q8, headers, rows, ffn)?;
        if self.fused {
            let op = SwiGluQuantize::new(gate_up, out)?;
            let op = match self.map {
                Some(_) => op.report(report, self.map)?,
                None => op.report_shared(report),
            };
            return timeline.launch(self.phase(Phase::SwiGluQuantize), op);
        }
        let hidden = MatrixMut::dense("hidden", &mut space.hidden, rows, ffn)?;
        timeline.launch(self.phase(Phase::SwiGlu), SwiGlu::new(gate_up, hidden)?)?;
        let hidden = Matrix::dense("hidden", &space.hidden, rows, ffn)?;
        let op = QuantizeRows::new(hidden, out)?;
        let op = match self.map {
            Some(_) => op.report_hidden(report, self.map)?,
            None => op.report_shared(report),
        };
        timeline.launch(self.phase(Phase::QuantizeHidden), op)
    }
}
