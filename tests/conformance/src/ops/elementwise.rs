//! SwiGLU, fused and not, and combine.

use strata_core::activation::Activation;
use strata_core::backend::Report;
use strata_core::backend::ops::{
    Combine, CombineOptions, GateUp, GateUpOrder, PerExpert, QuantizeRows, SharedOutput, SwiGlu,
    SwiGluQuantize,
};
use strata_core::q8_1::{Headers, Sums};

use super::{InMatrix, Mapped, report_output};
use crate::poisoned::{OutMatrix, OutQ8};
use crate::values::{Routing, Values};
use crate::{Op, Outputs, Stage};

/// SwiGLU, with or without the quantization after it.
#[derive(Debug, Clone, Copy)]
pub struct SwiGluCase {
    /// Tokens and experts: the rows are in their order.
    pub routing: Routing,
    /// Hidden values per row.
    pub ffn: usize,
    /// How gate and up are ordered.
    pub order: GateUpOrder,
    /// The headers to quantize with, fused; f32 where there is none.
    pub fused: Option<Headers>,
    /// Hidden values from gate and up.
    pub activation: Activation,
    /// Whether experts have scales.
    pub scaled: bool,
    /// Whether they have biases.
    pub biased: bool,
    /// What gate and up hold.
    pub values: Values,
    /// Values between rows.
    pub gap: usize,
    /// Values before the first row.
    pub offset: usize,
}

impl std::fmt::Display for SwiGluCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { routing, ffn, order, fused, activation, values, gap, offset, .. } = self;
        match fused {
            Some(Headers { layout, sums: Sums::Values }) => {
                write!(f, "swiglu-quantize/{layout}/")?;
            }
            Some(Headers { layout, sums: Sums::Codes }) => {
                write!(f, "swiglu-quantize/{layout}/sums-of-codes/")?;
            }
            None => f.write_str("swiglu/")?,
        }
        f.write_str(match order {
            GateUpOrder::Split => "split",
            GateUpOrder::Interleaved => "interleaved",
            GateUpOrder::UpOnly => "up-only",
        })?;
        write!(f, "/{routing}/ffn={ffn}")?;
        if *activation != Activation::SwiGlu {
            write!(f, "/{activation}")?;
        }
        affine(f, self.scaled, self.biased)?;
        if gap + offset > 0 {
            write!(f, ",gap={gap},offset={offset}")?;
        }
        write!(f, "/{values}")
    }
}

impl Op for SwiGluCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { routing, ffn, gap, offset, .. } = *self;
        let rows = routing.rows();
        let (parts, experts) = (self.order.parts(), routing.experts);
        let cols = parts * ffn;
        let values = self.values.fill(1, rows, cols);
        let x = InMatrix::new(backend, &values, rows, cols, gap, offset)?;
        let mapped = Mapped::new(backend, &routing.routes(1))?;
        // Of one expert: rows are tokens, as the shared expert's are.
        let map = (routing.experts > 1).then_some(&mapped.map);
        let of_experts = |seed, cols| {
            let values = Values::Normal.fill(seed, experts, cols);
            InMatrix::new(backend, &values, experts, cols, gap, offset)
        };
        let (scale, bias) = (of_experts(21, parts)?, of_experts(22, cols)?);
        let mut gate_up = GateUp::new(x.view()?, self.order)?.activation(self.activation)?;
        if self.scaled || self.biased {
            let scale = if self.scaled { Some(scale.view()?) } else { None };
            let bias = if self.biased { Some(bias.view()?) } else { None };
            gate_up = gate_up.per_expert(PerExpert { scale, bias, map })?;
        }
        let Some(headers) = self.fused else {
            let mut out = OutMatrix::new(backend, rows, ffn, ffn + gap, offset)?;
            SwiGlu::new(gate_up, out.view()?)?.launch(backend)?;
            return Ok(vec![out.read(backend, "hidden")?]);
        };
        let mut out = OutQ8::new(backend, headers, rows, ffn)?;
        let mut report = Report::new(backend)?;
        let to = Some(&mut report);
        if stage.plain {
            // The two steps that the fused one must repeat.
            let mut hidden = OutMatrix::new(backend, rows, ffn, ffn, 0)?;
            SwiGlu::new(gate_up, hidden.view()?)?.launch(backend)?;
            let hidden = hidden.memory.view();
            let hidden =
                strata_core::backend::ops::Matrix::dense("hidden", hidden.as_slice(), rows, ffn)?;
            QuantizeRows::new(hidden, out.view()?)?.report_hidden(to, map)?.launch(backend)?;
        } else {
            SwiGluQuantize::new(gate_up, out.view()?)?.report(to, map)?.launch(backend)?;
        }
        Ok(vec![out.read(backend, "q8_1 hidden")?, report_output(backend, &report)?])
    }
}

