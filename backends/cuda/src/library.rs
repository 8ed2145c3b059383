//! The driver library: whether it is there, and its errors in our words.

use std::ffi::CStr;
use std::sync::OnceLock;

use cudarc::driver::sys::{self, CUresult};
use strata_core::backend::BackendKind;
use strata_core::{Error, Result};

/// CUDA version of the oldest driver that has every entry point used here and
/// loads images of the compiler they are made with.
const OLDEST: i32 = 13000;

/// What every failure to find a driver ends with.
const GET_DRIVER: &str =
    "install the NVIDIA driver, branch 580 or newer, or run with --backend cpu";

/// Every entry point that this crate calls. The binding panics at the first call of one that
/// the library lacks, so all of them are looked for before the first call.
const ENTRY_POINTS: [&CStr; 39] = [
    c"cuDriverGetVersion",
    c"cuGetErrorName",
    c"cuGetErrorString",
    c"cuInit",
    c"cuCtxSetCurrent",
    c"cuDeviceGet",
    c"cuDeviceGetAttribute",
    c"cuDeviceGetCount",
    c"cuDeviceGetName",
    c"cuDevicePrimaryCtxRelease_v2",
    c"cuDevicePrimaryCtxRetain",
    c"cuEventCreate",
    c"cuEventDestroy_v2",
    c"cuEventElapsedTime_v2",
    c"cuEventQuery",
    c"cuEventRecord",
    c"cuEventSynchronize",
    c"cuFuncSetAttribute",
    c"cuLaunchKernel",
    c"cuMemAlloc_v2",
    c"cuMemFreeHost",
    c"cuMemFree_v2",
    c"cuMemGetInfo_v2",
    c"cuMemHostAlloc",
    c"cuMemcpyDtoDAsync_v2",
    c"cuMemcpyDtoHAsync_v2",
    c"cuMemcpyDtoH_v2",
    c"cuMemcpyHtoDAsync_v2",
    c"cuMemsetD8Async",
    c"cuModuleGetFunction",
    c"cuModuleGetGlobal_v2",
    c"cuModuleLoadData",
    c"cuModuleUnload",
    c"cuOccupancyMaxActiveBlocksPerMultiprocessor",
    c"cuStreamCreate",
    c"cuStreamDestroy_v2",
    c"cuStreamGetCtx",
    c"cuStreamSynchronize",
    c"cuStreamWaitEvent",
];

/// How many of them are called before `cuInit`.
const BEFORE_INIT: usize = 3;

/// The library, initialised. Holding one is the permission to call it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    version: i32,
}

impl Library {
    /// Finds the library, checks its version and initialises it, once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with what is missing and what to do.
    pub(crate) fn get() -> Result<Self> {
        static STATE: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        STATE
            .get_or_init(Self::find)
            .clone()
            .map_err(|reason| Error::Unavailable { kind: BackendKind::Cuda, reason })
    }

