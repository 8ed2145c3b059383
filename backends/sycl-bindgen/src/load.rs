//! Loading libsycl and the bridge at run time.

use crate::device::Device;
use crate::error::{Error, check};
use crate::find::{self, Found, NotFound, Purpose};
use crate::sys;
use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

/// The bridge, compiled by the build script.
static BRIDGE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bridge.so"));

/// The libsycl that the bridge was linked with.
const SONAME: &str = env!("STRATA_SYCL_SONAME");

/// How [`Runtime::load`] loads.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Options {
    /// The installation's folder, which holds `lib`; where none is given it is looked for.
    pub root: Option<PathBuf>,
}

/// A loaded SYCL runtime. There is one per process and it is never unloaded:
/// drivers keep threads and exit handlers of their own.
pub struct Runtime {
    pub(crate) api: sys::Api,
    found: Found,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Runtime").field("found", &self.found).finish()
    }
}

/// The installation that [`Runtime::load`] would take.
///
/// # Errors
/// [`NotFound`], which lists where it was looked for.
pub fn found() -> Result<Found, NotFound> {
    find::find(Purpose::Run { soname: SONAME })
}

impl Runtime {
    /// Loads the runtime; later calls return the first one's result, whatever
    /// their options.
    ///
    /// Nothing of the process is changed for it: what libsycl and its drivers read
    /// from the environment is there when the program starts, or set by a program
    /// that asks [`variables`](crate::variables) first. (libsycl itself sets
    /// `ZES_ENABLE_SYSMAN` when it lists devices.)
    ///
    /// # Errors
    /// [`Error::NotFound`] without an installation, [`Error::Load`] when what
    /// was found does not load.
    pub fn load(options: Options) -> Result<&'static Runtime, Error> {
        static LOADED: OnceLock<Result<Runtime, Error>> = OnceLock::new();
        LOADED.get_or_init(|| Runtime::open(options)).as_ref().map_err(Clone::clone)
    }

    /// The installation that was loaded.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// All devices of all platforms, in the runtime's order.
    ///
    /// # Errors
    /// What the runtime reports while it lists or describes them.
    pub fn devices(&self) -> Result<Vec<Device>, Error> {
        let mut count = 0;
        // SAFETY: `count` is valid for the call.
        let code = unsafe { (self.api.device_count)(&mut count) };
        check(&self.api, code, "listing devices")?;
        (0..count).map(|index| self.device(index)).collect()
    }

    /// Describes device `index`.
    ///
    /// # Errors
    /// [`Code::NoDevice`](crate::Code::NoDevice) past the last one.
    pub fn device(&self, index: u32) -> Result<Device, Error> {
        Device::read(&self.api, index)
    }

    /// Free memory of device `index` in bytes; none where its driver does not
    /// say.
    ///
    /// # Errors
    /// [`Code::NoDevice`](crate::Code::NoDevice) past the last one.
    pub fn free_memory(&self, index: u32) -> Result<Option<u64>, Error> {
        let mut bytes = 0;
        // SAFETY: `bytes` is valid for the call.
        let code = unsafe { (self.api.device_free_memory)(index, &mut bytes) };
        match check(&self.api, code, "asking for free memory") {
            Ok(()) => Ok(Some(bytes)),
            Err(e) if e.code() == Some(crate::Code::Unsupported) => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn open(options: Options) -> Result<Runtime, Error> {
        let found = match &options.root {
            Some(root) => find::find_in(root, Purpose::Run { soname: SONAME })?,
            None => found()?,
        };
        // The bridge asks for libsycl by name, and gets the one loaded here.
        let libsycl = open_library(&found.library, &found.library)?;
        let bridge = open_bridge()?;
        let address = |name: &std::ffi::CStr| {
            // SAFETY: the symbol is only looked up here; `Api::load` casts it.
            let symbol = unsafe { bridge.get::<*mut core::ffi::c_void>(name.to_bytes_with_nul()) };
            symbol.ok().and_then(|s| NonNull::new(s.into_raw())).ok_or_else(|| Error::Load {
                path: "the SYCL bridge".into(),
                reason: format!("it lacks {}", name.to_string_lossy()),
            })
        };
        // SAFETY: the bridge defines these functions with the header's types.
        let api = unsafe { sys::Api::load(address) }?;
        // Neither is ever closed: function pointers of both live in `api`.
        std::mem::forget((libsycl, bridge));
        Ok(Runtime { api, found })
    }
}

/// Opens a library; `shown` is what an error calls it.
fn open_library(path: &Path, shown: &Path) -> Result<Library, Error> {
    // SAFETY: the initialisers of libsycl and of the bridge are meant to run;
    // the paths are an installation's own library and an unnamed file that
    // only this process can write.
    unsafe { Library::open(Some(path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|e| Error::Load { path: shown.to_path_buf(), reason: e.to_string() })
}

/// Opens the bridge from an unnamed file in memory: no path to choose, to
/// clean up, or for anyone else to write to.
fn open_bridge() -> Result<Library, Error> {
    let shown = PathBuf::from("the SYCL bridge");
    let failed = |reason: String| Error::Load { path: shown.clone(), reason };
    let fd = rustix::fs::memfd_create("strata-sycl-bridge", rustix::fs::MemfdFlags::CLOEXEC)
        .map_err(|e| failed(e.to_string()))?;
    let mut file = std::fs::File::from(fd);
    file.write_all(BRIDGE).map_err(|e| failed(e.to_string()))?;
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    open_library(&path, &shown)
}
