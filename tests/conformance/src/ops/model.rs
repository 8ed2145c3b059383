//! The steps of a whole model around its products.

use strata_core::WeightType;
use strata_core::attention::Pairs;
use strata_core::backend::ops::{
    AddNorm, By, Embed, FloatMatrix, FloatProduct, Matrix, Norm, NormKind, Pointwise, Rope, Table,
    Weights,
};
use strata_core::backend::{Backend, BatchLimits, TokenBatch};
use strata_core::floats::FloatType;
use strata_core::format::random::SplitMix64;
use strata_core::format::random_blocks;

use super::InMatrix;
use crate::poisoned::OutMatrix;
use crate::values::Values;
use crate::{Op, Outputs, Stage};

/// How a table or a matrix is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// Quantized.
    Quantized(WeightType),
    /// Floats.
    Floats(FloatType),
}

/// A step, and what is its own of its shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ModelStep {
    /// Rows of a table of so many, with or without a scale.
    Embed(Stored, usize, Option<f32>),
    /// A norm of groups of so many columns.
    Norm(NormForm, usize),
    /// A residual and a norm of the sum.
    AddNorm(NormForm),
    /// A residual.
    Add,
    /// A value per column.
    Bias,
    /// A factor.
    Scale(f32),
    /// A cap.
    Softcap(f32),
    /// A gate for so many columns each.
    Gate(usize),
    /// The same by SiLU.
    SiluGate(usize),
    /// A factor of its own for each value.
    Multiply,
    /// Other values in place of those there are.
    Copy,
    /// Heads of so many values, of which so many pairs turn.
    Rope(Pairs, usize, usize),
    /// A product with so many rows of floats.
    FloatProduct(FloatType, usize),
}

/// Which norm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormForm {
    /// Without a weight.
    Plain,
    /// With one.
    Rms,
    /// With mean and bias.
    Layer,
    /// By the length.
    L2,
}

/// A step over `rows` rows of `cols` values.
#[derive(Debug, Clone, Copy)]
pub struct ModelCase {
    /// Which step.
    pub step: ModelStep,
    /// Tokens.
    pub rows: usize,
    /// Columns.
    pub cols: usize,
    /// What the rows hold.
    pub values: Values,
    /// Values between rows of every matrix.
    pub gap: usize,
    /// Values before the first.
    pub offset: usize,
}

impl std::fmt::Display for ModelCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { step, rows, cols, values, gap, offset } = self;
        let form = |form: &NormForm| match form {
            NormForm::Plain => "plain",
            NormForm::Rms => "rms",
            NormForm::Layer => "layer",
            NormForm::L2 => "l2",
        };
        match step {
            ModelStep::Embed(stored, table, scale) => {
                match stored {
                    Stored::Quantized(ty) => write!(f, "embed/{ty}")?,
                    Stored::Floats(ty) => write!(f, "embed/{ty}")?,
                }
                let scaled = if scale.is_some() { ",scaled" } else { "" };
                write!(f, "/table={table}{scaled}")?;
            }
            ModelStep::Norm(kind, group) => write!(f, "norm/{}/group={group}", form(kind))?,
            ModelStep::AddNorm(kind) => write!(f, "add-norm/{}", form(kind))?,
            ModelStep::Add => f.write_str("pointwise/add")?,
            ModelStep::Bias => f.write_str("pointwise/bias")?,
            ModelStep::Scale(factor) => write!(f, "pointwise/scale={factor}")?,
            ModelStep::Softcap(cap) => write!(f, "pointwise/softcap={cap}")?,
            ModelStep::Gate(columns) => write!(f, "pointwise/gate={columns}")?,
            ModelStep::SiluGate(columns) => write!(f, "pointwise/silu-gate={columns}")?,
            ModelStep::Multiply => f.write_str("pointwise/multiply")?,
            ModelStep::Copy => f.write_str("pointwise/copy")?,
            ModelStep::Rope(pairs, head, turned) => {
                let pairs = if *pairs == Pairs::Halves { "halves" } else { "interleaved" };
                write!(f, "rope/{pairs}/head={head},pairs={turned}")?;
            }
            ModelStep::FloatProduct(ty, outputs) => write!(f, "float-product/{ty}/m={outputs}")?,
        }
        write!(f, "/T={rows}/cols={cols}")?;
        if gap + offset > 0 {
            write!(f, ",gap={gap},offset={offset}")?;
        }
        write!(f, "/{values}")
    }
}

