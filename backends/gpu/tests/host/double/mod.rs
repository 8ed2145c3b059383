//! Drivers without a GPU. Streams are lazy: nothing in one runs before somebody waits for
//! it, and then no more than is waited for. So memory that is handed out or given back too
//! early, and host bytes that are written over too early, show. Kernels do next to nothing,
//! but their names, arguments and geometry are held to the sources, the addresses they are
//! given to memory there is, and what they leave in scratch memory for the next one is looked at.
//!
//! What breaks a rule panics.

mod driver;
mod kernels;
mod vendor;

use std::alloc;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use strata_gpu::{GpuBackend, StreamHandle};

use kernels::{Kernel, Mark};
pub use vendor::{Cuda, Hip, Vendor};

/// A handle on a pretended device.
pub type Gpu<V> = GpuBackend<Double<V>>;

/// What memory holds at first, and when it was given back.
const FRESH: u8 = 0xcd;
const GONE: u8 = 0xdd;

/// Multiprocessors.
pub const UNITS: u32 = 4;

/// One pretended device, and everything that is on it.
#[derive(Default)]
pub struct Card(Mutex<World>);

/// The driver of one of them.
pub struct Double<V>(Arc<Card>, PhantomData<V>);

/// A launch, as a test may ask for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launched {
    pub kernel: String,
    pub blocks: u32,
    pub threads: u32,
    pub shared: u32,
}

#[derive(Default)]
struct World {
    total: usize,
    used: usize,
    memory: BTreeMap<u64, Block>,
    allocated: usize,
    copies: usize,
    handles: u64,
    streams: HashMap<u64, VecDeque<Op>>,
    events: HashMap<u64, Event>,
    /// Loaded images: the names of their sources.
    images: HashMap<u64, String>,
    kernels: HashMap<u64, Kernel>,
    now: f32,
    launched: Vec<Launched>,
    /// The mark that was last left at an address for the next kernel.
    marks: HashMap<(u64, u64), u32>,
    no_event: bool,
    no_record: bool,
    broken: bool,
}

/// Whose memory it is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    /// The device's, from the driver.
    Driver,
    /// The device's, and an engine's that had it from elsewhere.
    Engine,
    /// The host's, which the device reads.
    Host,
}

#[derive(Clone, Copy)]
struct Block {
    bytes: usize,
    of: Of,
}

#[derive(Clone, Copy, Default)]
struct Event {
    stream: u64,
    recorded: u64,
    passed: u64,
    time: f32,
}

/// Something in a stream that has not run yet.
enum Op {
    /// `held` are the source's bytes, where that is host memory: they must stay until the copy.
    Copy {
        to: u64,
        from: u64,
        bytes: usize,
        held: Option<Box<[u8]>>,
    },
    Fill {
        to: u64,
        byte: u8,
        bytes: usize,
    },
    Point {
        event: u64,
        number: u64,
    },
    Wait {
        event: u64,
        number: u64,
    },
    Kernel {
        name: String,
        addresses: Vec<u64>,
        mark: Option<Mark>,
    },
}

fn broken_rule(what: &str) -> ! {
    panic!("the double: {what}")
}

static CARDS: Mutex<Vec<Arc<Card>>> = Mutex::new(Vec::new());

/// A device of its own for a test, with so much memory: its index, and what it keeps.
pub fn card(total: usize) -> (u32, Arc<Card>) {
    let card = Arc::new(Card(Mutex::new(World { total, ..World::default() })));
    let mut cards = CARDS.lock().unwrap();
    cards.push(Arc::clone(&card));
    (cards.len() as u32 - 1, card)
}

impl Card {
    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The launches since this was asked last.
    pub fn launched(&self) -> Vec<Launched> {
        std::mem::take(&mut self.world().launched)
    }

    /// Blocks of memory that the driver was asked for, and copies.
    pub fn asked(&self) -> (usize, usize) {
        let world = self.world();
        (world.allocated, world.copies)
    }

    /// Bytes of device memory in use that came from the driver.
    pub fn used(&self) -> usize {
        self.world().used
    }

    /// Device memory of an engine, which the driver knows nothing of.
    pub fn engine_memory(&self, bytes: usize) -> u64 {
        self.world().take(bytes, Of::Engine)
    }

    /// The engine gives it back.
    pub fn give_back(&self, address: u64) {
        self.world().free(address, Of::Engine);
    }

    /// Whether events cannot be made.
    pub fn refuse_events(&self, refuse: bool) {
        self.world().no_event = refuse;
    }

    /// Whether events cannot be put into streams.
    pub fn refuse_records(&self, refuse: bool) {
        self.world().no_record = refuse;
    }

    /// Whether every call fails, as after a fault of the device.
    pub fn break_down(&self, broken: bool) {
        self.world().broken = broken;
    }
}

impl World {
    fn handle(&mut self) -> *mut c_void {
        self.handles += 1;
        self.handles as *mut c_void
    }

