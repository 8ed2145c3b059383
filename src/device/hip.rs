//! AMD GPUs.

use strata_hip::{HipBackend, HipOptions, best, devices};

use super::{OpenOptions, Runs};
use crate::Result;
use crate::backend::{Backend, BackendKind};

pub(super) const RUNS: Runs = Runs { devices, best, open };

fn open(index: u32, _: &OpenOptions) -> Result<Box<dyn Backend>> {
    Ok(Box::new(HipBackend::new(index, HipOptions::from_env(BackendKind::Hip)?)?))
}
