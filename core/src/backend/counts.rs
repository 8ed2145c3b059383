//! What a device was asked for beside kernels.

use std::sync::atomic::{AtomicU64, Ordering};

/// What all handles of a device did so far, in calls: none of it is work of a kernel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Memory taken, from the driver or from what was kept.
    pub allocations: u64,
    /// Copies to, from and on the device.
    pub copies: u64,
    /// Waits of the host for a stream.
    pub waits: u64,
}

/// The counters of a device, for its backend.
#[derive(Debug, Default)]
pub struct Counters {
    allocations: AtomicU64,
    copies: AtomicU64,
    waits: AtomicU64,
}

impl Counters {
    /// One allocation more.
    pub fn allocation(&self) {
        self.allocations.fetch_add(1, Ordering::Relaxed);
    }

    /// One copy more.
    pub fn copy(&self) {
        self.copies.fetch_add(1, Ordering::Relaxed);
    }

    /// One wait more.
    pub fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }

    /// How many there were.
    pub fn counts(&self) -> Counts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            allocations: of(&self.allocations),
            copies: of(&self.copies),
            waits: of(&self.waits),
        }
    }
}
