//! The steps of a whole model around its products and its attention.

use super::*;
use crate::attention::Pairs;
use crate::floats::FloatType;

/// A matrix of values that are not quantized: row r starts at byte `r * cols * ty.bytes()`.
#[derive(Clone, Copy)]
pub struct FloatMatrix<'a> {
    data: Slice<'a, u8>,
    ty: FloatType,
    rows: usize,
    cols: usize,
}

impl<'a> FloatMatrix<'a> {
    /// A view of the first bytes of `data`; `what` names it in errors.
    ///
    /// # Errors
    /// [`Error::Invalid`] where `data` is too short, or there are 2^31 rows or columns or more.
    pub fn new(
        what: &str,
        data: impl Into<Slice<'a, u8>>,
        ty: FloatType,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let data = data.into();
        for (name, n) in [("rows", rows), ("columns", cols)] {
            if n > i32::MAX as usize {
                return Err(Error::invalid(format!("{what}: {name}"), n, "below 2^31"));
            }
        }
        let bytes = (rows as u64 * cols as u64).checked_mul(ty.bytes() as u64);
        match bytes.and_then(|bytes| usize::try_from(bytes).ok()) {
            Some(bytes) if bytes <= data.len() => {
                Ok(Self { data: data.slice(..bytes)?, ty, rows, cols })
            }
            _ => Err(Error::invalid(
                what,
                format!("{} bytes", data.len()),
                format!("{rows} x {cols} {ty}"),
            )),
        }
    }

    /// The bytes.
    pub fn data(&self) -> Slice<'a, u8> {
        self.data
    }

    /// How its values are stored.
    pub fn ty(&self) -> FloatType {
        self.ty
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }
}

/// A table of embeddings: one row per token id.
#[derive(Clone, Copy)]
pub enum Table<'a> {
    /// Quantized; one matrix.
    Quantized(Weights<'a>),
    /// Floats.
    Floats(FloatMatrix<'a>),
}

impl<'a> Table<'a> {
    fn shape(&self) -> (usize, usize) {
        match self {
            Self::Quantized(w) => (w.rows(), w.cols()),
            Self::Floats(m) => (m.rows, m.cols),
        }
    }

    /// The bytes.
    pub fn data(&self) -> Slice<'a, u8> {
        match self {
            Self::Quantized(w) => w.data(),
            Self::Floats(m) => m.data,
        }
    }
}

/// `out[t] = table[ids[t]]`, decoded, times a scale where there is one.
pub struct Embed<'a> {
    table: Table<'a>,
    batch: &'a TokenBatch,
    scale: Option<f32>,
    out: MatrixMut<'a>,
}

impl<'a> Embed<'a> {
    /// `out`: tokens x the table's columns. The batch's vocabulary is at most the table's rows.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(
        table: Table<'a>,
        batch: &'a TokenBatch,
        scale: Option<f32>,
        out: MatrixMut<'a>,
    ) -> Result<Self> {
        let (rows, cols) = table.shape();
        if batch.limits().vocabulary > rows {
            let given = batch.limits().vocabulary;
            let most = format!("at most {rows}, the rows of the table");
            return Err(Error::invalid("embed: vocabulary of the batch", given, most));
        }
        agree("embed: rows of the output", out.rows(), batch.tokens())?;
        agree("embed: columns of the output", out.cols(), cols)?;
        Ok(Self { table, batch, scale, out })
    }

    /// Where the rows come from.
    pub fn table(&self) -> Table<'a> {
        self.table
    }

    /// The id of each row.
    pub fn ids(&self) -> Slice<'a, u32> {
        self.batch.ids()
    }

    /// What each value is multiplied by.
    pub fn scale(&self) -> Option<f32> {
        self.scale
    }
}

impl Operation for Embed<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("table", self.table.data().device())?;
        to.lives_on("output", self.out.device())?;
        self.batch.read(&to.name("batch"), to.backend)
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        let row = match self.table {
            Table::Quantized(w) => w.moved() / (w.experts() * w.rows()) as u64,
            Table::Floats(m) => m.moved() / m.rows as u64,
        };
        let rows = row * self.out.rows() as u64;
        Cost::bytes([self.ids().moved(), rows, self.out.moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow())]
    }

    fn form(&self) -> &'static str {
        match self.table {
            Table::Quantized(_) => "quantized",
            Table::Floats(_) => "floats",
        }
    }
}

impl<'a> Checked<Embed<'a>> {
    /// Rows.
    pub fn out(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.out
    }
}

