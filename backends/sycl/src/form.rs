//! The form of the kernels on a device.

use strata_core::{Error, Result};
use strata_kernels_sycl::{Dot, Form};
use sycl_bindgen::{Device, Kind};

/// Work-items of a work-group of the product on a GPU, where the device allows.
const WORK_GROUP: u32 = 64;

/// Picks the form by what the device is, and by the variables that tests set.
pub(crate) fn pick(device: &Device) -> Result<Form> {
    let sub_group = match std::env::var("STRATA_SYCL_SUB_GROUP") {
        Ok(text) => Some(parse(device, &text)?),
        Err(_) => None,
    };
    if sub_group.is_none() && device.kind == Kind::Cpu {
        let form = cpu();
        let lanes = forced_lanes()?.unwrap_or(form.lanes);
        return Ok(Form::cpu(lanes, forced_dot(CPU_DOTS, has)?.unwrap_or(form.dot)));
    }
    let forced = forced_dot(GPU_DOTS, |dot| dot != Dot::JointMatrix || !tiles(device).is_empty())?;
    // Matrix units come with a sub-group size.
    let with_tiles = tiles(device).into_iter().find(|&size| sub_group.is_none_or(|s| s == size));
    let (size, dot) = match (forced, with_tiles) {
        (None | Some(Dot::JointMatrix), Some(size)) => (size, Dot::JointMatrix),
        (forced, _) => {
            let size = sub_group.unwrap_or_else(|| self::sub_group(&device.sub_group_sizes));
            // Units of another size than the one asked for are no use.
            (size, forced.filter(|&dot| dot != Dot::JointMatrix).unwrap_or(Dot::Plain))
        }
    };
    Ok(Form::gpu(size, work_group(device, size), dot))
}

/// What `STRATA_SYCL_DOT` may name in the form of a CPU, and in that of a GPU.
const CPU_DOTS: &[Dot] = &[Dot::Plain, Dot::Avx512Vnni, Dot::AvxVnni];
const GPU_DOTS: &[Dot] = &[Dot::Plain, Dot::JointMatrix, Dot::MatrixByHand];

/// Sub-group sizes for which the device has matrix units of the tile's shape.
fn tiles(device: &Device) -> Vec<u32> {
    let has = [(16, device.aspects.matrix_16), (8, device.aspects.matrix_8)];
    let named = has.into_iter().filter(|&(_, has)| has).map(|(size, _)| size);
    named.filter(|size| device.sub_group_sizes.contains(size)).collect()
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

fn forced_dot(known: &[Dot], has: impl Fn(Dot) -> bool) -> Result<Option<Dot>> {
    let Ok(text) = std::env::var("STRATA_SYCL_DOT") else { return Ok(None) };
    // An instruction that the CPU lacks would end the process.
    let here = || known.iter().copied().filter(|&dot| has(dot));
    here().find(|dot| dot.name() == text).map(Some).ok_or_else(|| {
        let names: Vec<_> = here().map(Dot::name).collect();
        Error::invalid("STRATA_SYCL_DOT", text, format!("{} on this device", names.join(" or ")))
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

/// What `DeviceInfo::arch` says; `note` is what the check had to change.
pub(crate) fn name(device: &Device, form: &Form, note: Option<&str>) -> String {
    let kind = match device.kind {
        Kind::Gpu => "gpu",
        Kind::Cpu => "cpu",
        Kind::Other => "other",
    };
    let vectors = match form.lanes {
        1 => format!("sub-groups of {}", form.sub_group),
        lanes => format!("vectors of {lanes}"),
    };
    let note = note.map_or_else(String::new, |note| format!(" ({note})"));
    format!("{kind}, {vectors}, byte products {}{note}", form.dot.name())
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

    #[test]
    fn tiles_are_used_only_where_the_device_names_their_shape() {
        let mut device =
            crate::list::tests::device(0, "arc", Kind::Gpu, sycl_bindgen::Backend::LevelZero);
        device.sub_group_sizes = vec![8, 16, 32];
        let picked = |device: &Device| pick(device).map(|f| (f.sub_group, f.dot)).unwrap();
        assert_eq!(picked(&device), (16, Dot::Plain));
        device.aspects.matrix = true;
        assert_eq!(picked(&device), (16, Dot::Plain));
        device.aspects.matrix_8 = true;
        assert_eq!(picked(&device), (8, Dot::JointMatrix));
        device.aspects.matrix_16 = true;
        assert_eq!(picked(&device), (16, Dot::JointMatrix));
        device.sub_group_sizes = vec![32];
        assert_eq!(picked(&device), (32, Dot::Plain));
    }
}
