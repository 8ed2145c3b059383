//! The CPU: always there, one device.

use strata_cpu::{CpuBackend, CpuOptions};

use super::{OpenOptions, Runs};
use crate::backend::{Backend, DeviceInfo};
use crate::{Error, Result};

pub(super) const RUNS: Runs = Runs { devices, best: || Ok(0), open };

fn devices() -> Result<Vec<DeviceInfo>> {
    Ok(vec![CpuBackend::new(CpuOptions::default())?.device().clone()])
}

fn open(index: u32, options: &OpenOptions) -> Result<Box<dyn Backend>> {
    if index != 0 {
        return Err(Error::invalid("cpu device", index, "0, the only one"));
    }
    let options = CpuOptions { threads: options.threads, ..CpuOptions::default() };
    Ok(Box::new(CpuBackend::new(options)?))
}
