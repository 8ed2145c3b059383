//! The eight steps.

use std::ops::Range;

use super::layer::{Affine, MoeLayer, Router, SharedExpert, Tensor};
use super::options::{Options, QuantMode};
use super::timing::{Phase, Timeline, Timings};
use super::workspace::{SharedSpace, Workspace};
use crate::backend::ops::{
    Combine, GateUp, GateUpOrder, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut,
    QuantizeRows, QuantizeScatter, RouterScores, Rows, SharedOutput, SwiGlu, SwiGluQuantize, TopK,
};
use crate::backend::{Backend, Buffer, DeviceRoutes, Report, RoutingMap};
use crate::error::{agree, same_device};
use crate::q8_1::Headers;
use crate::{Error, Result};

/// Where the experts of each token come from.
#[derive(Clone, Copy)]
pub enum Routing<'a> {
    /// The layer's own router, which reads the experts' input.
    Router,
    /// The layer's own router, which reads this input, tokens x width.
    Input(Matrix<'a>),
    /// Scores, tokens x experts.
    Scores(Matrix<'a>),
    /// Chosen experts and weights.
    Routes(&'a DeviceRoutes),
}

impl MoeLayer {
    /// Headers of the activations that a product with `tensor` reads.
    fn headers(&self, tensor: &Tensor) -> Headers {
        tensor.ty().layout().with(self.sums)
    }

    /// Runs the layer: `x` and `out` are tokens x width, on the backend's device.
    ///
    /// With [`Options::checked`] it waits for the stream and reports the first
    /// token with a value that is not finite, and of which step it is; without, it
    /// returns as soon as everything is launched (unless timed).
    ///
    /// # Errors
    /// [`Error::Invalid`] and [`Error::WrongDevice`] before anything is
    /// launched; [`Error::NonFinite`], after which `out` is unspecified; and
    /// those of the backend.
    pub fn forward(
        &self,
        backend: &dyn Backend,
        workspace: &mut Workspace,
        x: Matrix<'_>,
        routing: Routing<'_>,
        out: &mut MatrixMut<'_>,
    ) -> Result<Timings> {
        self.check(backend, workspace, &x, &routing, out)?;
        let Options { timed, checked, .. } = workspace.options;
        let mut timeline = Timeline::new(backend, timed)?;
        let tokens = x.rows();
        let mut chunks = 0;
        for start in (0..tokens).step_by(workspace.chunk) {
            let range = start..tokens.min(start + workspace.chunk);
            if checked {
                workspace.report.reset(backend)?;
            }
            let chunk = Chunk { layer: self, range: range.clone(), checked };
            chunk.run(workspace, x.row_range(range)?, routing, out, &mut timeline)?;
            if checked {
                workspace.report.check(backend, start)?;
            }
            chunks += 1;
        }
        timeline.finish(chunks, workspace.chunk.min(tokens))
    }

    fn check(
        &self,
        backend: &dyn Backend,
        workspace: &Workspace,
        x: &Matrix<'_>,
        routing: &Routing<'_>,
        out: &MatrixMut<'_>,
    ) -> Result<()> {
        let routed = match routing {
            Routing::Router => self.device(),
            Routing::Input(scores) | Routing::Scores(scores) => scores.data().device(),
            Routing::Routes(routes) => routes.view().ids().device(),
        };
        for (what, device) in [
            ("layer", self.device()),
            ("workspace", workspace.device),
            ("input", x.data().device()),
            ("routing", routed),
            ("output", out.device()),
        ] {
            same_device(what, device, backend.id())?;
        }
        workspace.check(self)?;
        agree("input: columns", x.cols(), self.width())?;
        agree("output: columns", out.cols(), self.width())?;
        agree("output: rows", out.rows(), x.rows())?;
        match routing {
            Routing::Router | Routing::Input(_) if !self.has_router() => {
                Err(Error::invalid("routing", "the layer's router", "a layer that has one"))
            }
            Routing::Router if self.router_has_own_input() => {
                let expected = "the input of the router, which is not that of the experts";
                Err(Error::invalid("routing", "the layer's router", expected))
            }
            Routing::Router => Ok(()),
            Routing::Input(input) => {
                agree("router's input: rows", input.rows(), x.rows())?;
                agree("router's input: columns", input.cols(), self.width())
            }
            Routing::Scores(scores) => {
                agree("scores: rows", scores.rows(), x.rows())?;
                agree("scores: columns", scores.cols(), self.experts())?;
                if self.k > self.experts() {
                    let most = format!("at most the {} experts", self.experts());
                    return Err(Error::invalid("experts per token (k)", self.k, most));
                }
                Ok(())
            }
            Routing::Routes(routes) => {
                agree("routes: tokens", routes.view().tokens(), x.rows())?;
                agree("routes: k", routes.k(), self.k)?;
                agree("routes: experts", routes.experts(), self.experts())
            }
        }
    }
}

/// Some consecutive tokens on their way through the layer.
struct Chunk<'a> {
    layer: &'a MoeLayer,
    range: Range<usize>,
    checked: bool,
}

impl Chunk<'_> {
    fn run(
        &self,
        workspace: &mut Workspace,
        x: Matrix<'_>,
        routing: Routing<'_>,
        out: &mut MatrixMut<'_>,
        timeline: &mut Timeline<'_>,
    ) -> Result<()> {
        let (layer, tokens) = (self.layer, x.rows());
        let rows = tokens * layer.k;
        let Workspace { scores, routes, map, report, shared, options, .. } = workspace;

        // 1. scores, experts and weights
        let routes = match routing {
            Routing::Routes(routes) => routes.tokens(self.range.clone())?,
            Routing::Scores(scores) => {
                let scores = scores.row_range(self.range.clone())?;
                self.top_k(scores, routes, report, timeline)?;
                routes.view()
            }
            Routing::Router | Routing::Input(_) => {
                let router = layer.router.as_ref().expect("checked before the first chunk");
                let experts = layer.experts();
                let read = match routing {
                    Routing::Input(input) => input.row_range(self.range.clone())?,
                    _ => x,
                };
                score(timeline, Phase::Router, read, router, scores, experts)?;
                let scores = Matrix::dense("scores", &*scores, tokens, experts)?;
                self.top_k(scores, routes, report, timeline)?;
                routes.view()
            }
        };

        // 2. map
        timeline.launch(Phase::Map, MapRoutes::new(routes, map)?)?;
        let map = &*map;

        // Where weights are on the experts' inputs: each choice of a token, times its weight, is a
        // token of its own. It is looked at before: a weight is at most 1.
        let (experts_read, map_read) = match &mut workspace.weighed {
            Some(space) => {
                if self.checked {
                    let headers = layer.headers(layer.gate_up.products()[0].0);
                    let out = Q8RowsMut::new(&mut workspace.input, headers, tokens, x.cols())?;
                    let look = QuantizeRows::new(x, out)?.report(Some(&mut *report));
                    timeline.launch(Phase::Quantize, look)?;
                }
                space.weigh(timeline, x, routes)?
            }
            None => (x, map),
        };
        // 3. and 4. quantize, gate and up; types of one layout share the blocks
        let (ffn, order) = (layer.ffn(), layer.gate_up.order());
        let read = experts_read.rows();
        let mut layout = None;
        for (tensor, column) in layer.gate_up.products() {
            if layout != Some(tensor.ty().layout()) {
                layout = Some(tensor.ty().layout());
                let looks = self.checked && !layer.weighs_input();
                let report = looks.then_some(&mut *report);
                quantize_input(
                    timeline,
                    options.quant,
                    experts_read,
                    map_read,
                    layer.headers(tensor),
                    &mut workspace.input,
                    report,
                )?;
            }
            let (act_rows, rows_of) = match options.quant {
                QuantMode::Indexed => (read, Rows::Indexed(map_read)),
                _ => (rows, Rows::Experts(map_read)),
            };
            let activations =
                Q8Rows::new(&workspace.input, tensor.ty().layout(), act_rows, layer.width())?;
            let dst = workspace.gate_up.slice_mut(column..)?;
            let stride = order.parts() * ffn;
            let dst = MatrixMut::new("gate and up", dst, rows, tensor.rows(), stride)?;
            let product = Product::new(tensor.weights(), activations, rows_of, dst)?;
            timeline.launch(Phase::GateUp, product)?;
        }

        // 5. and 6. SwiGLU and quantize
        let mut hidden = Hidden {
            rows,
            ffn,
            order,
            affine: &layer.experts,
            gate_up: &workspace.gate_up,
            hidden: &mut workspace.hidden,
            out: &mut workspace.hidden_q8,
            fused: options.fused,
        };
        let report_hidden = self.checked.then_some(&mut *report);
        hidden.run(layer.headers(&layer.down), report_hidden, Some(map), timeline)?;

        // 7. down
        let activations = Q8Rows::new(&workspace.hidden_q8, layer.down.ty().layout(), rows, ffn)?;
        let dst = MatrixMut::dense("down", &mut workspace.down, rows, layer.width())?;
        let product = Product::new(layer.down.weights(), activations, Rows::Experts(map), dst)?;
        timeline.launch(Phase::Down, product)?;

        // 8. shared expert and combine
        let shared = match (&layer.shared, shared) {
            (Some(expert), Some(space)) => {
                let report = self.checked.then_some(&mut *report);
                self.shared(expert, space, options.fused, x, report, timeline)?;
                let score = match expert.gate {
                    Some(_) => Some(Matrix::dense("shared score", &space.score, tokens, 1)?),
                    None => None,
                };
                let y = Matrix::dense("shared expert", &space.down, tokens, layer.width())?;
                Some(SharedOutput { y, score })
            }
            _ => None,
        };
        let y = Matrix::dense("down", &workspace.down, rows, layer.width())?;
        let out = out.reborrow().row_range(self.range.clone())?;
        let (scale, bias) = layer.experts.down()?;
        let combine = Combine::new(y, map, routes, shared, out)?
            .per_expert(scale, bias)?
            .options(layer.factors)
            .report(self.checked.then_some(report));
        timeline.launch(Phase::Combine, combine)
    }

    fn top_k(
        &self,
        scores: Matrix<'_>,
        routes: &mut DeviceRoutes,
        report: &mut Report,
        timeline: &mut Timeline<'_>,
    ) -> Result<()> {
        let bias = |of: fn(&Router) -> &Option<Buffer<f32>>| {
            self.layer.router.as_ref().and_then(|router| of(router).as_ref()).map(Buffer::view)
        };
        let (score, selection) = (bias(|r| &r.score_bias), bias(|r| &r.selection_bias));
        let top_k = TopK::new(scores, &self.layer.router_options, routes)?
            .bias(score, selection)?
            .report(self.checked.then_some(report));
        timeline.launch(Phase::TopK, top_k)
    }

    /// The shared expert's rows, one per token, and its score.
    fn shared(
        &self,
        expert: &SharedExpert,
        space: &mut SharedSpace,
        fused: bool,
        x: Matrix<'_>,
        mut report: Option<&mut Report>,
        timeline: &mut Timeline<'_>,
    ) -> Result<()> {
        let (tokens, ffn) = (x.rows(), expert.down.cols());
        if let Some(gate) = &expert.gate {
            score(timeline, Phase::Shared, x, gate, &mut space.score, 1)?;
        }
        let order = expert.gate_up.order();
        let mut layout = None;
        for (tensor, column) in expert.gate_up.products() {
            let wanted = self.layer.headers(tensor);
            if layout != Some(wanted) {
                layout = Some(wanted);
                let out = Q8RowsMut::new(&mut space.input, wanted, tokens, x.cols())?;
                let quantize = QuantizeRows::new(x, out)?.report(report.as_deref_mut());
                timeline.launch(Phase::Shared, quantize)?;
            }
            let activations = Q8Rows::new(&space.input, wanted, tokens, x.cols())?;
            let dst = space.gate_up.slice_mut(column..)?;
            let stride = order.parts() * ffn;
            let dst = MatrixMut::new("shared gate and up", dst, tokens, tensor.rows(), stride)?;
            let product = Product::new(tensor.weights(), activations, Rows::Dense, dst)?;
            timeline.launch(Phase::Shared, product)?;
        }
        let mut hidden = Hidden {
            rows: tokens,
            ffn,
            order,
            affine: &self.layer.shared_options,
            gate_up: &space.gate_up,
            hidden: &mut space.hidden,
            out: &mut space.hidden_q8,
            fused,
        };
        hidden.run(self.layer.headers(&expert.down), report, None, timeline)?;
        let layout = expert.down.ty().layout();
        let activations = Q8Rows::new(&space.hidden_q8, layout, tokens, ffn)?;
        let dst = MatrixMut::dense("shared down", &mut space.down, tokens, x.cols())?;
        let product = Product::new(expert.down.weights(), activations, Rows::Dense, dst)?;
        timeline.launch(Phase::Shared, product)
    }
}

