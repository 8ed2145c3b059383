//! What failed streams, and those that nobody waited for, were to write is not used.

use strata_conformance::ReferenceBackend;
use strata_core::attention::{AttentionShape, PAGE, Pairs, Reach};
use strata_core::backend::{
    Backend, BatchLimits, Buffer, DeviceRoutes, Event, HostBytes, KvCache, RoutingMap, States,
    TokenBatch, ops,
};
use strata_core::floats::FloatType;
use strata_core::routing::{RouterOptions, Routes};
use strata_core::{Error, Layout, Result, WeightType, q8_1};
use strata_cpu::{CpuBackend, CpuOptions};

use crate::OPERATIONS;
use crate::backend::{Broken, Fault};

const TOKENS: usize = 2;
const K: usize = 2;
const EXPERTS: usize = 3;
const WIDTH: usize = 64;

fn routes() -> Result<Routes> {
    Routes::new(vec![0, 2, 1, 0], vec![0.5; TOKENS * K], K, EXPERTS)
}

fn not_written(what: &str) -> String {
    format!("{what}: what was to write it failed or was not awaited, expected it to be made again")
}

/// What a scatter reads and writes beside a map.
struct Rows {
    x: Buffer<f32>,
    out: Buffer<u8>,
}

impl Rows {
    fn new(backend: &dyn Backend) -> Result<Self> {
        let x = backend.from_slice(&[1.0f32; TOKENS * WIDTH])?;
        let out = backend.alloc(q8_1::bytes(TOKENS * K, WIDTH)?)?;
        Ok(Self { x, out })
    }

    fn scatter(&mut self, map: &RoutingMap, backend: &dyn Backend) -> Result<()> {
        let x = ops::Matrix::dense("x", &self.x, TOKENS, WIDTH)?;
        let out = ops::Q8RowsMut::new(&mut self.out, Layout::D4, TOKENS * K, WIDTH)?;
        ops::QuantizeScatter::new(x, map, out)?.launch(backend)
    }
}

#[test]
fn what_a_failed_stream_wrote_is_not_used() -> Result<()> {
    let broken = Broken::new(Fault::Synchronize);
    let backend: &dyn Backend = &broken;
    let routes = routes()?;
    let on_device = DeviceRoutes::upload(backend, &routes)?;
    let mut map = RoutingMap::with_capacity(backend, TOKENS, K, EXPERTS)?;
    let mut rows = Rows::new(backend)?;
    ops::MapRoutes::new(on_device.view(), &mut map)?.launch(backend)?;
    rows.scatter(&map, backend)?;
    backend.synchronize().unwrap_err();
    assert_eq!(rows.scatter(&map, backend).unwrap_err().to_string(), not_written("scatter: map"));
    let again = ops::MapRoutes::new(on_device.view(), &mut map)?.launch(backend);
    assert_eq!(again.unwrap_err().to_string(), not_written("map: routes"));
    let on_device = DeviceRoutes::upload(backend, &routes)?;
    ops::MapRoutes::new(on_device.view(), &mut map)?.launch(backend)?;
    rows.scatter(&map, backend)
}

#[test]
fn a_map_that_failed_maps_nothing() -> Result<()> {
    let broken = Broken::new(Fault::NoMap);
    let backend: &dyn Backend = &broken;
    let routes = DeviceRoutes::upload(backend, &Routes::all(2, 3)?)?;
    let mut map = RoutingMap::with_capacity(backend, 2, 3, 3)?;
    ops::MapRoutes::new(routes.view(), &mut map)?.launch(backend).unwrap_err();
    assert_eq!(map.rows(), 0);
    let none = backend.alloc::<f32>(0)?;
    let mut out = backend.alloc::<u8>(0)?;
    let x = ops::Matrix::dense("x", &none, 0, 64)?;
    let out = ops::Q8RowsMut::new(&mut out, Layout::D4, 0, 64)?;
    let error = ops::QuantizeScatter::new(x, &map, out)?.launch(backend).unwrap_err();
    assert!(matches!(error, Error::NotWritten { .. }), "{error}");
    Ok(())
}

/// Every call beside the operations that may come upon the failure of an earlier launch.
const CALLS: [&str; 8] =
    ["import", "upload", "download", "fill", "copy", "synchronize", "record", "wait"];

/// One head.
const SHAPE: AttentionShape = AttentionShape {
    heads: 1,
    kv_heads: 1,
    key: WIDTH,
    value: WIDTH,
    scale: 0.125,
    softcap: None,
    reach: Reach::All,
};

