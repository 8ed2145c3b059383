//! Which devices the images in this binary run on.

use strata_core::backend::{BackendKind, DeviceInfo};
use strata_core::{Error, Result};
use strata_kernels_hip::{archs, wave};

/// Whether there are kernels for a device, with its wave.
///
/// # Errors
/// [`Error::Unavailable`] naming the device's architecture and those built.
pub(crate) fn check(info: &DeviceInfo) -> Result<()> {
    let DeviceInfo { id, name, arch, wave: lanes, .. } = info;
    let built = archs();
    let unavailable = |reason| Err(Error::Unavailable { kind: BackendKind::Hip, reason });
    if !built.contains(&arch.as_str()) {
        let advice = match wave(arch) {
            Some(_) => format!("build with STRATA_HIP_ARCHS={arch}"),
            None => "the kernels do not compile for it".to_owned(),
        };
        return unavailable(format!(
            "{id} ({name}) is {arch}, and this binary has kernels for {}: {advice}",
            built.join(", ")
        ));
    }
    match wave(arch) {
        Some(expected) if expected == *lanes => Ok(()),
        expected => unavailable(format!(
            "{id} ({name}): given waves of {lanes} lanes, expected {} on {arch}",
            expected.unwrap_or(0)
        )),
    }
}
