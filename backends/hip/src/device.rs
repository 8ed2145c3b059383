//! Finding and opening devices, and the memory half of the backend.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use strata_core::backend::{
    Backend, BackendKind, Checked, DeviceId, DeviceInfo, HostBytes, Mark, Memory, MemoryInfo, Raw,
    RawEvent, RawMut, StreamState,
};
use strata_core::{Error, Result};
use strata_kernels_hip as kernels;

use crate::memory::{self, HipMemory, Owner, Pool};
use crate::module::{Launch, Module, Modules};
use crate::options::HipOptions;
use crate::runtime::{self, Runtime};
use crate::stream::{HipEvent, HipMark, Stream};

/// Every AMD device of this machine, whether the kernels run on it or not.
///
/// # Errors
/// [`Error::Unavailable`] where the HIP runtime is missing or too old.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    (0..runtime::device_count()?).map(describe).collect()
}

/// The first device whose architecture the kernels were compiled for.
///
/// # Errors
/// [`Error::Unavailable`] with each device's reason where there is none.
pub fn best() -> Result<u32> {
    let mut reasons = Vec::new();
    for info in devices()? {
        match runs_on(&info) {
            Ok(()) => return Ok(info.id.index),
            Err(Error::Unavailable { reason, .. }) => reasons.push(reason),
            Err(other) => reasons.push(other.to_string()),
        }
    }
    if reasons.is_empty() {
        reasons.push(NO_DEVICE.to_owned());
    }
    Err(Error::Unavailable { kind: BackendKind::Hip, reason: reasons.join("; ") })
}

/// What is said where the runtime starts and counts none.
const NO_DEVICE: &str = "the HIP runtime sees no device (HIP_VISIBLE_DEVICES may hide them)";

fn describe(index: u32) -> Result<DeviceInfo> {
    let version = runtime::load()?;
    let p = Runtime::new(index).properties()?;
    let mut info = DeviceInfo::new(DeviceId { kind: BackendKind::Hip, index }, p.name);
    info.arch = p.arch;
    info.driver = format!("HIP {}", runtime::dotted(version));
    (info.units, info.wave) = (p.units, p.wave);
    Ok(info)
}

/// Whether there are kernels for it, with its wave.
fn runs_on(info: &DeviceInfo) -> Result<()> {
    let DeviceInfo { id, name, arch, wave, .. } = info;
    let built = kernels::archs();
    let unavailable = |reason| Err(Error::Unavailable { kind: BackendKind::Hip, reason });
    if !built.contains(&arch.as_str()) {
        let advice = match kernels::wave(arch) {
            Some(_) => format!("build with STRATA_HIP_ARCHS={arch}"),
            None => "the kernels do not compile for it".to_owned(),
        };
        return unavailable(format!(
            "{id} ({name}) is {arch}, and this binary has kernels for {}: {advice}",
            built.join(", ")
        ));
    }
    match kernels::wave(arch) {
        Some(expected) if expected == *wave => Ok(()),
        expected => unavailable(format!(
            "{id} ({name}): given waves of {wave} lanes, expected {} on {arch}",
            expected.unwrap_or(0)
        )),
    }
}

/// What the handles of one device share.
pub(crate) struct Device {
    pub(crate) info: DeviceInfo,
    /// Bytes of shared memory a block may have.
    pub(crate) shared: u32,
    pub(crate) runtime: Runtime,
    pub(crate) pool: Pool,
    pub(crate) modules: Modules,
    pub(crate) streams: Mutex<Vec<Weak<Stream>>>,
    /// Owners of memory that was dropped, and what has to pass before they go.
    retired: Mutex<Vec<(Vec<HipEvent>, Owner)>>,
}

