//! Offsets past 2^31 bytes and 4 GiB: few values far apart, or many rows of
//! few tokens, so that the memory is large and the work is not.

use strata_core::backend::ops::{
    Combine, GateUp, GateUpOrder, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut, QuantizeRows,
    QuantizeScatter, Rows, Strides, SwiGlu, Weights,
};
use strata_core::backend::{Backend, Buffer};
use strata_core::{Layout, WeightType, q8_1, reference};

use super::mmq::q8_rows;
use super::{InMatrix, Mapped};
use crate::output::{Output, Shape};
use crate::poisoned::POISON;
use crate::values::{Choice, Routing, Values, WeightValues};
use crate::{Op, Outputs, Stage, Stop};

/// Values from one row to the next: 1 GiB and a little, so that five rows pass 4 GiB.
const FAR: usize = (1 << 28) + 5;
/// Rows of that stride.
const ROWS: usize = 5;
/// Bytes from one expert to the next: the second starts past 2^31, the third past 4 GiB.
const FAR_EXPERT: usize = (9 << 28) + 68;
/// Bytes from one weight row to the next, for the same.
const FAR_ROW: usize = (1 << 30) + 68;
/// Bytes compared at a time.
const PIECE: usize = 64 << 20;

/// What is large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LargeKind {
    /// Three experts, far apart.
    Experts,
    /// Rows of one expert, far apart.
    WeightRows,
    /// Rows of the input of a quantization.
    QuantizeInput,
    /// Rows of the output of a product.
    ProductOutput,
    /// Rows of the output of SwiGLU, and of its input.
    SwiGlu,
    /// Rows of the output of a combine, and of its input.
    Combine,
    /// 4.8 GB of q8_1, scattered.
    Scatter,
    /// The same, gathered.
    Gather,
    /// The same, multiplied.
    Activations,
}

impl LargeKind {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Experts,
        Self::WeightRows,
        Self::QuantizeInput,
        Self::ProductOutput,
        Self::SwiGlu,
        Self::Combine,
        Self::Scatter,
        Self::Gather,
        Self::Activations,
    ];
}

/// A case of large buffers.
#[derive(Debug, Clone, Copy)]
pub struct LargeCase(pub LargeKind);

impl std::fmt::Display for LargeCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.0 {
            LargeKind::Experts => "large/mmq/q8_0/expert-stride",
            LargeKind::WeightRows => "large/mmq/q8_0/row-stride",
            LargeKind::QuantizeInput => "large/quantize/D4/input-stride",
            LargeKind::ProductOutput => "large/mmq/q8_0/output-stride",
            LargeKind::SwiGlu => "large/swiglu/strides",
            LargeKind::Combine => "large/combine/strides",
            LargeKind::Scatter => "large/quantize/D4/scatter/E=64,k=64,all/T=131101/cols=512",
            LargeKind::Gather => "large/quantize/D4/gather/E=64,k=64,all/T=131101/cols=512",
            LargeKind::Activations => "large/mmq/q8_0/dense/T=8390464/m=1,K=512",
        })
    }
}

/// Every token to all 64 experts: expert after expert, the rows are the tokens again.
const REPEATED: Routing = Routing::new(64, 64, 131_101, Choice::All);

impl Op for LargeCase {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        let no = !backend.supports(WeightType::Q8_0);
        no.then(|| format!("{} does not multiply q8_0", backend.id()))
    }

    fn needs(&self) -> u64 {
        let far = 4 * (ROWS * FAR) as u64;
        let repeated = (q8_1::bytes(REPEATED.rows(), 512).unwrap_or(usize::MAX)) as u64;
        let small = 1 << 28;
        small
            + match self.0 {
                LargeKind::Experts => 3 * FAR_EXPERT as u64,
                LargeKind::WeightRows => 5 * FAR_ROW as u64,
                LargeKind::QuantizeInput | LargeKind::ProductOutput => far,
                LargeKind::SwiGlu | LargeKind::Combine => 2 * far,
                // The input, routes and map besides.
                LargeKind::Scatter | LargeKind::Gather => {
                    repeated + (16 * REPEATED.rows() + 4 * 512 * REPEATED.tokens) as u64
                }
                LargeKind::Activations => repeated + 4 * REPEATED.rows() as u64,
            }
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        // The yardstick has the same values close together.
        let far = |stride, close| if stage.plain { close } else { stride };
        match self.0 {
            LargeKind::Experts => weights(stage, 68, far(FAR_EXPERT, 9 * 68)),
            LargeKind::WeightRows => weights(stage, far(FAR_ROW, 68), 5 * far(FAR_ROW, 68)),
            LargeKind::QuantizeInput => quantize_input(stage, far(FAR, 100)),
            LargeKind::ProductOutput => product_output(stage, far(FAR, 9)),
            LargeKind::SwiGlu => swiglu(stage, far(FAR, 66)),
            LargeKind::Combine => combine(stage, far(FAR, 33)),
            LargeKind::Scatter | LargeKind::Gather => repeated_rows(stage.backend, self.0),
            LargeKind::Activations => repeated_activations(stage.backend),
        }
    }

    fn guarded(&self) -> bool {
        false
    }
}

