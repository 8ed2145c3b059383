//! A suite is worth what it can catch: backends with one fault each, and the
//! cases that must find it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytemuck::Pod;
use strata_conformance::output::Mismatch;
use strata_conformance::{Difference, ReferenceBackend, Selection, run};
use strata_core::backend::{
    Backend, Checked, DeviceInfo, DeviceRoutes, HostBytes, Mark, Memory, MemoryInfo, Mmq, MoeOps,
    Quantize, Raw, RawMut, RoutingMap, Scatter, SliceMut, StreamState, ops,
};
use strata_core::routing::Routes;
use strata_core::{Error, Layout, Result, WeightType};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// One bit of an output is flipped.
    Quantize,
    Gather,
    Scatter,
    Product,
    Indexed,
    RouterScores,
    TopKIds,
    TopKWeights,
    Slot,
    Src,
    Bounds,
    SwiGlu,
    SwiGluQuantize,
    Combine,
    SharedCombine,
    /// Nothing is launched.
    NoProduct,
    /// Every token's report is lost.
    NoReport,
    /// A product writes between its rows.
    ProductGap,
    /// Every 700th product is wrong.
    RareProduct,
    /// A product is right when it is alone, and wrong in its fifth row and up.
    LateRows,
    /// A product fails, or panics.
    Error,
    Panic,
    NoCopy,
    /// Something had failed on the device when it is waited for.
    Synchronize,
    /// The map fails behind its first launch.
    NoMap,
}

struct Broken {
    inner: Box<dyn Backend>,
    fault: Fault,
    products: Arc<AtomicUsize>,
}

impl Broken {
    fn new(fault: Fault) -> Self {
        let products = Arc::new(AtomicUsize::new(0));
        Self { inner: Box::new(ReferenceBackend::new()), fault, products }
    }

    fn flip<T: Pod>(&self, mut data: SliceMut<'_, T>) -> Result<()> {
        let mut values = self.inner.download(data.as_slice())?;
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut values);
        // Not in the middle: of a short row that is padding, which nobody reads.
        let quarter = bytes.len() / 4;
        if let Some(byte) = bytes.get_mut(quarter) {
            *byte ^= 0x40;
        }
        self.inner.upload(data.reborrow(), &values)
    }

    /// The middle value of the middle row.
    fn flip_matrix(&self, m: &mut ops::MatrixMut<'_>) -> Result<()> {
        if m.rows() * m.cols() == 0 {
            return Ok(());
        }
        let at = m.rows() / 2 * m.stride() + m.cols() / 2;
        self.flip(m.data().slice(at..at + 1)?)
    }
}

// SAFETY: all of it is the reference's, which checks every index; what the faults write into maps and
// routes is a row, token or expert that exists.
unsafe impl Backend for Broken {
    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }
    fn memory(&self) -> Result<MemoryInfo> {
        self.inner.memory()
    }
    fn stream(&self) -> &StreamState {
        self.inner.stream()
    }
    fn fork(&self) -> Result<Box<dyn Backend>> {
        let (inner, fault, products) = (self.inner.fork()?, self.fault, self.products.clone());
        Ok(Box::new(Self { inner, fault, products }))
    }
    fn alloc_raw(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.inner.alloc_raw(bytes)
    }
    fn import_raw(&self, host: HostBytes) -> Result<Box<dyn Memory>> {
        self.inner.import_raw(host)
    }
    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()> {
        self.inner.upload_raw(dst, src)
    }
    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()> {
        self.inner.download_raw(src, dst)
    }
    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()> {
        self.inner.fill_raw(dst, byte)
    }
    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()> {
        match self.fault {
            Fault::NoCopy => Ok(()),
            _ => self.inner.copy_raw(dst, src),
        }
    }
    fn synchronize_raw(&self) -> Result<()> {
        self.inner.synchronize_raw()?;
        match self.fault {
            Fault::Synchronize => Err(failed("synchronize")),
            _ => Ok(()),
        }
    }
    fn mark(&self) -> Result<Box<dyn Mark>> {
        self.inner.mark()
    }
    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        self.inner.elapsed(from, to)
    }
}

