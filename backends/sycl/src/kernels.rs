//! Compiled kernels, a unit on its first use.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use strata_core::backend::DeviceInfo;
use strata_core::{Error, Result};
use strata_kernels_sycl::{Form, HEADERS_ONCE, NUMERICS, SOURCES, Unit, table};
use sycl_bindgen::{Bundle, Kernel, Queue, UsmBuffer};

use crate::error::device;

/// The kernels of one unit.
pub(crate) struct Built {
    bundle: Bundle,
    kernels: Mutex<HashMap<&'static str, Arc<Kernel>>>,
    /// The codebook of a weight type that has one.
    table: Option<UsmBuffer>,
}

impl Built {
    /// The kernel of this name.
    pub(crate) fn kernel(&self, info: &DeviceInfo, name: &'static str) -> Result<Arc<Kernel>> {
        let mut kernels = self.kernels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kernel) = kernels.get(name) {
            return Ok(Arc::clone(kernel));
        }
        let kernel = self.bundle.kernel(name).map_err(|e| device(&info.id, "kernel", e))?;
        let kernel = Arc::new(kernel);
        kernels.insert(name, Arc::clone(&kernel));
        Ok(kernel)
    }

    /// As [`kernel`](Self::kernel), for a device that is not open yet.
    pub(crate) fn raw_kernel(&self, name: &str) -> Result<Kernel, sycl_bindgen::Error> {
        self.bundle.kernel(name)
    }

    /// The codebook, or null.
    pub(crate) fn table(&self) -> *const core::ffi::c_void {
        self.table.as_ref().map_or(std::ptr::null(), |t| t.as_ptr().cast_const())
    }
}

/// The options that every unit is compiled with.
fn options(queue: &Queue) -> Vec<&'static str> {
    let mut options = NUMERICS.to_vec();
    let version = queue.runtime().found().soname.rsplit('.').next().and_then(|n| n.parse().ok());
    if version.is_some_and(|version: u32| version >= 9) {
        options.push(HEADERS_ONCE);
    }
    options
}

/// Compiles one unit.
pub(crate) fn build(info: &DeviceInfo, queue: &Queue, unit: Unit, form: &Form) -> Result<Built> {
    let start = Instant::now();
    let bundle =
        Bundle::build(queue, &unit.source(form), &SOURCES, &options(queue)).map_err(|e| {
            let detail = format!("{unit} with {form:?}: {e}");
            Error::Device { device: info.id.to_string(), call: "compiling kernels", detail }
        })?;
    tracing::debug!("{}: compiled {unit} in {:?} {}", info.id, start.elapsed(), bundle.log());
    let table = match unit {
        Unit::Mmq(ty) => table(ty),
        _ => None,
    };
    let table = table
        .map(|words| {
            let mut buffer = queue.alloc(4 * words.len() as u64)?;
            buffer.upload(0, bytemuck::cast_slice(&words))?;
            Ok(buffer)
        })
        .transpose()
        .map_err(|e| device(&info.id, "uploading a codebook", e))?;
    Ok(Built { bundle, kernels: Mutex::default(), table })
}

/// All units that were used.
#[derive(Default)]
pub(crate) struct Kernels {
    units: Mutex<HashMap<Unit, Arc<Built>>>,
}

impl Kernels {
    /// The kernels of a unit, compiled now where they were not before.
    pub(crate) fn get(
        &self,
        info: &DeviceInfo,
        queue: &Queue,
        unit: Unit,
        form: &Form,
    ) -> Result<Arc<Built>> {
        let mut units = self.units.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(built) = units.get(&unit) {
            return Ok(Arc::clone(built));
        }
        let built = Arc::new(build(info, queue, unit, form)?);
        units.insert(unit, Arc::clone(&built));
        Ok(built)
    }
}
