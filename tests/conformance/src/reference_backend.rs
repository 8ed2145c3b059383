//! The plain reference as a backend: host memory, one thing after the other,
//! every step by the functions of [`strata_core::reference`].
//!
//! It is the yardstick of the suite, and of a layer it is "the layer over the
//! plain reference". Only the product uses more than one thread, over weight
//! rows, because it is the one step that takes long.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytemuck::Pod;
use strata_core::attention::PAGE;
use strata_core::backend::{
    Backend, BackendKind, Checked, DeviceId, DeviceInfo, HostBytes, Mark, Memory, MemoryInfo, Mmq,
    ModelOps, MoeOps, Quantize, Raw, RawEvent, RawMut, RoutingMap, Scatter, Slice, SliceMut,
    StreamState, ops,
};
use strata_core::numerics::f16_to_f32;
use strata_core::q8_1::Headers;
use strata_core::routing::{self, RouterBias};
use strata_core::{Layout, Result, WeightType, q8_1, reference};

/// The plain reference as a backend: host memory, each step by the functions of
/// [`strata_core::reference`]; the yardstick of the suite.
#[derive(Debug)]
pub struct ReferenceBackend {
    info: DeviceInfo,
    stream: StreamState,
}

impl ReferenceBackend {
    /// The reference. Its device id is no real CPU's, so that buffers cannot be mixed up.
    pub fn new() -> Self {
        let id = DeviceId { kind: BackendKind::Cpu, index: u32::MAX };
        let mut info = DeviceInfo::new(id, "plain reference");
        info.arch = "reference".into();
        (info.host_memory, info.imports_in_place) = (true, true);
        Self { info, stream: StreamState::new() }
    }
}

impl ReferenceBackend {
    /// The id of its memory.
    pub fn id(&self) -> DeviceId {
        self.info.id
    }
}

impl Default for ReferenceBackend {
    fn default() -> Self {
        Self::new()
    }
}

/// An event: what came before has run.
struct Passed;

