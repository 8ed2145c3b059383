//! Weights on a device.

use std::collections::HashMap;
use std::ops::Range;
use std::slice;
use std::sync::Arc;

use strata_core::backend::ops::{
    self, AddNorm, By, FloatMatrix, FloatProduct, Matrix, MatrixMut, NormKind, Pointwise, Product,
    Q8Rows, Q8RowsMut, QuantizeRows, Rows, Table, Weights,
};
use strata_core::backend::{Backend, Buffer, HostBytes};
use strata_core::floats::FloatType;
use strata_core::gguf::{Gguf, TensorInfo, TensorType};
use strata_core::prefill::{LoadProgress, tensor_f32};
use strata_core::q8_1::Sums;
use strata_core::{Error, Layout, Result, WeightType, q8_1};

use crate::config::{Norm, Projection};

/// How a matrix's values are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Values {
    Quantized(WeightType),
    Floats(FloatType),
}

/// A matrix on a device.
#[derive(Debug, Clone)]
pub(crate) struct Weight {
    data: Arc<Buffer<u8>>,
    values: Values,
    rows: usize,
    cols: usize,
}

/// A matrix that multiplies activations, with what is done to the product.
#[derive(Debug)]
pub(crate) struct Linear {
    weight: Weight,
    scale: Option<f32>,
    bias: Option<Buffer<f32>>,
    bias_first: bool,
}

/// A norm's weights.
#[derive(Debug)]
pub(crate) struct NormWeights {
    weight: Buffer<f32>,
    bias: Option<Buffer<f32>>,
}

impl NormWeights {
    /// Norms rows over all of their columns; `add` is added to them before, in place.
    pub fn add_and_apply(
        &self,
        backend: &dyn Backend,
        x: MatrixMut<'_>,
        add: Matrix<'_>,
        eps: f32,
        mut out: MatrixMut<'_>,
    ) -> Result<()> {
        let kind = NormKind::Rms(Some(self.weight.view()));
        AddNorm::new(x, add, kind, eps, out.reborrow())?.launch(backend)?;
        self.biased(backend, out)
    }

    /// Norms rows over all of their columns.
    pub fn apply(
        &self,
        backend: &dyn Backend,
        x: Matrix<'_>,
        eps: f32,
        mut out: MatrixMut<'_>,
    ) -> Result<()> {
        let kind = NormKind::Rms(Some(self.weight.view()));
        ops::Norm::new(x, kind, x.cols(), eps, out.reborrow())?.launch(backend)?;
        self.biased(backend, out)
    }

    fn biased(&self, backend: &dyn Backend, out: MatrixMut<'_>) -> Result<()> {
        match &self.bias {
            Some(bias) => Pointwise::new(out, By::Bias(bias.view()))?.launch(backend),
            None => Ok(()),
        }
    }
}

/// Activations that products of several types read: quantized once for each layout.
pub(crate) struct Acts {
    data: Buffer<u8>,
    holds: Option<Layout>,
}

impl Acts {
    /// Room for `rows` rows of up to `cols` values.
    pub fn new(backend: &dyn Backend, rows: usize, cols: usize) -> Result<Self> {
        Ok(Self { data: backend.alloc(q8_1::bytes(rows, cols)?)?, holds: None })
    }

    /// Other activations come: nothing of the last ones is left.
    pub fn begin(&mut self) {
        self.holds = None;
    }

    fn quantized(
        &mut self,
        backend: &dyn Backend,
        x: Matrix<'_>,
        layout: Layout,
    ) -> Result<Q8Rows<'_>> {
        if self.holds != Some(layout) {
            self.holds = None;
            let headers = layout.with(Sums::Codes);
            let out = Q8RowsMut::new(&mut self.data, headers, x.rows(), x.cols())?;
            QuantizeRows::new(x, out)?.launch(backend)?;
            self.holds = Some(layout);
        }
        Q8Rows::new(&self.data, layout, x.rows(), x.cols())
    }
}

impl Linear {
    /// Rows of the product.
    pub fn rows(&self) -> usize {
        self.weight.rows
    }

