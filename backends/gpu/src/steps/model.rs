//! The steps of a whole model: there are no kernels yet, and each says so.

use strata_core::backend::ModelOps;

use crate::backend::GpuBackend;
use crate::driver::Driver;

impl<D: Driver> ModelOps for GpuBackend<D> {}
