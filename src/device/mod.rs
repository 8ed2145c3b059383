//! Opening devices by name, and listing what there is.
//!
//! Which backends are compiled in is decided by features; which of them run is
//! found out when they are asked. One small file per backend says how.

mod cpu;

cfg_if::cfg_if! {
    if #[cfg(feature = "cuda")] {
        mod cuda;
        const CUDA: Option<Runs> = Some(cuda::RUNS);
    } else {
        const CUDA: Option<Runs> = None;
    }
}
cfg_if::cfg_if! {
    if #[cfg(feature = "hip")] {
        mod hip;
        const HIP: Option<Runs> = Some(hip::RUNS);
    } else {
        const HIP: Option<Runs> = None;
    }
}
cfg_if::cfg_if! {
    if #[cfg(feature = "sycl")] {
        mod sycl;
        const SYCL: Option<Runs> = Some(sycl::RUNS);
    } else {
        const SYCL: Option<Runs> = None;
    }
}

use std::str::FromStr;

use crate::backend::{Backend, BackendKind, DeviceInfo};
use crate::{Error, Result};

/// Which device: `auto`, `cpu`, `cuda`, `cuda:1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeviceName {
    /// The first GPU that works, else the CPU.
    Auto,
    /// A device of one kind, by its index.
    Index(BackendKind, u32),
}

impl FromStr for DeviceName {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        if s == "auto" {
            return Ok(Self::Auto);
        }
        let (name, index) = s.split_once(':').unwrap_or((s, "0"));
        let kind = BackendKind::ALL.iter().copied().find(|kind| kind.name() == name);
        match (kind, index.parse()) {
            (Some(kind), Ok(index)) => Ok(Self::Index(kind, index)),
            _ => Err(Error::invalid(
                "backend",
                s,
                "auto, or cpu, cuda, hip or sycl, with an index as in cuda:0",
            )),
        }
    }
}

impl std::fmt::Display for DeviceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Index(kind, index) => write!(f, "{kind}:{index}"),
        }
    }
}

/// How a device is opened.
#[derive(Debug, Clone, Default)]
pub struct OpenOptions {
    /// Threads of a CPU; as many as the machine has where it is not given.
    pub threads: Option<usize>,
}

/// One backend as [`Device::list`] found it.
#[derive(Debug)]
pub struct BackendState {
    /// Which backend.
    pub kind: BackendKind,
    /// Whether this binary has it.
    pub built: bool,
    /// Its devices, or why there are none.
    pub devices: Result<Vec<DeviceInfo>>,
}

/// A backend that `auto` passed over.
#[derive(Debug)]
pub struct Skipped {
    /// Which backend.
    pub kind: BackendKind,
    /// Why.
    pub reason: Error,
}

/// What a backend's file here offers.
#[derive(Clone, Copy)]
struct Runs {
    /// All its devices; an error where there is no driver, say.
    devices: fn() -> Result<Vec<DeviceInfo>>,
    /// The index of the device that `auto` should take; an error where none should be.
    best: fn() -> Result<u32>,
    /// Opens one.
    open: fn(u32, &OpenOptions) -> Result<Box<dyn Backend>>,
}

/// What this binary has of each backend, in the order `auto` tries them.
const REGISTRY: [(BackendKind, Option<Runs>); 4] = [
    (BackendKind::Cuda, CUDA),
    (BackendKind::Hip, HIP),
    (BackendKind::Sycl, SYCL),
    (BackendKind::Cpu, Some(cpu::RUNS)),
];

fn runs(kind: BackendKind) -> Result<Runs> {
    REGISTRY.into_iter().find(|entry| entry.0 == kind).and_then(|entry| entry.1).ok_or_else(|| {
        Error::Unavailable {
            kind,
            reason: format!("this binary was built without it; build with --features {kind}"),
        }
    })
}