/// Uploads rows `stride` values apart.
fn spread(
    backend: &dyn Backend,
    values: &[f32],
    rows: usize,
    stride: usize,
) -> Result<Buffer<f32>, Stop> {
    let cols = values.len() / rows;
    let mut buffer = backend.alloc((rows - 1) * stride + cols)?;
    for (row, values) in values.chunks_exact(cols).enumerate() {
        backend.upload(buffer.slice_mut(row * stride..row * stride + cols)?, values)?;
    }
    Ok(buffer)
}

/// A poisoned buffer for rows `stride` values apart.
fn poisoned(
    backend: &dyn Backend,
    rows: usize,
    cols: usize,
    stride: usize,
) -> Result<Buffer<f32>, Stop> {
    let mut buffer = backend.alloc((rows - 1) * stride + cols)?;
    backend.fill(&mut buffer, POISON)?;
    Ok(buffer)
}

/// The rows of a buffer, once everything between them has proved to be poison.
fn gather_rows(
    backend: &dyn Backend,
    buffer: &Buffer<f32>,
    rows: usize,
    cols: usize,
    stride: usize,
) -> Outputs {
    let mut bytes = Vec::new();
    for row in 0..rows {
        let first = row * stride;
        bytes.extend(bytemuck::cast_slice(&backend.download(buffer.slice(first..first + cols)?)?));
        let gap = first + cols..buffer.len().min(first + stride);
        for start in gap.clone().step_by(PIECE / 4) {
            let piece = start..gap.end.min(start + PIECE / 4);
            let values = backend.download(buffer.slice(piece)?)?;
            let poison = f32::from_bits(u32::from_ne_bytes([POISON; 4])).to_bits();
            if let Some(at) = values.iter().position(|v| v.to_bits() != poison) {
                let what = format!("value {} lies between rows and was written", start + at);
                return Err(Stop::Differs(what));
            }
        }
    }
    let shape = Shape::Matrix { start: 0, rows, cols, stride: cols };
    Ok(vec![Output { what: "rows".into(), bytes, shape, expected: None }])
}

fn weights(stage: &Stage<'_>, row: usize, expert: usize) -> Outputs {
    let backend = stage.backend;
    // One of the two is far: three experts of 9 rows, or one of 5.
    let far_rows = row > 68 || expert == 5 * 68;
    let (experts, m) = if far_rows { (1, 5) } else { (3, 9) };
    let blocks = WeightValues::Random.blocks(WeightType::Q8_0, 1, experts * m * 2);
    let mut bytes = backend.alloc::<u8>((experts - 1) * expert + (m - 1) * row + 68)?;
    for (r, block) in blocks.chunks_exact(68).enumerate() {
        let at = r / m * expert + r % m * row;
        backend.upload(bytes.slice_mut(at..at + 68)?, block)?;
    }
    let (ty, routing) = (WeightType::Q8_0, Routing::new(experts, 1, 13, Choice::Random));
    let view = Weights::strided("weights", &bytes, ty, experts, m, 64, Strides { row, expert })?;
    let mapped = Mapped::new(backend, &routing.routes(1))?;
    let x = Values::Normal.fill(2, routing.tokens, 64);
    let act = backend.from_slice(&q8_rows(&x, 64, None, Layout::D4))?;
    let act = Q8Rows::new(&act, Layout::D4, routing.tokens, 64)?;
    let mut out = poisoned(backend, routing.rows(), m, m)?;
    let dst = MatrixMut::dense("output", &mut out, routing.rows(), m)?;
    Product::new(view, act, Rows::Indexed(&mapped.map), dst)?.launch(backend)?;
    gather_rows(backend, &out, routing.rows(), m, m)
}

fn quantize_input(stage: &Stage<'_>, stride: usize) -> Outputs {
    let (backend, cols) = (stage.backend, 100);
    let x = spread(backend, &Values::Wide.fill(1, ROWS, cols), ROWS, stride)?;
    let mut out = crate::poisoned::OutQ8::new(backend, Layout::D4, ROWS, cols)?;
    let x = Matrix::new("input", &x, ROWS, cols, stride)?;
    QuantizeRows::new(x, out.view()?)?.launch(backend)?;
    Ok(vec![out.read(backend, "q8_1 rows")?])
}

fn product_output(stage: &Stage<'_>, stride: usize) -> Outputs {
    let (backend, m, ty) = (stage.backend, 9, WeightType::Q8_0);
    let weights = backend.from_slice(&WeightValues::Random.blocks(ty, 1, m * 2))?;
    let weights = Weights::dense("weights", &weights, ty, 1, m, 64)?;
    let x = Values::Normal.fill(2, ROWS, 64);
    let act = backend.from_slice(&q8_rows(&x, 64, None, Layout::D4))?;
    let act = Q8Rows::new(&act, Layout::D4, ROWS, 64)?;
    let mut out = poisoned(backend, ROWS, m, stride)?;
    let dst = MatrixMut::new("output", &mut out, ROWS, m, stride)?;
    Product::new(weights, act, Rows::Dense, dst)?.launch(backend)?;
    gather_rows(backend, &out, ROWS, m, stride)
}

