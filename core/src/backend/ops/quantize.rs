//! Quantization of the activations.

use super::*;

/// q8_1 of rows: row r of `out` is row r of `x`, or row `src[r]` of it.
pub struct QuantizeRows<'a> {
    x: Matrix<'a>,
    gather: Option<&'a RoutingMap>,
    out: Q8RowsMut<'a>,
    report: Option<ReportTo<'a>>,
    order: Option<&'a RoutingMap>,
}

impl<'a> QuantizeRows<'a> {
    /// Row r to row r.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(x: Matrix<'a>, out: Q8RowsMut<'a>) -> Result<Self> {
        agree("quantize: rows of the output", out.rows(), x.rows())?;
        agree("quantize: columns of the output", out.cols(), x.cols())?;
        Ok(Self { x, gather: None, out, report: None, order: None })
    }

    /// Row `map.src()[r]` to row r: the tokens of `x` in expert order.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn gather(x: Matrix<'a>, map: &'a RoutingMap, out: Q8RowsMut<'a>) -> Result<Self> {
        agree("gather: tokens of the map", map.tokens(), x.rows())?;
        agree("gather: rows of the output", out.rows(), map.rows())?;
        agree("gather: columns of the output", out.cols(), x.cols())?;
        Ok(Self { x, gather: Some(map), out, report: None, order: None })
    }

    /// Reports the first token whose values or stored header are not finite.
    #[must_use]
    pub fn report(mut self, report: Option<&'a mut Report>) -> Self {
        self.report = report.map(|r| ReportTo::new(r, NonFinite::Input, NonFinite::InputHeader));
        self
    }

    /// Reports hidden activations: rows of `x` are in the order of `map`, or
    /// tokens where there is none.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the map has another number of rows than `x`.
    pub fn report_hidden(
        mut self,
        report: Option<&'a mut Report>,
        map: Option<&'a RoutingMap>,
    ) -> Result<Self> {
        if let Some(map) = map {
            agree("quantize: rows of the map", map.rows(), self.x.rows())?;
        }
        self.report = report.map(|r| ReportTo::new(r, NonFinite::Hidden, NonFinite::Hidden));
        self.order = map;
        Ok(self)
    }

    /// Reports hidden activations of a shared expert, whose rows are tokens.
    #[must_use]
    pub fn report_shared(mut self, report: Option<&'a mut Report>) -> Self {
        let kind = NonFinite::SharedHidden;
        self.report = report.map(|r| ReportTo::new(r, kind, kind));
        self
    }

    /// Input rows.
    pub fn x(&self) -> Matrix<'a> {
        self.x
    }

    /// `src[row]` where rows are gathered.
    pub fn src(&self) -> Option<Slice<'a, u32>> {
        self.gather.map(RoutingMap::src)
    }

    /// The token of each input row, where input rows are not tokens.
    pub fn tokens(&self) -> Option<Slice<'a, u32>> {
        self.order.map(RoutingMap::src)
    }
}

impl Operation for QuantizeRows<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.x.device())?;
        to.lives_on("output", self.out.device())?;
        to.reports(&self.report, self.x.rows())?;
        to.reads("map", self.gather)?;
        to.reads("order", self.order)
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.x.moved(), self.src().moved(), self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Q8(self.out.reborrow())]
    }

    fn form(&self) -> &'static str {
        match self.gather {
            Some(_) => "gather",
            None => "rows",
        }
    }

    fn report_word(&mut self) -> Option<SliceMut<'_, u32>> {
        self.report.as_mut().map(ReportTo::word)
    }
}

impl<'a> Checked<QuantizeRows<'a>> {
    /// Output rows.
    pub fn out(&mut self) -> &mut Q8RowsMut<'a> {
        &mut self.0.out
    }

    /// Where to report, if anywhere: the token of the input row.
    pub fn report_to(&mut self) -> Option<&mut ReportTo<'a>> {
        self.0.report.as_mut()
    }
}

/// q8_1 of tokens, each quantized once and written to rows `slot[t*k .. t*k+k]`.
pub struct QuantizeScatter<'a> {
    x: Matrix<'a>,
    map: &'a RoutingMap,
    out: Q8RowsMut<'a>,
    report: Option<ReportTo<'a>>,
}

impl<'a> QuantizeScatter<'a> {
    /// The tokens of `x` to their rows in expert order.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(x: Matrix<'a>, map: &'a RoutingMap, out: Q8RowsMut<'a>) -> Result<Self> {
        agree("scatter: tokens of the map", map.tokens(), x.rows())?;
        agree("scatter: rows of the output", out.rows(), map.rows())?;
        agree("scatter: columns of the output", out.cols(), x.cols())?;
        Ok(Self { x, map, out, report: None })
    }

    /// Reports the first token whose values or stored header are not finite.
    #[must_use]
    pub fn report(mut self, report: Option<&'a mut Report>) -> Self {
        self.report = report.map(|r| ReportTo::new(r, NonFinite::Input, NonFinite::InputHeader));
        self
    }

    /// Input tokens.
    pub fn x(&self) -> Matrix<'a> {
        self.x
    }

    /// The map.
    pub fn map(&self) -> &'a RoutingMap {
        self.map
    }
}

impl Operation for QuantizeScatter<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.x.device())?;
        to.lives_on("output", self.out.device())?;
        to.reports(&self.report, self.x.rows())?;
        to.reads("map", Some(self.map))
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.x.moved(), self.map.slot().moved(), self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Q8(self.out.reborrow())]
    }

    fn report_word(&mut self) -> Option<SliceMut<'_, u32>> {
        self.report.as_mut().map(ReportTo::word)
    }
}

impl<'a> Checked<QuantizeScatter<'a>> {
    /// Output rows.
    pub fn out(&mut self) -> &mut Q8RowsMut<'a> {
        &mut self.0.out
    }

    /// Where to report, if anywhere. The token is the input row.
    pub fn report_to(&mut self) -> Option<&mut ReportTo<'a>> {
        self.0.report.as_mut()
    }
}
