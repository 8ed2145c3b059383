//! The steps of a whole model: there are no kernels yet, and each says so.

use strata_core::backend::ModelOps;

use crate::SyclBackend;

impl ModelOps for SyclBackend {}