impl RawEvent for Passed {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Host bytes: its own, or somebody's that stay as they are.
enum Host {
    Own(Mutex<Vec<u8>>),
    Imported(HostBytes),
}

impl Memory for Host {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Host {
    fn own(&self) -> MutexGuard<'_, Vec<u8>> {
        match self {
            Self::Own(bytes) => bytes.lock().unwrap_or_else(PoisonError::into_inner),
            Self::Imported(_) => unreachable!("nothing writes to imported bytes"),
        }
    }
}

fn with_bytes<R>(raw: Raw<'_>, f: impl FnOnce(&[u8]) -> R) -> R {
    let range = raw.offset()..raw.offset() + raw.bytes();
    match raw.memory::<Host>() {
        Host::Imported(bytes) => f(&bytes.as_slice()[range]),
        own => f(&own.own()[range]),
    }
}

fn read<T: Pod>(slice: Slice<'_, T>) -> Vec<T> {
    let mut values = vec![T::zeroed(); slice.len()];
    with_bytes(slice.raw(), |bytes| {
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(bytes);
    });
    values
}

fn write<T: Pod>(mut slice: SliceMut<'_, T>, values: &[T]) {
    let raw = slice.raw_mut();
    let at = raw.offset();
    let bytes: &[u8] = bytemuck::cast_slice(values);
    raw.memory::<Host>().own()[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Rows without gaps.
fn read_matrix(m: ops::Matrix<'_>) -> Vec<f32> {
    let values = read(m.data());
    (0..m.rows()).flat_map(|r| values[r * m.stride()..][..m.cols()].iter().copied()).collect()
}

fn write_matrix(m: &mut ops::MatrixMut<'_>, values: &[f32]) {
    let (cols, stride) = (m.cols(), m.stride());
    for row in 0..m.rows() {
        let to = m.data().slice(row * stride..row * stride + cols).expect("rows lie inside");
        write(to, &values[row * cols..][..cols]);
    }
}

/// Whether a scale or sum in the header of any block is not finite.
fn header_not_finite(blocks: &[u8], layout: Layout) -> bool {
    blocks.chunks_exact(q8_1::BLOCK_BYTES).any(|block| {
        let header = &block[..q8_1::HEADER_BYTES];
        match layout {
            Layout::D4 => header.as_chunks().0.iter().any(|b| !f32::from_le_bytes(*b).is_finite()),
            Layout::DS4 | Layout::D2S6 => {
                let halves = header.as_chunks().0.iter();
                halves.map(|b| f16_to_f32(u16::from_le_bytes(*b))).any(|h| !h.is_finite())
            }
        }
    })
}

/// Reports rows whose values or header are not finite.
fn report_rows(
    to: Option<&mut ops::ReportTo<'_>>,
    x: &[f32],
    cols: usize,
    headers: Headers,
    tokens: Option<Vec<u32>>,
) {
    let Some(to) = to else { return };
    if cols == 0 {
        return;
    }
    let (value_kind, header_kind) = (to.value_kind(), to.header_kind());
    for (row, x) in x.chunks_exact(cols).enumerate() {
        let token = tokens.as_ref().map_or(row as u32, |tokens| tokens[row]);
        if x.iter().any(|v| !v.is_finite()) {
            report(to, token, value_kind);
        }
        if header_not_finite(&reference::quantize_row(x, headers), headers.layout) {
            report(to, token, header_kind);
        }
    }
}

fn report(to: &mut ops::ReportTo<'_>, token: u32, kind: u32) {
    let word = read(to.word().as_slice())[0];
    write(to.word(), &[word.min(token << 3 | kind)]);
}

struct Moment(Instant);

impl Mark for Moment {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

// SAFETY: all of it is safe code over `Vec`s as long as was asked for, behind an id of its own.
unsafe impl Backend for ReferenceBackend {
    fn device(&self) -> &DeviceInfo {
        &self.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        // It allocates as it goes and asks nobody: no limit that it knows of.
        Ok(MemoryInfo { free: u64::MAX, total: u64::MAX })
    }

    fn stream(&self) -> &StreamState {
        &self.stream
    }

    fn fork(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self::new()))
    }

    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Host::Own(Mutex::new(vec![0; *bytes]))))
    }

    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
        Ok(Box::new(Host::Imported(host.into_inner())))
    }

    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()> {
        let at = dst.offset();
        dst.memory::<Host>().own()[at..at + src.len()].copy_from_slice(src);
        Ok(())
    }

    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()> {
        with_bytes(*src, |bytes| dst.copy_from_slice(bytes));
        Ok(())
    }

    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()> {
        let range = dst.offset()..dst.offset() + dst.bytes();
        dst.memory::<Host>().own()[range].fill(byte);
        Ok(())
    }

    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()> {
        // Not both at once: they may be parts of one buffer.
        let bytes = with_bytes(*src, <[u8]>::to_vec);
        let at = dst.offset();
        dst.memory::<Host>().own()[at..at + bytes.len()].copy_from_slice(&bytes);
        Ok(())
    }

    fn synchronize_raw(&self, _: Checked<()>) -> Result<()> {
        Ok(())
    }

    fn record_raw(&self, _: Checked<()>) -> Result<Box<dyn RawEvent>> {
        Ok(Box::new(Passed))
    }

    fn wait_raw(&self, _: Checked<&dyn RawEvent>) -> Result<()> {
        Ok(())
    }

    fn mark(&self) -> Result<Box<dyn Mark>> {
        Ok(Box::new(Moment(Instant::now())))
    }

    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        let of = |mark: &dyn Mark| mark.as_any().downcast_ref::<Moment>().map(|m| m.0);
        match (of(from), of(to)) {
            (Some(from), Some(to)) => Ok(to.saturating_duration_since(from)),
            _ => Err(strata_core::Error::invalid("marks", "another backend's", "its own")),
        }
    }
}