impl Quantize for Broken {
    fn quantize(&self, op: &mut Checked<ops::QuantizeRows<'_>>) -> Result<()> {
        self.inner.quantize(op)?;
        if self.fault == Fault::NoReport
            && let Some(to) = op.report_to()
        {
            self.inner.fill(to.word(), 0xff)?;
        }
        match (self.fault, op.src()) {
            (Fault::Quantize, None) | (Fault::Gather, Some(_)) => self.flip(op.out().data()),
            _ => Ok(()),
        }
    }
}

impl Scatter for Broken {
    fn quantize_scatter(&self, op: &mut Checked<ops::QuantizeScatter<'_>>) -> Result<()> {
        self.inner.quantize_scatter(op)?;
        match self.fault {
            Fault::Scatter => self.flip(op.out().data()),
            _ => Ok(()),
        }
    }
}

impl Mmq for Broken {
    fn supports(&self, ty: WeightType) -> bool {
        self.inner.supports(ty)
    }
    fn multiply(&self, op: &mut Checked<ops::Product<'_>>) -> Result<()> {
        let count = self.products.fetch_add(1, Ordering::Relaxed) + 1;
        match self.fault {
            Fault::NoProduct => return Ok(()),
            Fault::Error => return Err(Error::invalid("product", "this one", "another")),
            Fault::Panic => panic!("a product that panics"),
            _ => {}
        }
        self.inner.multiply(op)?;
        let indexed = matches!(op.rows(), ops::Rows::Indexed(_));
        match self.fault {
            Fault::Product => self.flip_matrix(op.dst()),
            Fault::Indexed if indexed => self.flip_matrix(op.dst()),
            Fault::RareProduct if count.is_multiple_of(700) => self.flip_matrix(op.dst()),
            Fault::LateRows if op.dst().rows() > 4 => self.flip_matrix(op.dst()),
            Fault::ProductGap if op.dst().stride() > op.dst().cols() && op.dst().rows() > 0 => {
                let at = op.dst().cols();
                self.flip(op.dst().data().slice(at..at + 1)?)
            }
            _ => Ok(()),
        }
    }
}

impl MoeOps for Broken {
    fn router_scores(&self, op: &mut Checked<ops::RouterScores<'_>>) -> Result<()> {
        self.inner.router_scores(op)?;
        match self.fault {
            Fault::RouterScores => self.flip_matrix(op.out()),
            _ => Ok(()),
        }
    }
    fn top_k(&self, op: &mut Checked<ops::TopK<'_>>) -> Result<()> {
        self.inner.top_k(op)?;
        let (rows, k) = (op.scores().rows(), op.k());
        let (ids, weights) = op.out();
        match self.fault {
            // An id that exists is written in place of another's.
            Fault::TopKIds if rows > 0 => self.inner.fill(ids.slice(..1)?, 0),
            Fault::TopKWeights => self.flip(weights.slice(..rows * k)?),
            _ => Ok(()),
        }
    }
    fn map_routes(&self, op: &mut Checked<ops::MapRoutes<'_>>) -> Result<()> {
        self.inner.map_routes(op)?;
        let (slot, src, bounds) = op.out();
        match self.fault {
            Fault::NoMap => Err(failed("map")),
            Fault::Slot if !slot.is_empty() => self.inner.fill(slot.slice(..1)?, 0),
            Fault::Src if !src.is_empty() => self.inner.fill(src.slice(..1)?, 0),
            Fault::Bounds => self.inner.fill(bounds.slice(1..2)?, 0),
            _ => Ok(()),
        }
    }
    fn swiglu(&self, op: &mut Checked<ops::SwiGlu<'_>>) -> Result<()> {
        self.inner.swiglu(op)?;
        match self.fault {
            Fault::SwiGlu => self.flip_matrix(op.out()),
            _ => Ok(()),
        }
    }
    fn swiglu_quantize(&self, op: &mut Checked<ops::SwiGluQuantize<'_>>) -> Result<()> {
        self.inner.swiglu_quantize(op)?;
        match self.fault {
            Fault::SwiGluQuantize => self.flip(op.out().data()),
            _ => Ok(()),
        }
    }
    fn combine(&self, op: &mut Checked<ops::Combine<'_>>) -> Result<()> {
        self.inner.combine(op)?;
        match self.fault {
            Fault::Combine => self.flip_matrix(op.out()),
            Fault::SharedCombine if op.shared().is_some() => self.flip_matrix(op.out()),
            _ => Ok(()),
        }
    }
}

