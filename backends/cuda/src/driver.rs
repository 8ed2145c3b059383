//! The calls of one device.

use std::ffi::{CString, c_void};
use std::ptr::NonNull;

use cudarc::driver::sys::{
    self, CUcontext, CUdevice, CUdevice_attribute_enum as Attribute, CUevent,
    CUevent_flags_enum as EventFlags, CUfunction, CUfunction_attribute_enum as FunctionAttribute,
    CUmodule, CUresult, CUstream,
};
use strata_core::backend::{BackendKind, DeviceId, DeviceInfo};
use strata_core::{Error, Result};
use strata_gpu::{Driver, EventHandle, ImageHandle, KernelHandle, Launch, Opened, StreamHandle};
use strata_kernels_cuda as kernels;

use crate::images;
use crate::library::{self, Library};

/// Bytes of dynamic shared memory that every block may have without asking.
const UNASKED: u32 = 48 << 10;

/// The driver of NVIDIA GPUs: one device, its primary context kept alive.
pub struct CudaDriver {
    index: u32,
    device: CUdevice,
    context: Context,
    shared_memory: u32,
}

/// A handle of the driver.
struct Context(CUcontext);

// SAFETY: the driver's handles are names that hold in the whole process, and its entry points
// are thread safe.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl CudaDriver {
    /// Makes the calling thread's next calls go to this device.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained.
        self.check("cuCtxSetCurrent", unsafe { sys::cuCtxSetCurrent(self.context.0) })
    }

    /// An error of this device unless the call succeeded.
    fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        library::check(Some(self.index), call, result)
    }
}

impl Drop for CudaDriver {
    fn drop(&mut self) {
        // SAFETY: retained once, by `open`.
        let result = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.device) };
        if let Err(error) = self.check("cuDevicePrimaryCtxRelease", result) {
            tracing::debug!("{error}");
        }
    }
}