impl Quantize for ReferenceBackend {
    fn quantize(&self, op: &mut Checked<ops::QuantizeRows<'_>>) -> Result<()> {
        let x = op.x();
        let (values, cols, headers) = (read_matrix(x), x.cols(), op.out().headers());
        let src = op.src().map(read);
        let blocks = reference::quantize(&values, x.rows(), cols, cols, src.as_deref(), headers);
        write(op.out().data(), &blocks);
        let tokens = op.tokens().map(read);
        report_rows(op.report_to(), &values, cols, headers, tokens);
        Ok(())
    }
}

impl Scatter for ReferenceBackend {
    fn quantize_scatter(&self, op: &mut Checked<ops::QuantizeScatter<'_>>) -> Result<()> {
        let (x, map) = (op.x(), op.map());
        let (values, cols, headers) = (read_matrix(x), x.cols(), op.out().headers());
        let (slot, rows) = (read(map.slot()), map.rows());
        let mut blocks = vec![0; q8_1::k_blocks(cols) * rows * q8_1::BLOCK_BYTES];
        for token in 0..x.rows() {
            let row = reference::quantize_row(&values[token * cols..][..cols], headers);
            for &to in &slot[token * map.k()..][..map.k()] {
                for (k_block, block) in row.chunks_exact(q8_1::BLOCK_BYTES).enumerate() {
                    let at = (k_block * rows + to as usize) * q8_1::BLOCK_BYTES;
                    blocks[at..at + q8_1::BLOCK_BYTES].copy_from_slice(block);
                }
            }
        }
        write(op.out().data(), &blocks);
        report_rows(op.report_to(), &values, cols, headers, None);
        Ok(())
    }
}

impl Mmq for ReferenceBackend {
    fn supports(&self, _: WeightType) -> bool {
        true
    }

    fn multiply(&self, op: &mut Checked<ops::Product<'_>>) -> Result<()> {
        let (w, act) = (op.weights(), op.activations());
        let activations = read(act.data());
        let bounds = op.map().map_or(vec![0, act.rows() as u32], |map| read(map.bounds()));
        // Activation row of each output row.
        let source: Vec<usize> = match op.rows() {
            ops::Rows::Dense => (0..act.rows()).collect(),
            ops::Rows::Experts(map) => (0..map.rows()).collect(),
            ops::Rows::Indexed(map) => read(map.src()).iter().map(|&t| t as usize).collect(),
        };
        let mut out = vec![0.0; source.len() * w.rows()];
        with_bytes(w.data().raw(), |weights| {
            for (e, bounds) in bounds.windows(2).enumerate() {
                let rows = bounds[0] as usize..bounds[1] as usize;
                if rows.is_empty() {
                    continue;
                }
                let weights = &weights[e * w.expert_stride()..];
                let product =
                    Product { w, weights, activations: &activations, act_rows: act.rows() };
                product.run(&source[rows.clone()], &mut out[rows.start * w.rows()..]);
            }
        });
        write_matrix(op.dst(), &out);
        Ok(())
    }
}

/// One expert's product.
struct Product<'a> {
    w: ops::Weights<'a>,
    weights: &'a [u8],
    activations: &'a [u8],
    act_rows: usize,
}

impl Product<'_> {
    /// The product with the activation rows `read`, a row of `out` each.
    fn run(&self, read: &[usize], out: &mut [f32]) {
        let rows = self.w.rows();
        let work = rows * self.w.cols() * read.len();
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        // A thread costs more than a million products.
        let pieces = threads.min(rows).min(work / 1_000_000 + 1);
        let piece = rows.div_ceil(pieces);
        std::thread::scope(|scope| {
            let starts = (0..rows).step_by(piece);
            let running: Vec<_> = starts
                .map(|first| (first, scope.spawn(move || self.part(first, piece, read))))
                .collect();
            for (first, thread) in running {
                let part = thread.join().expect("the reference does not panic");
                let count = part.len() / read.len();
                for (r, values) in part.chunks_exact(count).enumerate() {
                    out[r * rows + first..][..count].copy_from_slice(values);
                }
            }
        });
    }

    fn part(&self, first: usize, piece: usize, read: &[usize]) -> Vec<f32> {
        let (ty, cols, stride) = (self.w.ty(), self.w.cols(), self.w.row_stride());
        let rows = piece.min(self.w.rows() - first);
        let weights = &self.weights[first * stride..];
        reference::mmq(ty, weights, rows, cols, stride, self.activations, self.act_rows, read)
    }
}