/// `out[r][i]`: the product of row r of x and row i of the weights, one accumulator from +0, fma in
/// ascending k.
pub struct FloatProduct<'a> {
    x: Matrix<'a>,
    weights: FloatMatrix<'a>,
    out: MatrixMut<'a>,
}

impl<'a> FloatProduct<'a> {
    /// `out`: rows of x times rows of the weights.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(x: Matrix<'a>, weights: FloatMatrix<'a>, out: MatrixMut<'a>) -> Result<Self> {
        agree("float product: columns of the weights", weights.cols, x.cols())?;
        agree("float product: rows of the output", out.rows(), x.rows())?;
        agree("float product: columns of the output", out.cols(), weights.rows)?;
        Ok(Self { x, weights, out })
    }

    /// Rows.
    pub fn x(&self) -> Matrix<'a> {
        self.x
    }

    /// Weights.
    pub fn weights(&self) -> FloatMatrix<'a> {
        self.weights
    }
}

impl Operation for FloatProduct<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("input", self.x.device())?;
        to.lives_on("weights", self.weights.data.device())?;
        to.lives_on("output", self.out.device())
    }

    fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    fn cost(&self) -> Cost {
        Cost::bytes([self.x.moved(), self.weights.moved(), self.out.moved()]).products(
            self.x.rows(),
            self.weights.rows,
            self.x.cols(),
        )
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.out.reborrow())]
    }
}

impl<'a> Checked<FloatProduct<'a>> {
    /// Products.
    pub fn out(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.out
    }
}

/// Turns the first `2 * cos.cols()` values of each head, in place.
pub struct Rope<'a> {
    x: MatrixMut<'a>,
    head: usize,
    cos: Matrix<'a>,
    sin: Matrix<'a>,
    pairs: Pairs,
    batch: &'a TokenBatch,
}

impl<'a> Rope<'a> {
    /// `x`: tokens x heads of `head` values; row p of `cos` and `sin` is that of position p, and there
    /// is one for every position that the batch may have.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the shapes differ.
    pub fn new(
        x: MatrixMut<'a>,
        head: usize,
        cos: Matrix<'a>,
        sin: Matrix<'a>,
        pairs: Pairs,
        batch: &'a TokenBatch,
    ) -> Result<Self> {
        agree("rope: rows", x.rows(), batch.tokens())?;
        if head == 0 || !x.cols().is_multiple_of(head) {
            let given = format!("{} columns in heads of {head}", x.cols());
            return Err(Error::invalid("rope", given, "whole heads"));
        }
        agree("rope: columns of the sines", sin.cols(), cos.cols())?;
        if cos.cols() > head / 2 {
            let most = format!("at most {}, half a head", head / 2);
            return Err(Error::invalid("rope: columns of the cosines", cos.cols(), most));
        }
        let (_, positions) = batch.on_host();
        let needed = positions.iter().max().map_or(0, |p| *p as usize + 1);
        for (what, rows) in [("cosines", cos.rows()), ("sines", sin.rows())] {
            if rows < needed {
                let least = format!("at least {needed}, for the positions of the batch");
                return Err(Error::invalid(format!("rope: rows of the {what}"), rows, least));
            }
        }
        Ok(Self { x, head, cos, sin, pairs, batch })
    }

    /// Values of a head.
    pub fn head(&self) -> usize {
        self.head
    }

    /// Cosines and sines, a row per position.
    pub fn tables(&self) -> (Matrix<'a>, Matrix<'a>) {
        (self.cos, self.sin)
    }

    /// Which values turn together.
    pub fn pairs(&self) -> Pairs {
        self.pairs
    }

    /// The position of each row.
    pub fn positions(&self) -> Slice<'a, u32> {
        self.batch.positions()
    }
}

impl Operation for Rope<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("values", self.x.device())?;
        to.lives_on("cosines", self.cos.device())?;
        to.lives_on("sines", self.sin.device())?;
        self.batch.read(&to.name("batch"), to.backend)
    }

    fn is_empty(&self) -> bool {
        self.x.is_empty() || self.cos.cols() == 0
    }

    fn cost(&self) -> Cost {
        let (rows, turned) = (self.x.rows(), self.cos.cols());
        let heads = self.x.cols() / self.head;
        // Pairs are read and written; each token has its row of both tables.
        let values = 8 * (rows * heads * 2 * turned) as u64;
        let tables = 8 * (rows * turned) as u64;
        Cost::bytes([values, tables, self.positions().moved()])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.x.reborrow())]
    }

    fn form(&self) -> &'static str {
        match self.pairs {
            Pairs::Interleaved => "interleaved",
            Pairs::Halves => "halves",
        }
    }
}