/// Scores of `experts` router rows.
fn score(
    timeline: &mut Timeline<'_>,
    phase: Phase,
    x: Matrix<'_>,
    router: &Router,
    scores: &mut Buffer<f32>,
    experts: usize,
) -> Result<()> {
    let out = MatrixMut::dense("scores", scores, x.rows(), experts)?;
    timeline.launch(phase, RouterScores::new(x, router.matrix(), out)?)
}

/// The input with `headers`, in the order the mode wants.
fn quantize_input(
    timeline: &mut Timeline<'_>,
    mode: QuantMode,
    x: Matrix<'_>,
    map: &RoutingMap,
    headers: Headers,
    out: &mut Buffer<u8>,
    report: Option<&mut Report>,
) -> Result<()> {
    let rows = if mode == QuantMode::Indexed { x.rows() } else { map.rows() };
    let out = Q8RowsMut::new(out, headers, rows, x.cols())?;
    let phase = Phase::Quantize;
    match mode {
        QuantMode::Scatter => {
            timeline.launch(phase, QuantizeScatter::new(x, map, out)?.report(report))
        }
        QuantMode::Gather => {
            timeline.launch(phase, QuantizeRows::gather(x, map, out)?.report(report))
        }
        QuantMode::Indexed => timeline.launch(phase, QuantizeRows::new(x, out)?.report(report)),
    }
}

