//! The weights of a layer, on a device.

use crate::activation::Activation;
use crate::backend::ops::{
    CombineOptions, GateUp, GateUpOrder, Matrix, PerExpert, Strides, Weights,
};
use crate::backend::{Backend, Buffer, DeviceId, HostBytes, RoutingMap};
use crate::error::{agree, same_device};
use crate::format::WeightType;
use crate::q8_1::Sums;
use crate::routing::RouterOptions;
use crate::{Error, Result};

/// Quantized matrices of one shape, one per expert, on a device.
#[derive(Debug)]
pub struct Tensor {
    data: Buffer<u8>,
    ty: WeightType,
    experts: usize,
    rows: usize,
    cols: usize,
    strides: Strides,
}

impl Tensor {
    /// Puts `host`'s bytes on the device; experts one after the other, rows without gaps.
    ///
    /// # Errors
    /// As [`Weights::dense`], and those of the backend.
    pub fn dense(
        backend: &dyn Backend,
        what: &str,
        host: HostBytes,
        ty: WeightType,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let strides = Strides::dense(what, ty, rows, cols)?;
        Self::strided(backend, what, host, ty, experts, rows, cols, strides)
    }

    /// Puts `host`'s bytes on the device, as in [`Weights::strided`].
    ///
    /// # Errors
    /// As [`Weights::strided`]; [`Error::Invalid`] for 2^63 weights or more; and
    /// those of the backend.
    #[allow(clippy::too_many_arguments)] // one per dimension of a strided tensor
    pub fn strided(
        backend: &dyn Backend,
        what: &str,
        host: HostBytes,
        ty: WeightType,
        experts: usize,
        rows: usize,
        cols: usize,
        strides: Strides,
    ) -> Result<Self> {
        // Strides may overlap experts, so that the bytes say nothing of how many weights there are.
        let weights = experts.checked_mul(rows).and_then(|n| n.checked_mul(cols));
        if weights.is_none_or(|n| isize::try_from(n).is_err()) {
            let given = format!("{experts} x {rows} x {cols}");
            return Err(Error::invalid(what, given, "below 2^63 weights"));
        }
        let data = backend.import(host)?;
        Weights::strided(what, &data, ty, experts, rows, cols, strides)?;
        Ok(Self { data, ty, experts, rows, cols, strides })
    }

    /// Bytes that are on a device already, adopted ones for instance: experts one after the
    /// other, rows without gaps.
    ///
    /// # Errors
    /// As [`Weights::dense`].
    pub fn on_device(
        what: &str,
        data: Buffer<u8>,
        ty: WeightType,
        experts: usize,
        rows: usize,
        cols: usize,
    ) -> Result<Self> {
        let strides = Strides::dense(what, ty, rows, cols)?;
        Weights::strided(what, &data, ty, experts, rows, cols, strides)?;
        Ok(Self { data, ty, experts, rows, cols, strides })
    }

    /// The weights, for a product.
    pub fn weights(&self) -> Weights<'_> {
        let Self { data, ty, experts, rows, cols, strides } = self;
        Weights::strided("tensor", data, *ty, *experts, *rows, *cols, *strides)
            .expect("checked when the tensor was made")
    }

    /// Weight type.
    pub fn ty(&self) -> WeightType {
        self.ty
    }

    /// Matrices.
    pub fn experts(&self) -> usize {
        self.experts
    }

    /// Rows of each.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns of each.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Bytes of all matrices, without gaps.
    pub fn bytes(&self) -> usize {
        self.experts * self.rows * self.cols / self.ty.block_values() * self.ty.block_bytes()
    }
}

/// Gate and up, as files have them.
#[derive(Debug)]
pub enum GateUpWeights {
    /// Two tensors of `ffn` rows, of any two types.
    Separate {
        /// Gate.
        gate: Tensor,
        /// Up.
        up: Tensor,
    },
    /// Up alone: experts without gates.
    UpOnly {
        /// Up.
        up: Tensor,
    },
    /// One tensor of `2 * ffn` rows.
    Merged {
        /// Both.
        tensor: Tensor,
        /// The order of its rows.
        order: GateUpOrder,
    },
}

impl GateUpWeights {
    pub(super) fn parts(&self) -> Vec<(&str, &Tensor)> {
        match self {
            Self::Separate { gate, up } => vec![("gate", gate), ("up", up)],
            Self::UpOnly { up } => vec![("up", up)],
            Self::Merged { tensor, .. } => vec![("gate and up", tensor)],
        }
    }

    /// The order in which the products leave gate and up in a row.
    pub fn order(&self) -> GateUpOrder {
        match self {
            Self::Separate { .. } => GateUpOrder::Split,
            Self::UpOnly { .. } => GateUpOrder::UpOnly,
            Self::Merged { order, .. } => *order,
        }
    }

