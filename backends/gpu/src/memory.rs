//! Device memory of buffers.

use std::any::Any;
use std::sync::Arc;

use strata_core::backend::{Memory, Raw, RawMut};

use crate::pool::Block;

/// What keeps memory or a stream that somebody else made.
pub(crate) type Owner = Box<dyn Any + Send + Sync>;

/// Who takes memory back: its device.
pub(crate) trait Keeper: Send + Sync {
    /// Takes a block back, for use when all streams have passed this point.
    fn release(&self, block: Block);

    /// Drops the owner of adopted memory when all streams have passed this point.
    fn retire(&self, owner: Owner);
}

/// Memory of a buffer.
pub(crate) struct DeviceMemory {
    keeper: Arc<dyn Keeper>,
    block: Block,
    /// Who keeps it, where it is not the pool's.
    owner: Option<Owner>,
}

impl DeviceMemory {
    /// A block of the pool.
    pub(crate) fn new(keeper: Arc<dyn Keeper>, block: Block) -> Self {
        Self { keeper, block, owner: None }
    }

    /// Memory of another, which `owner` keeps.
    pub(crate) fn adopt(keeper: Arc<dyn Keeper>, address: u64, bytes: usize, owner: Owner) -> Self {
        Self { keeper, block: Block { address, bytes }, owner: Some(owner) }
    }

    pub(crate) fn address(&self) -> u64 {
        self.block.address
    }

    /// Bytes there are, at least those asked for.
    pub(crate) fn bytes(&self) -> usize {
        self.block.bytes
    }
}

impl Memory for DeviceMemory {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl Drop for DeviceMemory {
    fn drop(&mut self) {
        match self.owner.take() {
            None => self.keeper.release(self.block),
            Some(owner) => self.keeper.retire(owner),
        }
    }
}

/// The address of bytes to be read.
pub(crate) fn address(raw: Raw<'_>) -> u64 {
    raw.memory::<DeviceMemory>().address() + raw.offset() as u64
}

/// The address of bytes to be written.
pub(crate) fn address_mut(raw: &RawMut<'_>) -> u64 {
    raw.memory::<DeviceMemory>().address() + raw.offset() as u64
}
