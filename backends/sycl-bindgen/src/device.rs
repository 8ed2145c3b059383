//! What a device says of itself.

use crate::error::{Error, check};
use crate::sys;
use core::ffi::c_char;

/// Kind of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A GPU.
    Gpu,
    /// A CPU.
    Cpu,
    /// Anything else.
    Other,
}

/// Through what a device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backend {
    /// OpenCL.
    OpenCl,
    /// Level Zero.
    LevelZero,
    /// CUDA.
    Cuda,
    /// HIP.
    Hip,
    /// Something else.
    Other,
}

/// Features of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Aspects {
    /// Half precision arithmetic.
    pub fp16: bool,
    /// Double precision arithmetic.
    pub fp64: bool,
    /// Device allocations of unified shared memory.
    pub usm_device: bool,
    /// Host allocations of unified shared memory.
    pub usm_host: bool,
    /// The driver reports free memory.
    pub free_memory: bool,
    /// Joint matrices of some kind.
    pub matrix: bool,
    /// Joint matrices of 8 x 32 int8 times 32 x 8 uint8 into int32.
    pub matrix_8: bool,
    /// The same of 32 x 16 uint8.
    pub matrix_16: bool,
    /// Kernels can be compiled from SYCL source at run time.
    pub source: bool,
    /// Queues measure time.
    pub profiling: bool,
    /// f32 division and square root can be correctly rounded.
    pub rounded_divide: bool,
    /// f32 subnormals are kept.
    pub subnormals: bool,
    /// f32 fma rounds once.
    pub fma: bool,
}

/// A device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Its index, for [`Queue::open`](crate::Queue::open).
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its vendor.
    pub vendor: String,
    /// Its platform.
    pub platform: String,
    /// Version of its driver.
    pub driver: String,
    /// Its kind.
    pub kind: Kind,
    /// Through what it is driven.
    pub backend: Backend,
    /// Its features.
    pub aspects: Aspects,
    /// Its compute units.
    pub compute_units: u32,
    /// Most work-items of a work-group.
    pub max_work_group: u64,
    /// Most work-items of a work-group in each dimension, slowest first.
    pub max_work_items: [u64; 3],
    /// Local memory of a work-group, in bytes.
    pub local_memory: u64,
    /// Its memory, in bytes.
    pub global_memory: u64,
    /// The largest single allocation that it promises, in bytes.
    pub max_allocation: u64,
    /// Its sub-group sizes, ascending.
    pub sub_group_sizes: Vec<u32>,
}

/// The text of a zero-terminated field.
fn text(field: &[c_char]) -> String {
    let bytes: Vec<u8> = field.iter().take_while(|c| **c != 0).map(|c| c.cast_unsigned()).collect();
    String::from_utf8_lossy(&bytes).trim().to_string()
}

impl Device {
    pub(crate) fn read(api: &sys::Api, index: u32) -> Result<Self, Error> {
        let mut info = std::mem::MaybeUninit::<sys::Device>::zeroed();
        // SAFETY: `info` is valid for the call.
        let code = unsafe { (api.device_info)(index, info.as_mut_ptr()) };
        check(api, code, &format!("describing device {index}"))?;
        // SAFETY: every field is a number or an array of numbers, for which
        // zero bytes and whatever the bridge wrote are valid.
        let info = unsafe { info.assume_init() };
        let has = |bit: u32| info.aspects & bit != 0;
        let sizes = info.sub_group_sizes.iter();
        Ok(Device {
            index,
            name: text(&info.name),
            vendor: text(&info.vendor),
            platform: text(&info.platform),
            driver: text(&info.driver),
            kind: match info.kind {
                sys::GPU => Kind::Gpu,
                sys::CPU => Kind::Cpu,
                _ => Kind::Other,
            },
            backend: match info.backend {
                sys::OPENCL => Backend::OpenCl,
                sys::LEVEL_ZERO => Backend::LevelZero,
                sys::CUDA => Backend::Cuda,
                sys::HIP => Backend::Hip,
                _ => Backend::Other,
            },
            aspects: Aspects {
                fp16: has(sys::ASPECT_FP16),
                fp64: has(sys::ASPECT_FP64),
                usm_device: has(sys::ASPECT_USM_DEVICE),
                usm_host: has(sys::ASPECT_USM_HOST),
                free_memory: has(sys::ASPECT_FREE_MEMORY),
                matrix: has(sys::ASPECT_MATRIX),
                matrix_8: has(sys::ASPECT_MATRIX_8),
                matrix_16: has(sys::ASPECT_MATRIX_16),
                source: has(sys::ASPECT_SOURCE),
                profiling: has(sys::ASPECT_PROFILING),
                rounded_divide: has(sys::ASPECT_ROUNDED_DIVIDE),
                subnormals: has(sys::ASPECT_SUBNORMALS),
                fma: has(sys::ASPECT_FMA),
            },
            compute_units: info.compute_units,
            max_work_group: info.max_work_group,
            max_work_items: info.max_work_items,
            local_memory: info.local_memory,
            global_memory: info.global_memory,
            max_allocation: info.max_allocation,
            sub_group_sizes: sizes.take(info.sub_group_count as usize).copied().collect(),
        })
    }
}