    /// Each tensor and the column its product starts at.
    pub(super) fn products(&self) -> Vec<(&Tensor, usize)> {
        let mut column = 0;
        self.parts()
            .into_iter()
            .map(|(_, tensor)| {
                column += tensor.rows;
                (tensor, column - tensor.rows)
            })
            .collect()
    }

    fn check(&self, experts: usize, width: usize, ffn: usize, device: DeviceId) -> Result<()> {
        let rows = if matches!(self, Self::Merged { .. }) { 2 * ffn } else { ffn };
        for (what, tensor) in self.parts() {
            same_device(what, tensor.data.device(), device)?;
            agree(format!("{what}: experts"), tensor.experts, experts)?;
            agree(format!("{what}: rows"), tensor.rows, rows)?;
            agree(format!("{what}: columns"), tensor.cols, width)?;
        }
        Ok(())
    }
}

/// The router: a score per expert, and biases of the choice.
#[derive(Debug)]
pub struct Router {
    weights: Buffer<f32>,
    width: usize,
    experts: usize,
    pub(super) score_bias: Option<Buffer<f32>>,
    pub(super) selection_bias: Option<Buffer<f32>>,
    pub(super) own_input: bool,
}

impl Router {
    /// `weights`: experts x width f32, row after row.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the length differs, and those of the backend.
    pub fn new(
        backend: &dyn Backend,
        weights: &[f32],
        experts: usize,
        width: usize,
    ) -> Result<Self> {
        if Some(weights.len()) != experts.checked_mul(width) {
            return Err(Self::other_length(weights.len(), experts, width));
        }
        Self::on_device(backend.from_slice(weights)?, experts, width)
    }

    /// Weights that are on a device already, adopted ones for instance.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the length differs.
    pub fn on_device(weights: Buffer<f32>, experts: usize, width: usize) -> Result<Self> {
        if Some(weights.len()) != experts.checked_mul(width) {
            return Err(Self::other_length(weights.len(), experts, width));
        }
        let (score_bias, selection_bias) = (None, None);
        Ok(Self { weights, width, experts, score_bias, selection_bias, own_input: false })
    }

    fn other_length(given: usize, experts: usize, width: usize) -> Error {
        Error::invalid("router", format!("{given} values"), format!("{experts} experts x {width}"))
    }

    /// With a bias on the scores, and one that only the choice sees; a value per expert each.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the lengths differ, and those of the backend.
    pub fn biased(
        mut self,
        backend: &dyn Backend,
        score: Option<&[f32]>,
        selection: Option<&[f32]>,
    ) -> Result<Self> {
        self.score_bias = upload(backend, "router: bias", score, self.experts)?;
        self.selection_bias =
            upload(backend, "router: bias of the choice", selection, self.experts)?;
        Ok(self)
    }

    /// Of a layer whose router reads another input than its experts: see
    /// [`Routing::Input`](super::Routing::Input).
    #[must_use]
    pub fn with_own_input(mut self) -> Self {
        self.own_input = true;
        self
    }

    fn is_biased(&self) -> bool {
        self.score_bias.is_some() || self.selection_bias.is_some()
    }

    pub(super) fn matrix(&self) -> Matrix<'_> {
        Matrix::dense("router", &self.weights, self.experts, self.width)
            .expect("checked when the router was made")
    }
}

/// `values` on the device, where there are any.
fn upload(
    backend: &dyn Backend,
    what: &str,
    values: Option<&[f32]>,
    expected: usize,
) -> Result<Option<Buffer<f32>>> {
    let Some(values) = values else { return Ok(None) };
    agree(what, values.len(), expected)?;
    Ok(Some(backend.from_slice(values)?))
}

/// What experts compute beside their products, from the host.
#[derive(Debug, Clone, Default)]
pub struct ExpertOptions {
    /// Hidden values from gate and up.
    pub activation: Activation,
    /// Experts x 2: factors of the gate and up products; experts x 1 without gates.
    pub scale: Option<Vec<f32>>,
    /// Experts x the rows of gate and up, in the order of the products: their biases.
    pub bias: Option<Vec<f32>>,
    /// A factor of each expert's down product.
    pub down_scale: Option<Vec<f32>>,
    /// Experts x width: biases of the down product.
    pub down_bias: Option<Vec<f32>>,
}

/// The same on a device.
#[derive(Debug, Default)]
pub(super) struct Affine {
    pub(super) activation: Activation,
    scale: Option<Buffer<f32>>,
    bias: Option<Buffer<f32>>,
    down_scale: Option<Buffer<f32>>,
    down_bias: Option<Buffer<f32>>,
    experts: usize,
}

