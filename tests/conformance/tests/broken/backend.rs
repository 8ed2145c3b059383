//! A backend with one fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytemuck::Pod;
use strata_conformance::ReferenceBackend;
use strata_core::backend::{
    Backend, Checked, DeviceInfo, HostBytes, Mark, Memory, MemoryInfo, Mmq, MoeOps, Quantize, Raw,
    RawMut, Scatter, SliceMut, StreamState, ops,
};
use strata_core::{Error, Result, WeightType};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
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
    /// The map fails on the device, and the next call of its stream says so, once.
    LateMap,
}

/// The reference with a fault.
pub struct Broken {
    inner: Box<dyn Backend>,
    fault: Fault,
    products: Arc<AtomicUsize>,
    /// Whether something has failed that no call has said yet.
    unsaid: AtomicBool,
}

impl Broken {
    /// A backend of this fault.
    pub fn new(fault: Fault) -> Self {
        let products = Arc::new(AtomicUsize::new(0));
        Self::around(Box::new(ReferenceBackend::new()), fault, products)
    }

    fn around(inner: Box<dyn Backend>, fault: Fault, products: Arc<AtomicUsize>) -> Self {
        Self { inner, fault, products, unsaid: AtomicBool::new(false) }
    }

    /// What every call comes upon that waits inside.
    fn say(&self, call: &'static str) -> Result<()> {
        match self.unsaid.swap(false, Ordering::Relaxed) {
            true => Err(failed(call)),
            false => Ok(()),
        }
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
        Ok(Box::new(Self::around(inner, fault, products)))
    }
    fn alloc_raw(&self, bytes: usize) -> Result<Box<dyn Memory>> {
        self.inner.alloc_raw(bytes)
    }
    fn import_raw(&self, host: HostBytes) -> Result<Box<dyn Memory>> {
        self.say("import")?;
        self.inner.import_raw(host)
    }
    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()> {
        self.say("upload")?;
        self.inner.upload_raw(dst, src)
    }
    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()> {
        self.say("download")?;
        self.inner.download_raw(src, dst)
    }
    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()> {
        self.say("fill")?;
        self.inner.fill_raw(dst, byte)
    }
    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()> {
        self.say("copy")?;
        match self.fault {
            Fault::NoCopy => Ok(()),
            _ => self.inner.copy_raw(dst, src),
        }
    }
    fn synchronize_raw(&self) -> Result<()> {
        self.say("synchronize")?;
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
        self.say("quantize")?;
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
        self.say("scatter")?;
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
        self.say("product")?;
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
        self.say("router")?;
        self.inner.router_scores(op)?;
        match self.fault {
            Fault::RouterScores => self.flip_matrix(op.out()),
            _ => Ok(()),
        }
    }
    fn top_k(&self, op: &mut Checked<ops::TopK<'_>>) -> Result<()> {
        self.say("top-k")?;
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
        self.say("map")?;
        if self.fault == Fault::LateMap {
            self.unsaid.store(true, Ordering::Relaxed);
            return Ok(());
        }
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
        self.say("swiglu")?;
        self.inner.swiglu(op)?;
        match self.fault {
            Fault::SwiGlu => self.flip_matrix(op.out()),
            _ => Ok(()),
        }
    }
    fn swiglu_quantize(&self, op: &mut Checked<ops::SwiGluQuantize<'_>>) -> Result<()> {
        self.say("swiglu + quantize")?;
        self.inner.swiglu_quantize(op)?;
        match self.fault {
            Fault::SwiGluQuantize => self.flip(op.out().data()),
            _ => Ok(()),
        }
    }
    fn combine(&self, op: &mut Checked<ops::Combine<'_>>) -> Result<()> {
        self.say("combine")?;
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