/// Tokens of one sequence: random ids, positions that jump about.
fn batch(
    backend: &dyn Backend,
    tokens: usize,
    vocabulary: usize,
) -> strata_core::Result<TokenBatch> {
    let mut random = SplitMix64::new(tokens as u64 + 77);
    let blocks = tokens.div_ceil(64) + 3;
    let limits =
        BatchLimits { vocabulary, sequences: 1, pages_per_sequence: blocks, pages: blocks };
    let mut batch = TokenBatch::with_capacity(backend, tokens + 1, limits)?;
    batch.set_pages(backend, &Vec::from_iter(0..blocks as u32))?;
    let ids: Vec<u32> =
        (0..tokens).map(|_| (random.next_u64() % vocabulary as u64) as u32).collect();
    // 7 and a multiple of 64 have no common divisor: no position comes twice.
    let positions: Vec<u32> = (0..tokens).map(|t| (t * 7 % (blocks * 64)) as u32).collect();
    batch.set(backend, &ids, &vec![0; tokens], &positions)?;
    Ok(batch)
}

impl Op for ModelCase {
    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let Self { step, rows, cols, values, gap, offset } = *self;
        let x = values.fill(1, rows, cols);
        let mut out = OutMatrix::new(backend, rows, cols, cols + gap, offset)?;
        let matrix = |seed, rows, cols| {
            InMatrix::new(backend, &values.fill(seed, rows, cols), rows, cols, gap, offset)
        };
        let floats = |seed, n| backend.from_slice(&Values::Normal.fill(seed, 1, n));
        let norm = |form, group| -> strata_core::Result<_> {
            Ok((form, floats(5, group)?, floats(6, group)?))
        };
        match step {
            ModelStep::Embed(stored, table, scale) => {
                let batch = batch(backend, rows, table)?;
                let bytes = match stored {
                    Stored::Quantized(ty) => random_blocks(ty, 3, table * cols / ty.block_values()),
                    Stored::Floats(ty) => float_bytes(ty, &values.fill(3, table, cols)),
                };
                let bytes = backend.from_slice(&bytes)?;
                let table = match stored {
                    Stored::Quantized(ty) => {
                        Table::Quantized(Weights::dense("table", &bytes, ty, 1, table, cols)?)
                    }
                    Stored::Floats(ty) => {
                        Table::Floats(FloatMatrix::new("table", &bytes, ty, table, cols)?)
                    }
                };
                Embed::new(table, &batch, scale, out.view()?)?.launch(backend)?;
            }
            ModelStep::Norm(form, group) => {
                let (x, norm) = (matrix(1, rows, cols)?, norm(form, group)?);
                Norm::new(x.view()?, kind(&norm), group, 1e-5, out.view()?)?.launch(backend)?;
            }
            ModelStep::AddNorm(form) => {
                let mut sum = OutMatrix::new(backend, rows, cols, cols + gap, offset)?;
                sum.set(backend, &x)?;
                let (y, norm) = (matrix(2, rows, cols)?, norm(form, cols)?);
                if stage.plain {
                    Pointwise::new(sum.view()?, By::Add(y.view()?))?.launch(backend)?;
                    let stride = cols + gap;
                    let view = sum.memory.view();
                    let x = Matrix::new("sum", view.as_slice(), rows, cols, stride)?;
                    Norm::new(x, kind(&norm), cols, 1e-6, out.view()?)?.launch(backend)?;
                } else {
                    let (y, out) = (y.view()?, out.view()?);
                    AddNorm::new(sum.view()?, y, kind(&norm), 1e-6, out)?.launch(backend)?;
                }
                return Ok(vec![sum.read(backend, "sum")?, out.read(backend, "norm")?]);
            }
            ModelStep::Add => {
                out.set(backend, &x)?;
                let y = matrix(2, rows, cols)?;
                Pointwise::new(out.view()?, By::Add(y.view()?))?.launch(backend)?;
            }
            ModelStep::Bias => {
                out.set(backend, &x)?;
                let bias = floats(2, cols)?;
                Pointwise::new(out.view()?, By::Bias(bias.view()))?.launch(backend)?;
            }
            ModelStep::Scale(factor) => {
                out.set(backend, &x)?;
                Pointwise::new(out.view()?, By::Scale(factor))?.launch(backend)?;
            }
            ModelStep::Softcap(cap) => {
                out.set(backend, &x)?;
                Pointwise::new(out.view()?, By::Softcap(cap))?.launch(backend)?;
            }
            ModelStep::Gate(columns) | ModelStep::SiluGate(columns) => {
                out.set(backend, &x)?;
                let gate = matrix(2, rows, cols / columns)?;
                let by = match step {
                    ModelStep::Gate(_) => By::SigmoidGate(gate.view()?),
                    _ => By::SiluGate(gate.view()?),
                };
                Pointwise::new(out.view()?, by)?.launch(backend)?;
            }
            ModelStep::Multiply | ModelStep::Copy => {
                out.set(backend, &x)?;
                let y = matrix(2, rows, cols)?;
                let by = match step {
                    ModelStep::Copy => By::Copy(y.view()?),
                    _ => By::Multiply(y.view()?),
                };
                Pointwise::new(out.view()?, by)?.launch(backend)?;
            }
            ModelStep::Rope(pairs, head, turned) => {
                out.set(backend, &x)?;
                let batch = batch(backend, rows, 9)?;
                let positions = batch.limits().pages_per_sequence * 64;
                let (cos, sin) = (matrix(3, positions, turned)?, matrix(4, positions, turned)?);
                Rope::new(out.view()?, head, cos.view()?, sin.view()?, pairs, &batch)?
                    .launch(backend)?;
            }
            ModelStep::FloatProduct(ty, outputs) => {
                let x = matrix(1, rows, cols)?;
                let weights = Values::Normal.fill(7, outputs, cols);
                let weights = backend.from_slice(&float_bytes(ty, &weights))?;
                let weights = FloatMatrix::new("weights", &weights, ty, outputs, cols)?;
                out = OutMatrix::new(backend, rows, outputs, outputs + gap, offset)?;
                FloatProduct::new(x.view()?, weights, out.view()?)?.launch(backend)?;
            }
        }
        Ok(vec![out.read(backend, "output")?])
    }
}

type Weighted = (NormForm, strata_core::backend::Buffer<f32>, strata_core::backend::Buffer<f32>);

fn kind((form, weight, bias): &Weighted) -> NormKind<'_> {
    match form {
        NormForm::Plain => NormKind::Rms(None),
        NormForm::Rms => NormKind::Rms(Some(weight.view())),
        NormForm::Layer => NormKind::Layer(weight.view(), bias.view()),
        NormForm::L2 => NormKind::L2,
    }
}

/// Values in a type's bytes; BF16 cuts off.
fn float_bytes(ty: FloatType, values: &[f32]) -> Vec<u8> {
    let bytes = |v: &f32| match ty {
        FloatType::F32 => v.to_le_bytes().to_vec(),
        FloatType::F16 => strata_core::numerics::f16_bits(*v).to_le_bytes().to_vec(),
        FloatType::BF16 => ((v.to_bits() >> 16) as u16).to_le_bytes().to_vec(),
    };
    values.iter().flat_map(bytes).collect()
}