impl MoeOps for ReferenceBackend {
    fn router_scores(&self, op: &mut Checked<ops::RouterScores<'_>>) -> Result<()> {
        let (x, weights) = (op.x(), op.weights());
        let scores = match x.cols() {
            // Empty sums.
            0 => vec![0.0; x.rows() * weights.rows()],
            width => reference::router_scores(&read_matrix(x), &read_matrix(weights), width),
        };
        write_matrix(op.out(), &scores);
        Ok(())
    }

    fn top_k(&self, op: &mut Checked<ops::TopK<'_>>) -> Result<()> {
        let (scores, k, options) = (op.scores(), op.k(), *op.options());
        let values = read_matrix(scores);
        let (score, selection) = (op.score_bias().map(read), op.selection_bias().map(read));
        let bias = RouterBias { score: score.as_deref(), selection: selection.as_deref() };
        let (mut ids, mut weights) = (vec![], vec![]);
        for (token, row) in values.chunks_exact(scores.cols()).enumerate() {
            let (id, weight, finite) = reference::top_k(row, bias, &options, k);
            ids.extend(id);
            weights.extend(weight);
            if !finite && let Some(to) = op.report_to() {
                let kind = to.value_kind();
                report(to, token as u32, kind);
            }
        }
        let (to_ids, to_weights) = op.out();
        write(to_ids, &ids);
        write(to_weights, &weights);
        Ok(())
    }

    fn map_routes(&self, op: &mut Checked<ops::MapRoutes<'_>>) -> Result<()> {
        let routes = op.routes();
        let ids = read(routes.ids());
        let (mut slot, mut src) = (vec![0; ids.len()], vec![0; ids.len()]);
        let mut bounds = vec![0; routes.experts() + 1];
        routing::map_into(&ids, routes.k(), &mut slot, &mut src, &mut bounds);
        let (to_slot, to_src, to_bounds) = op.out();
        write(to_slot, &slot);
        write(to_src, &src);
        write(to_bounds, &bounds);
        Ok(())
    }

    fn swiglu(&self, op: &mut Checked<ops::SwiGlu<'_>>) -> Result<()> {
        let values = hidden(op.gate_up());
        write_matrix(op.out(), &values);
        Ok(())
    }

    fn swiglu_quantize(&self, op: &mut Checked<ops::SwiGluQuantize<'_>>) -> Result<()> {
        let gate_up = op.gate_up();
        let (rows, ffn) = (gate_up.matrix().rows(), gate_up.ffn());
        let (values, headers) = (hidden(gate_up), op.out().headers());
        let blocks = reference::quantize(&values, rows, ffn, ffn, None, headers);
        write(op.out().data(), &blocks);
        let tokens = op.tokens().map(read);
        report_rows(op.report_to(), &values, ffn, headers, tokens);
        Ok(())
    }

