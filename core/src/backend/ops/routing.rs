//! The steps before the products: scores, chosen experts, map.

use super::*;

/// `out[t][e]`: the dot product of token t and router row e, one accumulator
/// from +0, fma in ascending k.
pub struct RouterScores<'a> {
    x: Matrix<'a>,
    weights: Matrix<'a>,
    out: MatrixMut<'a>,
}

impl<'a> RouterScores<'a> {
    /// `x`: tokens x width; `weights`: experts x width; `out`: tokens x experts.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(x: Matrix<'a>, weights: Matrix<'a>, out: MatrixMut<'a>) -> Result<Self> {
        agree("router: columns of the weights", weights.cols(), x.cols())?;
        agree("router: rows of the scores", out.rows(), x.rows())?;
        agree("router: columns of the scores", out.cols(), weights.rows())?;
        Ok(Self { x, weights, out })
    }

    /// Tokens.
    pub fn x(&self) -> Matrix<'a> {
        self.x
    }

    /// One row per expert.
    pub fn weights(&self) -> Matrix<'a> {
        self.weights
    }
}

impl Operation for RouterScores<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.x.device())?;
        to.lives_on("weights", self.weights.device())?;
        to.lives_on("scores", self.out.device())
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.x.moved(), self.weights.moved(), self.out.moved()]).products(
            self.x.rows(),
            self.weights.rows(),
            self.x.cols(),
        )
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow())]
    }
}

impl<'a> Checked<RouterScores<'a>> {
    /// Scores.
    pub fn out(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.out
    }
}

/// Scores to the k chosen experts of each token and their weights. Once it is launched, the
/// routes hold the tokens of the scores.
pub struct TopK<'a> {
    scores: Matrix<'a>,
    options: RouterOptions,
    bias: [Option<Slice<'a, f32>>; 2],
    routes: &'a mut DeviceRoutes,
    report: Option<ReportTo<'a>>,
}

impl<'a> TopK<'a> {
    /// `scores`: tokens x experts; `routes` says k and has room for the tokens.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ, or as [`RouterOptions::check`].
    pub fn new(
        scores: Matrix<'a>,
        options: &RouterOptions,
        routes: &'a mut DeviceRoutes,
    ) -> Result<Self> {
        agree("top-k: columns of the scores", scores.cols(), routes.experts())?;
        options.check(routes.experts(), routes.k(), false)?;
        if scores.rows() > routes.capacity() {
            return Err(Error::invalid(
                "top-k: tokens",
                scores.rows(),
                format!("at most {}, the capacity of the routes", routes.capacity()),
            ));
        }
        routes.forget();
        Ok(Self { scores, options: *options, bias: [None; 2], routes, report: None })
    }

    /// With a bias on the scores, and one that only the choice sees; a value per expert each.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the lengths differ, or as [`RouterOptions::check`].
    pub fn bias(
        mut self,
        score: Option<Slice<'a, f32>>,
        selection: Option<Slice<'a, f32>>,
    ) -> Result<Self> {
        for (what, bias) in [("bias of the scores", &score), ("bias of the choice", &selection)] {
            if let Some(bias) = bias {
                agree(format!("top-k: {what}"), bias.len(), self.scores.cols())?;
                self.options.check(self.routes.experts(), self.routes.k(), true)?;
            }
        }
        self.bias = [score, selection];
        Ok(self)
    }

    /// Reports the first token with a score that is not finite.
    #[must_use]
    pub fn report(mut self, report: Option<&'a mut Report>) -> Self {
        self.report = report.map(|r| ReportTo::new(r, NonFinite::Score, NonFinite::Score));
        self
    }

    /// Scores, tokens x experts.
    pub fn scores(&self) -> Matrix<'a> {
        self.scores
    }

    /// Chosen experts per token.
    pub fn k(&self) -> usize {
        self.routes.k()
    }

    /// How scores become experts and weights.
    pub fn options(&self) -> &RouterOptions {
        &self.options
    }

    /// Whether it is a softmax of the scores as they are, over the chosen ones or over all.
    pub fn is_plain(&self) -> bool {
        self.options.is_plain() && self.bias.iter().all(Option::is_none)
    }

    /// The bias of the scores, if there is one.
    pub fn score_bias(&self) -> Option<Slice<'a, f32>> {
        self.bias[0]
    }

    /// The bias that only the choice sees, if there is one.
    pub fn selection_bias(&self) -> Option<Slice<'a, f32>> {
        self.bias[1]
    }
}

