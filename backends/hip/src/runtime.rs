//! HIP's calls, each as a function that returns an error in words.
//!
//! The library is loaded by the first call; hip-sys panics where it is missing,
//! so nothing here may be reached before [`load`] said yes.

use std::ffi::{CStr, CString, c_void};
use std::sync::OnceLock;

use hip_sys as sys;
use strata_core::backend::BackendKind;
use strata_core::{Error, Result};

/// The oldest runtime whose device properties have today's layout.
const OLDEST: i32 = 60_000_000;

/// What a device says of itself.
pub(crate) struct Properties {
    pub(crate) name: String,
    /// As `gfx90a`, without the features after the colon.
    pub(crate) arch: String,
    pub(crate) units: u32,
    pub(crate) wave: u32,
    /// Bytes of shared memory a block may have.
    pub(crate) shared: u32,
}

/// An address in device memory.
pub(crate) type Address = u64;

/// A stream, event, module or function, as the runtime hands them out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle(*mut c_void);

impl Handle {
    /// A handle of another program part.
    pub(crate) fn of(raw: *mut c_void) -> Self {
        Self(raw)
    }

    /// The runtime's own pointer.
    pub(crate) fn raw(self) -> *mut c_void {
        self.0
    }
}

// SAFETY: the runtime takes its handles from any thread.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

/// Calls of one device; its index is part of every error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Runtime {
    index: u32,
}

/// Loads the library, once. The version of the runtime.
pub(crate) fn load() -> Result<i32> {
    static VERSION: OnceLock<std::result::Result<i32, String>> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        if !sys::is_available() {
            return Err(
                "libamdhip64.so and libhiprtc.so were not found in ROCM_PATH, HIP_PATH or the \
                        system's library path: install ROCm 6 or newer, or set ROCM_PATH"
                    .to_owned(),
            );
        }
        let mut version = 0;
        // SAFETY: the library is there, and every HIP has this function.
        let code = unsafe { sys::hipRuntimeGetVersion(&mut version) };
        if code != sys::hipError_t_hipSuccess {
            return Err(format!("hipRuntimeGetVersion: {}", describe(code)));
        }
        if version < OLDEST {
            return Err(format!("the HIP runtime is {}, expected 6.0 or newer", dotted(version)));
        }
        Ok(version)
    });
    version.clone().map_err(unavailable)
}

/// `6.2.41134` for 60241134.
pub(crate) fn dotted(version: i32) -> String {
    format!("{}.{}.{}", version / 10_000_000, version / 100_000 % 100, version % 100_000)
}

/// How many devices there are.
pub(crate) fn device_count() -> Result<u32> {
    load()?;
    let mut count = 0;
    // SAFETY: the library is loaded and the pointer is to a live integer.
    let code = unsafe { sys::hipGetDeviceCount(&mut count) };
    if code == sys::hipError_t_hipErrorNoDevice {
        return Ok(0);
    }
    if code != sys::hipError_t_hipSuccess {
        return Err(unavailable(format!("hipGetDeviceCount: {}", describe(code))));
    }
    Ok(u32::try_from(count).unwrap_or(0))
}

fn unavailable(reason: String) -> Error {
    Error::Unavailable { kind: BackendKind::Hip, reason }
}

/// `hipErrorOutOfMemory: out of memory`.
fn describe(code: sys::hipError_t) -> String {
    // SAFETY: both return static strings, for any number.
    let (name, text) = unsafe {
        (CStr::from_ptr(sys::hipGetErrorName(code)), CStr::from_ptr(sys::hipGetErrorString(code)))
    };
    format!("{}: {}", name.to_string_lossy(), text.to_string_lossy())
}

impl Runtime {
    /// The calls of device `index`, which must exist.
    pub(crate) fn new(index: u32) -> Self {
        Self { index }
    }

