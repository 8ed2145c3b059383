//! Devices: what they say of themselves, and what the handles on one share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use cudarc::driver::sys::{self, CUcontext, CUdevice_attribute_enum as Attribute, CUresult};
use strata_core::backend::{BackendKind, DeviceId, DeviceInfo, MemoryInfo};
use strata_core::{Error, Result};

use crate::driver::{self, Driver};
use crate::images;
use crate::memory::{Block, Owner, Pool};
use crate::module::Modules;
use crate::stream::{Event, Streams};

/// A handle of the driver. Its functions may be called from any thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Raw<T>(pub(crate) T);

// SAFETY: the driver's handles are names that hold in the whole process, and its
// entry points are thread safe; what a call does with memory is the caller's.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

/// One device of this process, as all handles on it share it.
pub(crate) struct Device {
    pub(crate) info: DeviceInfo,
    pub(crate) limits: Limits,
    pub(crate) streams: Streams,
    pub(crate) modules: Modules,
    pool: Pool<DriverMemory>,
    /// Owners of memory that was dropped, and what has to pass before they go.
    retired: Mutex<Vec<(Vec<Event>, Owner)>>,
    context: Arc<Context>,
}

/// What launches must keep to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Multiprocessors.
    pub(crate) units: u32,
    /// Bytes of shared memory a block may have, after asking for it.
    pub(crate) shared: u32,
}