    fn combine(&self, op: &mut Checked<ops::Combine<'_>>) -> Result<()> {
        let (y, map) = (op.y(), op.map());
        let (slot, weights) = (read(map.slot()), read(op.routes().weights()));
        let shared = op.shared().map(|s| (read_matrix(s.y), s.score.map(read_matrix)));
        let shared = shared.as_ref().map(|(y, score)| (&y[..], score.as_deref()));
        let (scale, bias) = op.affine().unwrap_or_default();
        let affine = affine(scale, bias, Some(map), map.rows());
        let with = reference::CombineWith { shared, affine, options: op.factors() };
        let values = reference::combine(&read_matrix(y), y.cols(), &slot, &weights, map.k(), &with);
        write_matrix(op.out(), &values);
        let score = op.shared().and_then(|s| s.score).map(read_matrix).unwrap_or_default();
        if let Some(to) = op.report_to() {
            let (output, shared_score) = (to.value_kind(), to.header_kind());
            for (token, row) in values.chunks_exact(y.cols()).enumerate() {
                if row.iter().any(|v| !v.is_finite()) {
                    report(to, token as u32, output);
                }
            }
            for (token, score) in score.iter().enumerate() {
                if !score.is_finite() {
                    report(to, token as u32, shared_score);
                }
            }
        }
        Ok(())
    }
}

fn hidden(gate_up: ops::GateUp<'_>) -> Vec<f32> {
    let (matrix, ffn) = (gate_up.matrix(), gate_up.ffn());
    if ffn == 0 {
        return vec![];
    }
    let ops::PerExpert { scale, bias, map } = gate_up.affine().unwrap_or_default();
    let affine = affine(scale, bias, map, matrix.rows());
    reference::hidden(&read_matrix(matrix), ffn, gate_up.order(), gate_up.function(), &affine)
}

/// Scales and biases, and the expert of each row.
fn affine(
    scale: Option<ops::Matrix<'_>>,
    bias: Option<ops::Matrix<'_>>,
    map: Option<&RoutingMap>,
    rows: usize,
) -> reference::Affine {
    let bounds = map.map_or(vec![0, rows as u32], |map| read(map.bounds()));
    let expert = bounds.windows(2).enumerate();
    let expert = expert.flat_map(|(e, b)| std::iter::repeat_n(e, (b[1] - b[0]) as usize)).collect();
    reference::Affine { expert, scale: scale.map(read_matrix), bias: bias.map(read_matrix) }
}

impl ModelOps for ReferenceBackend {
    fn embed(&self, op: &mut Checked<ops::Embed<'_>>) -> Result<()> {
        let (table, bytes) = (op.table(), read(op.table().data()));
        let cols = op.out().cols();
        let values = match table {
            ops::Table::Floats(m) => m.ty().widen(&bytes),
            ops::Table::Quantized(w) => {
                let len = w.ty().row_bytes(cols)?;
                let mut values = vec![0.0; w.rows() * cols];
                for (row, values) in values.chunks_exact_mut(cols).enumerate() {
                    let bytes = &bytes[row * w.row_stride()..][..len];
                    strata_core::format::dequantize(w.ty(), bytes, values)?;
                }
                values
            }
        };
        let values = reference::embed(&values, cols, &read(op.ids()), op.scale());
        write_matrix(op.out(), &values);
        Ok(())
    }

    fn norm(&self, op: &mut Checked<ops::Norm<'_>>) -> Result<()> {
        let values = norms(&read_matrix(op.x()), op.kind(), op.group(), op.eps());
        write_matrix(op.out(), &values);
        Ok(())
    }

    fn add_norm(&self, op: &mut Checked<ops::AddNorm<'_>>) -> Result<()> {
        let (y, kind, eps) = (read_matrix(op.y()), op.kind(), op.eps());
        let (x, out) = op.parts();
        let old = read_matrix_mut(x);
        let sum: Vec<f32> = old.iter().zip(y).map(|(x, y)| reference::add(*x, y)).collect();
        write_matrix(x, &sum);
        let cols = x.cols();
        write_matrix(out, &norms(&sum, kind, cols, eps));
        Ok(())
    }

