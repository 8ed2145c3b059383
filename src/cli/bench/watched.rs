//! A backend that says what was launched through it: how often, how long, and what it had to move.

use std::cell::RefCell;
use std::time::Duration;

use strata::backend::ops::{self, Cost};
use strata::backend::{
    Backend, Checked, DeviceInfo, HostBytes, Mark, Memory, MemoryInfo, Mmq, ModelOps, MoeOps,
    Quantize, Raw, RawEvent, RawMut, Scatter, StreamState,
};
use strata::{Result, WeightType};

/// All launches of one kind.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// The operation; of a product, its weights too.
    pub name: String,
    /// How many.
    pub launches: usize,
    /// How long, on the device's clock.
    pub time: Duration,
    /// What they must move and compute at least.
    pub cost: Cost,
}

/// Another backend, watched: each operation is waited for.
pub struct Watched {
    inner: Box<dyn Backend>,
    steps: RefCell<Vec<Step>>,
}

impl Watched {
    pub fn new(inner: Box<dyn Backend>) -> Self {
        Self { inner, steps: RefCell::default() }
    }

    /// What was launched, in the order of first launches.
    pub fn steps(self) -> Vec<Step> {
        self.steps.into_inner()
    }

    fn launch(&self, name: String, cost: Cost, run: impl FnOnce() -> Result<()>) -> Result<()> {
        let from = self.inner.mark()?;
        run()?;
        let to = self.inner.mark()?;
        let time = self.inner.elapsed(&*from, &*to)?;
        let mut steps = self.steps.borrow_mut();
        let at = match steps.iter().position(|step| step.name == name) {
            Some(at) => at,
            None => {
                steps.push(Step { name, ..Step::default() });
                steps.len() - 1
            }
        };
        steps[at].launches += 1;
        steps[at].time += time;
        steps[at].cost += cost;
        Ok(())
    }
}

// SAFETY: every method is the inner backend's, which is handed what was checked for it: the device
// and the stream are its own.
unsafe impl Backend for Watched {
    fn device(&self) -> &DeviceInfo {
        self.inner.device()
    }
    fn memory(&self) -> Result<MemoryInfo> {
        self.inner.memory()
    }
    fn scratch(&self) -> u64 {
        self.inner.scratch()
    }
    fn stream(&self) -> &StreamState {
        self.inner.stream()
    }
    fn fork(&self) -> Result<Box<dyn Backend>> {
        self.inner.fork()
    }
    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        self.inner.alloc_raw(bytes)
    }
    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
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
        self.inner.copy_raw(dst, src)
    }
    fn synchronize_raw(&self, asked: Checked<()>) -> Result<()> {
        self.inner.synchronize_raw(asked)
    }
    fn record_raw(&self, asked: Checked<()>) -> Result<Box<dyn RawEvent>> {
        self.inner.record_raw(asked)
    }
    fn wait_raw(&self, event: Checked<&dyn RawEvent>) -> Result<()> {
        self.inner.wait_raw(event)
    }
    fn mark(&self) -> Result<Box<dyn Mark>> {
        self.inner.mark()
    }
    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        self.inner.elapsed(from, to)
    }
}

/// What a launch is called in the table.
macro_rules! called {
    (multiply, $op:ident, $name:literal) => {{
        let weights = $op.weights();
        format!("{} {} {} x {}", $name, weights.ty(), weights.rows(), weights.cols())
    }};
    ($method:ident, $op:ident, $name:literal) => {
        $name.to_owned()
    };
}
macro_rules! others {
    (Mmq) => {
        fn supports(&self, ty: WeightType) -> bool {
            self.inner.supports(ty)
        }
    };
    ($trait:ident) => {};
}
macro_rules! operations {
    ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => {$(
        impl $trait for Watched {
            others!($trait);
            $(fn $method(&self, op: &mut Checked<ops::$op<'_>>) -> Result<()> {
                let (name, cost) = (called!($method, op, $name), op.cost());
                self.launch(name, cost, || self.inner.$method(op))
            })*
        }
    )*};
}
strata_core::for_each_operation!(operations);
