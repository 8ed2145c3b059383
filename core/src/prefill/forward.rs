//! The eight steps.

use std::ops::Range;

use super::ffn::Ffn;
use super::layer::{MoeLayer, Router, Tensor};
use super::options::{Options, QuantMode};
use super::timing::{Phase, Timeline, Timings};
use super::workspace::Workspace;
use crate::backend::ops::{
    Combine, MapRoutes, Matrix, MatrixMut, Q8RowsMut, QuantizeRows, RouterScores, Rows,
    SharedOutput, TopK,
};
use crate::backend::{Backend, Buffer, DeviceRoutes, Report};
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
                    let input = &mut workspace.experts.input;
                    let out = Q8RowsMut::new(input, headers, tokens, x.cols())?;
                    let look = QuantizeRows::new(x, out)?.report(Some(&mut *report));
                    timeline.launch(Phase::Quantize, look)?;
                }
                space.weigh(timeline, x, routes)?
            }
            None => (x, map),
        };
        // 3. to 7. quantize, gate and up, SwiGLU, quantize, down
        let experts = Ffn {
            gate_up: &layer.gate_up,
            down: &layer.down,
            affine: &layer.experts,
            rows: match options.quant {
                QuantMode::Indexed => Rows::Indexed(map_read),
                QuantMode::Scatter | QuantMode::Gather => Rows::Experts(map_read),
            },
            map: Some(map),
            gather: options.quant == QuantMode::Gather,
            fused: options.fused,
            sums: layer.sums,
            looks: !layer.weighs_input(),
        };
        let report_rows = self.checked.then_some(&mut *report);
        experts.run(timeline, experts_read, &mut workspace.experts, report_rows)?;

        // 8. shared expert and combine
        let shared = match (&layer.shared, shared) {
            (Some(expert), Some(space)) => {
                let report = self.checked.then_some(&mut *report);
                if let Some(gate) = &expert.gate {
                    score(timeline, Phase::Shared, x, gate, &mut space.score, 1)?;
                }
                let network = Ffn {
                    gate_up: &expert.gate_up,
                    down: &expert.down,
                    affine: &layer.shared_options,
                    rows: Rows::Dense,
                    map: None,
                    gather: false,
                    fused: options.fused,
                    sums: layer.sums,
                    looks: true,
                };
                network.run(timeline, x, &mut space.ffn, report)?;
                let score = match expert.gate {
                    Some(_) => Some(Matrix::dense("shared score", &space.score, tokens, 1)?),
                    None => None,
                };
                let y = Matrix::dense("shared expert", &space.ffn.down, tokens, layer.width())?;
                Some(SharedOutput { y, score })
            }
            _ => None,
        };
        let y = Matrix::dense("down", &workspace.experts.down, rows, layer.width())?;
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
