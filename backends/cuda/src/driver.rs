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

/// The driver, initialised. Holding one is the permission to call it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Driver {
    version: i32,
}

impl Driver {
    /// Finds the library, checks its version and initialises it, once.
    ///
    /// # Errors
    /// [`Error::Unavailable`] with what is missing and what to do.
    pub(crate) fn get() -> Result<Self> {
        static STATE: OnceLock<std::result::Result<Driver, String>> = OnceLock::new();
        STATE
            .get_or_init(Self::find)
            .clone()
            .map_err(|reason| Error::Unavailable { kind: BackendKind::Cuda, reason })
    }

    fn find() -> std::result::Result<Self, String> {
        // SAFETY: only opens and closes the library; its initialisers are the driver's own.
        if !unsafe { sys::is_culib_present() } {
            return Err(format!("no NVIDIA driver library (libcuda.so) was found; {GET_DRIVER}"));
        }
        // A library without an entry point would make the binding panic when it is called.
        for name in [c"cuDriverGetVersion", c"cuGetErrorString", c"cuInit"] {
            if !has_symbol(name) {
                return Err(format!(
                    "the driver library that was found has no {}; {GET_DRIVER}",
                    name.to_string_lossy()
                ));
            }
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
        // SAFETY: takes no pointer; flags must be 0.
        match unsafe { sys::cuInit(0) } {
            CUresult::CUDA_SUCCESS => Ok(Self { version }),
            CUresult::CUDA_ERROR_NO_DEVICE => Err(
                "the driver finds no NVIDIA GPU in this machine (or CUDA_VISIBLE_DEVICES hides it)"
                    .to_owned(),
            ),
            result => Err(format!("cuInit: {}; {GET_DRIVER}", describe(result))),
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
    if result == CUresult::CUDA_SUCCESS {
        return Ok(());
    }
    Err(Error::Device {
        device: device.map_or_else(|| "cuda".into(), |index| format!("cuda:{index}")),
        call,
        detail: describe(result),
    })
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
