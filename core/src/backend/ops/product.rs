//! The products.

use super::*;

/// Which activation row, expert and output row belong together.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// One expert; output row r is the product with activation row r.
    Dense,
    /// Activations in expert order: row r belongs to the expert whose bounds hold r.
    Experts(&'a RoutingMap),
    /// Outputs in expert order, activations by token: row r reads activation row `src[r]`.
    Indexed(&'a RoutingMap),
}

/// `dst[r][i] = sum over k of weights[e(r)][i][k] * activations[a(r)][k]`,
/// in the order of `docs/numerics.md`.
pub struct Product<'a> {
    weights: Weights<'a>,
    activations: Q8Rows<'a>,
    rows: Rows<'a>,
    dst: MatrixMut<'a>,
}

impl<'a> Product<'a> {
    /// One launch over all experts.
    ///
    /// # Errors
    /// [`Error::Invalid`] where shapes, experts or layout do not fit together.
    pub fn new(
        weights: Weights<'a>,
        activations: Q8Rows<'a>,
        rows: Rows<'a>,
        dst: MatrixMut<'a>,
    ) -> Result<Self> {
        let (experts, in_rows, out_rows) = match rows {
            Rows::Dense => (1, activations.rows(), activations.rows()),
            Rows::Experts(map) => (map.experts(), map.rows(), map.rows()),
            Rows::Indexed(map) => (map.experts(), map.tokens(), map.rows()),
        };
        agree("product: experts of the weights", weights.experts(), experts)?;
        agree("product: columns of the activations", activations.cols(), weights.cols())?;
        agree("product: rows of the activations", activations.rows(), in_rows)?;
        agree("product: rows of the output", dst.rows(), out_rows)?;
        agree("product: columns of the output", dst.cols(), weights.rows())?;
        let layout = weights.ty().layout();
        if activations.layout() != layout {
            return Err(Error::invalid(
                "product: layout of the activations",
                activations.layout(),
                format!("{layout}, which {} is multiplied in", weights.ty()),
            ));
        }
        Ok(Self { weights, activations, rows, dst })
    }

    /// Weights.
    pub fn weights(&self) -> Weights<'a> {
        self.weights
    }

    /// Activations, in the layout of the weight type.
    pub fn activations(&self) -> Q8Rows<'a> {
        self.activations
    }

    /// How rows belong together.
    pub fn rows(&self) -> Rows<'a> {
        self.rows
    }

    /// The map, unless dense.
    pub fn map(&self) -> Option<&'a RoutingMap> {
        match self.rows {
            Rows::Dense => None,
            Rows::Experts(map) | Rows::Indexed(map) => Some(map),
        }
    }
}

impl Operation for Product<'_> {
    fn admit(&mut self, to: &Admission<'_>) -> Result<()> {
        to.lives_on("weights", self.weights.data().device())?;
        to.lives_on("activations", self.activations.device())?;
        to.lives_on("output", self.dst.device())?;
        if !to.backend.supports(self.weights.ty()) {
            return Err(Error::invalid(
                to.name("weight type"),
                self.weights.ty(),
                format!("a type that {} multiplies", to.backend.id()),
            ));
        }
        to.reads("map", self.map())
    }

    fn is_empty(&self) -> bool {
        // Also keeps the bounds of a map that maps nothing from being read.
        self.dst.is_empty()
    }

    fn cost(&self) -> Cost {
        let (experts, rows) = (self.weights.experts(), self.dst.rows());
        let weights = self.weights.moved() / experts as u64 * experts.min(rows) as u64;
        let indices = match self.rows {
            Rows::Dense => 0,
            Rows::Experts(map) => map.bounds().moved(),
            Rows::Indexed(map) => map.bounds().moved() + map.src().moved(),
        };
        Cost::bytes([weights, self.activations.moved(), indices, self.dst.moved()]).products(
            rows,
            self.weights.rows(),
            self.weights.cols(),
        )
    }

    fn outputs(&mut self) -> Vec<Output<'_>> {
        vec![Output::Values(self.dst.reborrow())]
    }

    fn form(&self) -> &'static str {
        match self.rows {
            Rows::Dense => "dense",
            Rows::Experts(_) => "experts",
            Rows::Indexed(_) => "indexed",
        }
    }
}

impl<'a> Checked<Product<'a>> {
    /// Output: a row per routed row, a column per weight row.
    pub fn dst(&mut self) -> &mut MatrixMut<'a> {
        &mut self.0.dst
    }
}
