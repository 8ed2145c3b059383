//! Device memory, pooled: what is given back is handed out again, when no
//! stream can still touch it.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use strata_core::backend::{Memory, Raw, RawMut};
use strata_core::{Error, Result};

use crate::device::Device;
use crate::runtime::{Address, Handle};

/// Sizes are rounded up to this: a buffer that is a little smaller fits the
/// block of the one before it.
const GRAIN: usize = 512;

/// One buffer's memory.
pub(crate) struct HipMemory {
    device: Arc<Device>,
    block: Block,
    /// Who keeps it, where it is not the pool's.
    owner: Option<Owner>,
}

/// What keeps memory or a stream that somebody else made.
pub(crate) type Owner = Box<dyn Any + Send + Sync>;

#[derive(Debug, Clone, Copy)]
struct Block {
    address: Address,
    bytes: usize,
}

/// Blocks that nobody owns.
#[derive(Default)]
pub(crate) struct Pool {
    free: Mutex<BTreeMap<usize, Vec<Idle>>>,
}

/// A block and, for each stream there was when it was given back, the point
/// before which that stream may touch it.
struct Idle {
    block: Block,
    until: Vec<Handle>,
}

impl HipMemory {
    /// `bytes` of unspecified content.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], when giving back all idle blocks did not help.
    pub(crate) fn new(device: &Arc<Device>, bytes: usize) -> Result<Self> {
        device.reap();
        let rounded = bytes.checked_next_multiple_of(GRAIN).unwrap_or(bytes);
        let block = match device.pool.take(device, rounded)? {
            Some(block) => block,
            None => Self::fresh(device, rounded, bytes)?,
        };
        Ok(Self { device: Arc::clone(device), block, owner: None })
    }

    /// Memory of another, which `owner` keeps.
    pub(crate) fn adopt(
        device: &Arc<Device>,
        address: Address,
        bytes: usize,
        owner: Owner,
    ) -> Self {
        Self { device: Arc::clone(device), block: Block { address, bytes }, owner: Some(owner) }
    }

    fn fresh(device: &Arc<Device>, rounded: usize, bytes: usize) -> Result<Block> {
        let made = |address| Block { address, bytes: rounded };
        if let Some(address) = device.runtime.alloc(rounded)? {
            return Ok(made(address));
        }
        device.pool.empty(device)?;
        if let Some(address) = device.runtime.alloc(rounded)? {
            return Ok(made(address));
        }
        let (free, total) = device.runtime.memory()?;
        Err(Error::OutOfMemory {
            device: device.info.id.to_string(),
            asked: bytes as u64,
            free: free as u64,
            total: total as u64,
        })
    }

    /// Its first byte.
    pub(crate) fn address(&self) -> Address {
        self.block.address
    }
}

impl Memory for HipMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for HipMemory {
    fn drop(&mut self) {
        match self.owner.take() {
            None => self.device.pool.give_back(&self.device, self.block),
            Some(owner) => self.device.retire(owner),
        }
    }
}

impl Pool {
    /// An idle block of this size, or one that is at most an eighth larger.
    fn take(&self, device: &Device, bytes: usize) -> Result<Option<Block>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, blocks) in free.range_mut(bytes..=bytes.saturating_add(bytes / 8)) {
            for i in (0..blocks.len()).rev() {
                let mut done = true;
                for &event in &blocks[i].until {
                    done = done && device.runtime.event_done(event)?;
                }
                if done {
                    let idle = blocks.swap_remove(i);
                    idle.release_events(device);
                    return Ok(Some(idle.block));
                }
            }
        }
        Ok(None)
    }

    fn give_back(&self, device: &Device, block: Block) {
        let mut until = Vec::new();
        for stream in device.live_streams() {
            let recorded = device.runtime.event_create(false).and_then(|event| {
                until.push(event);
                device.runtime.event_record(event, stream.handle)
            });
            if recorded.is_err() {
                // The device is in a bad way: never to be reused, and freed with the process.
                return;
            }
        }
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(block.bytes).or_default().push(Idle { block, until });
    }

    /// Bytes of the idle blocks: free, though the runtime does not know it.
    pub(crate) fn idle_bytes(&self) -> u64 {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.iter().map(|(bytes, blocks)| (bytes * blocks.len()) as u64).sum()
    }

    /// Gives every idle block back to the runtime.
    pub(crate) fn empty(&self, device: &Device) -> Result<()> {
        let all = std::mem::take(&mut *self.free.lock().unwrap_or_else(PoisonError::into_inner));
        let mut result = Ok(());
        for idle in all.into_values().flatten() {
            for &event in &idle.until {
                result = result.and(device.runtime.event_synchronize(event));
            }
            idle.release_events(device);
            // SAFETY: the pool owned it, and every stream is past its last use.
            result = result.and(unsafe { device.runtime.free(idle.block.address) });
        }
        result
    }
}

impl Idle {
    fn release_events(&self, device: &Device) {
        for &event in &self.until {
            // SAFETY: the pool made it, and this is its end.
            let _ = unsafe { device.runtime.event_destroy(event) };
        }
    }
}

/// The first byte of a region.
pub(crate) fn address(raw: Raw<'_>) -> Address {
    raw.memory::<HipMemory>().address() + raw.offset() as Address
}

/// The first byte of a region that is written.
pub(crate) fn address_mut(raw: &RawMut<'_>) -> Address {
    raw.memory::<HipMemory>().address() + raw.offset() as Address
}