    fn find() -> std::result::Result<Self, String> {
        // SAFETY: only opens and closes the library; its initialisers are the driver's own.
        if !unsafe { sys::is_culib_present() } {
            // On a line of its own: who did not ask for CUDA is told the first.
            return Err(format!(
                "no NVIDIA driver library (libcuda.so) was found\nwhere there is an NVIDIA GPU, {GET_DRIVER}"
            ));
        }
        // The version first: what an older driver lacks is explained by its age.
        let missing =
            |names: &[&'static CStr]| names.iter().find(|name| !has_symbol(name)).copied();
        let lacks = |name: &CStr| {
            format!(
                "the driver library that was found has no {}; {GET_DRIVER}",
                name.to_string_lossy()
            )
        };
        if let Some(name) = missing(&ENTRY_POINTS[..BEFORE_INIT]) {
            return Err(lacks(name));
        }
        let mut version = 0;
        // SAFETY: writes one int; allowed before cuInit.
        let result = unsafe { sys::cuDriverGetVersion(&raw mut version) };
        if result != CUresult::CUDA_SUCCESS {
            return Err(format!("cuDriverGetVersion: {}; {GET_DRIVER}", describe(result)));
        }
        if version < OLDEST {
            return Err(format!(
                "the driver is for CUDA {}, the kernels in this binary need CUDA {}; {GET_DRIVER}",
                dotted(version),
                dotted(OLDEST)
            ));
        }
        if let Some(name) = missing(&ENTRY_POINTS) {
            return Err(lacks(name));
        }
        // SAFETY: takes no pointer; flags must be 0.
        match unsafe { sys::cuInit(0) } {
            CUresult::CUDA_SUCCESS => Ok(Self { version }),
            CUresult::CUDA_ERROR_NO_DEVICE => Err(
                "the driver finds no NVIDIA GPU in this machine (or CUDA_VISIBLE_DEVICES hides it)"
                    .to_owned(),
            ),
            result => Err(format!("cuInit: {}; {}", describe(result), advice(result))),
        }
    }

    /// Devices that the driver shows.
    pub(crate) fn count(self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: writes one int.
        check(None, "cuDeviceGetCount", unsafe { sys::cuDeviceGetCount(&raw mut count) })?;
        Ok(count.try_into().unwrap_or(0))
    }

    /// The CUDA version the driver is for, as `13.0`.
    pub(crate) fn version(self) -> String {
        dotted(self.version)
    }
}

/// What helps where the driver is there and does not start.
fn advice(result: CUresult) -> &'static str {
    match result {
        CUresult::CUDA_ERROR_STUB_LIBRARY => {
            "the library found is the toolkit's stub: take its folder out of LD_LIBRARY_PATH"
        }
        CUresult::CUDA_ERROR_SYSTEM_NOT_READY => {
            "a service that the GPUs need is not running yet: on machines with NVSwitch, start nvidia-fabricmanager of the driver's version"
        }
        CUresult::CUDA_ERROR_SYSTEM_DRIVER_MISMATCH => {
            "libcuda and the kernel's module are of different versions: restart after an update of the driver; in a container, use the host's libcuda"
        }
        CUresult::CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE => {
            "the libcuda found is of a compatibility package that this GPU does not support: use the driver's own"
        }
        CUresult::CUDA_ERROR_UNKNOWN => {
            "the driver is there and did not start: see whether nvidia-smi works, whether /dev/nvidia-uvm is there and may be opened, and the kernel's log"
        }
        _ => "see whether nvidia-smi works, or run with --backend cpu",
    }
}

fn has_symbol(name: &CStr) -> bool {
    // SAFETY: the library was found; the symbol is looked up and not called.
    unsafe { sys::culib().get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()).is_ok() }
}

/// 13010 as `13.1`.
fn dotted(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

/// The driver's name and words for a result.
pub(crate) fn describe(result: CUresult) -> String {
    let (mut name, mut words) = (std::ptr::null(), std::ptr::null());
    // SAFETY: both write a pointer to a static string, or null for an unknown code.
    unsafe {
        let _ = sys::cuGetErrorName(result, &raw mut name);
        let _ = sys::cuGetErrorString(result, &raw mut words);
    }
    let text = |p: *const std::ffi::c_char| {
        // SAFETY: a NUL-terminated string of the driver that lives as long as the library.
        (!p.is_null()).then(|| unsafe { CStr::from_ptr(p) }.to_string_lossy().into_owned())
    };
    match (text(name), text(words)) {
        (Some(name), Some(words)) => format!("{name} ({words})"),
        _ => format!("{result:?}"),
    }
}

/// An error unless the call succeeded. `device` is the index, where there is one.
pub(crate) fn check(device: Option<u32>, call: &'static str, result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(failure(device, call, result)),
    }
}

/// The error of a call that failed.
pub(crate) fn failure(device: Option<u32>, call: &'static str, result: CUresult) -> Error {
    let device = device.map_or_else(|| "cuda".into(), |index| format!("cuda:{index}"));
    Error::Device { device, call, detail: describe(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_dotted() {
        assert_eq!(dotted(13000), "13.0");
        assert_eq!(dotted(12080), "12.8");
        assert_eq!(dotted(13010), "13.1");
    }
}
