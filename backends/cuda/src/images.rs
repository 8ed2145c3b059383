//! Which devices the images in this binary run on.

use strata_core::backend::{BackendKind, DeviceInfo};
use strata_core::{Error, Result};
use strata_kernels_cuda::archs;

/// Major and minor of a device's architecture.
type Capability = (u32, u32);

/// The oldest architecture the kernels are written for: it has the byte dot
/// product and the byte permutation they use.
const OLDEST: Capability = (7, 5);

/// Whether one of the images runs on a device.
///
/// # Errors
/// [`Error::Unavailable`] naming the device's architecture and those built.
pub(crate) fn check(info: &DeviceInfo) -> Result<()> {
    let device = info.arch.strip_prefix("sm_").and_then(capability).unwrap_or_default();
    if archs().iter().any(|arch| runs_on(arch, device)) {
        return Ok(());
    }
    let what_to_do = match device < OLDEST {
        true => format!("the oldest that is supported is sm_{}{}", OLDEST.0, OLDEST.1),
        false => format!("build with STRATA_CUDA_ARCHS={}{}", device.0, device.1),
    };
    Err(Error::Unavailable {
        kind: BackendKind::Cuda,
        reason: format!(
            "{} ({}) is of architecture {}, the kernels in this binary are compiled for {}; {what_to_do}",
            info.id,
            info.name,
            info.arch,
            archs().join(", "),
        ),
    })
}

/// Whether code for `arch`, as `sm_90a` or `compute_80`, runs on a device.
fn runs_on(arch: &str, device: Capability) -> bool {
    let (ptx, number) = match (arch.strip_prefix("sm_"), arch.strip_prefix("compute_")) {
        (Some(number), _) => (false, number),
        (_, Some(number)) => (true, number),
        _ => return false,
    };
    let digits = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let Some(code) = capability(digits) else { return false };
    match (&number[digits.len()..], ptx) {
        // Code with an architecture's own instructions runs there alone, its PTX too.
        ("a", _) => code == device,
        // With a family's, on its later members.
        ("f", _) | ("", false) => code.0 == device.0 && code.1 <= device.1,
        ("", true) => code <= device,
        _ => false,
    }
}

/// `90` as 9.0.
fn capability(digits: &str) -> Option<Capability> {
    digits.parse().ok().map(|code: u32| (code / 10, code % 10))
}

#[cfg(test)]
mod tests {
    use super::*;
    use strata_core::backend::DeviceId;

    #[test]
    fn code_runs_where_the_vendor_says() {
        let cases = [
            ("sm_75", (7, 5), true),
            ("sm_75", (8, 0), false),
            ("sm_80", (8, 6), true),
            ("sm_86", (8, 0), false),
            ("sm_90a", (9, 0), true),
            ("sm_90a", (10, 0), false),
            ("sm_100f", (10, 3), true),
            ("sm_100f", (12, 0), false),
            ("sm_120", (12, 1), true),
            ("compute_80", (7, 5), false),
            ("compute_80", (9, 0), true),
            ("compute_80", (12, 0), true),
            ("compute_90a", (10, 0), false),
            ("compute_90a", (9, 0), true),
            ("gfx1100", (11, 0), false),
            ("sm_", (7, 5), false),
        ];
        for (arch, device, runs) in cases {
            assert_eq!(runs_on(arch, device), runs, "{arch} on {device:?}");
        }
    }

    #[test]
    fn a_device_without_an_image_is_told_both_architectures() {
        let id = DeviceId { kind: BackendKind::Cuda, index: 1 };
        let mut info = DeviceInfo::new(id, "a small card");
        info.arch = "sm_61".into();
        let text = check(&info).unwrap_err().to_string();
        for part in ["cuda:1 (a small card)", "sm_61", "sm_75", archs()[0]] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
