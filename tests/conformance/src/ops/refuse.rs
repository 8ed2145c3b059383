//! Arguments that must be refused: the error's words, and nothing written.

mod forms;

use strata_core::Layout;
use strata_core::backend::Backend;
use strata_core::backend::ops::{
    Combine, GateUp, GateUpOrder, MapRoutes, Matrix, MatrixMut, Product, Q8Rows, Q8RowsMut,
    QuantizeRows, QuantizeScatter, RouterScores, Rows, Strides, SwiGlu, SwiGluQuantize, TopK,
    Weights,
};
use strata_core::backend::{Buffer, DeviceRoutes, RoutingMap};
use strata_core::routing::{RouterOptions, Routes};
use strata_core::{Result, WeightType};

use super::Mapped;
use crate::output::{Output, Shape};
use crate::poisoned::Poisoned;
use crate::values::{Choice, Routing};
use crate::{Op, Outputs, ReferenceBackend, Stage};

/// What a refused call gets to work with.
struct Bench<'a> {
    backend: &'a dyn Backend,
    /// 4 tokens, k = 2, 3 experts.
    mapped: Mapped,
    /// Zeros: enough for any input below.
    floats: Buffer<f32>,
    bytes: Buffer<u8>,
    /// Poison: whatever would be written to.
    out: Poisoned<f32>,
    out_q8: Poisoned<u8>,
}

/// One refused call.
pub struct RefuseCase {
    /// Its name.
    name: &'static str,
    /// The call.
    call: fn(&mut Bench<'_>) -> Result<()>,
    /// The words of the error; `{device}` stands for the backend's id.
    error: &'static str,
}

impl std::fmt::Display for RefuseCase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "refuse/{}", self.name)
    }
}

impl Op for RefuseCase {
    fn unsupported(&self, backend: &dyn Backend) -> Option<String> {
        let own = self.name.starts_with("device/") && backend.id() == ReferenceBackend::new().id();
        own.then(|| "the other device is the one under test".into())
    }

    fn run(&self, stage: &Stage<'_>) -> Outputs {
        let backend = stage.backend;
        let routing = Routing::new(3, 2, 4, Choice::Random);
        let mut bench = Bench {
            backend,
            mapped: Mapped::new(backend, &routing.routes(1))?,
            floats: backend.from_slice(&vec![0.0; 1 << 14])?,
            bytes: backend.from_slice(&vec![0; 1 << 16])?,
            out: Poisoned::new(backend, 1 << 12, 0)?,
            out_q8: Poisoned::new(backend, 1 << 14, 0)?,
        };
        let given = (self.call)(&mut bench).err();
        let given = given.map_or("no error".into(), |e| e.to_string());
        let expected = self.error.replace("{device}", &backend.id().to_string());
        let untouched = |output: Output| {
            let expected = output.bytes.clone();
            output.expecting(expected)
        };
        Ok(vec![
            Output::text("error", &given, &expected),
            untouched(bench.out.read(backend, "output", Shape::Untouched)?),
            untouched(bench.out_q8.read(backend, "q8_1 output", Shape::Untouched)?),
        ])
    }
}

/// Checked routes: no launch can be made of wrong ids.
fn routes(ids: Vec<i32>, weights: usize, k: usize, experts: usize) -> Result<()> {
    Routes::new(ids, vec![0.0; weights], k, experts).map(drop)
}

impl Bench<'_> {
    /// What `mapped` is, made on another stream that nobody has waited for, and that stream.
    fn mapped_elsewhere(&self) -> Result<(Mapped, Box<dyn Backend>)> {
        let other = self.backend.fork()?;
        Ok((Mapped::new(&*other, &Routing::new(3, 2, 4, Choice::Random).routes(1))?, other))
    }

    /// Launches something that reads the map, into a buffer that nobody looks at.
    fn read_map(&self) -> Result<()> {
        let x = Matrix::dense("x", &self.floats, 4, 64)?;
        let mut out = self.backend.alloc(1 << 14)?;
        let out = Q8RowsMut::new(&mut out, Layout::D4, 8, 64)?;
        QuantizeScatter::new(x, &self.mapped.map, out)?.launch(self.backend)
    }
}

