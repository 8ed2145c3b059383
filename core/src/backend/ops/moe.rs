//! The steps between and behind the products.

use super::*;
use crate::activation::Activation;

/// Where the gate and the up values of a row stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateUpOrder {
    /// All gate values, then all up values.
    Split,
    /// Gate and up in turns.
    Interleaved,
    /// Up values alone: experts without gates.
    UpOnly,
}

impl GateUpOrder {
    /// Values of a row for each hidden value.
    pub fn parts(self) -> usize {
        match self {
            Self::Split | Self::Interleaved => 2,
            Self::UpOnly => 1,
        }
    }
}

/// What is done to the products of gate and up before the activation: `fma(v, scale, bias)`.
#[derive(Clone, Copy, Default)]
pub struct PerExpert<'a> {
    /// Experts x 2: the factors of gate and up; experts x 1 without gates. 1 where there is none.
    pub scale: Option<Matrix<'a>>,
    /// Experts x the columns of gate and up, in their order. +0 where there is none.
    pub bias: Option<Matrix<'a>>,
    /// Whose rows are in whose order; without it all are of one expert.
    pub map: Option<&'a RoutingMap>,
}

/// The gate and up products, rows of `2 * ffn` values (`ffn` without gates), and how hidden
/// values come from them.
#[derive(Clone, Copy)]
pub struct GateUp<'a> {
    matrix: Matrix<'a>,
    order: GateUpOrder,
    activation: Activation,
    per_expert: PerExpert<'a>,
}

impl<'a> GateUp<'a> {
    /// A view of rows of an even number of values, whose hidden values are SwiGLU's.
    ///
    /// # Errors
    /// [`Error::Invalid`] where it is odd, unless there are no gates.
    pub fn new(matrix: Matrix<'a>, order: GateUpOrder) -> Result<Self> {
        if !matrix.cols().is_multiple_of(order.parts()) {
            return Err(Error::invalid("gate and up: columns", matrix.cols(), "an even number"));
        }
        let (activation, per_expert) = (Activation::default(), PerExpert::default());
        Ok(Self { matrix, order, activation, per_expert })
    }

    /// With another activation.
    ///
    /// # Errors
    /// [`Error::Invalid`] where its parameters are out of range, or it needs gates that are absent.
    pub fn activation(self, activation: Activation) -> Result<Self> {
        activation.check()?;
        if self.order == GateUpOrder::UpOnly && !activation.works_without_gates() {
            return Err(Error::invalid(
                "activation without gates",
                activation,
                "one that has none",
            ));
        }
        Ok(Self { activation, ..self })
    }

    /// With scales and biases of experts.
    ///
    /// # Errors
    /// [`Error::Invalid`] where shapes do not fit these rows.
    pub fn per_expert(self, per_expert: PerExpert<'a>) -> Result<Self> {
        let experts = match per_expert.map {
            Some(map) => {
                agree("gate and up: rows of the map", map.rows(), self.matrix.rows())?;
                map.experts()
            }
            None => 1,
        };
        if let Some(scale) = &per_expert.scale {
            agree("scales of gate and up: rows", scale.rows(), experts)?;
            agree("scales of gate and up: columns", scale.cols(), self.order.parts())?;
        }
        if let Some(bias) = &per_expert.bias {
            agree("biases of gate and up: rows", bias.rows(), experts)?;
            agree("biases of gate and up: columns", bias.cols(), self.matrix.cols())?;
        }
        Ok(Self { per_expert, ..self })
    }

    /// The values.
    pub fn matrix(&self) -> Matrix<'a> {
        self.matrix
    }

    /// How they are ordered.
    pub fn order(&self) -> GateUpOrder {
        self.order
    }

    /// Hidden values per row.
    pub fn ffn(&self) -> usize {
        self.matrix.cols() / self.order.parts()
    }

    fn admit(&self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.matrix.device())?;
        let PerExpert { scale, bias, map } = self.per_expert;
        for (operand, matrix) in [("scales", scale), ("biases", bias)] {
            if let Some(matrix) = matrix {
                to.lives_on(operand, matrix.device())?;
            }
        }
        to.reads("map", map)
    }

    fn moved(&self) -> u64 {
        let affine = self.affine().map_or(0, |PerExpert { scale, bias, map }| {
            scale.moved() + bias.moved() + map.map_or(0, |map| map.bounds().moved())
        });
        self.matrix.moved() + affine
    }

    /// How hidden values come from gate and up.
    pub fn function(&self) -> Activation {
        self.activation
    }

    /// Scales and biases, if there are any.
    pub fn affine(&self) -> Option<PerExpert<'a>> {
        let PerExpert { scale, bias, .. } = self.per_expert;
        (scale.is_some() || bias.is_some()).then_some(self.per_expert)
    }
}

/// The hidden values of each row: `gate / (1 + exp(-gate)) * up`, or another [`Activation`].
pub struct SwiGlu<'a> {
    gate_up: GateUp<'a>,
    out: MatrixMut<'a>,
}

