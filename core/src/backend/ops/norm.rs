//! Norms of rows, or of each head of a row.

use super::*;

/// What a norm's result is multiplied by, and what is added.
#[derive(Clone, Copy)]
pub enum NormKind<'a> {
    /// Root mean square; times the weight where there is one.
    Rms(Option<Slice<'a, f32>>),
    /// Mean and variance; times the weight, plus the bias.
    Layer(Slice<'a, f32>, Slice<'a, f32>),
    /// The length; the mean square's eps is then the least length.
    L2,
}

/// Norms each `group` values of a row; a residual can be added before.
pub struct Norm<'a> {
    x: Matrix<'a>,
    kind: NormKind<'a>,
    group: usize,
    eps: f32,
    out: MatrixMut<'a>,
}

/// The checks that both norms share.
fn check(
    kind: &NormKind<'_>,
    [rows, cols]: [usize; 2],
    group: usize,
    eps: f32,
    out: &MatrixMut<'_>,
) -> Result<()> {
    agree("norm: rows of the output", out.rows(), rows)?;
    agree("norm: columns of the output", out.cols(), cols)?;
    if group == 0 || !cols.is_multiple_of(group) {
        let given = format!("{cols} columns in groups of {group}");
        return Err(Error::invalid("norm", given, "whole groups"));
    }
    if !(eps.is_finite() && eps >= 0.0) {
        return Err(Error::invalid("norm: eps", eps, "0 or above"));
    }
    match kind {
        NormKind::Rms(None) | NormKind::L2 => Ok(()),
        NormKind::Rms(Some(weight)) => agree("norm: weights", weight.len(), group),
        NormKind::Layer(weight, bias) => {
            agree("norm: weights", weight.len(), group)?;
            agree("norm: biases", bias.len(), group)
        }
    }
}

fn kind_lives_on(kind: &NormKind<'_>, to: &Admission<'_>) -> Result<()> {
    match kind {
        NormKind::Rms(None) | NormKind::L2 => Ok(()),
        NormKind::Rms(Some(weight)) => to.lives_on("weights", weight.device()),
        NormKind::Layer(weight, bias) => {
            to.lives_on("weights", weight.device())?;
            to.lives_on("biases", bias.device())
        }
    }
}

fn moved(kind: &NormKind<'_>) -> u64 {
    match kind {
        NormKind::Rms(weight) => weight.moved(),
        NormKind::Layer(weight, bias) => weight.moved() + bias.moved(),
        NormKind::L2 => 0,
    }
}

impl<'a> Norm<'a> {
    /// `out`: as x. `group`: the columns of x, or the values of one head; as many weights.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ or `eps` is below 0.
    pub fn new(
        x: Matrix<'a>,
        kind: NormKind<'a>,
        group: usize,
        eps: f32,
        out: MatrixMut<'a>,
    ) -> Result<Self> {
        check(&kind, [x.rows(), x.cols()], group, eps, &out)?;
        Ok(Self { x, kind, group, eps, out })
    }

    /// Rows.
    pub fn x(&self) -> Matrix<'a> {
        self.x
    }

    /// Which norm.
    pub fn kind(&self) -> NormKind<'a> {
        self.kind
    }

    /// Values of one norm.
    pub fn group(&self) -> usize {
        self.group
    }

    /// What is added to the mean square; of L2, the least length that is divided by.
    pub fn eps(&self) -> f32 {
        self.eps
    }
}

impl Operation for Norm<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.x.device())?;
        kind_lives_on(&self.kind, to)?;
        to.lives_on("output", self.out.device())
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.x.moved(), moved(&self.kind), self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow())]
    }

    fn form(&self) -> &'static str {
        match self.kind {
            NormKind::Rms(_) => "rms",
            NormKind::Layer(..) => "layer",
            NormKind::L2 => "l2",
        }
    }
}

impl<'a> Checked<Norm<'a>> {
    /// Normed rows.
    pub fn out(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.out
    }
}

/// Adds a residual in place, and norms the sum: the bytes of [`Pointwise`] by [`By::Add`], then of [`Norm`].
pub struct AddNorm<'a> {
    x: MatrixMut<'a>,
    y: Matrix<'a>,
    kind: NormKind<'a>,
    eps: f32,
    out: MatrixMut<'a>,
}

impl<'a> AddNorm<'a> {
    /// `x += y`; `out`: the norm of each row of x then.
    ///
    /// # Errors
    /// As [`Norm::new`].
    pub fn new(
        x: MatrixMut<'a>,
        y: Matrix<'a>,
        kind: NormKind<'a>,
        eps: f32,
        out: MatrixMut<'a>,
    ) -> Result<Self> {
        agree("add + norm: rows", y.rows(), x.rows())?;
        agree("add + norm: columns", y.cols(), x.cols())?;
        check(&kind, [x.rows(), x.cols()], x.cols().max(1), eps, &out)?;
        Ok(Self { x, y, kind, eps, out })
    }

    /// What is added.
    pub fn y(&self) -> Matrix<'a> {
        self.y
    }

    /// Which norm.
    pub fn kind(&self) -> NormKind<'a> {
        self.kind
    }

    /// What is added to the mean square; of L2, the least length that is divided by.
    pub fn eps(&self) -> f32 {
        self.eps
    }
}

impl Operation for AddNorm<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("values", self.x.device())?;
        to.lives_on("residual", self.y.device())?;
        kind_lives_on(&self.kind, to)?;
        to.lives_on("output", self.out.device())
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        let sum = 2 * self.x.moved() + self.y.moved();
        Cost::bytes([sum, moved(&self.kind), self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.x.reborrow()), Output::Values(self.out.reborrow())]
    }
}

impl<'a> Checked<AddNorm<'a>> {
    /// Values, added to in place, and their norm.
    pub fn parts(&mut self) -> (&mut MatrixMut<'a>, &mut MatrixMut<'a>) {
        (&mut self.0.x, &mut self.0.out)
    }
}