impl Operation for TopK<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("scores", self.scores.device())?;
        for bias in self.bias.iter().flatten() {
            to.lives_on("bias", bias.device())?;
        }
        to.lives_on("routes", self.routes.device())?;
        to.reports(&self.report, self.scores.rows())?;
        match self.scores.rows() {
            0 => Ok(()),
            _ => self.routes.write(&to.name("routes"), to.backend),
        }
    }

    fn is_empty(&self) -> bool {
        self.scores.rows() == 0
    }

    fn cost(&self) -> Cost {
        // An id and a weight of each choice.
        let chosen = 8 * (self.scores.rows() * self.k()) as u64;
        let [score, selection] = self.bias.map(|bias| bias.moved());
        Cost::bytes([self.scores.moved(), score, selection, chosen])
    }

    fn written(&mut self) {
        self.routes.written(self.scores.rows());
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        let (rows, k) = (self.scores.rows(), self.routes.k());
        let (ids, weights) = self.routes.parts_mut();
        let within = "tokens within capacity";
        let weights = weights.slice(..rows * k).expect(within);
        let weights = MatrixMut::dense("weights", weights, rows, k).expect(within);
        vec![Output::Ids(ids.slice(..rows * k).expect(within)), Output::Values(weights)]
    }

    fn report_word(&mut self) -> Option<SliceMut<'_, u32>> {
        self.report.as_mut().map(ReportTo::word)
    }
}

impl<'a> Checked<TopK<'a>> {
    /// Ids and weights to be written, `[t * k + j]`.
    pub fn out(&mut self) -> (SliceMut<'_, i32>, SliceMut<'_, f32>) {
        self.0.routes.parts_mut()
    }

    /// Where to report, if anywhere. The token is the row of the scores.
    pub fn report_to(&mut self) -> Option<&mut ReportTo<'a>> {
        self.0.report.as_mut()
    }
}

/// Routes to the stable map: rows by expert, then by (token, choice). Once it is launched, the
/// map holds the tokens of the routes.
pub struct MapRoutes<'a> {
    routes: RoutesView<'a>,
    map: &'a mut RoutingMap,
}

impl<'a> MapRoutes<'a> {
    /// The map of `routes`, which must have its k and experts and fit its capacity.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they do not.
    pub fn new(routes: RoutesView<'a>, map: &'a mut RoutingMap) -> Result<Self> {
        agree("map: k of the routes", routes.k(), map.k())?;
        agree("map: experts of the routes", routes.experts(), map.experts())?;
        if routes.tokens() > map.capacity() {
            return Err(Error::invalid(
                "map: tokens",
                routes.tokens(),
                format!("at most {}, the capacity of the map", map.capacity()),
            ));
        }
        map.forget();
        Ok(Self { routes, map })
    }

    /// Routes.
    pub fn routes(&self) -> RoutesView<'a> {
        self.routes
    }
}

impl Operation for MapRoutes<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("output", self.map.device())?;
        self.routes.read(&to.name("routes"), to.backend)?;
        self.map.write(&to.name("output"), to.backend)
    }

    fn is_empty(&self) -> bool {
        // The bounds are written for no tokens too.
        false
    }

    fn cost(&self) -> Cost {
        // Ids in, `slot` and `src` out, and the bounds.
        Cost::bytes([3 * self.routes.ids().moved(), self.map.bounds().moved()])
    }

    fn written(&mut self) {
        self.map.written(self.routes.tokens());
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        let (slot, src, bounds) = self.map.parts_mut(self.routes.rows());
        vec![Output::Map(slot), Output::Map(src), Output::Map(bounds)]
    }
}

impl<'a> Checked<MapRoutes<'a>> {
    /// `slot`, `src` (rows values each) and `bounds` (experts + 1), to be written.
    pub fn out(&mut self) -> (SliceMut<'_, u32>, SliceMut<'_, u32>, SliceMut<'_, u32>) {
        self.0.map.parts_mut(self.0.routes.rows())
    }
}