/// What they work on.
struct Operands {
    x: Buffer<f32>,
    y: Buffer<f32>,
    bytes: Buffer<u8>,
    routes: DeviceRoutes,
    map: RoutingMap,
    event: Event,
    batch: TokenBatch,
    cache: KvCache,
}

impl Operands {
    fn new(backend: &dyn Backend) -> Result<Self> {
        let floats = [1.0f32; TOKENS * K * WIDTH];
        let routes = DeviceRoutes::upload(backend, &routes()?)?;
        let mut map = RoutingMap::with_capacity(backend, TOKENS, K, EXPERTS)?;
        ops::MapRoutes::new(routes.view(), &mut map)?.launch(backend)?;
        let (x, y) = (backend.from_slice(&floats)?, backend.from_slice(&floats)?);
        let bytes = backend.alloc(q8_1::bytes(TOKENS * K, WIDTH)?)?;
        let limits = BatchLimits { vocabulary: 2, sequences: 1, pages_per_sequence: 1, pages: 1 };
        let mut batch = TokenBatch::with_capacity(backend, TOKENS, limits)?;
        batch.set_pages(backend, &[0])?;
        batch.set(backend, &[0, 1], &[0, 0], &[0, 1])?;
        let cache = KvCache::new(backend, SHAPE.layout(), 1)?;
        backend.synchronize()?;
        let event = backend.record()?;
        Ok(Self { x, y, bytes, routes, map, event, batch, cache })
    }

