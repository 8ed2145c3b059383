//! Devices: which there are, and what the handles on one share.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use strata_core::backend::{Counters, DeviceInfo, MemoryInfo};
use strata_core::{Error, Result};

use crate::driver::Driver;
use crate::event::Event;
use crate::images::Images;
use crate::log_failure;
use crate::memory::{DeviceMemory, Keeper, Owner};
use crate::pool::{Block, Pool, Source};
use crate::stream::Streams;

/// All devices that a driver shows, also those that no image in this binary runs on.
///
/// # Errors
/// [`Error::Unavailable`] where there is no usable driver.
pub fn devices<D: Driver>() -> Result<Vec<DeviceInfo>> {
    (0..D::count()?).map(D::describe).collect()
}

/// The first device that this binary has images for.
///
/// # Errors
/// [`Error::Unavailable`] where there is none, with what stands against each.
pub fn best<D: Driver>() -> Result<u32> {
    let mut reasons = Vec::new();
    for info in devices::<D>()? {
        match D::runs_on(&info) {
            Ok(()) => {
                for reason in &reasons {
                    tracing::warn!("{}: a device is passed over: {reason}", D::KIND);
                }
                return Ok(info.id.index);
            }
            Err(Error::Unavailable { reason, .. }) => reasons.push(reason),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    match reasons.is_empty() {
        true => Err(unavailable::<D>(D::NO_DEVICE)),
        false => Err(unavailable::<D>(reasons.join("; "))),
    }
}

fn unavailable<D: Driver>(reason: impl Into<String>) -> Error {
    Error::Unavailable { kind: D::KIND, reason: reason.into() }
}

/// The devices of one driver that are open in this process.
pub struct Opened<D: Driver>(Mutex<Vec<(u32, Weak<Device<D>>)>>);

impl<D: Driver> Opened<D> {
    /// None yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }
}

impl<D: Driver> Default for Opened<D> {
    fn default() -> Self {
        Self::new()
    }
}

/// One device of this process, as all handles on it share it.
pub(crate) struct Device<D: Driver> {
    pub(crate) info: DeviceInfo,
    /// Bytes of shared memory a block may have, after asking for it.
    pub(crate) shared: u32,
    pub(crate) streams: Streams,
    pub(crate) images: Images,
    pub(crate) counters: Counters,
    pool: Pool<DriverMemory<D>>,
    /// Owners of memory that was dropped, and what has to pass before they go.
    retired: Mutex<Vec<(Vec<Event<D>>, Owner)>>,
    pub(crate) driver: Arc<D>,
}

impl<D: Driver> Device<D> {
    /// The device, opened once however often it is asked for.
    pub(crate) fn open(index: u32) -> Result<Arc<Self>> {
        let count = D::count()?;
        if index >= count {
            let expected = match count {
                0 => return Err(unavailable::<D>(D::NO_DEVICE)),
                1 => "0, the only one".to_owned(),
                n => format!("0 to {}, as there are {n}", n - 1),
            };
            return Err(Error::invalid(format!("{} device", D::KIND), index, expected));
        }
        let mut open = D::opened().0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, device)| device.strong_count() > 0);
        let known = open.iter().find(|(i, _)| *i == index);
        if let Some(device) = known.and_then(|(_, device)| device.upgrade()) {
            return Ok(device);
        }
        let info = D::describe(index)?;
        D::runs_on(&info)?;
        let driver = Arc::new(D::open(&info)?);
        let device = Self {
            shared: driver.shared_memory(),
            info,
            streams: Streams::default(),
            images: Images::default(),
            counters: Counters::default(),
            pool: Pool::new(DriverMemory(Arc::clone(&driver))),
            retired: Mutex::default(),
            driver,
        };
        // A small image: one that does not load is found out now, not in the middle of a layer.
        device.images.load(&device, "map".into())?;
        let device = Arc::new(device);
        open.push((index, Arc::downgrade(&device)));
        Ok(device)
    }

    /// An error of this device in our words.
    pub(crate) fn error(&self, call: &'static str, detail: String) -> Error {
        Error::Device { device: self.info.id.to_string(), call, detail }
    }

    /// Multiprocessors.
    pub(crate) fn units(&self) -> u32 {
        self.info.units.max(1)
    }

    /// Memory that no stream uses.
    pub(crate) fn alloc(self: &Arc<Self>, bytes: usize) -> Result<DeviceMemory> {
        self.counters.allocation();
        self.reap();
        if let Some(block) = self.pool.alloc(bytes)? {
            return Ok(DeviceMemory::new(Arc::<Self>::clone(self), block));
        }
        let MemoryInfo { free, total } = self.memory()?;
        let device = self.info.id.to_string();
        Err(Error::OutOfMemory { device, asked: bytes as u64, free, total })
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

    fn retired(&self) -> MutexGuard<'_, Vec<(Vec<Event<D>>, Owner)>> {
        self.retired.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Free and total memory; what the pool keeps is free.
    pub(crate) fn memory(&self) -> Result<MemoryInfo> {
        let (free, total) = self.driver.memory()?;
        let free = free.saturating_add(self.pool.kept()).min(total);
        Ok(MemoryInfo { free: free as u64, total: total as u64 })
    }
}

impl<D: Driver> Keeper for Device<D> {
    fn release(&self, block: Block) {
        match self.streams.fences(&self.driver) {
            Ok(fences) => self.pool.release(block, fences),
            // After a fault there is nothing to give back to: the driver frees what is left
            // when the last handle goes.
            Err(error) => tracing::debug!("{}: memory left to the driver: {error}", self.info.id),
        }
    }

    fn retire(&self, owner: Owner) {
        match self.streams.fences(&self.driver) {
            Ok(fences) => self.retired().push((fences, owner)),
            Err(error) => {
                // Whether a stream still uses the memory cannot be known: its owner stays.
                std::mem::forget(owner);
                tracing::debug!("{}: adopted memory is kept for good: {error}", self.info.id);
            }
        }
        self.reap();
    }
}

impl<D: Driver> Drop for Device<D> {
    fn drop(&mut self) {
        // Streams hold the device, so all of them are gone and have been waited for.
        self.images.unload(&*self.driver);
        self.pool.trim();
        drop(std::mem::take(&mut *self.retired()));
    }
}

/// Where the pool's memory comes from.
struct DriverMemory<D: Driver>(Arc<D>);

impl<D: Driver> Source for DriverMemory<D> {
    type Fence = Event<D>;

    fn alloc(&self, bytes: usize) -> Result<Option<u64>> {
        self.0.alloc(bytes)
    }

    fn free(&self, address: u64) {
        // SAFETY: the pool frees only what `alloc` gave and no stream uses any more.
        log_failure(unsafe { self.0.free(address) });
    }

    fn passed(&self, fence: &Event<D>) -> Result<bool> {
        fence.passed()
    }

    fn wait(&self, fence: &Event<D>) -> Result<()> {
        fence.wait()
    }
}