    fn check(self, code: sys::hipError_t, call: &'static str) -> Result<()> {
        if code == sys::hipError_t_hipSuccess {
            return Ok(());
        }
        Err(Error::Device { device: format!("hip:{}", self.index), call, detail: describe(code) })
    }

    /// Makes it this thread's device, which the calls below go to.
    fn bind(self) -> Result<()> {
        // SAFETY: an index the runtime does not know is an error.
        self.check(unsafe { sys::hipSetDevice(self.index as i32) }, "hipSetDevice")
    }

    pub(crate) fn properties(self) -> Result<Properties> {
        // SAFETY: the structure is plain data, for which zeros are a value.
        let mut p: sys::hipDeviceProp_tR0600 = unsafe { std::mem::zeroed() };
        // SAFETY: the symbol names the structure's version, and `p` is one.
        let code = unsafe { sys::hipGetDevicePropertiesR0600(&mut p, self.index as i32) };
        self.check(code, "hipGetDeviceProperties")?;
        let text = |chars: &[std::ffi::c_char]| {
            let bytes = chars.iter().map(|c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
            String::from_utf8(bytes).unwrap_or_default()
        };
        let full = text(&p.gcnArchName);
        Ok(Properties {
            name: text(&p.name),
            arch: full.split(':').next().unwrap_or_default().to_owned(),
            units: u32::try_from(p.multiProcessorCount).unwrap_or(1).max(1),
            wave: u32::try_from(p.warpSize).unwrap_or(0),
            shared: u32::try_from(p.sharedMemPerBlock).unwrap_or(u32::MAX),
        })
    }

    /// Free and total bytes.
    pub(crate) fn memory(self) -> Result<(usize, usize)> {
        self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: both pointers are to live integers.
        self.check(unsafe { sys::hipMemGetInfo(&mut free, &mut total) }, "hipMemGetInfo")?;
        Ok((free, total))
    }

    /// `None` where the device has no room.
    pub(crate) fn alloc(self, bytes: usize) -> Result<Option<Address>> {
        self.bind()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is to a live pointer.
        let code = unsafe { sys::hipMalloc(&mut pointer, bytes) };
        if code == sys::hipError_t_hipErrorOutOfMemory {
            return Ok(None);
        }
        self.check(code, "hipMalloc")?;
        Ok(Some(pointer as Address))
    }

    /// # Safety
    /// `address` came from [`alloc`](Self::alloc), is freed once, and nothing
    /// that was launched still uses it.
    pub(crate) unsafe fn free(self, address: Address) -> Result<()> {
        // SAFETY: the caller's.
        self.check(unsafe { sys::hipFree(address as *mut c_void) }, "hipFree")
    }

    /// Page-locked host memory.
    pub(crate) fn host_alloc(self, bytes: usize) -> Result<*mut u8> {
        self.bind()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: the pointer is to a live pointer; 0 are the default flags.
        self.check(unsafe { sys::hipHostMalloc(&mut pointer, bytes, 0) }, "hipHostMalloc")?;
        Ok(pointer.cast())
    }

    /// # Safety
    /// As [`free`](Self::free), for [`host_alloc`](Self::host_alloc).
    pub(crate) unsafe fn host_free(self, pointer: *mut u8) -> Result<()> {
        // SAFETY: the caller's.
        self.check(unsafe { sys::hipHostFree(pointer.cast()) }, "hipHostFree")
    }

    /// # Safety
    /// `bytes` at both ends are memory, and the source stays until the stream is past this.
    pub(crate) unsafe fn copy_in(
        self,
        to: Address,
        from: *const u8,
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        self.bind()?;
        let kind = sys::hipMemcpyKind_hipMemcpyHostToDevice;
        // SAFETY: the caller's.
        let code = unsafe {
            sys::hipMemcpyAsync(to as *mut c_void, from.cast(), bytes, kind, stream.0.cast())
        };
        self.check(code, "hipMemcpyAsync (to the device)")
    }

    /// # Safety
    /// `bytes` at both ends are memory, and the destination stays until the stream is past this.
    pub(crate) unsafe fn copy_out(
        self,
        to: *mut u8,
        from: Address,
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        self.bind()?;
        let kind = sys::hipMemcpyKind_hipMemcpyDeviceToHost;
        // SAFETY: the caller's.
        let code = unsafe {
            sys::hipMemcpyAsync(to.cast(), from as *const c_void, bytes, kind, stream.0.cast())
        };
        self.check(code, "hipMemcpyAsync (from the device)")
    }

    /// # Safety
    /// `bytes` at both ends are device memory.
    pub(crate) unsafe fn copy(
        self,
        to: Address,
        from: Address,
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        self.bind()?;
        let (to, from) = (to as *mut c_void, from as *const c_void);
        let kind = sys::hipMemcpyKind_hipMemcpyDeviceToDevice;
        // SAFETY: the caller's.
        let code = unsafe { sys::hipMemcpyAsync(to, from, bytes, kind, stream.0.cast()) };
        self.check(code, "hipMemcpyAsync (on the device)")
    }

    /// # Safety
    /// `bytes` at `to` are device memory.
    pub(crate) unsafe fn fill(
        self,
        to: Address,
        byte: u8,
        bytes: usize,
        stream: Handle,
    ) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's.
        let code =
            unsafe { sys::hipMemsetAsync(to as *mut c_void, byte.into(), bytes, stream.0.cast()) };
        self.check(code, "hipMemsetAsync")
    }

