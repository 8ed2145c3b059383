//! Memory that was used and is kept.
//!
//! Memory may be dropped while streams still use it. When it is, an event is
//! recorded on every stream of the device that lives, and the memory is handed
//! out again, or given back to the driver, only when all of them have passed.
//! That is enough: a stream made later never knew the memory, and a stream that
//! ended before was waited for. It does not matter which stream asks for memory
//! next: nothing in flight can touch what it gets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use strata_core::Result;

/// Sizes are multiples of this, so that whole words around an end can be read.
const GRANULE: usize = 512;

/// Past this, blocks are whole multiples of 2 MiB, the driver's own pages.
const LARGE: usize = 32 << 20;
const PAGE: usize = 2 << 20;

/// Blocks of one size that may wait for streams before the host waits instead
/// of taking more from the driver.
const WAITING: usize = 2;

/// Consecutive bytes of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its first byte.
    pub(crate) address: u64,
    /// How many bytes, a whole number of granules.
    pub(crate) bytes: usize,
}

/// Where a pool's memory comes from.
pub(crate) trait Source {
    /// A point that a stream passes.
    type Fence;

    /// New memory; `None` where the device has not enough.
    fn alloc(&self, bytes: usize) -> Result<Option<u64>>;
    /// Gives memory back.
    fn free(&self, address: u64);
    /// Whether a fence has been passed.
    fn passed(&self, fence: &Self::Fence) -> Result<bool>;
    /// Waits for it.
    fn wait(&self, fence: &Self::Fence) -> Result<()>;
}

/// Memory that was used and is kept.
pub(crate) struct Pool<S: Source> {
    source: S,
    kept: Mutex<Kept<S::Fence>>,
}

struct Kept<F> {
    /// Addresses of blocks that nobody uses, by size.
    free: BTreeMap<usize, Vec<u64>>,
    /// Blocks that streams may still use, oldest first.
    waiting: VecDeque<(Block, Vec<F>)>,
    bytes: usize,
}

impl<S: Source> Pool<S> {
    pub(crate) fn new(source: S) -> Self {
        let kept = Kept { free: BTreeMap::new(), waiting: VecDeque::new(), bytes: 0 };
        Self { source, kept: Mutex::new(kept) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept<S::Fence>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At least `bytes`; `None` where the device has not enough even when
    /// everything kept has been given back.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<Option<Block>> {
        let Some(bytes) = rounded(bytes) else { return Ok(None) };
        let mut kept = self.lock();
        self.reap(&mut kept)?;
        if let Some(block) = kept.take(bytes) {
            return Ok(Some(block));
        }
        // A host that runs ahead of the device waits for it rather than take
        // block after block for the same buffer.
        let alike = |(block, _): &(Block, _)| fits(block.bytes, bytes);
        if kept.waiting.iter().filter(|&entry| alike(entry)).count() >= WAITING
            && let Some(oldest) = kept.waiting.iter().position(alike)
        {
            self.settle(&mut kept, oldest)?;
            if let Some(block) = kept.take(bytes) {
                return Ok(Some(block));
            }
        }
        if let Some(address) = self.source.alloc(bytes)? {
            return Ok(Some(Block { address, bytes }));
        }
        while !kept.waiting.is_empty() {
            self.settle(&mut kept, 0)?;
        }
        if let Some(block) = kept.take(bytes) {
            return Ok(Some(block));
        }
        self.give_back(&mut kept);
        Ok(self.source.alloc(bytes)?.map(|address| Block { address, bytes }))
    }

    /// Takes a block back; streams may use it until they pass `fences`.
    pub(crate) fn release(&self, block: Block, fences: Vec<S::Fence>) {
        let mut kept = self.lock();
        kept.bytes += block.bytes;
        match fences.is_empty() {
            true => kept.free.entry(block.bytes).or_default().push(block.address),
            false => kept.waiting.push_back((block, fences)),
        }
    }

    /// Bytes that are kept.
    pub(crate) fn kept(&self) -> usize {
        self.lock().bytes
    }

    /// Gives everything kept back. No stream may be using it.
    pub(crate) fn trim(&self) {
        let mut kept = self.lock();
        while let Some((block, _)) = kept.waiting.pop_front() {
            kept.free.entry(block.bytes).or_default().push(block.address);
        }
        self.give_back(&mut kept);
    }

    /// Frees what all streams have passed.
    fn reap(&self, kept: &mut Kept<S::Fence>) -> Result<()> {
        let mut i = 0;
        while i < kept.waiting.len() {
            let mut passed = true;
            for fence in &kept.waiting[i].1 {
                passed = passed && self.source.passed(fence)?;
            }
            match passed {
                true => kept.settled(i),
                false => i += 1,
            }
        }
        Ok(())
    }

    /// Waits for one block's streams.
    fn settle(&self, kept: &mut Kept<S::Fence>, index: usize) -> Result<()> {
        for fence in &kept.waiting[index].1 {
            self.source.wait(fence)?;
        }
        kept.settled(index);
        Ok(())
    }

    fn give_back(&self, kept: &mut Kept<S::Fence>) {
        for (bytes, addresses) in std::mem::take(&mut kept.free) {
            for address in addresses {
                self.source.free(address);
                kept.bytes -= bytes;
            }
        }
    }
}

impl<F> Kept<F> {
    /// A free block that fits, the smallest there is.
    fn take(&mut self, bytes: usize) -> Option<Block> {
        let (&size, addresses) = self.free.range_mut(bytes..).next()?;
        if !fits(size, bytes) {
            return None;
        }
        let address = addresses.pop()?;
        if addresses.is_empty() {
            self.free.remove(&size);
        }
        self.bytes -= size;
        Some(Block { address, bytes: size })
    }

    fn settled(&mut self, index: usize) {
        if let Some((block, _)) = self.waiting.remove(index) {
            self.free.entry(block.bytes).or_default().push(block.address);
        }
    }
}

/// Whether a block of `size` may serve for `bytes`: an eighth may be lost.
fn fits(size: usize, bytes: usize) -> bool {
    size >= bytes && size - bytes <= bytes / 8
}

/// The size of the block for so many bytes; `None` on overflow.
fn rounded(bytes: usize) -> Option<usize> {
    let step = if bytes > LARGE { PAGE } else { GRANULE };
    bytes.max(1).checked_next_multiple_of(step)
}

#[cfg(test)]
mod tests;