impl Affine {
    fn new(
        backend: &dyn Backend,
        options: &ExpertOptions,
        [experts, width, ffn]: [usize; 3],
        order: GateUpOrder,
    ) -> Result<Self> {
        let ExpertOptions { activation, scale, bias, down_scale, down_bias } = options;
        activation.check()?;
        if order == GateUpOrder::UpOnly && !activation.works_without_gates() {
            return Err(Error::invalid(
                "activation without gates",
                activation,
                "one that has none",
            ));
        }
        let parts = order.parts();
        let upload = |what, values: &Option<Vec<f32>>, expected| {
            upload(backend, what, values.as_deref(), expected)
        };
        Ok(Self {
            activation: *activation,
            scale: upload("scales of gate and up", scale, experts * parts)?,
            bias: upload("biases of gate and up", bias, experts * parts * ffn)?,
            down_scale: upload("scales of down", down_scale, experts)?,
            down_bias: upload("biases of down", down_bias, experts * width)?,
            experts,
        })
    }

    fn matrix<'a>(&self, values: &'a Option<Buffer<f32>>) -> Result<Option<Matrix<'a>>> {
        let Some(values) = values else { return Ok(None) };
        let cols = values.len() / self.experts;
        Matrix::dense("values per expert", values, self.experts, cols).map(Some)
    }

    /// Gate and up with what is done to them.
    pub(super) fn gate_up<'a>(
        &'a self,
        gate_up: GateUp<'a>,
        map: Option<&'a RoutingMap>,
    ) -> Result<GateUp<'a>> {
        let gate_up = gate_up.activation(self.activation)?;
        let (scale, bias) = (self.matrix(&self.scale)?, self.matrix(&self.bias)?);
        match scale.is_some() || bias.is_some() {
            true => gate_up.per_expert(PerExpert { scale, bias, map }),
            false => Ok(gate_up),
        }
    }

    /// Scales and biases of the down products.
    pub(super) fn down(&self) -> Result<(Option<Matrix<'_>>, Option<Matrix<'_>>)> {
        Ok((self.matrix(&self.down_scale)?, self.matrix(&self.down_bias)?))
    }
}

/// An expert that every token goes through.
#[derive(Debug)]
pub struct SharedExpert {
    /// Gate and up.
    pub gate_up: GateUpWeights,
    /// Down.
    pub down: Tensor,
    /// A row whose score, through the sigmoid, weighs the expert; weight 1 where there is none.
    pub gate: Option<Router>,
}

/// The weights of one mixture-of-experts layer on a device.
#[derive(Debug)]
pub struct MoeLayer {
    pub(super) gate_up: GateUpWeights,
    pub(super) down: Tensor,
    pub(super) experts: Affine,
    pub(super) router: Option<Router>,
    pub(super) shared: Option<SharedExpert>,
    pub(super) shared_options: Affine,
    pub(super) k: usize,
    pub(super) router_options: RouterOptions,
    pub(super) factors: CombineOptions,
    pub(super) sums: Sums,
}

impl MoeLayer {
    /// A layer of `down.experts()` experts of which each token uses `k`.
    ///
    /// # Errors
    /// [`Error::Invalid`] where the tensors' shapes do not fit together,
    /// [`Error::WrongDevice`] where they live on several devices.
    pub fn new(gate_up: GateUpWeights, down: Tensor, k: usize) -> Result<Self> {
        let (experts, width, ffn) = (down.experts, down.rows, down.cols);
        gate_up.check(experts, width, ffn, down.data.device())?;
        if k == 0 || k > i32::MAX as usize {
            return Err(Error::invalid("experts per token (k)", k, "1 to 2^31 - 1"));
        }
        Ok(Self {
            gate_up,
            down,
            experts: Affine::default(),
            router: None,
            shared: None,
            shared_options: Affine::default(),
            k,
            router_options: RouterOptions::default(),
            factors: CombineOptions::default(),
            sums: Sums::default(),
        })
    }

    /// With another activation than SwiGLU, or with scales and biases of the experts.
    ///
    /// # Errors
    /// [`Error::Invalid`] where lengths do not fit or the activation needs gates that are absent.
    pub fn with_experts(mut self, backend: &dyn Backend, options: &ExpertOptions) -> Result<Self> {
        same_device("layer", self.device(), backend.id())?;
        let shape = [self.experts(), self.width(), self.ffn()];
        self.experts = Affine::new(backend, options, shape, self.gate_up.order())?;
        Ok(self)
    }

    /// With factors of the sum. Where experts are not weighed behind them, the router's weights
    /// multiply their input.
    #[must_use]
    pub fn with_factors(mut self, factors: CombineOptions) -> Self {
        self.factors = factors;
        self
    }