fn scatter(b: &mut Bench<'_>, map: &RoutingMap) -> Result<()> {
    let x = Matrix::dense("x", &b.floats, 4, 64)?;
    let out = Q8RowsMut::new(b.out_q8.view(), Layout::D4, 8, 64)?;
    QuantizeScatter::new(x, map, out)?.launch(b.backend)
}

fn quantize(b: &mut Bench<'_>, rows: usize, cols: usize, out: (usize, usize)) -> Result<()> {
    let x = Matrix::dense("x", &b.floats, rows, cols)?;
    let out = Q8RowsMut::new(b.out_q8.view(), Layout::D4, out.0, out.1)?;
    QuantizeRows::new(x, out)?.launch(b.backend)
}

/// A product of `mapped` with everything that can be wrong about it.
struct Wrong {
    ty: WeightType,
    layout: Layout,
    experts: usize,
    weight_cols: usize,
    act: (usize, usize),
    indexed: bool,
    dst: (usize, usize, usize),
}

/// Those of 5 x 64 Q8_0 without gaps.
const STRIDES: Strides = Strides { row: 68, expert: 340 };

/// A product that is right: 3 experts of 5 x 64 Q8_0, 8 rows.
const RIGHT: Wrong = Wrong {
    ty: WeightType::Q8_0,
    layout: Layout::D4,
    experts: 3,
    weight_cols: 64,
    act: (8, 64),
    indexed: false,
    dst: (8, 5, 5),
};

fn product(b: &mut Bench<'_>, wrong: &Wrong) -> Result<()> {
    let Wrong { ty, layout, experts, weight_cols, act, indexed, dst } = *wrong;
    let weights =
        Weights::strided("blk.0.ffn_up_exps", &b.bytes, ty, experts, 5, weight_cols, STRIDES)?;
    let act = Q8Rows::new(&b.bytes, layout, act.0, act.1)?;
    let map = &b.mapped.map;
    let rows = if indexed { Rows::Indexed(map) } else { Rows::Experts(map) };
    let dst = MatrixMut::new("dst", b.out.view(), dst.0, dst.1, dst.2)?;
    Product::new(weights, act, rows, dst)?.launch(b.backend)
}

/// A buffer of another device.
fn elsewhere() -> (ReferenceBackend, Buffer<f32>) {
    // Of no device under test: the index is one that none has.
    let other = ReferenceBackend::new();
    let backend: &dyn Backend = &other;
    let buffer = backend.from_slice(&[0.0f32; 1024]).expect("host memory");
    (other, buffer)
}