impl Device {
    /// The device, opened once in a process: memory of one handle may be used
    /// and dropped while another handle's stream runs.
    pub(crate) fn open(index: u32) -> Result<Arc<Self>> {
        static OPEN: Mutex<Option<HashMap<u32, Weak<Device>>>> = Mutex::new(None);
        let count = runtime::device_count()?;
        if count == 0 {
            let reason = NO_DEVICE.to_owned();
            return Err(Error::Unavailable { kind: BackendKind::Hip, reason });
        }
        if index >= count {
            let expected = match count {
                1 => "0, the only one".to_owned(),
                n => format!("0 to {}", n - 1),
            };
            return Err(Error::invalid("hip device", index, expected));
        }
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let open = open.get_or_insert_default();
        if let Some(device) = open.get(&index).and_then(Weak::upgrade) {
            return Ok(device);
        }
        let info = describe(index)?;
        runs_on(&info)?;
        let runtime = Runtime::new(index);
        let device = Arc::new(Self {
            info,
            shared: runtime.properties()?.shared,
            runtime,
            pool: Pool::default(),
            modules: Modules::default(),
            streams: Mutex::default(),
            retired: Mutex::default(),
        });
        open.insert(index, Arc::downgrade(&device));
        Ok(device)
    }

    /// An error of this device.
    pub(crate) fn error(&self, call: &'static str, detail: String) -> Error {
        Error::Device { device: self.info.id.to_string(), call, detail }
    }

    /// Drops the owner of adopted memory when all streams have passed this point.
    pub(crate) fn retire(&self, owner: Owner) {
        let fences: Result<Vec<_>> = self.live_streams().iter().map(|s| HipEvent::new(s)).collect();
        match fences {
            Ok(fences) => self.retired().push((fences, owner)),
            // Whether a stream still uses the memory cannot be known: its owner stays.
            Err(_) => std::mem::forget(owner),
        }
        self.reap();
    }

    /// Drops owners whose memory all streams have passed.
    pub(crate) fn reap(&self) {
        let mut gone = Vec::new();
        {
            let mut retired = self.retired();
            let mut i = 0;
            while i < retired.len() {
                match retired[i].0.iter().all(|fence| matches!(fence.passed(), Ok(true))) {
                    true => gone.push(retired.swap_remove(i)),
                    false => i += 1,
                }
            }
        }
        // Outside the lock: an owner may call the backend when it is dropped.
        drop(gone);
    }

    fn retired(&self) -> MutexGuard<'_, Vec<(Vec<HipEvent>, Owner)>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The streams that there are at this moment.
    pub(crate) fn live_streams(&self) -> Vec<Arc<Stream>> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|s| s.strong_count() > 0);
        streams.iter().filter_map(Weak::upgrade).collect()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // All handles and buffers are gone, so every stream has been waited for.
        let _ = self.pool.empty(self);
        self.modules.clear();
        drop(std::mem::take(&mut *self.retired()));
    }
}

/// One stream on one AMD GPU.
pub struct HipBackend {
    pub(crate) stream: Arc<Stream>,
    order: StreamState,
    pub(crate) options: HipOptions,
}

impl HipBackend {
    /// Opens the device of this index.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the HIP runtime is missing, or has no
    /// kernels for the device's architecture, with both named;
    /// [`Error::Invalid`] where there is no such device.
    pub fn new(index: u32, options: HipOptions) -> Result<Self> {
        Ok(Self::on(Stream::new(Device::open(index)?)?, options))
    }

    pub(crate) fn on(stream: Arc<Stream>, options: HipOptions) -> Self {
        Self { stream, order: StreamState::new(), options }
    }

    pub(crate) fn gpu(&self) -> &Arc<Device> {
        &self.stream.device
    }

    /// Bytes of shared memory a block may have.
    pub(crate) fn shared_bytes(&self) -> u32 {
        self.options.shared_bytes.unwrap_or(u32::MAX).min(self.gpu().shared)
    }

    /// The module of a source, loaded if it is not yet.
    pub(crate) fn module(&self, unit: &str) -> Result<Arc<Module>> {
        self.gpu().modules.get(self.gpu(), unit)
    }