/// SwiGLU and the quantization of what it gives.
struct Hidden<'a> {
    rows: usize,
    ffn: usize,
    order: GateUpOrder,
    affine: &'a Affine,
    gate_up: &'a Buffer<f32>,
    hidden: &'a mut Buffer<f32>,
    out: &'a mut Buffer<u8>,
    fused: bool,
}

impl Hidden<'_> {
    fn run(
        &mut self,
        headers: Headers,
        report: Option<&mut Report>,
        map: Option<&RoutingMap>,
        timeline: &mut Timeline<'_>,
    ) -> Result<()> {
        let (rows, ffn) = (self.rows, self.ffn);
        let cols = self.order.parts() * ffn;
        let gate_up = Matrix::dense("gate and up", self.gate_up, rows, cols)?;
        let gate_up = self.affine.gate_up(GateUp::new(gate_up, self.order)?, map)?;
        let out = Q8RowsMut::new(&mut *self.out, headers, rows, ffn)?;
        // Without a map it is the shared expert, whose rows are tokens.
        let phase = |phase| if map.is_some() { phase } else { Phase::Shared };
        if self.fused {
            let op = SwiGluQuantize::new(gate_up, out)?;
            let op = match map {
                Some(_) => op.report(report, map)?,
                None => op.report_shared(report),
            };
            return timeline.launch(phase(Phase::SwiGluQuantize), op);
        }
        let hidden = MatrixMut::dense("hidden", &mut *self.hidden, rows, ffn)?;
        timeline.launch(phase(Phase::SwiGlu), SwiGlu::new(gate_up, hidden)?)?;
        let hidden = Matrix::dense("hidden", &*self.hidden, rows, ffn)?;
        let op = QuantizeRows::new(hidden, out)?;
        let op = match map {
            Some(_) => op.report_hidden(report, map)?,
            None => op.report_shared(report),
        };
        timeline.launch(phase(Phase::QuantizeHidden), op)
    }
}