    pub(crate) fn stream_create(self) -> Result<Handle> {
        self.bind()?;
        let mut stream = std::ptr::null_mut();
        // Not ordered with the process's default stream, which is not used here.
        const NON_BLOCKING: u32 = 1;
        // SAFETY: the pointer is to a live handle.
        let code = unsafe { sys::hipStreamCreateWithFlags(&mut stream, NON_BLOCKING) };
        self.check(code, "hipStreamCreateWithFlags")?;
        Ok(Handle(stream.cast()))
    }

    pub(crate) fn stream_synchronize(self, stream: Handle) -> Result<()> {
        self.bind()?;
        // SAFETY: handles of streams live as long as their owner, `Stream`.
        self.check(unsafe { sys::hipStreamSynchronize(stream.0.cast()) }, "hipStreamSynchronize")
    }

    /// # Safety
    /// The handle is not used after.
    pub(crate) unsafe fn stream_destroy(self, stream: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check(unsafe { sys::hipStreamDestroy(stream.0.cast()) }, "hipStreamDestroy")
    }

    /// An event; `timed` ones know when the stream reached them.
    pub(crate) fn event_create(self, timed: bool) -> Result<Handle> {
        self.bind()?;
        let mut event = std::ptr::null_mut();
        const DISABLE_TIMING: u32 = 2;
        let flags = if timed { 0 } else { DISABLE_TIMING };
        // SAFETY: the pointer is to a live handle.
        let code = unsafe { sys::hipEventCreateWithFlags(&mut event, flags) };
        self.check(code, "hipEventCreateWithFlags")?;
        Ok(Handle(event.cast()))
    }

    pub(crate) fn event_record(self, event: Handle, stream: Handle) -> Result<()> {
        self.bind()?;
        // SAFETY: both handles live as long as their owners.
        let code = unsafe { sys::hipEventRecord(event.0.cast(), stream.0.cast()) };
        self.check(code, "hipEventRecord")
    }

    /// Orders what comes behind an event in a stream, on the device.
    pub(crate) fn stream_wait_event(self, stream: Handle, event: Handle) -> Result<()> {
        self.bind()?;
        // SAFETY: both handles live as long as their owners.
        let code = unsafe { sys::hipStreamWaitEvent(stream.0.cast(), event.0.cast(), 0) };
        self.check(code, "hipStreamWaitEvent")
    }

