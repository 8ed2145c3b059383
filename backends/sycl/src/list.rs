//! Which devices there are, and their order.

use strata_core::backend::{Backend as _, BackendKind, DeviceId, DeviceInfo};
use strata_core::{Error, Result};
use strata_kernels_sycl::{Dot, NUMERICS};
use sycl_bindgen::{Backend, Device, Kind, Options, Runtime, Settings, Variable, variables};

use crate::error::{device, unavailable};
use crate::{SyclBackend, form};

/// The runtime, loaded on first use.
pub(crate) fn load() -> Result<&'static Runtime> {
    Runtime::load(Options::default()).map_err(unavailable)
}

/// What the SYCL runtime and its drivers want to find in the environment, of the
/// variables that are not set; none without a runtime. The backend sets none of
/// them: a program does that before it starts a thread, or whoever starts it.
pub fn environment() -> Vec<Variable> {
    let Ok(found) = sycl_bindgen::found() else { return Vec::new() };
    // The CPU form has a vector in each work-item, and a single work-item in each work-group.
    let cpu_vectorizer = std::env::var_os("STRATA_SYCL_SUB_GROUP").is_some();
    variables(&found, Settings { cpu_vectorizer, ..Settings::default() })
}

/// The devices this backend can use, in the order of their indices.
pub(crate) fn usable(runtime: &Runtime) -> Result<Vec<Device>> {
    let all = runtime.devices().map_err(|e| device(&"sycl", "listing devices", e))?;
    let mut usable = pick(all);
    if usable.is_empty() {
        let unset = environment();
        let cpu = unset.iter().find(|v| v.name == "OCL_ICD_FILENAMES").map_or_else(
            || "a CPU the OpenCL device of the package intel-opencl-rt".to_owned(),
            |v| format!("a CPU that the program is started with {v}"),
        );
        return Err(unavailable(format!(
            "{} lists no device that takes kernels from source and has device memory; an Intel GPU \
             needs its Level Zero driver, {cpu}",
            runtime.found().library.display()
        )));
    }
    // A driver may list devices in another order tomorrow; ours depends on what they are.
    usable.sort_by_key(|d| (rank(d.kind), d.index));
    Ok(usable)
}

/// Leaves out devices that cannot run the kernels, and the second face of a
/// GPU that both Level Zero and OpenCL show.
fn pick(all: Vec<Device>) -> Vec<Device> {
    let level_zero: Vec<String> =
        all.iter().filter(|d| d.backend == Backend::LevelZero).map(|d| d.name.clone()).collect();
    let twin = |d: &Device| d.backend == Backend::OpenCl && level_zero.contains(&d.name);
    all.into_iter()
        .filter(|d| d.aspects.source && d.aspects.usm_device && d.aspects.profiling && !twin(d))
        .collect()
}

const fn rank(kind: Kind) -> u32 {
    match kind {
        Kind::Gpu => 0,
        Kind::Other => 1,
        Kind::Cpu => 2,
    }
}

/// Core's description of device `index`.
pub(crate) fn describe(index: u32, device: &Device) -> Result<DeviceInfo> {
    let form = form::pick(device)?;
    let id = DeviceId { kind: BackendKind::Sycl, index };
    let mut info = DeviceInfo::new(id, device.name.clone());
    info.arch = form::name(device, &form, None);
    info.driver =
        format!("{} {}, kernels with {}", device.platform, device.driver, NUMERICS.join(" "));
    info.units = device.compute_units;
    info.wave = if form.lanes > 1 { 1 } else { form.sub_group };
    info.host_memory = device.kind == Kind::Cpu;
    Ok(info)
}

/// All devices, GPUs first, CPUs last. Those with matrix units are opened:
/// whether they can be used is known only then, and their `arch` says it.
///
/// # Errors
/// [`Error::Unavailable`] without a runtime or a usable device.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let usable = usable(load()?)?;
    let info = |(index, device)| {
        if form::pick(device)?.dot != Dot::JointMatrix {
            return describe(index, device);
        }
        match SyclBackend::open(index) {
            Ok(backend) => Ok(backend.device().clone()),
            Err(e) => {
                let mut info = describe(index, device)?;
                info.arch = format!("{} (refused: {e})", info.arch);
                Ok(info)
            }
        }
    };
    (0..).zip(&usable).map(info).collect()
}

/// The device that `auto` should take: the first GPU.
///
/// # Errors
/// [`Error::Unavailable`] where there is none: the CPU backend serves a CPU better.
pub fn best() -> Result<u32> {
    let usable = usable(load()?)?;
    match usable.first() {
        Some(first) if first.kind != Kind::Cpu => Ok(0),
        _ => Err(unavailable(
            "its only devices are CPUs, which the cpu backend serves; name sycl:0 to use one",
        )),
    }
}

/// The runtime in use and what kernels are compiled with, for people.
///
/// # Errors
/// [`Error::Unavailable`] without a runtime.
pub fn runtime() -> Result<String> {
    let found = load()?.found();
    Ok(format!(
        "{} ({}), kernels compiled with {}",
        found.library.display(),
        found.origin,
        NUMERICS.join(" ")
    ))
}

/// The runtime's device behind `index`.
pub(crate) fn by_index(runtime: &Runtime, index: u32) -> Result<Device> {
    let mut usable = usable(runtime)?;
    let count = usable.len();
    match usable.get(index as usize) {
        Some(_) => Ok(usable.swap_remove(index as usize)),
        None => {
            Err(Error::invalid("sycl device", index, format!("0..{count}: {}", names(&usable))))
        }
    }
}

fn names(devices: &[Device]) -> String {
    devices.iter().map(|d| d.name.as_str()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use sycl_bindgen::Aspects;

    pub(crate) fn device(index: u32, name: &str, kind: Kind, backend: Backend) -> Device {
        Device {
            index,
            name: name.into(),
            vendor: String::new(),
            platform: String::new(),
            driver: String::new(),
            kind,
            backend,
            aspects: Aspects {
                source: true,
                usm_device: true,
                profiling: true,
                ..Aspects::default()
            },
            compute_units: 1,
            max_work_group: 1024,
            max_work_items: [1024; 3],
            local_memory: 65536,
            global_memory: 1 << 30,
            max_allocation: 1 << 29,
            sub_group_sizes: vec![16],
        }
    }

    #[test]
    fn a_gpu_is_listed_once_and_what_cannot_run_is_not() {
        let mut old = device(3, "old", Kind::Gpu, Backend::OpenCl);
        old.aspects.source = false;
        let all = vec![
            device(0, "cpu", Kind::Cpu, Backend::OpenCl),
            device(1, "arc", Kind::Gpu, Backend::OpenCl),
            device(2, "arc", Kind::Gpu, Backend::LevelZero),
            old,
        ];
        let left: Vec<u32> = pick(all).iter().map(|d| d.index).collect();
        assert_eq!(left, [0, 2]);
        assert!(rank(Kind::Gpu) < rank(Kind::Cpu));
    }
}