fn failed(call: &'static str) -> Error {
    Error::Device { device: "broken:0".into(), call, detail: "a fault".into() }
}

/// Runs the cases of one text on a backend of one fault.
fn differences(fault: Fault, text: &str) -> (usize, Vec<Difference>) {
    let summary = run(&Broken::new(fault), &Selection::quick().matching(text), &mut ());
    assert!(summary.cases > 0, "no case is named {text}");
    (summary.cases, summary.differing)
}

#[test]
fn every_fault_is_caught() {
    // The fault, and cases that must see it; the same cases pass without it.
    let table = [
        (Fault::Quantize, "quantize/D4/identity/T=17/"),
        (Fault::Quantize, "golden/q8_1/DS4/edge"),
        (Fault::Gather, "quantize/D2S6/gather/E=16"),
        (Fault::Scatter, "quantize/DS4/scatter/E=16"),
        (Fault::Scatter, "prefill_mmq_scatter/q8_0,D4/E=512,k=10,random/T=7/"),
        (Fault::Product, "mmq/q4_K/dense/T=67"),
        (Fault::Product, "mmq/q8_0/experts/E=9"),
        (Fault::Indexed, "mmq/q2_K/indexed/E=9"),
        (Fault::Indexed, "prefill_mmq_scatter/q2_K,D2S6/E=512,k=10,random/T=7/"),
        (Fault::RouterScores, "router/E=65"),
        (Fault::TopKIds, "top-k/E=33"),
        (Fault::TopKWeights, "top-k/E=65"),
        (Fault::Slot, "map/E=255"),
        (Fault::Src, "map/E=7,"),
        (Fault::Bounds, "map/E=256,"),
        (Fault::SwiGlu, "swiglu/split/E=8,k=3"),
        (Fault::SwiGluQuantize, "swiglu-quantize/DS4/interleaved/E=8,k=3"),
        (Fault::SwiGluQuantize, "layer/mxfp4,mxfp4/"),
        (Fault::Combine, "combine/alone/E=16,k=3"),
        (Fault::SharedCombine, "combine/shared-gated/E=16,k=3"),
        (Fault::NoProduct, "mmq/q5_0/dense/T=67"),
        (Fault::NoReport, "quantize/D4/identity/T=11/cols=580/one-nan/checked"),
        (Fault::NoReport, "error=token-13-an-input-value-is-not-finite/"),
        (Fault::ProductGap, "row-gap"),
        (Fault::RareProduct, "state/runs=1000/mmq/q2_K"),
        (Fault::LateRows, "invariance/q8_0/"),
        (Fault::NoCopy, "state/copy/bytes=4097"),
        (Fault::Error, "mmq/q5_1/dense/T=67"),
        (Fault::Panic, "mmq/q5_1/dense/T=67"),
    ];
    for (fault, text) in table {
        let text = text.trim_end_matches("is-not-finite/");
        let (_, without) = differences(Fault::None, text);
        assert_eq!(without, [], "{text}, without a fault");
        let (cases, with) = differences(fault, text);
        assert!(!with.is_empty(), "{fault:?} in {text}: none of {cases} cases saw it");
    }
}

