//! The pool over a pretended device, whose streams pass fences when told to.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use super::*;
use strata_core::Error;

/// A device of so many bytes.
struct Device {
    total: usize,
    used: Cell<usize>,
    live: RefCell<BTreeMap<u64, usize>>,
    next: Cell<u64>,
    allocated: Cell<usize>,
    waits: Cell<usize>,
    broken: Cell<bool>,
}

impl Device {
    fn new(total: usize) -> Self {
        Self {
            total,
            used: Cell::default(),
            live: RefCell::default(),
            next: Cell::new(1 << 20),
            allocated: Cell::default(),
            waits: Cell::default(),
            broken: Cell::default(),
        }
    }
}

/// A fence, passed or not.
type Fence = Rc<Cell<bool>>;

fn fence() -> Fence {
    Rc::new(Cell::new(false))
}

fn fault() -> Error {
    Error::Device { device: "cuda:0".into(), call: "cuEventQuery", detail: "a fault".into() }
}

impl Source for Device {
    type Fence = Fence;

    fn alloc(&self, bytes: usize) -> Result<Option<u64>> {
        if self.used.get() + bytes > self.total {
            return Ok(None);
        }
        let address = self.next.get();
        self.next.set(address + bytes as u64 + 4096);
        self.used.set(self.used.get() + bytes);
        self.allocated.set(self.allocated.get() + 1);
        self.live.borrow_mut().insert(address, bytes);
        Ok(Some(address))
    }

    fn free(&self, address: u64) {
        let bytes = self.live.borrow_mut().remove(&address).expect("freed once, and allocated");
        self.used.set(self.used.get() - bytes);
    }

    fn passed(&self, fence: &Fence) -> Result<bool> {
        if self.broken.get() { Err(fault()) } else { Ok(fence.get()) }
    }

    fn wait(&self, fence: &Fence) -> Result<()> {
        self.waits.set(self.waits.get() + 1);
        fence.set(true);
        if self.broken.get() { Err(fault()) } else { Ok(()) }
    }
}

fn block(pool: &Pool<Device>, bytes: usize) -> Block {
    pool.alloc(bytes).unwrap().expect("enough memory")
}

#[test]
fn a_block_comes_back_only_when_every_stream_has_passed() {
    let pool = Pool::new(Device::new(1 << 30));
    let first = block(&pool, 1000);
    let (a, b) = (fence(), fence());
    pool.release(first, vec![a.clone(), b.clone()]);
    let second = block(&pool, 1000);
    assert_ne!(second.address, first.address);
    a.set(true);
    let third = block(&pool, 1000);
    assert_ne!(third.address, first.address);
    b.set(true);
    assert_eq!(block(&pool, 1000), first);
}

#[test]
fn a_steady_state_allocates_nothing() {
    let pool = Pool::new(Device::new(1 << 30));
    let sizes = [1, 512, 100_000, 3 << 20, 100 << 20];
    let mut allocated = None;
    for _ in 0..50 {
        let blocks: Vec<_> = sizes.iter().map(|&bytes| block(&pool, bytes)).collect();
        for block in blocks {
            pool.release(block, vec![Rc::new(Cell::new(true))]);
        }
        let now = pool.source.allocated.get();
        assert_eq!(*allocated.get_or_insert(now), now);
    }
    // And where the host runs ahead, no more than a few of each.
    for _ in 0..1000 {
        pool.release(block(&pool, 100_000), vec![fence()]);
    }
    assert!(
        pool.source.allocated.get() <= sizes.len() + WAITING,
        "{}",
        pool.source.allocated.get()
    );
}

#[test]
fn out_of_memory_comes_after_everything_kept_was_tried() {
    let pool = Pool::new(Device::new(64 << 20));
    let (a, b) = (block(&pool, 30 << 20), block(&pool, 20 << 20));
    pool.release(a, vec![]);
    pool.release(b, vec![fence()]);
    // Neither fits by itself: both must go, after a wait for the second.
    let large = block(&pool, 60 << 20);
    assert_eq!(pool.source.waits.get(), 1);
    assert_eq!(pool.alloc(10 << 20).unwrap(), None);
    assert_eq!(pool.alloc(usize::MAX).unwrap(), None);
    // Nothing was lost on the way.
    pool.release(large, vec![]);
    let again = block(&pool, 60 << 20);
    pool.release(again, vec![]);
    pool.trim();
    assert_eq!((pool.kept(), pool.source.used.get()), (0, 0));
    assert!(pool.source.live.borrow().is_empty());
}

#[test]
fn a_waiting_block_that_fits_is_taken_before_giving_up() {
    let pool = Pool::new(Device::new(40 << 20));
    let only = block(&pool, 30 << 20);
    pool.release(only, vec![fence()]);
    assert_eq!(block(&pool, 30 << 20), only);
    assert_eq!(pool.source.allocated.get(), 1);
}

#[test]
fn what_is_kept_is_counted() {
    let pool = Pool::new(Device::new(1 << 30));
    let (a, b) = (block(&pool, 1), block(&pool, 5000));
    assert_eq!(pool.kept(), 0);
    pool.release(a, vec![]);
    pool.release(b, vec![fence()]);
    assert_eq!(pool.kept(), 512 + 5120);
    block(&pool, 512);
    assert_eq!(pool.kept(), 5120);
}

#[test]
fn little_is_lost_to_a_larger_block() {
    let pool = Pool::new(Device::new(1 << 30));
    let large = block(&pool, 100 << 20);
    pool.release(large, vec![]);
    assert_ne!(block(&pool, 80 << 20).address, large.address);
    assert_eq!(block(&pool, 90 << 20), large);
}

#[test]
fn a_fault_is_an_error_and_loses_nothing() {
    let pool = Pool::new(Device::new(1 << 30));
    let first = block(&pool, 1000);
    pool.release(first, vec![fence()]);
    pool.source.broken.set(true);
    assert!(pool.alloc(1000).is_err());
    assert_eq!(pool.kept(), 1024);
    pool.source.broken.set(false);
    pool.trim();
    assert_eq!(pool.source.used.get(), 0);
}