    /// With sums of another kind in the headers of its quantized activations: [`Sums::Values`]
    /// unless this is called.
    #[must_use]
    pub fn with_sums(mut self, sums: Sums) -> Self {
        self.sums = sums;
        self
    }

    /// Whether the router's weights multiply what experts read.
    pub(super) fn weighs_input(&self) -> bool {
        !self.factors.weighed
    }

    /// With a router.
    ///
    /// # Errors
    /// [`Error::Invalid`] where its shape is not experts x width, or as [`RouterOptions::check`];
    /// [`Error::WrongDevice`] where it lives on another device than the layer.
    pub fn with_router(mut self, router: Router, options: &RouterOptions) -> Result<Self> {
        agree("router: experts", router.experts, self.experts())?;
        agree("router: columns", router.width, self.width())?;
        same_device("router", router.weights.device(), self.device())?;
        options.check(self.experts(), self.k, router.is_biased())?;
        (self.router, self.router_options) = (Some(router), *options);
        Ok(self)
    }

    /// With a shared expert.
    ///
    /// # Errors
    /// [`Error::Invalid`] where its shapes do not fit the layer's,
    /// [`Error::WrongDevice`] where it lives on another device.
    pub fn with_shared(mut self, shared: SharedExpert) -> Result<Self> {
        let ffn = shared.down.cols;
        shared.gate_up.check(1, self.width(), ffn, self.device())?;
        same_device("shared down", shared.down.data.device(), self.device())?;
        agree("shared down: experts", shared.down.experts, 1)?;
        agree("shared down: rows", shared.down.rows, self.width())?;
        if let Some(gate) = &shared.gate {
            agree("shared gate: rows", gate.experts, 1)?;
            agree("shared gate: columns", gate.width, self.width())?;
            same_device("shared gate", gate.weights.device(), self.device())?;
        }
        self.shared = Some(shared);
        Ok(self)
    }

    /// With another activation than SwiGLU, or with scales and biases, of the shared expert; its
    /// down product has neither but [`CombineOptions::shared`].
    ///
    /// # Errors
    /// [`Error::Invalid`] where there is no shared expert, or as [`MoeLayer::with_experts`].
    pub fn with_shared_options(
        mut self,
        backend: &dyn Backend,
        options: &ExpertOptions,
    ) -> Result<Self> {
        same_device("layer", self.device(), backend.id())?;
        let shared = self
            .shared
            .as_ref()
            .ok_or_else(|| Error::invalid("shared expert's options", "no shared expert", "one"))?;
        if options.down_scale.is_some() || options.down_bias.is_some() {
            let what = "scales and biases of the shared expert's down product";
            return Err(Error::invalid(what, "some", "none"));
        }
        let shape = [1, self.width(), shared.down.cols];
        self.shared_options = Affine::new(backend, options, shape, shared.gate_up.order())?;
        Ok(self)
    }

    /// Experts.
    pub fn experts(&self) -> usize {
        self.down.experts
    }

    /// Experts each token uses.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Values of a token.
    pub fn width(&self) -> usize {
        self.down.rows
    }

    /// Hidden values of an expert.
    pub fn ffn(&self) -> usize {
        self.down.cols
    }

    /// Gate and up.
    pub fn gate_up(&self) -> &GateUpWeights {
        &self.gate_up
    }

    /// Down.
    pub fn down(&self) -> &Tensor {
        &self.down
    }

    /// How scores become experts and weights.
    pub fn router_options(&self) -> &RouterOptions {
        &self.router_options
    }

    /// What the experts compute between their products.
    pub fn activation(&self) -> Activation {
        self.experts.activation
    }

    /// Whether its router reads another input than its experts.
    pub fn router_has_own_input(&self) -> bool {
        self.router.as_ref().is_some_and(|router| router.own_input)
    }

    /// Whether it computes its own scores.
    pub fn has_router(&self) -> bool {
        self.router.is_some()
    }

    /// The shared expert, if there is one.
    pub fn shared(&self) -> Option<&SharedExpert> {
        self.shared.as_ref()
    }

    /// The device it lives on.
    pub fn device(&self) -> DeviceId {
        self.down.data.device()
    }

    /// Bytes of all expert weights.
    pub fn weight_bytes(&self) -> usize {
        let of = |gate_up: &GateUpWeights, down: &Tensor| {
            gate_up.parts().iter().map(|(_, t)| t.bytes()).sum::<usize>() + down.bytes()
        };
        of(&self.gate_up, &self.down) + self.shared.as_ref().map_or(0, |s| of(&s.gate_up, &s.down))
    }
}