    fn call(&mut self, name: &str, backend: &dyn Backend) -> Result<()> {
        let Self { x, y, bytes, routes, map, event, batch, cache } = self;
        let q8 = |bytes, rows, cols| ops::Q8RowsMut::new(bytes, Layout::D4, rows, cols);
        let out = |y, rows, cols| ops::MatrixMut::dense("out", y, rows, cols);
        let rows = |rows, cols| ops::Matrix::dense("x", &*x, rows, cols);
        let gate_up = || ops::GateUp::new(rows(TOKENS, WIDTH)?, ops::GateUpOrder::Split);
        match name {
            "import" => backend.import(HostBytes::from(vec![0; 4])).map(drop),
            "upload" => backend.upload(y.slice_mut(..4)?, &[0.0; 4]),
            "download" => backend.download(&*x).map(drop),
            "fill" => backend.fill(y, 0),
            "copy" => backend.copy(y, &*x),
            "synchronize" => backend.synchronize(),
            "record" => backend.record().map(drop),
            "wait" => backend.wait(event),
            "quantize" => {
                let out = q8(bytes, TOKENS, WIDTH)?;
                ops::QuantizeRows::new(rows(TOKENS, WIDTH)?, out)?.launch(backend)
            }
            "scatter" => {
                let out = q8(bytes, TOKENS * K, WIDTH)?;
                ops::QuantizeScatter::new(rows(TOKENS, WIDTH)?, map, out)?.launch(backend)
            }
            "product" => {
                let (ty, act) = (WeightType::Q8_0, ops::Q8Rows::new(&*bytes, Layout::D4, 1, 32)?);
                let weights = ops::Weights::dense("weights", &*bytes, ty, 1, 2, 32)?;
                ops::Product::new(weights, act, ops::Rows::Dense, out(y, 1, 2)?)?.launch(backend)
            }
            "router" => {
                let (x, weights) = (rows(TOKENS, WIDTH)?, rows(EXPERTS, WIDTH)?);
                ops::RouterScores::new(x, weights, out(y, TOKENS, EXPERTS)?)?.launch(backend)
            }
            "top-k" => {
                let scores = rows(TOKENS, EXPERTS)?;
                ops::TopK::new(scores, &RouterOptions::SOFTMAX_OF_CHOSEN, routes)?.launch(backend)
            }
            "map" => ops::MapRoutes::new(routes.view(), map)?.launch(backend),
            "swiglu" => ops::SwiGlu::new(gate_up()?, out(y, TOKENS, WIDTH / 2)?)?.launch(backend),
            "swiglu + quantize" => {
                let out = q8(bytes, TOKENS, WIDTH / 2)?;
                ops::SwiGluQuantize::new(gate_up()?, out)?.launch(backend)
            }
            "combine" => {
                let (x, out) = (rows(TOKENS * K, WIDTH)?, out(y, TOKENS, WIDTH)?);
                ops::Combine::new(x, map, routes.view(), None, out)?.launch(backend)
            }
            "embed" => {
                let table = ops::FloatMatrix::new("table", &*bytes, FloatType::F32, 2, WIDTH)?;
                let out = out(y, TOKENS, WIDTH)?;
                ops::Embed::new(ops::Table::Floats(table), batch, None, out)?.launch(backend)
            }
            "float product" => {
                let weights = ops::FloatMatrix::new("weights", &*bytes, FloatType::F32, 2, WIDTH)?;
                let out = out(y, TOKENS, 2)?;
                ops::FloatProduct::new(rows(TOKENS, WIDTH)?, weights, out)?.launch(backend)
            }
            "norm" => {
                let (x, out) = (rows(TOKENS, WIDTH)?, out(y, TOKENS, WIDTH)?);
                ops::Norm::new(x, ops::NormKind::Rms(None), WIDTH, 1e-5, out)?.launch(backend)
            }
            "add + norm" => {
                let mut sum = backend.alloc(TOKENS * WIDTH)?;
                let (sum, out) = (out(&mut sum, TOKENS, WIDTH)?, out(y, TOKENS, WIDTH)?);
                let kind = ops::NormKind::Rms(None);
                ops::AddNorm::new(sum, rows(TOKENS, WIDTH)?, kind, 1e-5, out)?.launch(backend)
            }
            "pointwise" => {
                let by = ops::By::Add(rows(TOKENS, WIDTH)?);
                ops::Pointwise::new(out(y, TOKENS, WIDTH)?, by)?.launch(backend)
            }
            "rope" => {
                let table = rows(PAGE, 1)?;
                let values = out(y, TOKENS, 2)?;
                ops::Rope::new(values, 2, table, table, Pairs::Halves, batch)?.launch(backend)
            }
            "append" => {
                let (keys, values) = (rows(TOKENS, SHAPE.key)?, rows(TOKENS, SHAPE.value)?);
                ops::AppendKv::new(keys, values, batch, cache)?.launch(backend)
            }
            "attention" => {
                let (queries, out) = (rows(TOKENS, SHAPE.key)?, out(y, TOKENS, SHAPE.value)?);
                ops::Attend::new(SHAPE, queries, None, batch, cache, out)?.launch(backend)
            }
            "convolution" => {
                let mut states = States::new(backend, WIDTH, 1)?;
                let (x, taps, out) =
                    (rows(TOKENS, WIDTH)?, rows(WIDTH, 2)?, out(y, TOKENS, WIDTH)?);
                ops::Convolve::new(x, taps, true, batch, &mut states, out)?.launch(backend)
            }
            "delta net" => {
                let shape = ops::DeltaShape {
                    key_heads: 1,
                    value_heads: 1,
                    key: 8,
                    value: 8,
                    order: ops::KeyHeads::Grouped,
                    scale: 1.0,
                };
                let mut states = States::new(backend, 64, 1)?;
                let (head, number) = (rows(TOKENS, 8)?, rows(TOKENS, 1)?);
                let inputs = ops::DeltaInputs {
                    queries: head,
                    keys: head,
                    values: head,
                    beta: number,
                    alpha: number,
                    decay_bias: x.slice(..1)?,
                    decay: x.slice(..1)?,
                };
                let out = out(y, TOKENS, 8)?;
                ops::DeltaNet::new(shape, inputs, batch, &mut states, out)?.launch(backend)
            }
            other => panic!("no call is named {other}"),
        }
    }
}

#[test]
fn whichever_call_says_that_a_map_failed_the_map_is_not_used() -> Result<()> {
    for &name in CALLS.iter().chain(OPERATIONS) {
        let (broken, good) = (Broken::new(Fault::LateMap), ReferenceBackend::new());
        let (backend, good): (&dyn Backend, &dyn Backend) = (&broken, &good);
        let (mut operands, mut rows) = (Operands::new(good)?, Rows::new(backend)?);
        let routes = DeviceRoutes::upload(backend, &routes()?)?;
        let mut map = RoutingMap::with_capacity(backend, TOKENS, K, EXPERTS)?;
        ops::MapRoutes::new(routes.view(), &mut map)?.launch(backend)?;
        match operands.call(name, backend) {
            Err(Error::Device { call, .. }) => assert_eq!(call, name),
            other => panic!("{name}: {other:?}"),
        }
        // Nothing is left to say; the map is not there all the same, on this stream and on others.
        backend.synchronize()?;
        for stream in [backend, good] {
            let error = rows.scatter(&map, stream).unwrap_err();
            assert_eq!(error.to_string(), not_written("scatter: map"), "{name}");
        }
        // Without a failure the same call passes, and hides nothing.
        Operands::new(good)?.call(name, good)?;
    }
    Ok(())
}