impl Device {
    /// The device, opened once however often it is asked for.
    pub(crate) fn open(index: u32) -> Result<Arc<Self>> {
        static OPEN: Mutex<Vec<(u32, Weak<Device>)>> = Mutex::new(Vec::new());
        let driver = Driver::get()?;
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, device)| device.strong_count() > 0);
        let known = open.iter().find(|(i, _)| *i == index);
        if let Some(device) = known.and_then(|(_, device)| device.upgrade()) {
            return Ok(device);
        }
        let device = Arc::new(Self::new(driver, index)?);
        open.push((index, Arc::downgrade(&device)));
        Ok(device)
    }

    fn new(driver: Driver, index: u32) -> Result<Self> {
        let (info, capability) = describe(driver, index)?;
        images::check(&info, capability)?;
        let handle = handle(driver, index)?;
        let attribute = |what| attribute(index, handle, what);
        // Some drivers have reported less for "after asking" than for "without".
        let plain = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK)?;
        let asked = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let limits = Limits { units: info.units.max(1), shared: plain.max(asked) };

        let context = Arc::new(Context::retain(index, handle)?);
        context.enter()?;
        let device = Self {
            info,
            limits,
            streams: Streams::default(),
            modules: Modules::default(),
            pool: Pool::new(DriverMemory { context: Arc::clone(&context) }),
            retired: Mutex::default(),
            context,
        };
        // A small image: one that does not load is found out now, not in the middle of a layer.
        device.modules.load(&device, "map")?;
        Ok(device)
    }

    /// Makes the calling thread's next calls go to this device.
    pub(crate) fn enter(&self) -> Result<()> {
        self.context.enter()
    }

    /// An error of this device unless the call succeeded.
    pub(crate) fn check(&self, call: &'static str, result: CUresult) -> Result<()> {
        driver::check(Some(self.info.id.index), call, result)
    }

    /// An error of this device in our words.
    pub(crate) fn error(&self, call: &'static str, detail: String) -> Error {
        Error::Device { device: self.info.id.to_string(), call, detail }
    }

    /// Memory that no stream uses.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<Block> {
        self.enter()?;
        self.reap();
        self.pool.alloc(bytes)?.ok_or_else(|| match self.memory() {
            Ok(MemoryInfo { free, total }) => Error::OutOfMemory {
                device: self.info.id.to_string(),
                asked: bytes as u64,
                free,
                total,
            },
            Err(error) => error,
        })
    }

    /// Takes memory back, for use when all streams have passed this point.
    pub(crate) fn release(&self, block: Block) {
        // Without a context, and after a fault, there is nothing to give back to:
        // the driver frees what is left when the last handle goes.
        let fences = self.enter().and_then(|()| self.streams.fences(self));
        match fences {
            Ok(fences) => self.pool.release(block, fences),
            Err(error) => tracing::debug!("{}: memory left to the driver: {error}", self.info.id),
        }
    }

    /// Drops the owner of adopted memory when all streams have passed this point.
    pub(crate) fn retire(&self, owner: Owner) {
        match self.enter().and_then(|()| self.streams.fences(self)) {
            Ok(fences) => self.retired().push((fences, owner)),
            Err(error) => {
                // Whether a stream still uses the memory cannot be known: its owner stays.
                std::mem::forget(owner);
                tracing::debug!("{}: adopted memory is kept for good: {error}", self.info.id);
            }
        }
        self.reap();
    }

    /// Drops owners whose memory all streams have passed.
    pub(crate) fn reap(&self) {
        let mut gone = Vec::new();
        {
            let mut retired = self.retired();
            if retired.is_empty() || self.enter().is_err() {
                return;
            }
            let passed = |fences: &[Event]| fences.iter().all(|f| matches!(f.passed(), Ok(true)));
            let mut i = 0;
            while i < retired.len() {
                match passed(&retired[i].0) {
                    true => gone.push(retired.swap_remove(i)),
                    false => i += 1,
                }
            }
        }
        // Outside the lock: an owner may call the backend when it is dropped.
        drop(gone);
    }

    fn retired(&self) -> MutexGuard<'_, Vec<(Vec<Event>, Owner)>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The context, to be compared.
    pub(crate) fn context(&self) -> CUcontext {
        self.context.raw.0
    }

    /// Free and total memory; what the pool keeps is free.
    pub(crate) fn memory(&self) -> Result<MemoryInfo> {
        self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two sizes.
        let result = unsafe { sys::cuMemGetInfo_v2(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", result)?;
        let kept = self.pool.kept();
        Ok(MemoryInfo { free: (free + kept).min(total) as u64, total: total as u64 })
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // Streams hold the device, so all of them are gone and have been waited for.
        if self.enter().is_ok() {
            self.modules.unload();
            self.pool.trim();
            drop(std::mem::take(&mut *self.retired()));
        }
    }
}

/// The primary context, kept alive.
struct Context {
    index: u32,
    handle: sys::CUdevice,
    raw: Raw<CUcontext>,
}

impl Context {
    fn retain(index: u32, handle: sys::CUdevice) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: the device exists; writes one handle, released in drop.
        let result = unsafe { sys::cuDevicePrimaryCtxRetain(&raw mut raw, handle) };
        driver::check(Some(index), "cuDevicePrimaryCtxRetain", result)?;
        Ok(Self { index, handle, raw: Raw(raw) })
    }

    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained.
        let result = unsafe { sys::cuCtxSetCurrent(self.raw.0) };
        driver::check(Some(self.index), "cuCtxSetCurrent", result)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained once, by `retain`.
        let result = unsafe { sys::cuDevicePrimaryCtxRelease_v2(self.handle) };
        if let Err(error) = driver::check(Some(self.index), "cuDevicePrimaryCtxRelease", result) {
            tracing::debug!("{error}");
        }
    }
}

/// Where the pool's memory comes from.
struct DriverMemory {
    context: Arc<Context>,
}

impl crate::memory::Source for DriverMemory {
    type Fence = Event;

    fn alloc(&self, bytes: usize) -> Result<Option<u64>> {
        self.context.enter()?;
        let mut address = 0;
        // SAFETY: writes one address.
        match unsafe { sys::cuMemAlloc_v2(&raw mut address, bytes) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Ok(None),
            result => {
                driver::check(Some(self.context.index), "cuMemAlloc", result)?;
                Ok(Some(address))
            }
        }
    }

