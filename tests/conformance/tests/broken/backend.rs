//! A backend with one fault.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bytemuck::Pod;
use strata_conformance::ReferenceBackend;
use strata_core::backend::{
    Backend, Checked, HostBytes, Memory, Mmq, ModelOps, MoeOps, Quantize, Raw, RawEvent, RawMut,
    Scatter, SliceMut, ops,
};
use strata_core::{Error, Result};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    None,
    /// One bit of an output is wrong: of the operation of this name, in this form (or any), and
    /// which of its outputs. Of indices, one is 0, as others must exist.
    Output(&'static str, &'static str, usize),
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
    strata_core::forward_backend!(device memory stream alloc_raw mark elapsed);

    fn fork(&self) -> Result<Box<dyn Backend>> {
        let (inner, fault, products) = (self.inner.fork()?, self.fault, self.products.clone());
        Ok(Box::new(Self::around(inner, fault, products)))
    }
    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
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
    fn record_raw(&self, asked: Checked<()>) -> Result<Box<dyn RawEvent>> {
        self.say("record")?;
        self.inner.record_raw(asked)
    }
    fn wait_raw(&self, event: Checked<&dyn RawEvent>) -> Result<()> {
        self.say("wait")?;
        self.inner.wait_raw(event)
    }
    fn synchronize_raw(&self, asked: Checked<()>) -> Result<()> {
        self.say("synchronize")?;
        self.inner.synchronize_raw(asked)?;
        match self.fault {
            Fault::Synchronize => Err(failed("synchronize")),
            _ => Ok(()),
        }
    }
}

impl Broken {
    /// Before an operation; whether it is launched at all.
    fn begin(&self, name: &'static str) -> Result<bool> {
        self.say(name)?;
        match (self.fault, name) {
            (Fault::NoProduct, "product") => Ok(false),
            (Fault::Error, "product") => Err(Error::invalid("product", "this one", "another")),
            (Fault::Panic, "product") => panic!("a product that panics"),
            (Fault::LateMap, "map") => {
                self.unsaid.store(true, Ordering::Relaxed);
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    /// Behind it.
    fn spoil(&self, name: &str, form: &str, outputs: Vec<ops::Output<'_>>) -> Result<()> {
        let product = name == "product";
        let count = match product {
            true => self.products.fetch_add(1, Ordering::Relaxed) + 1,
            false => 0,
        };
        for (i, output) in outputs.into_iter().enumerate() {
            match self.fault {
                Fault::NoMap if name == "map" => return Err(failed("map")),
                Fault::Output(op, of, at) if op == name && form.contains(of) && at == i => {
                    self.wrong(output)?;
                }
                Fault::RareProduct if product && count.is_multiple_of(700) => self.wrong(output)?,
                Fault::LateRows | Fault::ProductGap if product => {
                    let ops::Output::Values(mut dst) = output else { continue };
                    if self.fault == Fault::LateRows && dst.rows() > 4 {
                        self.flip_matrix(&mut dst)?;
                    } else if self.fault == Fault::ProductGap
                        && dst.stride() > dst.cols()
                        && dst.rows() > 0
                    {
                        let at = dst.cols();
                        self.flip(dst.data().slice(at..at + 1)?)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// One bit, or one index.
    fn wrong(&self, output: ops::Output<'_>) -> Result<()> {
        match output {
            ops::Output::Values(mut values) => self.flip_matrix(&mut values),
            ops::Output::Bytes(bytes) => self.flip(bytes),
            ops::Output::Q8(mut rows) => self.flip(rows.data()),
            ops::Output::Ids(ids) if !ids.is_empty() => self.inner.fill(ids.slice(..1)?, 0),
            // Of the bounds the first is 0 anyway.
            ops::Output::Map(map) if map.len() > 1 => self.inner.fill(map.slice(1..2)?, 0),
            ops::Output::Ids(_) | ops::Output::Map(_) => Ok(()),
        }
    }
}

/// Every operation is the reference's, and then one thing is wrong.
macro_rules! operations {
    ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => {$(
        impl $trait for Broken {
            strata_core::forward_backend!(of $trait);
            $(fn $method(&self, op: &mut Checked<ops::$op<'_>>) -> Result<()> {
                if !self.begin($name)? {
                    return Ok(());
                }
                self.inner.$method(op)?;
                if self.fault == Fault::NoReport
                    && let Some(word) = op.report_word()
                {
                    self.inner.fill(word, 0xff)?;
                }
                let form = op.form();
                self.spoil($name, form, op.outputs())
            })*
        }
    )*};
}
strata_core::for_each_operation!(operations);

fn failed(call: &'static str) -> Error {
    Error::Device { device: "broken:0".into(), call, detail: "a fault".into() }
}