    /// `out`: rows of `x` times [`Linear::rows`]. `acts` holds nothing, or has seen this `x`.
    pub fn apply(
        &self,
        backend: &dyn Backend,
        x: Matrix<'_>,
        acts: &mut Acts,
        mut out: MatrixMut<'_>,
    ) -> Result<()> {
        let Weight { data, values, rows, cols } = &self.weight;
        match *values {
            Values::Quantized(ty) => {
                let weights = Weights::dense("weights", &**data, ty, 1, *rows, *cols)?;
                let x = acts.quantized(backend, x, ty.layout())?;
                Product::new(weights, x, Rows::Dense, out.reborrow())?.launch(backend)?;
            }
            Values::Floats(ty) => {
                let weights = FloatMatrix::new("weights", &**data, ty, *rows, *cols)?;
                FloatProduct::new(x, weights, out.reborrow())?.launch(backend)?;
            }
        }
        let scale = self.scale.map(By::Scale);
        let bias = self.bias.as_ref().map(|bias| By::Bias(bias.view()));
        let steps = if self.bias_first { [bias, scale] } else { [scale, bias] };
        for by in steps.into_iter().flatten() {
            Pointwise::new(out.reborrow(), by)?.launch(backend)?;
        }
        Ok(())
    }
}

impl Weight {
    /// The matrix as a table of rows.
    pub fn table(&self) -> Result<Table<'_>> {
        let Self { data, values, rows, cols } = self;
        Ok(match *values {
            Values::Quantized(ty) => {
                Table::Quantized(Weights::dense("embedding", &**data, ty, 1, *rows, *cols)?)
            }
            Values::Floats(ty) => {
                Table::Floats(FloatMatrix::new("embedding", &**data, ty, *rows, *cols)?)
            }
        })
    }
}

/// Puts tensors on a device, each once.
pub(crate) struct Loader<'a> {
    pub gguf: &'a Gguf,
    pub backend: &'a dyn Backend,
    progress: &'a mut dyn FnMut(LoadProgress<'_>),
    done: u64,
    total: u64,
    loaded: HashMap<String, Weight>,
}