impl Driver for CudaDriver {
    const KIND: BackendKind = BackendKind::Cuda;
    const TILES: &'static [&'static str] = &kernels::MMQ_TILES;
    const NO_DEVICE: &'static str =
        "the driver shows no device (CUDA_VISIBLE_DEVICES may hide them)";

    fn count() -> Result<u32> {
        Library::get()?.count()
    }

    fn describe(index: u32) -> Result<DeviceInfo> {
        let library = Library::get()?;
        let device = device(index)?;
        let mut name = [0u8; 256];
        // SAFETY: writes at most 256 bytes, NUL-terminated.
        let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 256, device) };
        library::check(Some(index), "cuDeviceGetName", result)?;
        let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        let attribute = |what| attribute(index, device, what);
        let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
        let id = DeviceId { kind: BackendKind::Cuda, index };
        let mut info = DeviceInfo::new(id, String::from_utf8_lossy(&name[..end]));
        info.arch = format!("sm_{major}{minor}");
        info.driver = format!("CUDA {}", library.version());
        info.units = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
        info.wave = attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
        Ok(info)
    }

    fn runs_on(info: &DeviceInfo) -> Result<()> {
        images::check(info)
    }

    fn open(info: &DeviceInfo) -> Result<Self> {
        let index = info.id.index;
        let device = device(index)?;
        let attribute = |what| attribute(index, device, what);
        // Some drivers have reported less for "after asking" than for "without".
        let plain = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
        let asked = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the device exists; writes one handle, released in drop.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut context, device) };
        library::check(Some(index), "cuDevicePrimaryCtxRetain", result)?;
        Ok(Self { index, device, context: Context(context), shared_memory: plain.max(asked) })
    }

    fn opened() -> &'static Opened<Self> {
        static OPENED: Opened<CudaDriver> = Opened::new();
        &OPENED
    }

    fn image(unit: &str, _: &DeviceInfo) -> Option<&'static [u8]> {
        kernels::image(unit)
    }

    fn archs() -> Vec<&'static str> {
        kernels::archs().to_vec()
    }

    fn shared_memory(&self) -> u32 {
        self.shared_memory
    }

    fn memory(&self) -> Result<(usize, usize)> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        let result = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", result)?;
        Ok((free, total))
    }

    fn alloc(&self, bytes: usize) -> Result<Option<u64>> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: writes one address.
        match unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => self.check("cuMemAlloc", result).map(|()| Some(address)),
        }
    }

    unsafe fn free(&self, address: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("cuMemFree", unsafe { sys::cuMemFree_v2(address) })
    }

    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>> {
        self.enter()?;
        let mut data = std::ptr::null_mut::<c_void>();
        // SAFETY: writes one pointer.
        let result = unsafe { sys::cuMemHostAlloc(&raw mut data, bytes, 0) };
        self.check("cuMemHostAlloc (pinned host memory)", result)?;
        NonNull::new(data.cast()).ok_or_else(|| {
            library::failure(Some(self.index), "cuMemHostAlloc", CUresult::CUDA_ERROR_OUT_OF_MEMORY)
        })
    }

    unsafe fn free_host(&self, memory: NonNull<u8>) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("cuMemFreeHost", unsafe { sys::cuMemFreeHost(memory.as_ptr().cast()) })
    }

    unsafe fn copy_in(&self, stream: StreamHandle, to: u64, from: *const [u8]) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        let result = unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), from.len(), raw(stream)) };
        self.check("cuMemcpyHtoDAsync", result)
    }

    unsafe fn copy_out(&self, stream: StreamHandle, to: *mut [u8], from: u64) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        let result = unsafe { sys::cuMemcpyDtoHAsync_v2(to.cast(), from, to.len(), raw(stream)) };
        self.check("cuMemcpyDtoHAsync", result)
    }

    unsafe fn copy(&self, stream: StreamHandle, to: u64, from: u64, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        let result = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes, raw(stream)) };
        self.check("cuMemcpyDtoDAsync", result)
    }

    unsafe fn fill(&self, stream: StreamHandle, to: u64, byte: u8, bytes: usize) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        let result = unsafe { sys::cuMemsetD8Async(to, byte, bytes, raw(stream)) };
        self.check("cuMemsetD8Async", result)
    }

    fn new_stream(&self) -> Result<StreamHandle> {
        self.enter()?;
        let flags = sys::CUstream_flags_enum::CU_STREAM_NON_BLOCKING as u32;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let result = unsafe { sys::cuStreamCreate(&raw mut stream, flags) };
        self.check("cuStreamCreate", result)?;
        Ok(StreamHandle(stream.cast()))
    }

    unsafe fn end_stream(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("cuStreamDestroy", unsafe { sys::cuStreamDestroy_v2(raw(stream)) })
    }

    unsafe fn check_stream(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        let mut context = std::ptr::null_mut();
        // SAFETY: the caller's; writes one handle.
        let result = unsafe { sys::cuStreamGetCtx(raw(stream), &raw mut context) };
        self.check("cuStreamGetCtx", result)?;
        if context == self.context.0 {
            return Ok(());
        }
        let expected = format!("one of the primary context of cuda:{}", self.index);
        Err(Error::invalid("stream", "one of another context", expected))
    }

    fn wait_stream(&self, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the stream lives.
        self.check("cuStreamSynchronize", unsafe { sys::cuStreamSynchronize(raw(stream)) })
    }

    fn new_event(&self, timed: bool) -> Result<EventHandle> {
        self.enter()?;
        let flags = match timed {
            true => EventFlags::CU_EVENT_DEFAULT,
            false => EventFlags::CU_EVENT_DISABLE_TIMING,
        };
        let mut event = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let result = unsafe { sys::cuEventCreate(&raw mut event, flags as u32) };
        self.check("cuEventCreate", result)?;
        Ok(EventHandle(event.cast()))
    }

    unsafe fn end_event(&self, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's; the driver keeps it until it has been passed.
        self.check("cuEventDestroy", unsafe { sys::cuEventDestroy_v2(point(event)) })
    }

    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: event and stream live, in the same context.
        self.check("cuEventRecord", unsafe { sys::cuEventRecord(point(event), raw(stream)) })
    }

    fn passed(&self, event: EventHandle) -> Result<bool> {
        self.enter()?;
        // SAFETY: the event lives.
        match unsafe { sys::cuEventQuery(point(event)) } {
            CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            result => self.check("cuEventQuery", result).map(|()| true),
        }
    }

    fn wait_event(&self, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the event lives.
        self.check("cuEventSynchronize", unsafe { sys::cuEventSynchronize(point(event)) })
    }

    fn wait_for(&self, stream: StreamHandle, event: EventHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: stream and event live, in the same context.
        let result = unsafe { sys::cuStreamWaitEvent(raw(stream), point(event), 0) };
        self.check("cuStreamWaitEvent", result)
    }

    fn elapsed(&self, from: EventHandle, to: EventHandle) -> Result<f32> {
        self.enter()?;
        let mut milliseconds = 0f32;
        // SAFETY: both live, were recorded with timing and have been passed.
        let result =
            unsafe { sys::cuEventElapsedTime_v2(&raw mut milliseconds, point(from), point(to)) };
        self.check("cuEventElapsedTime", result)?;
        Ok(milliseconds)
    }

    fn load(&self, image: &'static [u8]) -> Result<ImageHandle> {
        self.enter()?;
        let mut module = std::ptr::null_mut();
        // SAFETY: a whole fatbin as the compiler wrote it, which knows its own size.
        let result = unsafe { sys::cuModuleLoadData(&raw mut module, image.as_ptr().cast()) };
        self.check("cuModuleLoadData", result)?;
        Ok(ImageHandle(module.cast()))
    }

    unsafe fn unload(&self, image: ImageHandle) -> Result<()> {
        self.enter()?;
        // SAFETY: the caller's.
        self.check("cuModuleUnload", unsafe { sys::cuModuleUnload(module(image)) })
    }

    fn words(&self, image: ImageHandle, name: &str) -> Result<Vec<u32>> {
        self.enter()?;
        let (mut address, mut bytes) = (0, 0);
        let symbol = c_name(name);
        // SAFETY: the module is loaded and the name NUL-terminated; writes an address and a size.
        let result = unsafe {
            sys::cuModuleGetGlobal_v2(
                &raw mut address,
                &raw mut bytes,
                module(image),
                symbol.as_ptr(),
            )
        };
        self.check("cuModuleGetGlobal", result)?;
        let mut words = vec![0u32; bytes / 4];
        // SAFETY: the variable has `bytes` bytes, `words` no more.
        let result =
            unsafe { sys::cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), address, words.len() * 4) };
        self.check("cuMemcpyDtoH", result)?;
        Ok(words)
    }

    fn kernel(&self, image: ImageHandle, name: &str) -> Result<KernelHandle> {
        self.enter()?;
        let mut function = std::ptr::null_mut();
        let symbol = c_name(name);
        // SAFETY: the module is loaded and the name NUL-terminated; writes one handle.
        let result =
            unsafe { sys::cuModuleGetFunction(&raw mut function, module(image), symbol.as_ptr()) };
        self.check("cuModuleGetFunction", result)?;
        Ok(KernelHandle(function.cast()))
    }

    fn prepare(&self, kernel: KernelHandle, threads: u32, shared: u32) -> Result<u32> {
        self.enter()?;
        if shared > UNASKED {
            let most = FunctionAttribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            // SAFETY: the function's module is loaded.
            let result = unsafe { sys::cuFuncSetAttribute(function(kernel), most, shared as i32) };
            self.check("cuFuncSetAttribute", result)?;
        }
        let mut blocks = 0;
        // SAFETY: writes one int.
        let result = unsafe {
            sys::cuOccupancyMaxActiveBlocksPerMultiprocessor(
                &raw mut blocks,
                function(kernel),
                threads as i32,
                shared as usize,
            )
        };
        self.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", result)?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    unsafe fn launch(&self, stream: StreamHandle, launch: Launch, args: *const [u8]) -> Result<()> {
        self.enter()?;
        let Launch { kernel, blocks, threads, shared } = launch;
        let mut params = [args.cast::<c_void>().cast_mut()];
        // SAFETY: the kernel has one parameter, which is copied before the call
        // returns; the driver checks the launch against the device's limits.
        let result = unsafe {
            sys::cuLaunchKernel(
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
        self.check("cuLaunchKernel", result)
    }
}

fn raw(stream: StreamHandle) -> CUstream {
    stream.0.cast()
}

fn point(event: EventHandle) -> CUevent {
    event.0.cast()
}

fn module(image: ImageHandle) -> CUmodule {
    image.0.cast()
}

fn function(kernel: KernelHandle) -> CUfunction {
    kernel.0.cast()
}

fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_default()
}

/// A device that is there.
fn device(index: u32) -> Result<CUdevice> {
    let mut device = 0;
    // SAFETY: writes one handle; what is no index is an error.
    let result = unsafe { sys::cuDeviceGet(&raw mut device, index as i32) };
    library::check(Some(index), "cuDeviceGet", result)?;
    Ok(device)
}

fn attribute(index: u32, device: CUdevice, what: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the device exists; writes one int.
    let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, what, device) };
    library::check(Some(index), "cuDeviceGetAttribute", result)?;
    Ok(u32::try_from(value).unwrap_or(0))
}