    /// The block that holds bytes, if any.
    fn holding(&self, at: u64, bytes: usize) -> Option<Block> {
        let (&start, block) = self.memory.range(..=at).next_back()?;
        (at + bytes as u64 <= start + block.bytes as u64).then_some(*block)
    }

    fn expect_device(&self, at: u64, bytes: usize, what: &str) {
        if self.holding(at, bytes).is_none_or(|block| block.of == Of::Host) {
            broken_rule(&format!("{what}: {bytes} bytes at {at:#x} are no device memory"));
        }
    }

    fn queue(&mut self, stream: StreamHandle) -> &mut VecDeque<Op> {
        self.streams.get_mut(&(stream.0 as u64)).unwrap_or_else(|| broken_rule("no such stream"))
    }

    /// Runs the first operation of a stream.
    fn step(&mut self, stream: u64) {
        let Some(op) = self.streams.get_mut(&stream).and_then(VecDeque::pop_front) else {
            broken_rule("a wait that nothing ends");
        };
        self.now += 0.25;
        match op {
            Op::Copy { to, from, bytes, held } => {
                if held.is_some_and(|held| *held != *self.host_bytes(from, bytes)) {
                    broken_rule("host bytes changed before they were copied");
                }
                // SAFETY: what is freed has no copy in a stream, and host memory is the caller's.
                unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
            }
            Op::Fill { to, byte, bytes } => {
                // SAFETY: as above.
                unsafe { std::ptr::write_bytes(to as *mut u8, byte, bytes) };
            }
            Op::Point { event, number } => {
                let now = self.now;
                if let Some(event) = self.events.get_mut(&event).filter(|e| e.recorded == number) {
                    (event.passed, event.time) = (number, now);
                }
            }
            Op::Wait { event, number } => self.run_to(event, number),
            Op::Kernel { name, addresses, mark } => {
                for at in addresses {
                    self.expect_device(at, 1, &name);
                }
                if let Some(mark) = mark {
                    mark.work(self, &name);
                }
            }
        }
    }

    /// Runs a stream until an event is passed, or was ended.
    fn run_to(&mut self, event: u64, number: u64) {
        while let Some(Event { stream, passed, .. }) = self.events.get(&event).copied() {
            if passed >= number || !self.streams.contains_key(&stream) {
                return;
            }
            self.step(stream);
        }
    }

    /// Bytes of the driver's host memory.
    fn host_bytes(&self, at: u64, bytes: usize) -> Box<[u8]> {
        if self.holding(at, bytes).is_none_or(|block| block.of != Of::Host) {
            broken_rule("a copy from host memory that is not the driver's");
        }
        // SAFETY: inside an allocation, which was given a value.
        unsafe { std::slice::from_raw_parts(at as *const u8, bytes) }.into()
    }

    /// Gives memory back that nothing in a stream touches.
    fn free(&mut self, at: u64, of: Of) {
        let Some(block) = self.memory.get(&at).copied().filter(|block| block.of == of) else {
            broken_rule("freed what was not allocated");
        };
        let end = at + block.bytes as u64;
        let touches = |from: u64, bytes: usize| from < end && from + bytes as u64 > at;
        for op in self.streams.values().flatten() {
            let used = match op {
                Op::Copy { to, from, bytes, .. } => touches(*to, *bytes) || touches(*from, *bytes),
                Op::Fill { to, bytes, .. } => touches(*to, *bytes),
                Op::Kernel { addresses, .. } => addresses.iter().any(|&a| touches(a, 1)),
                Op::Point { .. } | Op::Wait { .. } => false,
            };
            if used {
                broken_rule("memory given back that a stream needs");
            }
        }
        self.memory.remove(&at);
        if of == Of::Driver {
            self.used -= block.bytes;
        }
        soil(at, block.bytes, GONE);
        // SAFETY: allocated by `take` with this layout.
        unsafe { alloc::dealloc(at as *mut u8, layout(block.bytes)) };
    }

    fn take(&mut self, bytes: usize, of: Of) -> u64 {
        // SAFETY: the layout is not empty.
        let at = unsafe { alloc::alloc_zeroed(layout(bytes)) };
        assert!(!at.is_null());
        soil(at as u64, bytes, FRESH);
        self.memory.insert(at as u64, Block { bytes, of });
        at as u64
    }
}

/// Writes both ends of a block; all of one that is not large.
fn soil(at: u64, bytes: usize, byte: u8) {
    let end = bytes.min(64 << 10);
    // SAFETY: both ends lie inside the block, which is allocated.
    unsafe {
        std::ptr::write_bytes(at as *mut u8, byte, end);
        std::ptr::write_bytes((at as *mut u8).add(bytes - end), byte, end);
    }
}

fn layout(bytes: usize) -> alloc::Layout {
    alloc::Layout::from_size_align(bytes.max(1), 512).unwrap()
}