/// The table: name, call, words.
pub(crate) fn table() -> Vec<RefuseCase> {
    let case = |name, call, error| RefuseCase { name, call, error };
    let mut cases = vec![
        case(
            "routes/negative-id",
            |_| routes(vec![0, 1, 2, -1], 4, 2, 3),
            "token 1, choice 1: expert id -1, expected 0..3",
        ),
        case(
            "routes/id-past-the-experts",
            |_| routes(vec![3, 0], 2, 1, 3),
            "token 0, choice 0: expert id 3, expected 0..3",
        ),
        case(
            "routes/id-of-i32-min",
            |_| routes(vec![0, 0, 0, i32::MIN], 4, 1, 512),
            "token 3, choice 0: expert id -2147483648, expected 0..512",
        ),
        case(
            "routes/ragged",
            |_| routes(vec![0; 3], 3, 2, 3),
            "routes: ids: given 3, expected a multiple of k = 2",
        ),
        case(
            "routes/weights-missing",
            |_| routes(vec![0; 4], 3, 2, 3),
            "routes: weights: given 3, expected 4",
        ),
        case(
            "routes/k-of-zero",
            |_| routes(vec![], 0, 0, 3),
            "routes: given k = 0, 3 experts, expected at least 1 of each, below 2^31",
        ),
        case(
            "map/too-many-rows",
            |b| RoutingMap::with_capacity(b.backend, 1 << 29, 8, 8).map(drop),
            "routed rows (tokens x k): given 536870912 x 8, expected below 2^29 tokens and 2^31 rows",
        ),
        case(
            "map/other-k",
            |b| {
                let mut map = RoutingMap::with_capacity(b.backend, 4, 3, 3)?;
                MapRoutes::new(b.mapped.routes.view(), &mut map)?.launch(b.backend)
            },
            "map: k of the routes: given 2, expected 3",
        ),
        case(
            "map/over-capacity",
            |b| {
                let mut map = RoutingMap::with_capacity(b.backend, 3, 2, 3)?;
                MapRoutes::new(b.mapped.routes.view(), &mut map)?.launch(b.backend)
            },
            "map: tokens: given 4, expected at most 3, the capacity of the map",
        ),
        case(
            "top-k/k-above-experts",
            |b| {
                let scores = Matrix::dense("scores", &b.floats, 4, 3)?;
                let mut routes = DeviceRoutes::with_capacity(b.backend, 4, 4, 3)?;
                TopK::new(scores, &RouterOptions::SOFTMAX_OF_CHOSEN, &mut routes)?.launch(b.backend)
            },
            "top-k: k: given 4, expected at most the 3 experts",
        ),
        case(
            "top-k/other-experts",
            |b| {
                let scores = Matrix::dense("scores", &b.floats, 4, 5)?;
                let mut routes = DeviceRoutes::with_capacity(b.backend, 4, 2, 3)?;
                TopK::new(scores, &RouterOptions::SOFTMAX_OF_CHOSEN, &mut routes)?.launch(b.backend)
            },
            "top-k: columns of the scores: given 5, expected 3",
        ),
        case(
            "router/other-width",
            |b| {
                let x = Matrix::dense("x", &b.floats, 4, 6)?;
                let weights = Matrix::dense("router", &b.floats, 3, 7)?;
                let out = MatrixMut::dense("scores", b.out.view(), 4, 3)?;
                RouterScores::new(x, weights, out)?.launch(b.backend)
            },
            "router: columns of the weights: given 7, expected 6",
        ),
        case(
            "quantize/other-rows",
            |b| quantize(b, 4, 64, (5, 64)),
            "quantize: rows of the output: given 5, expected 4",
        ),
        case(
            "quantize/other-columns",
            |b| quantize(b, 4, 64, (4, 65)),
            "quantize: columns of the output: given 65, expected 64",
        ),
        case(
            "quantize/input-too-short",
            |b| quantize(b, 1000, 64, (1000, 64)),
            "x: given 16384 values, expected at least 64000 for 1000 rows of 64 (stride 64)",
        ),
        case(
            "quantize/output-too-short",
            |b| quantize(b, 100, 64, (100, 64)),
            "q8_1 rows: given 16384 values, expected at least 57600 for 100 x 64",
        ),
        case(
            "quantize/overflow",
            |b| quantize(b, usize::MAX / 2, 64, (4, 64)),
            "x: given 9223372036854775807 rows of 64 (stride 64), expected a size below 2^64",
        ),
        case(
            "quantize/stride-below-columns",
            |b| Matrix::new("x", &b.floats, 4, 64, 63).map(drop),
            "x: row stride: given 63, expected at least 64",
        ),
        case(
            "gather/other-tokens",
            |b| {
                let x = Matrix::dense("x", &b.floats, 5, 64)?;
                let out = Q8RowsMut::new(b.out_q8.view(), Layout::D4, 8, 64)?;
                QuantizeRows::gather(x, &b.mapped.map, out)?.launch(b.backend)
            },
            "gather: tokens of the map: given 4, expected 5",
        ),
        case(
            "scatter/other-rows",
            |b| {
                let x = Matrix::dense("x", &b.floats, 4, 64)?;
                let out = Q8RowsMut::new(b.out_q8.view(), Layout::D4, 4, 64)?;
                QuantizeScatter::new(x, &b.mapped.map, out)?.launch(b.backend)
            },
            "scatter: rows of the output: given 4, expected 8",
        ),
        case(
            "mmq/other-experts",
            |b| product(b, &Wrong { experts: 4, ..RIGHT }),
            "product: experts of the weights: given 4, expected 3",
        ),
        case(
            "mmq/ragged-columns",
            |b| product(b, &Wrong { weight_cols: 60, ..RIGHT }),
            "blk.0.ffn_up_exps: columns: given 60, expected a multiple of 32, the block of q8_0",
        ),
        case(
            "mmq/other-columns",
            |b| product(b, &Wrong { act: (8, 96), ..RIGHT }),
            "product: columns of the activations: given 96, expected 64",
        ),
        case(
            "mmq/other-layout",
            |b| product(b, &Wrong { layout: Layout::DS4, ..RIGHT }),
            "product: layout of the activations: given DS4, expected D4, which q8_0 is multiplied in",
        ),
        case(
            "mmq/rows-of-the-other-mode",
            |b| product(b, &Wrong { indexed: true, ..RIGHT }),
            "product: rows of the activations: given 8, expected 4",
        ),
        case(
            "mmq/other-output-columns",
            |b| product(b, &Wrong { dst: (8, 6, 6), ..RIGHT }),
            "product: columns of the output: given 6, expected 5",
        ),
        case(
            "mmq/output-stride-below-columns",
            |b| product(b, &Wrong { dst: (8, 5, 4), ..RIGHT }),
            "dst: row stride: given 4, expected at least 5",
        ),
        case(
            "mmq/weights-too-short",
            |b| {
                let bytes = b.bytes.slice(..1019)?;
                Weights::dense("blk.1.ffn_down_exps", bytes, WeightType::Q8_0, 3, 5, 64).map(drop)
            },
            "blk.1.ffn_down_exps: given 1019 values, expected at least 1020 for 3 experts of 5 x 64 q8_0",
        ),
        case(
            "mmq/row-stride-below-a-row",
            |b| {
                let ty = WeightType::Q8_0;
                let strides = Strides { row: 67, ..STRIDES };
                Weights::strided("blk.1.ffn_down_exps", &b.bytes, ty, 3, 5, 64, strides).map(drop)
            },
            "blk.1.ffn_down_exps: row stride: given 67 bytes, expected at least 68",
        ),
        case(
            "mmq/no-experts",
            |b| {
                let ty = WeightType::Q8_0;
                Weights::dense("blk.1.ffn_down_exps", &b.bytes, ty, 0, 5, 64).map(drop)
            },
            "blk.1.ffn_down_exps: experts: given 0, expected 1 to 2^31 - 513",
        ),
        case(
            "swiglu/odd-columns",
            |b| {
                let x = Matrix::dense("x", &b.floats, 4, 7)?;
                GateUp::new(x, GateUpOrder::Split).map(drop)
            },
            "gate and up: columns: given 7, expected an even number",
        ),
        case(
            "swiglu/other-columns",
            |b| {
                let x = GateUp::new(Matrix::dense("x", &b.floats, 4, 8)?, GateUpOrder::Split)?;
                let out = MatrixMut::dense("hidden", b.out.view(), 4, 8)?;
                SwiGlu::new(x, out)?.launch(b.backend)
            },
            "swiglu: columns of the output: given 8, expected 4",
        ),
        case(
            "swiglu-quantize/other-rows",
            |b| {
                let x = GateUp::new(Matrix::dense("x", &b.floats, 4, 64)?, GateUpOrder::Split)?;
                let out = Q8RowsMut::new(b.out_q8.view(), Layout::D4, 3, 32)?;
                SwiGluQuantize::new(x, out)?.launch(b.backend)
            },
            "swiglu + quantize: rows of the output: given 3, expected 4",
        ),
        case(
            "combine/other-rows",
            |b| {
                let y = Matrix::dense("y", &b.floats, 4, 16)?;
                let out = MatrixMut::dense("out", b.out.view(), 4, 16)?;
                Combine::new(y, &b.mapped.map, b.mapped.routes.view(), None, out)?.launch(b.backend)
            },
            "combine: rows of the input: given 4, expected 8",
        ),
        case(
            "device/input-of-another",
            |b| {
                let (_other, x) = elsewhere();
                let x = Matrix::dense("x", &x, 4, 64)?;
                let out = Q8RowsMut::new(b.out_q8.view(), Layout::D4, 4, 64)?;
                QuantizeRows::new(x, out)?.launch(b.backend)
            },
            "quantize: input: lives on cpu:4294967295, expected a buffer of {device}",
        ),
        case(
            "order/map-of-another-stream",
            |b| {
                let (mapped, _other) = b.mapped_elsewhere()?;
                scatter(b, &mapped.map)
            },
            "scatter: map: another stream used it last, expected one that was synchronized since",
        ),
        case(
            "order/routes-of-another-stream",
            |b| {
                let (mapped, _other) = b.mapped_elsewhere()?;
                MapRoutes::new(mapped.routes.view(), &mut b.mapped.map)?.launch(b.backend)
            },
            "map: routes: another stream used it last, expected one that was synchronized since",
        ),
        case(
            "order/map-made-while-another-stream-reads-it",
            |b| {
                let other = b.backend.fork()?;
                b.backend.synchronize()?;
                MapRoutes::new(b.mapped.routes.view(), &mut b.mapped.map)?.launch(&*other)?;
                other.synchronize()?;
                b.read_map()?;
                MapRoutes::new(b.mapped.routes.view(), &mut b.mapped.map)?.launch(&*other)
            },
            "map: output: another stream used it last, expected one that was synchronized since",
        ),
        case(
            "order/routes-chosen-while-another-stream-reads-them",
            |b| {
                let other = b.backend.fork()?;
                MapRoutes::new(b.mapped.routes.view(), &mut b.mapped.map)?.launch(b.backend)?;
                let scores = Matrix::dense("scores", &b.floats, 4, 3)?;
                TopK::new(scores, &RouterOptions::SOFTMAX, &mut b.mapped.routes)?.launch(&*other)
            },
            "top-k: routes: another stream used it last, expected one that was synchronized since",
        ),
        case(
            "buffer/too-large",
            |b| b.backend.alloc::<f32>(usize::MAX / 2).map(drop),
            "buffer length: given 9223372036854775807, expected a size below 2^63 bytes",
        ),
        case(
            "buffer/slice-past-the-end",
            |b| b.floats.slice(1..16_386).map(drop),
            "slice of a buffer: given Included(1)..Excluded(16386), expected a range inside 0..16384",
        ),
        case(
            "buffer/copy-of-another-length",
            |b| b.backend.copy(b.out.view(), &b.floats),
            "copy: given 16384 values, expected 4096",
        ),
        case(
            "device/copy-of-another",
            |b| {
                let (_other, x) = elsewhere();
                b.backend.copy(b.out.view().slice(..1024)?, &x)
            },
            "copy: from: lives on cpu:4294967295, expected a buffer of {device}",
        ),
        case(
            "buffer/upload-of-another-length",
            |b| {
                let mut buffer = b.backend.alloc::<f32>(4)?;
                b.backend.upload(&mut buffer, &[0.0; 5])
            },
            "upload: given 5 values, expected 4",
        ),
    ];
    cases.extend(forms::table());
    cases
}