impl<'a> SwiGlu<'a> {
    /// `out`: as many rows, half the columns.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(gate_up: GateUp<'a>, out: MatrixMut<'a>) -> Result<Self> {
        agree("swiglu: rows of the output", out.rows(), gate_up.matrix.rows())?;
        agree("swiglu: columns of the output", out.cols(), gate_up.ffn())?;
        Ok(Self { gate_up, out })
    }

    /// Gate and up.
    pub fn gate_up(&self) -> GateUp<'a> {
        self.gate_up
    }
}

impl Operation for SwiGlu<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        self.gate_up.admit(to)?;
        to.lives_on("output", self.out.device())
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.gate_up.moved(), self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow())]
    }
}

impl<'a> Checked<SwiGlu<'a>> {
    /// Hidden values.
    pub fn out(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.out
    }
}

/// SwiGLU and q8_1 in one pass: the bytes of [`SwiGlu`] then [`QuantizeRows`].
pub struct SwiGluQuantize<'a> {
    gate_up: GateUp<'a>,
    out: Q8RowsMut<'a>,
    report: Option<ReportTo<'a>>,
    map: Option<&'a RoutingMap>,
}

impl<'a> SwiGluQuantize<'a> {
    /// `out`: as many rows, half the columns.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(gate_up: GateUp<'a>, out: Q8RowsMut<'a>) -> Result<Self> {
        agree("swiglu + quantize: rows of the output", out.rows(), gate_up.matrix.rows())?;
        agree("swiglu + quantize: columns of the output", out.cols(), gate_up.ffn())?;
        Ok(Self { gate_up, out, report: None, map: None })
    }

    /// Reports the first token whose hidden values or header are not finite;
    /// rows are in the order of `map`, or tokens where there is none.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the map has another number of rows.
    pub fn report(
        mut self,
        report: Option<&'a mut Report>,
        map: Option<&'a RoutingMap>,
    ) -> Result<Self> {
        if let Some(map) = map {
            agree("swiglu + quantize: rows of the map", map.rows(), self.out.rows())?;
        }
        self.report = report.map(|r| ReportTo::new(r, NonFinite::Hidden, NonFinite::Hidden));
        self.map = map;
        Ok(self)
    }

    /// Reports hidden activations of a shared expert, whose rows are tokens.
    #[must_use]
    pub fn report_shared(mut self, report: Option<&'a mut Report>) -> Self {
        let kind = NonFinite::SharedHidden;
        self.report = report.map(|r| ReportTo::new(r, kind, kind));
        self
    }

    /// Gate and up.
    pub fn gate_up(&self) -> GateUp<'a> {
        self.gate_up
    }

    /// The token of each row, where rows are not tokens.
    pub fn tokens(&self) -> Option<Slice<'a, u32>> {
        self.map.map(RoutingMap::src)
    }
}

impl Operation for SwiGluQuantize<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        self.gate_up.admit(to)?;
        to.lives_on("output", self.out.device())?;
        to.reports(&self.report, self.out.rows())?;
        to.reads("map", self.map)
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.gate_up.moved(), self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Q8(self.out.reborrow())]
    }

    fn report_word(&mut self) -> Option<SliceMut<'_, u32>> {
        self.report.as_mut().map(ReportTo::word)
    }
}

impl<'a> Checked<SwiGluQuantize<'a>> {
    /// Output rows.
    pub fn out(&mut self) -> &mut Q8RowsMut<'a> {
        &mut self.0.out
    }

    /// Where to report, if anywhere.
    pub fn report_to(&mut self) -> Option<&mut ReportTo<'a>> {
        self.0.report.as_mut()
    }
}

/// The shared expert's output and the score of its gate.
#[derive(Clone, Copy)]
pub struct SharedOutput<'a> {
    /// Tokens x width.
    pub y: Matrix<'a>,
    /// Tokens x 1; its sigmoid weighs `y`. Weight 1 where there is none.
    pub score: Option<Matrix<'a>>,
}

/// `out[t]`: from +0, fma of weight and row `slot[t*k+j]` in ascending j, then
/// fma of the shared expert's weight and row t.
///
/// The rows of experts can have a scale and a bias first, and the sum factors.
pub struct Combine<'a> {
    y: Matrix<'a>,
    map: &'a RoutingMap,
    routes: RoutesView<'a>,
    shared: Option<SharedOutput<'a>>,
    scale: Option<Matrix<'a>>,
    bias: Option<Matrix<'a>>,
    options: CombineOptions,
    out: MatrixMut<'a>,
    report: Option<ReportTo<'a>>,
}

/// Factors of a sum; each is 1, and changes nothing, unless it is set.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CombineOptions {
    /// Whether rows are weighed by the routes; without it each has weight 1.
    pub weighed: bool,
    /// Multiplies the shared expert's weight.
    pub shared: f32,
    /// Multiplies the sum.
    pub sum: f32,
}

impl Default for CombineOptions {
    fn default() -> Self {
        Self { weighed: true, shared: 1.0, sum: 1.0 }
    }
}