    fn free(&self, address: u64) {
        let freed = self.context.enter().and_then(|()| {
            // SAFETY: the pool frees only what `alloc` gave and no stream uses any more.
            let result = unsafe { sys::cuMemFree_v2(address) };
            driver::check(Some(self.context.index), "cuMemFree", result)
        });
        if let Err(error) = freed {
            tracing::debug!("{error}");
        }
    }

    fn passed(&self, fence: &Event) -> Result<bool> {
        fence.passed()
    }

    fn wait(&self, fence: &Event) -> Result<()> {
        fence.wait()
    }
}

/// All devices the driver shows, also those no image in this binary runs on.
///
/// # Errors
/// [`Error::Unavailable`] where there is no usable driver or no device.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    let driver = Driver::get()?;
    (0..driver.count()?).map(|index| Ok(describe(driver, index)?.0)).collect()
}

/// The first device that this binary has images for.
///
/// # Errors
/// [`Error::Unavailable`] where there is none, with what stands against each.
pub fn best() -> Result<u32> {
    let driver = Driver::get()?;
    let mut reasons = Vec::new();
    for index in 0..driver.count()? {
        let (info, capability) = describe(driver, index)?;
        match images::check(&info, capability) {
            Ok(()) => {
                for reason in &reasons {
                    tracing::warn!("cuda: a device is passed over: {reason}");
                }
                return Ok(index);
            }
            Err(error) => reasons.push(error.to_string()),
        }
    }
    let reason = match reasons.is_empty() {
        true => NO_DEVICE.to_owned(),
        false => reasons.join("; "),
    };
    Err(Error::Unavailable { kind: BackendKind::Cuda, reason })
}

/// What is said where the driver starts and counts none.
const NO_DEVICE: &str = "the driver shows no device (CUDA_VISIBLE_DEVICES may hide them)";

/// Major and minor of a device's architecture.
pub(crate) type Capability = (u32, u32);

fn handle(driver: Driver, index: u32) -> Result<sys::CUdevice> {
    let count = driver.count()?;
    if index >= count {
        if count == 0 {
            let reason = NO_DEVICE.to_owned();
            return Err(Error::Unavailable { kind: BackendKind::Cuda, reason });
        }
        let expected = match count {
            1 => "0, the only one".to_owned(),
            n => format!("0 to {}, as there are {n}", n - 1),
        };
        return Err(Error::invalid("cuda device", index, expected));
    }
    let mut handle = 0;
    // SAFETY: writes one handle; the index is below 2^31 as the count is.
    let result = unsafe { sys::cuDeviceGet(&raw mut handle, index as i32) };
    driver::check(Some(index), "cuDeviceGet", result)?;
    Ok(handle)
}

fn attribute(index: u32, handle: sys::CUdevice, what: Attribute) -> Result<u32> {
    let mut value = 0;
    // SAFETY: the device exists; writes one int.
    let result = unsafe { sys::cuDeviceGetAttribute(&raw mut value, what, handle) };
    driver::check(Some(index), "cuDeviceGetAttribute", result)?;
    Ok(u32::try_from(value).unwrap_or(0))
}

fn describe(driver: Driver, index: u32) -> Result<(DeviceInfo, Capability)> {
    let handle = handle(driver, index)?;
    let mut name = [0u8; 256];
    // SAFETY: writes at most 256 bytes, NUL-terminated.
    let result = unsafe { sys::cuDeviceGetName(name.as_mut_ptr().cast(), 256, handle) };
    driver::check(Some(index), "cuDeviceGetName", result)?;
    let end = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    let attribute = |what| attribute(index, handle, what);
    let major = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
    let minor = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?;
    let id = DeviceId { kind: BackendKind::Cuda, index };
    let mut info = DeviceInfo::new(id, String::from_utf8_lossy(&name[..end]));
    info.arch = format!("sm_{major}{minor}");
    info.driver = format!("CUDA {}", driver.version());
    info.units = attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)?;
    info.wave = attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE)?;
    Ok((info, (major, minor)))
}
