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

/// What [`Runtime::load`] may change in the process's environment, which is
/// where the SYCL runtime reads its settings. A variable that is set already
/// is never touched.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Keep compiled kernels on disk between runs (`SYCL_CACHE_PERSISTENT=1`).
    pub persistent_cache: bool,
    /// Whether the OpenCL CPU device looks for vectors across work-items. Kernels
    /// with one work-item per work-group gain nothing and compile several times
    /// as long; `false` sets `CL_CONFIG_USE_VECTORIZER=false`.
    pub cpu_vectorizer: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options { persistent_cache: true, cpu_vectorizer: true }
    }
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
    /// Before libsycl starts, this sets in the process's environment, where
    /// unset: `OCL_ICD_FILENAMES` to the installation's OpenCL CPU device (it
    /// is not visible otherwise), `UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS=1`
    /// (allocations over 4 GiB on Level Zero), and what `options` say. Call it
    /// while no thread outside Rust reads the environment, as early as you can.
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
        let found = found()?;
        prepare_environment(&found, options);
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

fn prepare_environment(found: &Found, options: Options) {
    let set = |name: &str, value: &std::ffi::OsStr| {
        if std::env::var_os(name).is_none() {
            // SAFETY: Rust's own readers are locked out by the standard
            // library; `Runtime::load` documents that no other thread may be
            // reading, and libsycl, the reader meant, is not loaded yet.
            unsafe { std::env::set_var(name, value) };
        }
    };
    let cpu = found.root.join("lib/libintelocl.so");
    if cpu.is_file() {
        set("OCL_ICD_FILENAMES", cpu.as_os_str());
    }
    set("UR_L0_ENABLE_RELAXED_ALLOCATION_LIMITS", "1".as_ref());
    if !options.cpu_vectorizer {
        set("CL_CONFIG_USE_VECTORIZER", "false".as_ref());
    }
    if options.persistent_cache {
        set("SYCL_CACHE_PERSISTENT", "1".as_ref());
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