    fn pointwise(&self, op: &mut Checked<ops::Pointwise<'_>>) -> Result<()> {
        let by = op.by();
        let (x, cols) = (read_matrix_mut(op.x()), op.x().cols());
        let rows = |f: &dyn Fn(usize, f32) -> f32| -> Vec<f32> {
            x.iter().enumerate().map(|(i, x)| f(i, *x)).collect()
        };
        let values = match by {
            ops::By::Add(y) => {
                let y = read_matrix(y);
                rows(&|i, x| reference::add(x, y[i]))
            }
            ops::By::Multiply(y) => {
                let y = read_matrix(y);
                rows(&|i, x| reference::multiply(x, y[i]))
            }
            ops::By::Copy(y) => read_matrix(y),
            ops::By::Bias(b) => {
                let b = read(b);
                rows(&|i, x| reference::add(x, b[i % cols]))
            }
            ops::By::Scale(factor) => rows(&|_, x| reference::scale(x, factor)),
            ops::By::Softcap(cap) => rows(&|_, x| reference::softcap(x, cap)),
            ops::By::SigmoidGate(gate) => {
                let (each, gate) = (cols / gate.cols(), read_matrix(gate));
                rows(&|i, x| reference::gate(x, gate[i / each]))
            }
            ops::By::SiluGate(gate) => {
                let (each, gate) = (cols / gate.cols(), read_matrix(gate));
                rows(&|i, x| reference::silu_gate(x, gate[i / each]))
            }
        };
        write_matrix(op.x(), &values);
        Ok(())
    }

    fn rope(&self, op: &mut Checked<ops::Rope<'_>>) -> Result<()> {
        let (head, pairs, (cos, sin)) = (op.head(), op.pairs(), op.tables());
        let (n, positions) = (cos.cols(), read(op.positions()));
        let (cos, sin) = (read_matrix(cos), read_matrix(sin));
        let cols = op.x().cols();
        let mut values = read_matrix_mut(op.x());
        for (row, position) in values.chunks_exact_mut(cols).zip(positions) {
            let at = position as usize * n..(position as usize + 1) * n;
            for head in row.chunks_exact_mut(head) {
                reference::rope(head, &cos[at.clone()], &sin[at.clone()], pairs);
            }
        }
        write_matrix(op.x(), &values);
        Ok(())
    }

    fn float_product(&self, op: &mut Checked<ops::FloatProduct<'_>>) -> Result<()> {
        let (x, weights) = (op.x(), op.weights());
        let (bytes, ty) = (read(weights.data()), weights.ty());
        let values = reference::float_product(&read_matrix(x), &bytes, ty, x.cols());
        write_matrix(op.out(), &values);
        Ok(())
    }

    fn append_kv(&self, op: &mut Checked<ops::AppendKv<'_>>) -> Result<()> {
        let (layout, batch) = (op.layout(), op.batch());
        let (key, value) = (layout.kv_heads * layout.key, layout.kv_heads * layout.value);
        let (keys, values) = (read_matrix(op.keys()), read_matrix(op.values()));
        let (sequences, positions) = (read(batch.sequences()), read(batch.positions()));
        let (pages, each) = (read(batch.pages()), batch.limits().pages_per_sequence);
        let mut cache = read(op.cache().as_slice());
        for (row, (sequence, position)) in sequences.iter().zip(positions).enumerate() {
            let page = pages[*sequence as usize * each + position as usize / PAGE] as usize;
            let keys = &keys[row * key..][..key];
            let values = &values[row * value..][..value];
            reference::append(&mut cache, layout, page, position, keys, values);
        }
        write(op.cache(), &cache);
        Ok(())
    }

    fn attend(&self, op: &mut Checked<ops::Attend<'_>>) -> Result<()> {
        let (shape, batch) = (op.shape(), op.batch());
        let (cache, queries) = (read(op.cache()), read_matrix(op.queries()));
        let (sequences, positions) = (read(batch.sequences()), read(batch.positions()));
        let (pages, each) = (read(batch.pages()), batch.limits().pages_per_sequence);
        let sinks = op.sinks().map(read);
        let cols = shape.heads * shape.key;
        let mut values = Vec::new();
        for (row, (sequence, position)) in sequences.iter().zip(positions).enumerate() {
            let pages = &pages[*sequence as usize * each..][..each];
            let queries = &queries[row * cols..][..cols];
            let sinks = sinks.as_deref();
            values.extend(reference::attend(&shape, &cache, pages, position, queries, sinks));
        }
        write_matrix(op.out(), &values);
        Ok(())
    }