    /// The words that the image of a source exports under a name.
    pub(crate) fn shape<const N: usize>(&self, unit: &str, name: &str) -> Result<[u32; N]> {
        self.module(unit)?.shape(&self.stream, name)
    }

    /// Launches a kernel of a source.
    ///
    /// # Safety
    /// The kernel takes one `A`, and what that says holds.
    pub(crate) unsafe fn launch<A: Copy>(
        &self,
        unit: &str,
        name: &str,
        launch: Launch,
        args: &A,
    ) -> Result<()> {
        // SAFETY: the caller's.
        unsafe { self.module(unit)?.launch(&self.stream, name, launch, args) }
    }

    /// Blocks for `work` pieces of which a block does `each` at a time: enough
    /// to fill the device some times over, and the blocks take turns.
    pub(crate) fn blocks(&self, work: u64, each: u32) -> u32 {
        let most = u64::from(self.stream.device.info.units) * 32;
        // At most `units * 32` blocks, which fit a u32.
        work.div_ceil(u64::from(each.max(1))).clamp(1, most.max(1)) as u32
    }
}

impl Drop for HipBackend {
    fn drop(&mut self) {
        // Marks may keep the stream, which would wait only then. Core takes what was not waited for
        // as failed, so the error has no use.
        let _ = self.stream.synchronize();
    }
}

// SAFETY: handles of one index share one `Device` and its memory; kernels get the addresses and sizes of
// what they are handed, in one stream; memory waits for all streams before it is used again.
unsafe impl Backend for HipBackend {
    fn device(&self) -> &DeviceInfo {
        &self.stream.device.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        let (free, total) = self.stream.device.runtime.memory()?;
        let idle = self.stream.device.pool.idle_bytes();
        Ok(MemoryInfo { free: (free as u64).saturating_add(idle), total: total as u64 })
    }

    fn stream(&self) -> &StreamState {
        &self.order
    }

    fn fork(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self::on(Stream::new(Arc::clone(self.gpu()))?, self.options)))
    }

    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        Ok(Box::new(HipMemory::new(&self.stream.device, *bytes)?))
    }

    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
        let memory = HipMemory::new(&self.stream.device, host.len())?;
        // SAFETY: the memory was made for as many bytes.
        unsafe { self.stream.upload(memory.address(), host.as_slice())? };
        Ok(Box::new(memory))
    }

    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()> {
        let to = dst.memory::<HipMemory>().address() + dst.offset() as u64;
        // SAFETY: core has checked that the region has the source's length and lies in the buffer.
        unsafe { self.stream.upload(to, src) }
    }

    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()> {
        // SAFETY: as in `upload_raw`.
        unsafe { self.stream.download(memory::address(*src), dst) }
    }

    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()> {
        let to = dst.memory::<HipMemory>().address() + dst.offset() as u64;
        // SAFETY: core has checked that the region lies in the buffer.
        unsafe { self.stream.device.runtime.fill(to, byte, dst.bytes(), self.stream.handle) }
    }

    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()> {
        let to = dst.memory::<HipMemory>().address() + dst.offset() as u64;
        let (runtime, stream) = (self.stream.device.runtime, self.stream.handle);
        // SAFETY: core has checked that both regions lie in their buffers and are as long.
        unsafe { runtime.copy(to, memory::address(*src), dst.bytes(), stream) }
    }

    fn synchronize_raw(&self, _: Checked<()>) -> Result<()> {
        self.stream.synchronize()?;
        self.gpu().reap();
        Ok(())
    }

    fn record_raw(&self, _: Checked<()>) -> Result<Box<dyn RawEvent>> {
        Ok(Box::new(HipEvent::new(&self.stream)?))
    }

    fn wait_raw(&self, event: Checked<&dyn RawEvent>) -> Result<()> {
        HipEvent::wait(*event, &self.stream)
    }

    fn mark(&self) -> Result<Box<dyn Mark>> {
        Ok(Box::new(HipMark::new(&self.stream)?))
    }

    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        HipMark::elapsed(from, to)
    }
}
