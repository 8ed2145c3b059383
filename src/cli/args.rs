//! Arguments that several commands take.

use serde_json::{Value, json};
use strata::Device;
use strata::backend::{Backend, BackendKind, DeviceInfo};
use strata::device::{DeviceName, OpenOptions};

use super::{Failure, Outcome, note};

/// Where to run.
#[derive(clap::Args)]
pub struct DeviceArgs {
    /// Device: auto, cpu, cuda, hip or sycl, with an index as in cuda:1
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    backend: DeviceName,

    /// Threads of the CPU [default: one per core]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    threads: Option<u32>,
}

impl DeviceArgs {
    /// Opens the device, and says what `auto` passed over.
    pub fn open(&self) -> Outcome<Box<dyn Backend>> {
        if let (DeviceName::Index(kind, _), Some(_)) = (self.backend, self.threads)
            && kind != BackendKind::Cpu
        {
            return Err(Failure::Usage(format!("--threads is for the CPU; {kind} was asked for")));
        }
        let options = OpenOptions { threads: self.threads.map(|n| n as usize) };
        let (backend, skipped) = Device::open_with(self.backend, &options)?;
        for skipped in skipped {
            // The rest of a long reason is doctor's to tell.
            let reason = skipped.reason.to_string();
            note(&format!("auto: {}", reason.lines().next().unwrap_or_default()));
        }
        Ok(backend)
    }

    /// Which was asked for.
    pub fn name(&self) -> DeviceName {
        self.backend
    }
}

/// One device for a script.
pub fn device_json(device: &DeviceInfo) -> Value {
    json!({
        "id": device.id.to_string(),
        "name": device.name,
        "arch": device.arch,
        "driver": device.driver,
        "units": device.units,
        "wave": device.wave,
    })
}

/// One device for a reader.
pub fn device_text(device: &DeviceInfo) -> String {
    let units = match (device.id.kind, device.units) {
        (BackendKind::Cpu, 1) => "1 thread".to_owned(),
        (BackendKind::Cpu, n) => format!("{n} threads"),
        (_, n) => format!("{n} units of {} lanes", device.wave),
    };
    let driver = match device.driver.as_str() {
        "" => String::new(),
        driver => format!(", {driver}"),
    };
    format!("{} {} ({}, {units}{driver})", device.id, device.name, device.arch)
}

/// Fails where the host has not so much memory, before anything takes it.
pub fn host_room(bytes: Option<usize>) -> Outcome {
    Ok(strata::host_room(bytes.map_or(u64::MAX, |bytes| bytes as u64))?)
}

/// A positive count that fits the address space with room to spare.
pub fn count(s: &str) -> Result<usize, String> {
    match s.parse::<usize>() {
        Ok(n) if (1..=1 << 40).contains(&n) => Ok(n),
        _ => Err("expected a number of at least 1".to_owned()),
    }
}