impl<'a> Combine<'a> {
    /// `y`: rows of `map` x width; `routes`: those `map` was made from; `out`: tokens x width.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(
        y: Matrix<'a>,
        map: &'a RoutingMap,
        routes: RoutesView<'a>,
        shared: Option<SharedOutput<'a>>,
        out: MatrixMut<'a>,
    ) -> Result<Self> {
        agree("combine: rows of the input", y.rows(), map.rows())?;
        agree("combine: tokens of the routes", routes.tokens(), map.tokens())?;
        agree("combine: k of the routes", routes.k(), map.k())?;
        agree("combine: rows of the output", out.rows(), map.tokens())?;
        agree("combine: columns of the output", out.cols(), y.cols())?;
        if let Some(shared) = &shared {
            agree("combine: rows of the shared expert", shared.y.rows(), map.tokens())?;
            agree("combine: columns of the shared expert", shared.y.cols(), y.cols())?;
            if let Some(score) = &shared.score {
                agree("combine: rows of the shared score", score.rows(), map.tokens())?;
                agree("combine: columns of the shared score", score.cols(), 1)?;
            }
        }
        let (scale, bias, options) = (None, None, CombineOptions::default());
        Ok(Self { y, map, routes, shared, scale, bias, options, out, report: None })
    }

    /// Reports the first token with an output value or a shared score that is not finite. What
    /// is not finite in `y` or in the shared expert's rows is not finite in the output.
    #[must_use]
    pub fn report(mut self, report: Option<&'a mut Report>) -> Self {
        self.report = report.map(|r| ReportTo::new(r, NonFinite::Output, NonFinite::SharedScore));
        self
    }

    /// Rows become `fma(y, scale, bias)` of their expert before they are weighed:
    /// `scale` is experts x 1 (1 where there is none), `bias` experts x width (+0).
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn per_expert(self, scale: Option<Matrix<'a>>, bias: Option<Matrix<'a>>) -> Result<Self> {
        if let Some(scale) = &scale {
            agree("combine: rows of the scales", scale.rows(), self.map.experts())?;
            agree("combine: columns of the scales", scale.cols(), 1)?;
        }
        if let Some(bias) = &bias {
            agree("combine: rows of the biases", bias.rows(), self.map.experts())?;
            agree("combine: columns of the biases", bias.cols(), self.y.cols())?;
        }
        Ok(Self { scale, bias, ..self })
    }

    /// With factors.
    #[must_use]
    pub fn options(self, options: CombineOptions) -> Self {
        Self { options, ..self }
    }

    /// Expert outputs, in expert order.
    pub fn y(&self) -> Matrix<'a> {
        self.y
    }

    /// The map.
    pub fn map(&self) -> &'a RoutingMap {
        self.map
    }

    /// The routes, for their weights.
    pub fn routes(&self) -> RoutesView<'a> {
        self.routes
    }

    /// The shared expert, if there is one.
    pub fn shared(&self) -> Option<SharedOutput<'a>> {
        self.shared
    }

    /// Scales and biases of the experts' rows, if there are any.
    pub fn affine(&self) -> Option<(Option<Matrix<'a>>, Option<Matrix<'a>>)> {
        (self.scale.is_some() || self.bias.is_some()).then_some((self.scale, self.bias))
    }

    /// Factors.
    pub fn factors(&self) -> CombineOptions {
        self.options
    }
}

impl Operation for Combine<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.y.device())?;
        if let Some(shared) = &self.shared {
            to.lives_on("shared expert", shared.y.device())?;
            if let Some(score) = &shared.score {
                to.lives_on("shared score", score.device())?;
            }
        }
        for (operand, matrix) in [("scales", self.scale), ("biases", self.bias)] {
            if let Some(matrix) = matrix {
                to.lives_on(operand, matrix.device())?;
            }
        }
        to.lives_on("output", self.out.device())?;
        to.reports(&self.report, self.out.rows())?;
        to.reads("map", Some(self.map))?;
        self.routes.read(&to.name("routes"), to.backend)
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        let routes = self.map.slot().moved() + self.routes.weights().moved();
        let shared = self.shared.map_or(0, |shared| shared.y.moved() + shared.score.moved());
        let affine = self.scale.moved() + self.bias.moved();
        Cost::bytes([self.y.moved(), routes, shared, affine, self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow())]
    }

    fn form(&self) -> &'static str {
        match self.shared {
            Some(_) => "shared",
            None => "alone",
        }
    }

    fn report_word(&mut self) -> Option<SliceMut<'_, u32>> {
        self.report.as_mut().map(ReportTo::word)
    }
}

impl<'a> Checked<Combine<'a>> {
    /// Output tokens.
    pub fn out(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.out
    }

    /// Where to report, if anywhere: an output as a value, the shared score as a header.
    pub fn report_to(&mut self) -> Option<&mut ReportTo<'a>> {
        self.0.report.as_mut()
    }
}
