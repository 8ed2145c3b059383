//! The form of the kernels on a device.

use strata_core::{Error, Result};
use strata_kernels_sycl::{Dot, Form};
use sycl_bindgen::{Device, Kind};

/// Work-items of a work-group of the product on a GPU, where the device allows.
const WORK_GROUP: u32 = 64;

/// Picks the form by what the device is, and by the variables that tests set.
pub(crate) fn pick(device: &Device) -> Result<Form> {
    let forced = match std::env::var("STRATA_SYCL_SUB_GROUP") {
        Ok(text) => Some(parse(device, &text)?),
        Err(_) => None,
    };
    match (forced, device.kind) {
        (Some(size), _) => Ok(Form::gpu(size, work_group(device, size))),
        (None, Kind::Cpu) => {
            let form = cpu();
            let (lanes, dot) = (forced_lanes()?, forced_dot()?);
            Ok(Form::cpu(lanes.unwrap_or(form.lanes), dot.unwrap_or(form.dot)))
        }
        (None, _) => {
            let size = sub_group(&device.sub_group_sizes);
            Ok(Form::gpu(size, work_group(device, size)))
        }
    }
}

fn parse(device: &Device, text: &str) -> Result<u32> {
    let sizes = &device.sub_group_sizes;
    text.parse().ok().filter(|size| sizes.contains(size)).ok_or_else(|| {
        Error::invalid(
            "STRATA_SYCL_SUB_GROUP",
            text,
            format!("one of {sizes:?}, the device's sizes"),
        )
    })
}

/// 16 where there is a choice: the native width of Intel GPUs that have more
/// than one, and half the registers of 32 per work-item are not missed.
fn sub_group(sizes: &[u32]) -> u32 {
    let wanted = [16, 32, 8];
    let found = wanted.into_iter().find(|size| sizes.contains(size));
    found.or_else(|| sizes.last().copied()).unwrap_or(16)
}

fn work_group(device: &Device, sub_group: u32) -> u32 {
    let most = u32::try_from(device.max_work_group).unwrap_or(u32::MAX);
    (WORK_GROUP.min(most) / sub_group).max(1) * sub_group
}

fn forced_lanes() -> Result<Option<u32>> {
    let Ok(text) = std::env::var("STRATA_SYCL_LANES") else { return Ok(None) };
    let lanes = text.parse().ok().filter(|lanes| [8, 16].contains(lanes));
    lanes.map(Some).ok_or_else(|| Error::invalid("STRATA_SYCL_LANES", text, "8 or 16"))
}

fn forced_dot() -> Result<Option<Dot>> {
    let Ok(text) = std::env::var("STRATA_SYCL_DOT") else { return Ok(None) };
    let dot = [Dot::Plain, Dot::Avx512Vnni, Dot::AvxVnni].into_iter().find(|d| d.name() == text);
    // An instruction that the CPU lacks would end the process.
    dot.filter(|&dot| has(dot)).map(Some).ok_or_else(|| {
        let all = [Dot::Plain, Dot::Avx512Vnni, Dot::AvxVnni];
        let here: Vec<_> = all.into_iter().filter(|&d| has(d)).map(Dot::name).collect();
        Error::invalid("STRATA_SYCL_DOT", text, format!("{} on this CPU", here.join(" or ")))
    })
}

/// Whether this machine's CPU has the instruction.
fn has(dot: Dot) -> bool {
    match dot {
        Dot::Plain => true,
        #[cfg(target_arch = "x86_64")]
        Dot::Avx512Vnni => {
            is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vnni")
        }
        #[cfg(target_arch = "x86_64")]
        Dot::AvxVnni => is_x86_feature_detected!("avxvnni"),
        #[cfg(not(target_arch = "x86_64"))]
        _ => false,
    }
}

/// A CPU device is this machine's CPU: what its registers can do is asked here.
fn cpu() -> Form {
    #[cfg(target_arch = "x86_64")]
    let wide = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw");
    #[cfg(not(target_arch = "x86_64"))]
    let wide = false;
    let (lanes, dot) = if wide { (16, Dot::Avx512Vnni) } else { (8, Dot::AvxVnni) };
    Form::cpu(lanes, if has(dot) { dot } else { Dot::Plain })
}

/// What `DeviceInfo::arch` says.
pub(crate) fn name(device: &Device, form: &Form) -> String {
    let kind = match device.kind {
        Kind::Gpu => "gpu",
        Kind::Cpu => "cpu",
        Kind::Other => "other",
    };
    match form.lanes {
        1 => format!("{kind}, sub-groups of {}", form.sub_group),
        lanes => format!("{kind}, vectors of {lanes}, byte products {}", form.dot.name()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_groups_come_from_the_device() {
        assert_eq!(sub_group(&[8, 16, 32]), 16);
        assert_eq!(sub_group(&[8, 32]), 32);
        assert_eq!(sub_group(&[4, 8]), 8);
        assert_eq!(sub_group(&[4]), 4);
        assert_eq!(sub_group(&[64]), 64);
    }
}
