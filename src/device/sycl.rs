//! Intel GPUs and OpenCL CPUs.

use strata_sycl::{SyclBackend, best, devices};

use super::{OpenOptions, Runs};
use crate::Result;
use crate::backend::Backend;

pub(super) const RUNS: Runs = Runs { devices, best, open };

fn open(index: u32, _: &OpenOptions) -> Result<Box<dyn Backend>> {
    Ok(Box::new(SyclBackend::open(index)?))
}

/// Name and value of what the runtime wants to find in the environment.
pub(super) fn environment() -> Vec<(&'static str, std::ffi::OsString)> {
    strata_sycl::environment().into_iter().map(|v| (v.name, v.value)).collect()
}
