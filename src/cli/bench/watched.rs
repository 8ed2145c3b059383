//! A backend that says what was launched through it: how often, how long, and what it had to move.

use std::cell::RefCell;
use std::time::Duration;

use strata::Result;
use strata::backend::ops::{self, Cost};
use strata::backend::{Backend, Checked, Mmq, ModelOps, MoeOps, Quantize, Scatter};

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
    strata_core::forward_backend!(
        device memory scratch stream fork alloc_raw import_raw upload_raw download_raw fill_raw
        copy_raw synchronize_raw record_raw wait_raw mark elapsed
    );
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
macro_rules! operations {
    ($($trait:ident { $($method:ident($op:ident) $name:literal)* })*) => {$(
        impl $trait for Watched {
            strata_core::forward_backend!(of $trait);
            $(fn $method(&self, op: &mut Checked<ops::$op<'_>>) -> Result<()> {
                let (name, cost) = (called!($method, op, $name), op.cost());
                self.launch(name, cost, || self.inner.$method(op))
            })*
        }
    )*};
}
strata_core::for_each_operation!(operations);