fn swiglu(stage: &Stage<'_>, stride: usize) -> Outputs {
    let (backend, ffn) = (stage.backend, 33);
    let x = spread(backend, &Values::Normal.fill(1, ROWS, 2 * ffn), ROWS, stride)?;
    let x = Matrix::new("gate and up", &x, ROWS, 2 * ffn, stride)?;
    let mut out = poisoned(backend, ROWS, ffn, stride)?;
    let hidden = MatrixMut::new("hidden", &mut out, ROWS, ffn, stride)?;
    SwiGlu::new(GateUp::new(x, GateUpOrder::Split)?, hidden)?.launch(backend)?;
    gather_rows(backend, &out, ROWS, ffn, stride)
}

fn combine(stage: &Stage<'_>, stride: usize) -> Outputs {
    let (backend, width) = (stage.backend, 33);
    // One choice each: as many rows as tokens, in another order.
    let mapped = Mapped::new(backend, &Routing::new(4, 1, ROWS, Choice::Random).routes(1))?;
    let y = spread(backend, &Values::Normal.fill(2, ROWS, width), ROWS, stride)?;
    let y = Matrix::new("down", &y, ROWS, width, stride)?;
    let mut out = poisoned(backend, ROWS, width, stride)?;
    let to = MatrixMut::new("tokens", &mut out, ROWS, width, stride)?;
    Combine::new(y, &mapped.map, mapped.routes.view(), None, to)?.launch(backend)?;
    gather_rows(backend, &out, ROWS, width, stride)
}

fn repeated_rows(backend: &dyn Backend, kind: LargeKind) -> Outputs {
    let (cols, tokens) = (512, REPEATED.tokens);
    let values = Values::Normal.fill(1, tokens, cols);
    let x = InMatrix::dense(backend, &values, tokens, cols)?;
    let mapped = Mapped::new(backend, &REPEATED.routes(1))?;
    let mut out = backend.alloc::<u8>(q8_1::bytes(REPEATED.rows(), cols)?)?;
    backend.fill(&mut out, POISON)?;
    let to = Q8RowsMut::new(&mut out, Layout::D4, REPEATED.rows(), cols)?;
    match kind {
        LargeKind::Gather => {
            QuantizeRows::gather(x.view()?, &mapped.map, to)?.launch(backend)?;
        }
        _ => QuantizeScatter::new(x.view()?, &mapped.map, to)?.launch(backend)?,
    }
    let once = reference::quantize(&values, tokens, cols, cols, None, Layout::D4);
    let piece = tokens * q8_1::BLOCK_BYTES;
    for (i, start) in (0..out.len()).step_by(piece).enumerate() {
        let expected = &once[i / REPEATED.experts * piece..][..piece];
        let given = backend.download(out.slice(start..start + piece)?)?;
        if let Some(at) = (0..piece).find(|&at| given[at] != expected[at]) {
            return Err(Stop::Differs(format!("byte {} of {}", start + at, out.len())));
        }
    }
    Ok(vec![Output::text("4.8 GB of q8_1", "as expected", "as expected")])
}

fn repeated_activations(backend: &dyn Backend) -> Outputs {
    let (cols, tokens, rows, ty) = (512, REPEATED.tokens, REPEATED.rows(), WeightType::Q8_0);
    let values = Values::Normal.fill(1, tokens, cols);
    let once = reference::quantize(&values, tokens, cols, cols, None, Layout::D4);
    let mut act = backend.alloc::<u8>(q8_1::bytes(rows, cols)?)?;
    let piece = tokens * q8_1::BLOCK_BYTES;
    for (i, start) in (0..act.len()).step_by(piece).enumerate() {
        let from = &once[i / REPEATED.experts * piece..][..piece];
        backend.upload(act.slice_mut(start..start + piece)?, from)?;
    }
    let row = WeightValues::Random.blocks(ty, 1, cols / 32);
    let weights = backend.from_slice(&row)?;
    let weights = Weights::dense("weights", &weights, ty, 1, 1, cols)?;
    let mut out = poisoned(backend, rows, 1, 1)?;
    let dst = MatrixMut::dense("output", &mut out, rows, 1)?;
    Product::new(weights, Q8Rows::new(&act, Layout::D4, rows, cols)?, Rows::Dense, dst)?
        .launch(backend)?;
    let read: Vec<usize> = (0..tokens).collect();
    let once = reference::mmq(ty, &row, 1, cols, row.len(), &once, tokens, &read);
    let given = backend.download(&out)?;
    for (i, given) in given.chunks_exact(tokens).enumerate() {
        let differs = |t: &usize| given[*t].to_bits() != once[*t].to_bits();
        if let Some(t) = (0..tokens).find(differs) {
            return Err(Stop::Differs(format!("row {} of {rows}", i * tokens + t)));
        }
    }
    Ok(vec![Output::text("product", "as expected", "as expected")])
}