#[test]
fn what_a_dropped_stream_used_can_be_used_again() -> Result<()> {
    let (reference, cpu) = (ReferenceBackend::new(), CpuBackend::new(CpuOptions::default())?);
    for backend in [&reference as &dyn Backend, &cpu] {
        let mut rows = Rows::new(backend)?;
        let routes = DeviceRoutes::upload(backend, &routes()?)?;
        let mut map = RoutingMap::with_capacity(backend, TOKENS, K, EXPERTS)?;
        backend.synchronize()?;

        // Written on a stream that nobody waits for: to be made again, from routes that it only read.
        let other = backend.fork()?;
        ops::MapRoutes::new(routes.view(), &mut map)?.launch(&*other)?;
        let error = rows.scatter(&map, backend).unwrap_err();
        assert!(matches!(error, Error::OtherStream { .. }), "{error}");
        drop(other);
        let error = rows.scatter(&map, backend).unwrap_err();
        assert_eq!(error.to_string(), not_written("scatter: map"));
        ops::MapRoutes::new(routes.view(), &mut map)?.launch(backend)?;
        rows.scatter(&map, backend)?;
        backend.synchronize()?;

        // Written and waited for, then read on: it holds when the stream is gone.
        let other = backend.fork()?;
        ops::MapRoutes::new(routes.view(), &mut map)?.launch(&*other)?;
        other.synchronize()?;
        rows.scatter(&map, &*other)?;
        drop(other);
        rows.scatter(&map, backend)?;
        backend.synchronize()?;
    }
    Ok(())
}

#[test]
fn an_event_orders_what_another_stream_indexes_by() -> Result<()> {
    let (reference, cpu) = (ReferenceBackend::new(), CpuBackend::new(CpuOptions::default())?);
    for first in [&reference as &dyn Backend, &cpu] {
        let (second, third) = (first.fork()?, first.fork()?);
        let (second, third) = (&*second, &*third);
        let mut rows = Rows::new(first)?;
        let routes = DeviceRoutes::upload(first, &routes()?)?;
        let mut map = RoutingMap::with_capacity(first, TOKENS, K, EXPERTS)?;
        let other_stream = |result: Result<()>| match result {
            Err(Error::OtherStream { .. }) => {}
            other => panic!("{other:?}"),
        };
        let early = first.record()?;
        ops::MapRoutes::new(routes.view(), &mut map)?.launch(first)?;
        // An event stands for what was launched before it, and for nobody who did not wait.
        second.wait(&early)?;
        other_stream(rows.scatter(&map, second));
        let made = first.record()?;
        other_stream(rows.scatter(&map, second));
        second.wait(&made)?;
        rows.scatter(&map, second)?;
        // Now it is the second's; the first and the third come behind that, the third also behind
        // what the second was behind.
        other_stream(rows.scatter(&map, first));
        let read = second.record()?;
        third.wait(&read)?;
        ops::MapRoutes::new(routes.view(), &mut map)?.launch(third)?;
        first.wait(&read)?;
        other_stream(rows.scatter(&map, first));
        first.wait(&third.record()?)?;
        rows.scatter(&map, first)?;
    }
    let (one, other): (&dyn Backend, &dyn Backend) = (&reference, &cpu);
    let error = other.wait(&one.record()?).unwrap_err();
    assert!(matches!(error, Error::WrongDevice { .. }), "{error}");
    Ok(())
}

#[test]
fn an_event_hides_no_failure() -> Result<()> {
    let (broken, good) = (Broken::new(Fault::LateMap), ReferenceBackend::new());
    let (backend, good): (&dyn Backend, &dyn Backend) = (&broken, &good);
    let (routes, mut rows) = (DeviceRoutes::upload(backend, &routes()?)?, Rows::new(backend)?);
    let mut map = RoutingMap::with_capacity(backend, TOKENS, K, EXPERTS)?;
    let early = backend.record()?;
    ops::MapRoutes::new(routes.view(), &mut map)?.launch(backend)?;
    // The failure is said by `record`, and the map is not there for those who wait either.
    backend.record().unwrap_err();
    good.wait(&early)?;
    good.wait(&backend.record()?)?;
    let error = rows.scatter(&map, good).unwrap_err();
    assert_eq!(error.to_string(), not_written("scatter: map"));
    Ok(())
}