    /// Whether the stream is past it.
    pub(crate) fn event_done(self, event: Handle) -> Result<bool> {
        // SAFETY: the handle lives as long as its owner.
        let code = unsafe { sys::hipEventQuery(event.0.cast()) };
        if code == sys::hipError_t_hipErrorNotReady {
            return Ok(false);
        }
        self.check(code, "hipEventQuery").map(|()| true)
    }

    pub(crate) fn event_synchronize(self, event: Handle) -> Result<()> {
        // SAFETY: the handle lives as long as its owner.
        self.check(unsafe { sys::hipEventSynchronize(event.0.cast()) }, "hipEventSynchronize")
    }

    /// Milliseconds between two timed events that the stream is past.
    pub(crate) fn event_elapsed(self, from: Handle, to: Handle) -> Result<f32> {
        let mut ms = 0.0;
        // SAFETY: both handles live as long as their owners, and the pointer is to a live float.
        let code = unsafe { sys::hipEventElapsedTime(&mut ms, from.0.cast(), to.0.cast()) };
        self.check(code, "hipEventElapsedTime")?;
        Ok(ms)
    }

    /// # Safety
    /// The handle is not used after.
    pub(crate) unsafe fn event_destroy(self, event: Handle) -> Result<()> {
        // SAFETY: the caller's.
        self.check(unsafe { sys::hipEventDestroy(event.0.cast()) }, "hipEventDestroy")
    }

    pub(crate) fn module_load(self, image: &'static [u8]) -> Result<Handle> {
        self.bind()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: the image is a whole ELF file, embedded in the program.
        let code = unsafe { sys::hipModuleLoadData(&mut module, image.as_ptr().cast()) };
        self.check(code, "hipModuleLoadData")?;
        Ok(Handle(module.cast()))
    }

    /// # Safety
    /// Neither the module nor its functions are used after.
    pub(crate) unsafe fn module_unload(self, module: Handle) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's.
        self.check(unsafe { sys::hipModuleUnload(module.0.cast()) }, "hipModuleUnload")
    }

    pub(crate) fn function(self, module: Handle, name: &str) -> Result<Handle> {
        let mut function = std::ptr::null_mut();
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: the module is loaded, and the name ends with a zero.
        let code =
            unsafe { sys::hipModuleGetFunction(&mut function, module.0.cast(), name.as_ptr()) };
        self.check(code, "hipModuleGetFunction")?;
        Ok(Handle(function.cast()))
    }

    /// Address and bytes of a variable of a module.
    pub(crate) fn global(self, module: Handle, name: &str) -> Result<(Address, usize)> {
        self.bind()?;
        let (mut address, mut bytes) = (std::ptr::null_mut(), 0);
        let name = CString::new(name).unwrap_or_default();
        // SAFETY: as above, and both pointers are to live values.
        let code = unsafe {
            sys::hipModuleGetGlobal(&mut address, &mut bytes, module.0.cast(), name.as_ptr())
        };
        self.check(code, "hipModuleGetGlobal")?;
        Ok((address as Address, bytes))
    }

    /// Launches a kernel with one argument, a structure.
    ///
    /// # Safety
    /// `args` is what the kernel takes, and every address in it is memory of
    /// the size the kernel's description asks for.
    pub(crate) unsafe fn launch<A: Copy>(
        self,
        function: Handle,
        grid: [u32; 2],
        threads: u32,
        shared: u32,
        stream: Handle,
        args: &A,
    ) -> Result<()> {
        self.bind()?;
        let mut pointers = [std::ptr::from_ref(args).cast_mut().cast::<c_void>()];
        // SAFETY: the runtime copies the arguments before it returns; the rest is the caller's.
        let code = unsafe {
            sys::hipModuleLaunchKernel(
                function.0.cast(),
                grid[0],
                grid[1],
                1,
                threads,
                1,
                1,
                shared,
                stream.0.cast(),
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.check(code, "hipModuleLaunchKernel")
    }
}