impl<'a> Checked<Rope<'a>> {
    /// Values, turned in place.
    pub fn x(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.x
    }
}

/// What [`Pointwise`] does to each value.
#[derive(Clone, Copy)]
pub enum By<'a> {
    /// `x + y`: a residual.
    Add(Matrix<'a>),
    /// `x * y`.
    Multiply(Matrix<'a>),
    /// y in place of x: its bits.
    Copy(Matrix<'a>),
    /// `x + b[c]`: one value per column.
    Bias(Slice<'a, f32>),
    /// `x * factor`.
    Scale(f32),
    /// `cap * tanh(x / cap)`.
    Softcap(f32),
    /// `x * (1 / (1 + exp(-g)))`; the gates have as many columns as x, or one for several columns in a row.
    SigmoidGate(Matrix<'a>),
    /// `x * (g / (1 + exp(-g)))`, with gates as above.
    SiluGate(Matrix<'a>),
}

impl<'a> By<'a> {
    /// What it is called: as `add`.
    fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Multiply(_) => "multiply",
            Self::Copy(_) => "copy",
            Self::Bias(_) => "bias",
            Self::Scale(_) => "scale",
            Self::Softcap(_) => "softcap",
            Self::SigmoidGate(_) => "gate",
            Self::SiluGate(_) => "silu gate",
        }
    }

    /// The matrix that it takes, if it takes one.
    fn matrix(&self) -> Option<Matrix<'a>> {
        match *self {
            Self::Add(m)
            | Self::Multiply(m)
            | Self::Copy(m)
            | Self::SigmoidGate(m)
            | Self::SiluGate(m) => Some(m),
            Self::Bias(_) | Self::Scale(_) | Self::Softcap(_) => None,
        }
    }
}

/// Changes each value of a matrix in place.
pub struct Pointwise<'a> {
    x: MatrixMut<'a>,
    by: By<'a>,
}

impl<'a> Pointwise<'a> {
    /// See [`By`] for the shapes.
    ///
    /// # Errors
    /// [`Error::Invalid`] where they differ, or a softcap is not above 0.
    pub fn new(x: MatrixMut<'a>, by: By<'a>) -> Result<Self> {
        match by {
            By::Add(y) | By::Multiply(y) | By::Copy(y) => {
                agree(format!("{}: rows", by.name()), y.rows(), x.rows())?;
                agree(format!("{}: columns", by.name()), y.cols(), x.cols())?;
            }
            By::Bias(b) => agree("bias: values", b.len(), x.cols())?,
            By::Softcap(cap) if !(cap.is_finite() && cap > 0.0) => {
                return Err(Error::invalid("softcap", cap, "above 0"));
            }
            By::SigmoidGate(gate) | By::SiluGate(gate) => {
                agree("gate: rows", gate.rows(), x.rows())?;
                if gate.cols() == 0 || !x.cols().is_multiple_of(gate.cols()) {
                    let expected = format!("a divisor of {}", x.cols());
                    return Err(Error::invalid("gate: columns", gate.cols(), expected));
                }
            }
            By::Scale(_) | By::Softcap(_) => {}
        }
        Ok(Self { x, by })
    }

    /// What is done.
    pub fn by(&self) -> By<'a> {
        self.by
    }
}

impl Operation for Pointwise<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("values", self.x.device())?;
        match (&self.by, self.by.matrix()) {
            (_, Some(m)) => to.lives_on("operand", m.device()),
            (By::Bias(b), _) => to.lives_on("operand", b.device()),
            _ => Ok(()),
        }
    }

    fn is_empty(&self) -> bool {
        self.x.is_empty()
    }

    fn cost(&self) -> Cost {
        let operand = match &self.by {
            By::Add(m) | By::Multiply(m) | By::SigmoidGate(m) | By::SiluGate(m) => m.moved(),
            By::Bias(b) => b.moved(),
            By::Scale(_) | By::Softcap(_) => 0,
            // What stood there is not read.
            By::Copy(m) => return Cost::bytes([m.moved(), self.x.moved()]),
        };
        Cost::bytes([2 * self.x.moved(), operand])
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.x.reborrow())]
    }

    fn form(&self) -> &'static str {
        self.by.name()
    }
}

impl<'a> Checked<Pointwise<'a>> {
    /// Values, changed in place.
    pub fn x(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.x
    }
}
