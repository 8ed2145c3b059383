//! The runtime library: whether it is there, and its errors in our words.

use std::env::consts::{DLL_PREFIX, DLL_SUFFIX};
use std::ffi::CStr;
use std::path::PathBuf;
use std::sync::LazyLock;

use hip_sys as sys;
use libloading::Library as Opened;
use strata_core::backend::BackendKind;
use strata_core::{Error, Result};

/// The oldest runtime whose device properties have today's layout.
const OLDEST: i32 = 60_000_000;

/// Every entry point that this crate calls. The binding panics at the first call of one that
/// the library lacks, so all of them are looked for before the first call.
const ENTRY_POINTS: [&CStr; 31] = [
    c"hipRuntimeGetVersion",
    c"hipGetErrorName",
    c"hipGetErrorString",
    c"hipEventCreateWithFlags",
    c"hipEventDestroy",
    c"hipEventElapsedTime",
    c"hipEventQuery",
    c"hipEventRecord",
    c"hipEventSynchronize",
    c"hipFree",
    c"hipGetDeviceCount",
    c"hipGetDevicePropertiesR0600",
    c"hipHostFree",
    c"hipHostMalloc",
    c"hipMalloc",
    c"hipMemGetInfo",
    c"hipMemcpyAsync",
    c"hipMemcpyDtoH",
    c"hipMemsetAsync",
    c"hipModuleGetFunction",
    c"hipModuleGetGlobal",
    c"hipModuleLaunchKernel",
    c"hipModuleLoadData",
    c"hipModuleOccupancyMaxActiveBlocksPerMultiprocessor",
    c"hipModuleUnload",
    c"hipSetDevice",
    c"hipStreamCreateWithFlags",
    c"hipStreamDestroy",
    c"hipStreamGetDevice",
    c"hipStreamSynchronize",
    c"hipStreamWaitEvent",
];

/// How many of them are called before the version is known.
const BEFORE_VERSION: usize = 3;

/// The library, loaded. Holding one is the permission to call it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Library {
    version: i32,
}

impl Library {
    /// Finds the library and checks its version, once; where it cannot, says what to do.
    pub(crate) fn get() -> Result<Self> {
        static FOUND: LazyLock<std::result::Result<Library, String>> = LazyLock::new(Library::find);
        FOUND.clone().map_err(unavailable)
    }

    fn find() -> std::result::Result<Self, String> {
        if !sys::is_available() {
            return Err(
                "libamdhip64.so and libhiprtc.so were not found in ROCM_PATH, HIP_PATH or the \
                 system's library path: install ROCm 6 or newer, or set ROCM_PATH"
                    .to_owned(),
            );
        }
        let library = open()?;
        // SAFETY: the symbol is looked up and not called.
        let has = |name: &CStr| unsafe {
            library.get::<unsafe extern "C" fn()>(name.to_bytes_with_nul()).is_ok()
        };
        let missing = |names: &[&CStr]| {
            let name = names.iter().find(|name| !has(name))?.to_string_lossy().into_owned();
            Some(format!(
                "the libamdhip64.so that was found has no {name}: install ROCm 6 or newer, or set \
                 ROCM_PATH to where it is"
            ))
        };
        // The version first: what an older runtime lacks is explained by its age.
        if let Some(reason) = missing(&ENTRY_POINTS[..BEFORE_VERSION]) {
            return Err(reason);
        }
        let mut version = 0;
        // SAFETY: writes one int.
        let code = unsafe { sys::hipRuntimeGetVersion(&mut version) };
        if code != sys::hipError_t_hipSuccess {
            return Err(format!("hipRuntimeGetVersion: {}", describe(code)));
        }
        if version < OLDEST {
            return Err(format!("the HIP runtime is {}, expected 6.0 or newer", dotted(version)));
        }
        match missing(&ENTRY_POINTS) {
            Some(reason) => Err(reason),
            None => Ok(Self { version }),
        }
    }

    /// Devices that the runtime shows.
    pub(crate) fn count(self) -> Result<u32> {
        let mut count = 0;
        // SAFETY: writes one int.
        match unsafe { sys::hipGetDeviceCount(&mut count) } {
            sys::hipError_t_hipSuccess => Ok(u32::try_from(count).unwrap_or(0)),
            sys::hipError_t_hipErrorNoDevice => Ok(0),
            code => Err(unavailable(format!("hipGetDeviceCount: {}", describe(code)))),
        }
    }

    /// The version of the runtime, as `6.2.41134`.
    pub(crate) fn version(self) -> String {
        dotted(self.version)
    }
}

/// The library that the binding has loaded: looked for as the binding does.
fn open() -> std::result::Result<Opened, String> {
    let roots = ["ROCM_PATH", "HIP_PATH"].into_iter().filter_map(std::env::var_os);
    let folders = roots.map(PathBuf::from).flat_map(|root| [root.join("lib"), root]);
    let name = format!("{DLL_PREFIX}amdhip64{DLL_SUFFIX}");
    let names = [name.clone(), format!("{name}.1"), format!("{name}.0")];
    let inside = folders.flat_map(|folder| names.each_ref().map(|name| folder.join(name)));
    let anywhere = names.each_ref().map(PathBuf::from);
    // SAFETY: it is loaded already; opening it again runs nothing.
    let opened = inside.chain(anywhere).find_map(|path| unsafe { Opened::new(path).ok() });
    opened.ok_or_else(|| "libamdhip64.so was there and is not any more".to_owned())
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { kind: BackendKind::Hip, reason }
}

/// `6.2.41134` for 60241134.
fn dotted(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

/// `hipErrorOutOfMemory: out of memory`.
fn describe(code: sys::hipError_t) -> String {
    // SAFETY: both return static strings, for any number.
    let (name, text) = unsafe {
        (CStr::from_ptr(sys::hipGetErrorName(code)), CStr::from_ptr(sys::hipGetErrorString(code)))
    };
    format!("{}: {}", name.to_string_lossy(), text.to_string_lossy())
}

/// An error of a device unless the call succeeded.
pub(crate) fn check(index: u32, call: &'static str, code: sys::hipError_t) -> Result<()> {
    match code {
        sys::hipError_t_hipSuccess => Ok(()),
        code => Err(failure(index, call, code)),
    }
}

/// The error of a call that failed.
pub(crate) fn failure(index: u32, call: &'static str, code: sys::hipError_t) -> Error {
    Error::Device { device: format!("hip:{index}"), call, detail: describe(code) }
}
