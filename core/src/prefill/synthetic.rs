//! Layers and inputs made from a seed: the same on every machine.

use super::layer::{GateUpWeights, MoeLayer, Router, Tensor};
use crate::backend::ops::GateUpOrder;
use crate::backend::{Backend, Buffer};
use crate::format::random::SplitMix64;
use crate::format::{WeightType, try_random_blocks};
use crate::routing::RouterOptions;
use crate::{Error, Result};

/// A layer of random weights.
#[derive(Debug, Clone)]
pub struct Synthetic {
    /// Experts.
    pub experts: usize,
    /// Experts each token uses.
    pub k: usize,
    /// Values of a token.
    pub width: usize,
    /// Hidden values of an expert.
    pub ffn: usize,
    /// Type of the merged gate and up tensor.
    pub gate_up: WeightType,
    /// The order of its rows.
    pub order: GateUpOrder,
    /// Type of the down tensor.
    pub down: WeightType,
    /// What everything follows from.
    pub seed: u64,
}

/// The weights of a layer, on the host or on a device.
#[derive(Debug, Clone)]
pub struct SyntheticWeights<Bytes, Values> {
    /// Gate and up, expert after expert.
    pub gate_up: Bytes,
    /// Down.
    pub down: Bytes,
    /// The router: experts x width.
    pub router: Values,
}

impl Synthetic {
    /// The layer, with a router.
    ///
    /// # Errors
    /// [`Error::Invalid`] for shapes that the types cannot have; those of the backend.
    pub fn layer(&self, backend: &dyn Backend) -> Result<MoeLayer> {
        // One after the other: the host holds no more than one of them beside the device's.
        self.on_device(SyntheticWeights {
            gate_up: backend.import(self.gate_up_bytes()?.into())?,
            down: backend.import(self.down_bytes()?.into())?,
            router: backend.from_slice(&self.router_weights()?)?,
        })
    }

    /// The layer, of weights that are on a device already.
    ///
    /// # Errors
    /// [`Error::Invalid`] where lengths differ from those of [`Synthetic::weights`],
    /// [`Error::WrongDevice`] where they are on several devices.
    pub fn on_device(
        &self,
        weights: SyntheticWeights<Buffer<u8>, Buffer<f32>>,
    ) -> Result<MoeLayer> {
        let &Self { experts, k, width, ffn, order, .. } = self;
        let SyntheticWeights { gate_up, down, router } = weights;
        let rows = ffn.checked_mul(2).ok_or_else(|| Error::invalid("ffn", ffn, "below 2^63"))?;
        let tensor = Tensor::on_device("gate and up", gate_up, self.gate_up, experts, rows, width)?;
        let down = Tensor::on_device("down", down, self.down, experts, width, ffn)?;
        let router = Router::on_device(router, experts, width)?;
        MoeLayer::new(GateUpWeights::Merged { tensor, order }, down, k)?
            .with_router(router, &RouterOptions::SOFTMAX_OF_CHOSEN)
    }

    /// Its weights, on the host.
    ///
    /// # Errors
    /// [`Error::Invalid`] for shapes that the types cannot have; [`Error::OutOfMemory`].
    pub fn weights(&self) -> Result<SyntheticWeights<Vec<u8>, Vec<f32>>> {
        Ok(SyntheticWeights {
            gate_up: self.gate_up_bytes()?,
            down: self.down_bytes()?,
            router: self.router_weights()?,
        })
    }

    fn gate_up_bytes(&self) -> Result<Vec<u8>> {
        let rows = self.ffn.checked_mul(2);
        let rows = rows.ok_or_else(|| Error::invalid("ffn", self.ffn, "below 2^63"))?;
        self.random("gate and up", self.gate_up, rows, self.width, self.seed)
    }

    fn down_bytes(&self) -> Result<Vec<u8>> {
        self.random("down", self.down, self.width, self.ffn, self.seed ^ 0x9e37_79b9)
    }

    fn random(
        &self,
        what: &str,
        ty: WeightType,
        rows: usize,
        cols: usize,
        seed: u64,
    ) -> Result<Vec<u8>> {
        let experts = self.experts;
        let bytes = ty.row_bytes(cols).ok().and_then(|b| b.checked_mul(rows)?.checked_mul(experts));
        let bytes = bytes.filter(|&b| isize::try_from(b).is_ok()).ok_or_else(|| {
            Error::invalid(
                format!("{what} of a synthetic layer"),
                format!("{experts} x {rows} x {cols} {ty}"),
                format!("columns a multiple of {}, below 2^63 bytes", ty.block_values()),
            )
        })?;
        try_random_blocks(ty, seed, bytes / ty.block_bytes())
    }

    /// Its router, without biases: scores of [`Synthetic::input`] are close to normally distributed.
    ///
    /// # Errors
    /// As [`Synthetic::layer`].
    pub fn router(&self, backend: &dyn Backend) -> Result<Router> {
        Router::new(backend, &self.router_weights()?, self.experts, self.width)
    }

    fn router_weights(&self) -> Result<Vec<f32>> {
        let &Self { experts, width, seed, .. } = self;
        let scores = experts.checked_mul(width).ok_or_else(|| {
            Error::invalid("router", format!("{experts} x {width}"), "below 2^64")
        })?;
        let scale = 1.0 / (width as f32).sqrt();
        let mut router = try_normals(seed ^ 0x85eb_ca6b, scores)?;
        router.iter_mut().for_each(|v| *v *= scale);
        Ok(router)
    }

    /// Input for `tokens` tokens: tokens x width normal values.
    ///
    /// # Panics
    /// Where the host has no memory for so many; [`Synthetic::try_input`] says so.
    pub fn input(&self, tokens: usize) -> Vec<f32> {
        match self.try_input(tokens) {
            Ok(values) => values,
            Err(error) => panic!("{tokens} tokens: {error}"),
        }
    }

    /// [`Synthetic::input`], for as many as there may not be memory for.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn try_input(&self, tokens: usize) -> Result<Vec<f32>> {
        try_normals(self.seed ^ 0xc2b2_ae35, tokens.saturating_mul(self.width))
    }
}

/// `count` values that are close to normally distributed, by integer and exact
/// arithmetic alone, so that no math library's rounding shows: the sum of
/// eight 16-bit draws, centred and scaled to variance 1 (values within +-4.9).
///
/// # Panics
/// Where the host has no memory for so many; [`try_normals`] says so.
pub fn normals(seed: u64, count: usize) -> Vec<f32> {
    match try_normals(seed, count) {
        Ok(values) => values,
        Err(error) => panic!("{count} values: {error}"),
    }
}

/// [`normals`], for as many as there may not be memory for.
///
/// # Errors
/// [`Error::OutOfMemory`].
pub fn try_normals(seed: u64, count: usize) -> Result<Vec<f32>> {
    let mut random = SplitMix64::new(seed);
    // The variance of a sum of eight uniform draws from 0..65536 is 8 * 65536^2 / 12.
    const SCALE: f32 = 1.0 / 53_509.03;
    let mut values = crate::host_vec(count)?;
    for value in &mut values {
        let sum: i64 = [random.next_u64(), random.next_u64()]
            .into_iter()
            .flat_map(|bits| [bits, bits >> 16, bits >> 32, bits >> 48])
            .map(|bits| (bits & 0xffff) as i64)
            .sum();
        *value = (sum - 4 * 65_535) as f32 * SCALE;
    }
    Ok(values)
}
