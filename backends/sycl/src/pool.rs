//! Memory that is kept for reuse, and what may go only when streams have passed.
//!
//! Memory may be dropped while streams still use it. When it is, an event is
//! recorded on every stream of the device that lives, and the memory is handed
//! out again, or freed, only when all of them have passed. That is enough: a
//! stream made later never knew the memory, and a stream that ended before was
//! waited for. It does not matter which stream asks for memory next: nothing in
//! flight can touch what it gets.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use sycl_bindgen::{Error, Event, UsmBuffer};

/// Sizes are rounded up to this, so that buffers of nearly one size fit each other.
pub(crate) const GRANULE: u64 = 4096;

/// Blocks of one size that may wait for streams before the host waits instead of
/// taking more from the device.
const WAITING: usize = 2;

/// Memory of a pool.
pub(crate) trait Block {
    /// Its size in bytes.
    fn size(&self) -> u64;
}

impl Block for UsmBuffer {
    fn size(&self) -> u64 {
        self.len()
    }
}

/// A point that a stream passes.
pub(crate) trait Fence {
    /// Whether it has been passed.
    fn passed(&self) -> Result<bool, Error>;
    /// Waits for it.
    fn wait(&self) -> Result<(), Error>;
}

impl Fence for Event {
    fn passed(&self) -> Result<bool, Error> {
        Event::passed(self)
    }

    fn wait(&self) -> Result<(), Error> {
        Event::wait(self)
    }
}

/// Memory that was used and is kept: blocks `B`, behind fences `F`.
pub(crate) struct Pool<B, F> {
    /// Bytes kept at most.
    most: u64,
    kept: Mutex<Kept<B, F>>,
}

struct Kept<B, F> {
    /// Blocks that no stream uses, by size.
    free: BTreeMap<u64, Vec<B>>,
    /// Blocks that streams may still use, oldest first.
    waiting: VecDeque<(B, Vec<F>)>,
    /// Bytes of all of them.
    bytes: u64,
}

impl<B: Block, F: Fence> Pool<B, F> {
    /// A pool that keeps `most` bytes.
    pub(crate) fn new(most: u64) -> Self {
        let kept = Kept { free: BTreeMap::new(), waiting: VecDeque::new(), bytes: 0 };
        Self { most, kept: Mutex::new(kept) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept<B, F>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A block of at least `bytes` that no stream uses; none where new memory is to be taken.
    ///
    /// # Errors
    /// Those of a fence. Whether its stream still uses the block is not known then: the block
    /// is never used again.
    pub(crate) fn take(&self, bytes: u64) -> Result<Option<B>, Error> {
        let mut kept = self.lock();
        kept.reap()?;
        if let Some(block) = kept.take(bytes) {
            return Ok(Some(block));
        }
        // A host that runs ahead of the device waits for it rather than take block after block
        // for the same buffer.
        let alike = |(block, _): &(B, Vec<F>)| fits(block.size(), bytes);
        if kept.waiting.iter().filter(|&entry| alike(entry)).count() >= WAITING
            && let Some(oldest) = kept.waiting.iter().position(alike)
        {
            kept.settle(oldest)?;
        }
        Ok(kept.take(bytes))
    }

    /// Takes a block back; streams may use it until they pass `fences`.
    ///
    /// # Errors
    /// As [`take`](Self::take): where the pool is full, it waits and frees.
    pub(crate) fn keep(&self, block: B, fences: Vec<F>) -> Result<(), Error> {
        let mut kept = self.lock();
        kept.bytes += block.size();
        kept.waiting.push_back((block, fences));
        kept.reap()?;
        while kept.bytes > self.most {
            if kept.give_back() {
                continue;
            }
            kept.settle(0)?;
        }
        Ok(())
    }

    /// Leaves what is kept to the driver: a stream may use it for ever.
    pub(crate) fn abandon(&self) {
        let mut kept = self.lock();
        std::mem::forget((std::mem::take(&mut kept.free), std::mem::take(&mut kept.waiting)));
        kept.bytes = 0;
    }

    /// Bytes that are kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Waits for what is kept and frees it; whether that was anything.
    ///
    /// # Errors
    /// As [`take`](Self::take).
    pub(crate) fn empty(&self) -> Result<bool, Error> {
        let mut kept = self.lock();
        while !kept.waiting.is_empty() {
            kept.settle(0)?;
        }
        let mut any = false;
        while kept.give_back() {
            any = true;
        }
        Ok(any)
    }
}

impl<B: Block, F: Fence> Kept<B, F> {
    /// A free block that fits, the smallest there is.
    fn take(&mut self, bytes: u64) -> Option<B> {
        let (&size, blocks) = self.free.range_mut(bytes..).next()?;
        if !fits(size, bytes) {
            return None;
        }
        let block = blocks.pop()?;
        if blocks.is_empty() {
            self.free.remove(&size);
        }
        self.bytes -= size;
        Some(block)
    }

    /// Frees the largest block that no stream uses; whether there was one.
    fn give_back(&mut self) -> bool {
        let Some(mut largest) = self.free.last_entry() else { return false };
        let size = *largest.key();
        let any = largest.get_mut().pop().is_some();
        if largest.get().is_empty() {
            largest.remove();
        }
        self.bytes -= if any { size } else { 0 };
        any
    }

    /// Moves what all streams have passed to what is free.
    fn reap(&mut self) -> Result<(), Error> {
        let mut i = 0;
        while i < self.waiting.len() {
            let mut outcome = Ok(true);
            for fence in &self.waiting[i].1 {
                if matches!(outcome, Ok(true)) {
                    outcome = fence.passed();
                }
            }
            match outcome {
                Ok(false) => i += 1,
                Ok(true) => self.settled(i, Ok(()))?,
                Err(error) => self.settled(i, Err(error))?,
            }
        }
        Ok(())
    }

    /// Waits for one block's streams.
    fn settle(&mut self, index: usize) -> Result<(), Error> {
        let outcome = self.waiting[index].1.iter().try_for_each(Fence::wait);
        self.settled(index, outcome)
    }

    /// What has been waited for is free; what could not be is nobody's any more: a stream may
    /// use it for ever.
    fn settled(&mut self, index: usize, outcome: Result<(), Error>) -> Result<(), Error> {
        let Some((block, _)) = self.waiting.remove(index) else { return outcome };
        let size = block.size();
        match &outcome {
            Ok(()) => self.free.entry(size).or_default().push(block),
            Err(_) => {
                self.bytes -= size;
                std::mem::forget(block);
            }
        }
        outcome
    }
}

/// Whether a block of `size` may serve for `bytes`: an eighth may be lost.
fn fits(size: u64, bytes: u64) -> bool {
    size >= bytes && size - bytes <= bytes / 8
}

#[cfg(test)]
mod tests;
