//! NVIDIA GPUs.

use strata_cuda::{CudaBackend, CudaOptions, best, devices};

use super::{OpenOptions, Runs};
use crate::Result;
use crate::backend::{Backend, BackendKind};

pub(super) const RUNS: Runs = Runs { devices, best, open };

fn open(index: u32, _: &OpenOptions) -> Result<Box<dyn Backend>> {
    Ok(Box::new(CudaBackend::new(index, CudaOptions::from_env(BackendKind::Cuda)?)?))
}