/// Variables, by name and value, that drivers want to find in the environment and that are not
/// set: those of the SYCL runtime, where this binary has that backend and the machine the runtime.
///
/// No backend sets one: other threads may be reading them. A program that wants the OpenCL CPU
/// device, or compiled SYCL kernels kept on disk, sets these as the first thing that it does.
pub fn environment() -> Vec<(&'static str, std::ffi::OsString)> {
    #[cfg(feature = "sycl")]
    return sycl::environment();
    #[cfg(not(feature = "sycl"))]
    Vec::new()
}

/// The devices of this machine.
pub struct Device;

impl Device {
    /// Opens a device by its name, as `cpu`, `cuda:0` or `auto`.
    ///
    /// What `auto` passes over it says through `tracing`.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a name that is none, [`Error::Unavailable`] where
    /// the backend is not in this binary or cannot run here, and those of the backend.
    pub fn open(name: &str) -> Result<Box<dyn Backend>> {
        let (backend, skipped) = Self::open_with(name.parse()?, &OpenOptions::default())?;
        for Skipped { kind, reason } in skipped {
            tracing::warn!("auto: {kind} is passed over: {reason}");
        }
        Ok(backend)
    }

    /// Opens a device, and says what `auto` passed over.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(
        name: DeviceName,
        options: &OpenOptions,
    ) -> Result<(Box<dyn Backend>, Vec<Skipped>)> {
        let DeviceName::Index(kind, index) = name else {
            return Self::open_auto(options);
        };
        Ok(((runs(kind)?.open)(index, options)?, Vec::new()))
    }

    fn open_auto(options: &OpenOptions) -> Result<(Box<dyn Backend>, Vec<Skipped>)> {
        let mut skipped = Vec::new();
        for (kind, runs) in REGISTRY {
            // A backend that was left out on purpose is nothing to talk about.
            let Some(runs) = runs else { continue };
            match (runs.best)().and_then(|index| (runs.open)(index, options)) {
                Ok(backend) => return Ok((backend, skipped)),
                Err(error) if kind == BackendKind::Cpu => return Err(error),
                Err(reason) => skipped.push(Skipped { kind, reason }),
            }
        }
        runs(BackendKind::Cpu).and_then(|cpu| Ok(((cpu.open)(0, options)?, skipped)))
    }

    /// Every backend, whether this binary has it, and its devices.
    pub fn list() -> Vec<BackendState> {
        BackendKind::ALL
            .iter()
            .copied()
            .map(|kind| {
                let runs = runs(kind);
                let built = runs.is_ok();
                BackendState { kind, built, devices: runs.and_then(|runs| (runs.devices)()) }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse() {
        let index = |s: &str| s.parse::<DeviceName>().unwrap();
        assert_eq!(index("auto"), DeviceName::Auto);
        assert_eq!(index("cpu"), DeviceName::Index(BackendKind::Cpu, 0));
        assert_eq!(index("cuda:3"), DeviceName::Index(BackendKind::Cuda, 3));
        for wrong in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CPU", "auto:0", "cpu:4294967296"] {
            let error = wrong.parse::<DeviceName>().unwrap_err().to_string();
            assert!(error.starts_with(&format!("backend: given {wrong}, expected")), "{error}");
        }
    }

    #[test]
    fn the_cpu_opens_and_auto_opens_something() {
        assert_eq!(Device::open("cpu").unwrap().id().kind, BackendKind::Cpu);
        Device::open("auto").unwrap();
        let error = Device::open("cpu:1").err().unwrap().to_string();
        assert_eq!(error, "cpu device: given 1, expected 0, the only one");
    }

    #[test]
    fn every_backend_is_listed_once_with_a_reason_where_it_is_missing() {
        let states = Device::list();
        let kinds: Vec<_> = states.iter().map(|s| s.kind).collect();
        assert_eq!(kinds, BackendKind::ALL);
        for state in states.iter().filter(|s| !s.built) {
            let kind = state.kind;
            assert_eq!(
                state.devices.as_ref().unwrap_err().to_string(),
                format!(
                    "backend {kind} is not available: this binary was built without it; build with --features {kind}"
                )
            );
        }
    }
}