/// The shared expert of a combine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharedKind {
    /// None.
    None,
    /// Weight 1.
    Plain,
    /// Weighed by the sigmoid of a score.
    Gated,
}

/// A weighted sum.
#[derive(Debug, Clone, Copy)]
pub struct CombineCase {
    /// Tokens and experts.
    pub routing: Routing,
    /// Columns.
    pub width: usize,
    /// The shared expert.
    pub shared: SharedKind,
    /// Whether experts have scales.
    pub scaled: bool,
    /// Whether they have biases.
    pub biased: bool,
    /// Factors.
    pub options: CombineOptions,
    /// What the rows hold.
    pub values: Values,
    /// Values between rows of every matrix.
    pub gap: usize,
    /// Values before the first.
    pub offset: usize,
}

impl std::fmt::Display for CombineCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { routing, width, shared, values, gap, offset, options, .. } = self;
        let shared = match shared {
            SharedKind::None => "alone",
            SharedKind::Plain => "shared",
            SharedKind::Gated => "shared-gated",
        };
        write!(f, "combine/{shared}/{routing}/width={width}")?;
        affine(f, self.scaled, self.biased)?;
        if *options != CombineOptions::default() {
            let CombineOptions { weighed, shared, sum } = options;
            write!(f, "/weighed={weighed},shared={shared},sum={sum}")?;
        }
        if gap + offset > 0 {
            write!(f, ",gap={gap},offset={offset}")?;
        }
        write!(f, "/{values}")
    }
}

impl Op for CombineCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { routing, width, gap, offset, .. } = *self;
        let Routing { tokens, .. } = routing;
        let mapped = Mapped::new(backend, &routing.routes(1))?;
        let matrix = |seed, rows, cols| {
            let values = self.values.fill(seed, rows, cols);
            InMatrix::new(backend, &values, rows, cols, gap, offset)
        };
        let y = matrix(2, routing.rows(), width)?;
        let shared = matrix(3, tokens, width)?;
        let score = matrix(4, tokens, 1)?;
        let shared = match self.shared {
            SharedKind::None => None,
            SharedKind::Plain => Some(SharedOutput { y: shared.view()?, score: None }),
            SharedKind::Gated => {
                Some(SharedOutput { y: shared.view()?, score: Some(score.view()?) })
            }
        };
        let mut out = OutMatrix::new(backend, tokens, width, width + gap, offset)?;
        let routes = mapped.routes.view();
        let experts = routing.experts;
        let of_experts = |seed, cols| {
            let values = Values::Normal.fill(seed, experts, cols);
            InMatrix::new(backend, &values, experts, cols, gap, offset)
        };
        let (scale, bias) = (of_experts(23, 1)?, of_experts(24, width)?);
        let scale = if self.scaled { Some(scale.view()?) } else { None };
        let bias = if self.biased { Some(bias.view()?) } else { None };
        let mut report = Report::new(backend)?;
        Combine::new(y.view()?, &mapped.map, routes, shared, out.view()?)?
            .per_expert(scale, bias)?
            .options(self.options)
            .report(Some(&mut report))
            .launch(backend)?;
        Ok(vec![out.read(backend, "tokens")?, report_output(backend, &report)?])
    }
}

fn affine(f: &mut std::fmt::Formatter<'_>, scaled: bool, biased: bool) -> std::fmt::Result {
    f.write_str(match (scaled, biased) {
        (false, false) => "",
        (true, false) => "/scales",
        (false, true) => "/biases",
        (true, true) => "/scales,biases",
    })
}
