//! The weights of a layer, on a device.

use crate::backend::ops::{GateUpOrder, Matrix, Strides, Weights};
use crate::backend::{Backend, Buffer, DeviceId, HostBytes};
use crate::error::{agree, same_device};
use crate::format::WeightType;
use crate::routing::RouterNorm;
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
            Self::Merged { tensor, .. } => vec![("gate and up", tensor)],
        }
    }

    /// The order in which the products leave gate and up in a row.
    pub fn order(&self) -> GateUpOrder {
        match self {
            Self::Separate { .. } => GateUpOrder::Split,
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
        let rows = if matches!(self, Self::Separate { .. }) { ffn } else { 2 * ffn };
        for (what, tensor) in self.parts() {
            same_device(what, tensor.data.device(), device)?;
            agree(format!("{what}: experts"), tensor.experts, experts)?;
            agree(format!("{what}: rows"), tensor.rows, rows)?;
            agree(format!("{what}: columns"), tensor.cols, width)?;
        }
        Ok(())
    }
}

/// The router: a score per expert, and how scores become weights.
#[derive(Debug)]
pub struct Router {
    weights: Buffer<f32>,
    width: usize,
    experts: usize,
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
            return Err(Error::invalid(
                "router",
                format!("{} values", weights.len()),
                format!("{experts} experts x {width}"),
            ));
        }
        Ok(Self { weights: backend.from_slice(weights)?, width, experts })
    }

    pub(super) fn matrix(&self) -> Matrix<'_> {
        Matrix::dense("router", &self.weights, self.experts, self.width)
            .expect("checked when the router was made")
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
    pub(super) router: Option<Router>,
    pub(super) shared: Option<SharedExpert>,
    pub(super) k: usize,
    pub(super) norm: RouterNorm,
    pub(super) scale: f32,
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
        let norm = RouterNorm::default();
        Ok(Self { gate_up, down, router: None, shared: None, k, norm, scale: 1.0 })
    }

    /// With a router; every weight is multiplied by `scale` at the end.
    ///
    /// # Errors
    /// [`Error::Invalid`] where its shape is not experts x width, or k exceeds the experts;
    /// [`Error::WrongDevice`] where it lives on another device than the layer.
    pub fn with_router(mut self, router: Router, norm: RouterNorm, scale: f32) -> Result<Self> {
        agree("router: experts", router.experts, self.experts())?;
        agree("router: columns", router.width, self.width())?;
        same_device("router", router.weights.device(), self.device())?;
        if self.k > self.experts() {
            return Err(Error::invalid(
                "experts per token (k)",
                self.k,
                format!("at most the {} experts", self.experts()),
            ));
        }
        (self.router, self.norm, self.scale) = (Some(router), norm, scale);
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
