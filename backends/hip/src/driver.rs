//! The calls of one device.

use std::ffi::{CString, c_char, c_void};
use std::ptr::NonNull;

use hip_sys as sys;
use strata_core::backend::{BackendKind, DeviceId, DeviceInfo};
use strata_core::{Error, Result};
use strata_gpu::{Driver, EventHandle, ImageHandle, KernelHandle, Launch, Opened, StreamHandle};
use strata_kernels_hip as kernels;

use crate::images;
use crate::library::{self, Library};

/// The driver of AMD GPUs: one device.
pub struct HipDriver {
    index: u32,
    shared_memory: u32,
}

impl HipDriver {
    /// Makes the calling thread's next calls go to this device.
    fn enter(&self) -> Result<()> {
        // SAFETY: an index the runtime does not know is an error.
        self.check("hipSetDevice", unsafe { sys::hipSetDevice(self.index as i32) })
    }

    /// An error of this device unless the call succeeded.
    fn check(&self, call: &'static str, code: sys::hipError_t) -> Result<()> {
        library::check(self.index, call, code)
    }
}

impl Driver for HipDriver {
    const KIND: BackendKind = BackendKind::Hip;
    const TILES: &'static [&'static str] = &kernels::MMQ_TILES;
    const NO_DEVICE: &'static str =
        "the HIP runtime sees no device (HIP_VISIBLE_DEVICES may hide them)";

    fn count() -> Result<u32> {
        Library::get()?.count()
    }

    fn describe(index: u32) -> Result<DeviceInfo> {
        let library = Library::get()?;
        let p = properties(index)?;
        let id = DeviceId { kind: BackendKind::Hip, index };
        let mut info = DeviceInfo::new(id, text(&p.name));
        // As `gfx90a:sramecc+:xnack-`: the features after the colon go.
        info.arch = text(&p.gcnArchName).split(':').next().unwrap_or_default().to_owned();
        info.driver = format!("HIP {}", library.version());
        info.units = u32::try_from(p.multiProcessorCount).unwrap_or(1);
        info.wave = u32::try_from(p.warpSize).unwrap_or(0);
        Ok(info)
    }

    fn runs_on(info: &DeviceInfo) -> Result<()> {
        images::check(info)
    }

    fn open(info: &DeviceInfo) -> Result<Self> {
        let index = info.id.index;
        let shared_memory = u32::try_from(properties(index)?.sharedMemPerBlock).unwrap_or(u32::MAX);
        Ok(Self { index, shared_memory })
    }

    fn opened() -> &'static Opened<Self> {
        static OPENED: Opened<HipDriver> = Opened::new();
        &OPENED
    }

    fn image(unit: &str, info: &DeviceInfo) -> Option<&'static [u8]> {
        kernels::image(unit, &info.arch)
    }

    fn archs() -> Vec<&'static str> {
        kernels::archs()
    }

    fn shared_memory(&self) -> u32 {
        self.shared_memory
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        self.check("hipMemGetInfo", unsafe { sys::hipMemGetInfo(&mut free, &mut total) })?;
        Ok((free, total))
    }

    fn alloc(&self, bytes: usize) -> Result<Option<u64>> {
        self.enter()?;
        let mut pointer = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        match unsafe { sys::hipMalloc(&mut pointer, bytes) } {
            sys::hipError_t_hipErrorOutOfMemory => Ok(None),
            code => self.check("hipMalloc", code).map(|()| Some(pointer as u64)),
        }
    }

    unsafe fn free(&self, address: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("hipFree", unsafe { sys::hipFree(address as *mut c_void) })
    }

    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.enter()?;
        let mut pointer = std::ptr::null_mut::<c_void>();
        // SAFETY: writes one pointer; 0 are the default flags.
        let code = unsafe { sys::hipHostMalloc(&mut pointer, bytes, 0) };
        self.check("hipHostMalloc (pinned host memory)", code)?;
        NonNull::new(pointer.cast()).ok_or_else(|| {
            library::failure(self.index, "hipHostMalloc", sys::hipError_t_hipErrorOutOfMemory)
        })
    }

    unsafe fn free_host(&self, memory: NonNull<u8>) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("hipHostFree", unsafe { sys::hipHostFree(memory.as_ptr().cast()) })
    }

    unsafe fn copy_in(&self, stream: StreamHandle, to: u64, from: *const [u8]) -> Result<()> {
        self.enter()?;
        let kind = sys::hipMemcpyKind_hipMemcpyHostToDevice;
        let (to, bytes) = (to as *mut c_void, from.len());
        // SAFETY: the caller's.
        let code = unsafe { sys::hipMemcpyAsync(to, from.cast(), bytes, kind, raw(stream)) };
        self.check("hipMemcpyAsync (to the device)", code)
    }

    unsafe fn copy_out(&self, stream: StreamHandle, to: *mut [u8], from: u64) -> Result<()> {
        self.enter()?;
        let kind = sys::hipMemcpyKind_hipMemcpyDeviceToHost;
        let (from, bytes) = (from as *const c_void, to.len());
        // SAFETY: the caller's.
        let code = unsafe { sys::hipMemcpyAsync(to.cast(), from, bytes, kind, raw(stream)) };
        self.check("hipMemcpyAsync (from the device)", code)
    }

    unsafe fn copy(&self, stream: StreamHandle, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.enter()?;
        let kind = sys::hipMemcpyKind_hipMemcpyDeviceToDevice;
        let (to, from) = (to as *mut c_void, from as *const c_void);
        // SAFETY: the caller's.
        let code = unsafe { sys::hipMemcpyAsync(to, from, bytes, kind, raw(stream)) };
        self.check("hipMemcpyAsync (on the device)", code)
    }

    unsafe fn fill(&self, stream: StreamHandle, to: u64, byte: u8, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        let code =
            unsafe { sys::hipMemsetAsync(to as *mut c_void, byte.into(), bytes, raw(stream)) };
        self.check("hipMemsetAsync", code)
    }

    fn new_stream(&self) -> Result<StreamHandle> {
        const NON_BLOCKING: u32 = 1;
        self.enter()?;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let code = unsafe { sys::hipStreamCreateWithFlags(&mut stream, NON_BLOCKING) };
        self.check("hipStreamCreateWithFlags", code)?;
        Ok(StreamHandle(stream.cast()))
    }

    unsafe fn end_stream(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("hipStreamDestroy", unsafe { sys::hipStreamDestroy(raw(stream)) })
    }

    unsafe fn check_stream(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        let mut device = -1;
        // SAFETY: the caller's; writes one int.
        let code = unsafe { sys::hipStreamGetDevice(raw(stream), &mut device) };
        self.check("hipStreamGetDevice", code)?;
        if device == self.index as i32 {
            return Ok(());
        }
        let expected = format!("one of hip:{}", self.index);
        Err(Error::invalid("stream", format!("one of hip:{device}"), expected))
    }

    fn wait_stream(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream lives.
        self.check("hipStreamSynchronize", unsafe { sys::hipStreamSynchronize(raw(stream)) })
    }

    fn new_event(&self, timed: bool) -> Result<EventHandle> {
        const DISABLE_TIMING: u32 = 2;
        self.enter()?;
        let mut event = std::ptr::null_mut();
        let flags = if timed { 0 } else { DISABLE_TIMING };
        // SAFETY: writes one handle.
        let code = unsafe { sys::hipEventCreateWithFlags(&mut event, flags) };
        self.check("hipEventCreateWithFlags", code)?;
        Ok(EventHandle(event.cast()))
    }

    unsafe fn end_event(&self, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's; the runtime keeps it until it has been passed.
        self.check("hipEventDestroy", unsafe { sys::hipEventDestroy(point(event)) })
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: event and stream live, on the same device.
        self.check("hipEventRecord", unsafe { sys::hipEventRecord(point(event), raw(stream)) })
    }

    fn passed(&self, event: EventHandle) -> Result<bool> {
        self.enter()?;
        // SAFETY: the event lives.
        match unsafe { sys::hipEventQuery(point(event)) } {
            sys::hipError_t_hipErrorNotReady => Ok(false),
            code => self.check("hipEventQuery", code).map(|()| true),
        }
    }

    fn wait_event(&self, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the event lives.
        self.check("hipEventSynchronize", unsafe { sys::hipEventSynchronize(point(event)) })
    }

    fn wait_for(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: stream and event live, on the same device.
        let code = unsafe { sys::hipStreamWaitEvent(raw(stream), point(event), 0) };
        self.check("hipStreamWaitEvent", code)
    }

    fn elapsed(&self, from: EventHandle, to: EventHandle) -> Result<f32> {
        self.enter()?;
        let mut milliseconds = 0f32;
        // SAFETY: both live, were recorded with timing and have been passed.
        let code = unsafe { sys::hipEventElapsedTime(&mut milliseconds, point(from), point(to)) };
        self.check("hipEventElapsedTime", code)?;
        Ok(milliseconds)
    }

    fn load(&self, image: &'static [u8]) -> Result<ImageHandle> {
        self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: a whole ELF file, which knows its own size.
        let code = unsafe { sys::hipModuleLoadData(&mut module, image.as_ptr().cast()) };
        self.check("hipModuleLoadData", code)?;
        Ok(ImageHandle(module.cast()))
    }

    unsafe fn unload(&self, image: ImageHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("hipModuleUnload", unsafe { sys::hipModuleUnload(module(image)) })
    }

    fn words(&self, image: ImageHandle, name: &str) -> Result<Vec<u32>> {
        self.enter()?;
        let (mut address, mut bytes) = (std::ptr::null_mut(), 0);
        let symbol = c_name(name);
        // SAFETY: the module is loaded and the name NUL-terminated; writes an address and a size.
        let code = unsafe {
            sys::hipModuleGetGlobal(&mut address, &mut bytes, module(image), symbol.as_ptr())
        };
        self.check("hipModuleGetGlobal", code)?;
        let mut words = vec![0u32; bytes / 4];
        // SAFETY: the variable has `bytes` bytes, `words` no more.
        let code =
            unsafe { sys::hipMemcpyDtoH(words.as_mut_ptr().cast(), address, words.len() * 4) };
        self.check("hipMemcpyDtoH", code)?;
        Ok(words)
    }

    fn kernel(&self, image: ImageHandle, name: &str) -> Result<KernelHandle> {
        self.enter()?;
        let mut function = std::ptr::null_mut();
        let symbol = c_name(name);
        // SAFETY: the module is loaded and the name NUL-terminated; writes one handle.
        let code =
            unsafe { sys::hipModuleGetFunction(&mut function, module(image), symbol.as_ptr()) };
        self.check("hipModuleGetFunction", code)?;
        Ok(KernelHandle(function.cast()))
    }

    fn prepare(&self, kernel: KernelHandle, threads: u32, shared: u32) -> Result<u32> {
        self.enter()?;
        let mut blocks = 0;
        // SAFETY: writes one int.
        let code = unsafe {
            sys::hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(
                &mut blocks,
                function(kernel),
                threads as i32,
                shared as usize,
            )
        };
        self.check("hipModuleOccupancyMaxActiveBlocksPerMultiprocessor", code)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    unsafe fn launch(&self, stream: StreamHandle, launch: Launch, args: *const [u8]) -> Result<()> {
        self.enter()?;
        let Launch { kernel, blocks, threads, shared } = launch;
        let mut params = [args.cast::<c_void>().cast_mut()];
        // SAFETY: the kernel has one parameter, which is copied before the call
        // returns; the runtime checks the launch against the device's limits.
        let code = unsafe {
            sys::hipModuleLaunchKernel(
                function(kernel),
                blocks,
                1,
                1,
                threads,
                1,
                1,
                shared,
                raw(stream),
                params.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        self.check("hipModuleLaunchKernel", code)
    }
}

fn raw(stream: StreamHandle) -> sys::hipStream_t {
    stream.0.cast()
}

fn point(event: EventHandle) -> sys::hipEvent_t {
    event.0.cast()
}

fn module(image: ImageHandle) -> sys::hipModule_t {
    image.0.cast()
}

fn function(kernel: KernelHandle) -> sys::hipFunction_t {
    kernel.0.cast()
}

fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

fn properties(index: u32) -> Result<sys::hipDeviceProp_tR0600> {
    // SAFETY: the structure is plain data, for which zeros are a value.
    let mut p: sys::hipDeviceProp_tR0600 = unsafe { std::mem::zeroed() };
    // SAFETY: the symbol names the structure's version, and `p` is one.
    let code = unsafe { sys::hipGetDevicePropertiesR0600(&mut p, index as i32) };
    library::check(index, "hipGetDeviceProperties", code)?;
    Ok(p)
}

fn text(chars: &[c_char]) -> String {
    let bytes = chars.iter().map(|c| c.cast_unsigned()).take_while(|&c| c != 0).collect();
    String::from_utf8(bytes).unwrap_or_default()
}