#[test]
fn a_difference_says_where() {
    let (_, found) = differences(Fault::Quantize, "quantize/D4/identity/T=5/cols=129/normal");
    let [difference] = &found[..] else { panic!("{found:?}") };
    // 4 blocks each of 5 rows: the fifth of 20 blocks begins at byte 720, behind 512 bytes of poison.
    let expected = "quantize/D4/identity/T=5/cols=129/normal/checked: q8_1 rows: 1 bytes differ, \
                    the first at byte 1232 (row 0, columns from 128, d[0]): ";
    assert!(difference.to_string().starts_with(expected), "{difference}");

    let (_, found) = differences(Fault::Product, "mmq/q8_0/dense/T=19/m=18,K=256,row-gap");
    let shown = found[0].to_string();
    assert!(shown.contains("row 9, column 9"), "{shown}");
    let Mismatch::Bytes { given, expected, differing, outside, float, .. } = &found[0].mismatch
    else {
        panic!("{shown}");
    };
    assert!(given.len() == 4 && given != expected && *differing == 1 && *outside == 0 && *float);

    let (_, found) = differences(Fault::ProductGap, "mmq/q8_0/dense/T=19/m=18,K=256,row-gap");
    let shown = found[0].to_string();
    assert!(shown.contains("(1 of them outside the output)"), "{shown}");
    assert!(shown.contains("outside: row 0 of 19, column 18 of 18"), "{shown}");
    assert!(shown.contains("expected a5 a5 a5 a5"), "{shown}");

    let (_, found) = differences(Fault::RareProduct, "state/runs=1000/mmq/q2_K");
    assert!(found[0].to_string().contains("run 700 of 1000: product: 1 bytes differ"));
    let (_, found) = differences(Fault::Error, "mmq/q5_1/dense/T=67");
    let words = "the backend failed: product: given this one, expected another";
    assert!(found[0].to_string().ends_with(words), "{}", found[0]);
    let (_, found) = differences(Fault::Panic, "mmq/q5_1/dense/T=67");
    assert!(found[0].to_string().ends_with("panicked: a product that panics"), "{}", found[0]);
}

#[test]
fn what_a_failed_stream_wrote_is_not_used() -> Result<()> {
    let broken = Broken::new(Fault::Synchronize);
    let backend: &dyn Backend = &broken;
    let routes = Routes::new(vec![0, 2, 1, 0], vec![0.5; 4], 2, 3)?;
    let on_device = DeviceRoutes::upload(backend, &routes)?;
    let mut map = RoutingMap::with_capacity(backend, 2, 2, 3)?;
    let x = backend.from_slice(&[1.0f32; 2 * 64])?;
    let mut out = backend.alloc::<u8>(strata_core::q8_1::bytes(4, 64)?)?;
    let mut scatter = |map: &RoutingMap| {
        let x = ops::Matrix::dense("x", &x, 2, 64)?;
        let out = ops::Q8RowsMut::new(&mut out, Layout::D4, 4, 64)?;
        ops::QuantizeScatter::new(x, map, out)?.launch(backend)
    };
    ops::MapRoutes::new(on_device.view(), &mut map)?.launch(backend)?;
    scatter(&map)?;
    backend.synchronize().unwrap_err();
    let words =
        |what| format!("{what}: what was to write it has failed, expected it to be made again");
    assert_eq!(scatter(&map).unwrap_err().to_string(), words("scatter: map"));
    let again = ops::MapRoutes::new(on_device.view(), &mut map)?.launch(backend);
    assert_eq!(again.unwrap_err().to_string(), words("map: routes"));
    let on_device = DeviceRoutes::upload(backend, &routes)?;
    ops::MapRoutes::new(on_device.view(), &mut map)?.launch(backend)?;
    scatter(&map)
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