    fn convolve(&self, op: &mut Checked<ops::Convolve<'_>>) -> Result<()> {
        let (x, taps, silu) = (read_matrix(op.x()), read_matrix(op.taps()), op.silu());
        let cols = op.x().cols();
        let runs = op.runs().clone();
        let (out, mut states) = op.parts();
        let (mut values, mut all) = (read_matrix_mut(out), read(states.as_slice()));
        let each = (taps.len() / cols - 1) * cols;
        for (sequence, fresh, rows) in runs.iter() {
            let state = &mut all[sequence * each..][..each];
            if fresh {
                state.fill(0.0);
            }
            for row in rows.iter().map(|row| *row as usize * cols..(*row as usize + 1) * cols) {
                let y = reference::convolve(&x[row.clone()], &taps, silu, state);
                values[row].copy_from_slice(&y);
            }
        }
        write(states.reborrow(), &all);
        write_matrix(out, &values);
        Ok(())
    }

    fn delta_net(&self, op: &mut Checked<ops::DeltaNet<'_>>) -> Result<()> {
        let (shape, inputs, runs) = (op.shape(), op.inputs(), op.runs().clone());
        let read_rows = |m: ops::Matrix<'_>| (read_matrix(m), m.cols());
        let ops::DeltaInputs { queries, keys, values, beta, alpha, .. } = inputs;
        let inputs_of = [queries, keys, values, beta, alpha].map(read_rows);
        let (bias, decay) = (read(inputs.decay_bias), read(inputs.decay));
        let (out, mut states) = op.parts();
        let (mut written, mut all) = (read_matrix_mut(out), read(states.as_slice()));
        let each = shape.state().expect("as core has checked");
        let cols = shape.value_heads * shape.value;
        for (sequence, fresh, rows) in runs.iter() {
            let state = &mut all[sequence * each..][..each];
            if fresh {
                state.fill(0.0);
            }
            for row in rows.iter().map(|row| *row as usize) {
                let of = |at: usize| {
                    let (values, cols) = &inputs_of[at];
                    &values[row * cols..][..*cols]
                };
                let token = reference::DeltaToken {
                    queries: of(0),
                    keys: of(1),
                    values: of(2),
                    beta: of(3),
                    alpha: of(4),
                };
                let y = reference::delta_net(&shape, &token, &bias, &decay, state);
                written[row * cols..][..cols].copy_from_slice(&y);
            }
        }
        write(states.reborrow(), &all);
        write_matrix(out, &written);
        Ok(())
    }
}

fn read_matrix_mut(m: &mut ops::MatrixMut<'_>) -> Vec<f32> {
    let (rows, cols, stride) = (m.rows(), m.cols(), m.stride());
    let values = read(m.data().as_slice());
    (0..rows).flat_map(|r| values[r * stride..][..cols].iter().copied()).collect()
}

fn norms(x: &[f32], kind: ops::NormKind<'_>, group: usize, eps: f32) -> Vec<f32> {
    let (weight, bias) = match kind {
        ops::NormKind::Rms(weight) => (weight.map(read), None),
        ops::NormKind::Layer(weight, bias) => (Some(read(weight)), Some(read(bias))),
        ops::NormKind::L2 => (None, None),
    };
    let one = |x: &[f32]| match (&weight, &bias) {
        _ if matches!(kind, ops::NormKind::L2) => reference::l2_norm(x, eps),
        (Some(weight), Some(bias)) => reference::layer_norm(x, weight, bias, eps),
        (weight, _) => reference::rms_norm(x, weight.as_deref(), eps),
    };
    x.chunks_exact(group).flat_map(one).collect()
}