impl<'a> Loader<'a> {
    pub fn new(
        gguf: &'a Gguf,
        backend: &'a dyn Backend,
        progress: &'a mut dyn FnMut(LoadProgress<'_>),
    ) -> Self {
        let total = gguf.tensors().map(|tensor| tensor.bytes() as u64).sum();
        Self { gguf, backend, progress, done: 0, total, loaded: HashMap::new() }
    }

    fn tensor(&self, name: &str) -> Result<&'a TensorInfo> {
        let missing = || Error::invalid(format!("tensor {name}"), "nothing", "it to be there");
        self.gguf.tensor(name).ok_or_else(missing)
    }

    /// A tensor's bytes, for a device.
    fn bytes(&self, tensor: &TensorInfo) -> Result<HostBytes> {
        let (owner, range) = self.gguf.mapped(tensor)?;
        HostBytes::new(owner, range)
    }

    fn told(&mut self, tensor: &TensorInfo) {
        self.done += tensor.bytes() as u64;
        let (done, total) = (self.done, self.total);
        (self.progress)(LoadProgress { tensor: tensor.name(), done, total, quantized: None });
    }

    /// The same for a tensor that somebody else put there.
    pub fn part(&mut self, at: LoadProgress<'_>) {
        self.done += self.gguf.tensor(at.tensor).map_or(0, |tensor| tensor.bytes() as u64);
        (self.progress)(LoadProgress { done: self.done, total: self.total, ..at });
    }

    /// A matrix; the same tensor asked for again is the same memory.
    pub fn weight(&mut self, name: &str, rows: usize, cols: usize) -> Result<Weight> {
        if let Some(weight) = self.loaded.get(name) {
            return Ok(weight.clone());
        }
        let tensor = self.tensor(name)?;
        let values = self.values(tensor)?;
        let data = Arc::new(self.backend.import(self.bytes(tensor)?)?);
        let weight = Weight { data, values, rows, cols };
        self.told(tensor);
        self.loaded.insert(name.to_owned(), weight.clone());
        Ok(weight)
    }

    /// How a tensor's values are stored.
    fn values(&self, tensor: &TensorInfo) -> Result<Values> {
        let what = || format!("tensor {}: type", tensor.name());
        match tensor.tensor_type() {
            TensorType::F32 => Ok(Values::Floats(FloatType::F32)),
            TensorType::F16 => Ok(Values::Floats(FloatType::F16)),
            TensorType::BF16 => Ok(Values::Floats(FloatType::BF16)),
            TensorType::Weight(ty) if self.backend.supports(ty) => Ok(Values::Quantized(ty)),
            TensorType::Weight(ty) => {
                Err(Error::invalid(what(), ty, "one that the backend multiplies"))
            }
            other => {
                let expected = "F32, F16, BF16 or a quantized weight type";
                Err(Error::invalid(what(), other, expected))
            }
        }
    }

    pub fn linear(&mut self, projection: &Projection) -> Result<Linear> {
        let weight = self.weight(&projection.weight, projection.rows, projection.cols)?;
        Ok(Linear {
            weight,
            scale: projection.scale.as_deref().map(|name| self.scalar(name)).transpose()?,
            bias: projection.bias.as_deref().map(|name| self.vector(name)).transpose()?,
            bias_first: projection.bias_first,
        })
    }

    /// Matrices whose rows lie one after the other in one, `rows` of each.
    pub fn parts<const N: usize>(
        &mut self,
        projection: &Projection,
        rows: [usize; N],
    ) -> Result<[Linear; N]> {
        let mut at = 0;
        let mut parts = Vec::with_capacity(N);
        for rows in rows {
            let range = at..at + rows;
            let bytes = self.rows(&projection.weight, projection.cols, range.clone())?;
            parts.push(self.matrix_of(projection, slice::from_ref(&range), bytes)?);
            at += rows;
        }
        self.told(self.tensor(&projection.weight)?);
        let given = parts.len();
        parts.try_into().map_err(|_| Error::invalid("parts", given, format!("{N}")))
    }

    /// Matrices of some rows of one each, in an order of their own: copies.
    pub fn gathered(
        &mut self,
        projection: &Projection,
        parts: Vec<Vec<Range<usize>>>,
    ) -> Result<Vec<Linear>> {
        let mut linears = Vec::with_capacity(parts.len());
        for rows in parts {
            let mut bytes = Vec::new();
            for rows in &rows {
                let of = self.rows(&projection.weight, projection.cols, rows.clone())?;
                bytes.extend_from_slice(of.as_slice());
            }
            linears.push(self.matrix_of(projection, &rows, bytes.into())?);
        }
        self.told(self.tensor(&projection.weight)?);
        Ok(linears)
    }

    /// The matrices of a tensor of `count`, one after the other.
    pub fn each(
        &mut self,
        name: &str,
        count: usize,
        [rows, cols]: [usize; 2],
    ) -> Result<Vec<Linear>> {
        let (weight, all) = (name.to_owned(), count * rows);
        let one =
            Projection { weight, cols, rows: all, scale: None, bias: None, bias_first: false };
        let mut linears = Vec::with_capacity(count);
        for at in (0..all).step_by(rows) {
            let range = at..at + rows;
            let bytes = self.rows(name, cols, range.clone())?;
            linears.push(self.matrix_of(&one, slice::from_ref(&range), bytes)?);
        }
        self.told(self.tensor(name)?);
        Ok(linears)
    }

    /// The bytes of some rows of a matrix, as they are mapped.
    fn rows(&self, name: &str, cols: usize, rows: Range<usize>) -> Result<HostBytes> {
        let tensor = self.tensor(name)?;
        let row = match self.values(tensor)? {
            Values::Quantized(ty) => ty.row_bytes(cols)?,
            Values::Floats(ty) => cols * ty.bytes(),
        };
        let (owner, range) = self.gguf.mapped(tensor)?;
        HostBytes::new(owner, range.start + rows.start * row..range.start + rows.end * row)
    }

    /// A matrix of some rows of another, whose bytes are given.
    fn matrix_of(
        &mut self,
        projection: &Projection,
        rows: &[Range<usize>],
        bytes: HostBytes,
    ) -> Result<Linear> {
        let values = self.values(self.tensor(&projection.weight)?)?;
        let bias = match &projection.bias {
            None => None,
            Some(name) => {
                let all = self.floats(name)?;
                let of: Vec<f32> =
                    rows.iter().flat_map(|rows| &all[rows.clone()]).copied().collect();
                Some(self.backend.from_slice(&of)?)
            }
        };
        Ok(Linear {
            weight: Weight {
                data: Arc::new(self.backend.import(bytes)?),
                values,
                rows: rows.iter().map(Range::len).sum(),
                cols: projection.cols,
            },
            scale: projection.scale.as_deref().map(|name| self.scalar(name)).transpose()?,
            bias,
            bias_first: projection.bias_first,
        })
    }

    pub fn norm(&mut self, norm: &Norm) -> Result<NormWeights> {
        Ok(NormWeights {
            weight: self.vector(&norm.weight)?,
            bias: norm.bias.as_deref().map(|name| self.vector(name)).transpose()?,
        })
    }

    /// A tensor as f32 on the host.
    fn floats(&mut self, name: &str) -> Result<Vec<f32>> {
        let tensor = self.tensor(name)?;
        let values = tensor_f32(self.gguf, tensor)?;
        self.told(tensor);
        Ok(values)
    }

    /// The same on the device.
    pub fn vector(&mut self, name: &str) -> Result<Buffer<f32>> {
        let values = self.floats(name)?;
        self.backend.from_slice(&values)
    }

    fn scalar(&mut self, name: &str) -> Result<f32> {
        match self.floats(name)?.as_slice() {
            [value] => Ok(*value),
            values => Err(Error::invalid(format!("tensor {name}"), values.len(), "one value")),
        }
    }
}
