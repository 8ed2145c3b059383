//! What a vendor's driver does for the host half: calls to one device, and which
//! devices there are.

use std::ffi::c_void;
use std::ptr::NonNull;

use strata_core::Result;
use strata_core::backend::{BackendKind, DeviceInfo};

use crate::device::Opened;

macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name(pub *mut c_void);

        // SAFETY: a driver's handles are names that hold in the whole process, and its calls
        // may be made from any thread.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}
    )*};
}

handles! {
    /// A stream, as the driver names it.
    StreamHandle
    /// An event.
    EventHandle
    /// A loaded image.
    ImageHandle
    /// A kernel of an image.
    KernelHandle
}

/// A kernel, and how it is launched.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    /// The kernel.
    pub kernel: KernelHandle,
    /// Blocks, in one row; at least one.
    pub blocks: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in bytes.
    pub shared: u32,
}

/// The calls of one open device. Each makes the device the calling thread's own first.
///
/// What fails is an [`Error::Device`](strata_core::Error::Device) in the driver's words.
pub trait Driver: Send + Sync + Sized + 'static {
    /// The backend that it is the driver of.
    const KIND: BackendKind;
    /// Entry points of a product's image, widest tile first, the one for little shared memory last.
    const TILES: &'static [&'static str];
    /// What is said where the driver starts and counts no device.
    const NO_DEVICE: &'static str;

    /// Devices that the driver shows.
    ///
    /// # Errors
    /// [`Error::Unavailable`](strata_core::Error::Unavailable) where there is no usable driver.
    fn count() -> Result<u32>;

    /// What a device says of itself. There is one of this index.
    ///
    /// # Errors
    /// Those of the driver.
    fn describe(index: u32) -> Result<DeviceInfo>;

    /// Whether an image in this binary runs on a device.
    ///
    /// # Errors
    /// [`Error::Unavailable`](strata_core::Error::Unavailable) with the device's architecture and those built.
    fn runs_on(info: &DeviceInfo) -> Result<()>;

    /// Opens a device; dropping it closes it.
    ///
    /// # Errors
    /// Those of the driver.
    fn open(info: &DeviceInfo) -> Result<Self>;

    /// The devices of this driver that are open.
    fn opened() -> &'static Opened<Self>;

    /// The image of a source for a device: `map` of `map.cu`, say.
    fn image(unit: &str, info: &DeviceInfo) -> Option<&'static [u8]>;

    /// The architectures that images were compiled for.
    fn archs() -> Vec<&'static str>;

    /// Bytes of shared memory that a block may have, after asking for it.
    fn shared_memory(&self) -> u32;

    /// Free and total bytes of memory.
    ///
    /// # Errors
    /// Those of the driver.
    fn memory(&self) -> Result<(usize, usize)>;

    /// New memory, aligned to 256; `None` where there is not enough.
    ///
    /// # Errors
    /// Others of the driver.
    fn alloc(&self, bytes: usize) -> Result<Option<u64>>;

    /// Gives memory back.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// It came from `alloc`, and nothing uses it any more.
    unsafe fn free(&self, address: u64) -> Result<()>;

    /// Host memory that the device reads and writes by itself.
    ///
    /// # Errors
    /// Those of the driver.
    fn alloc_host(&self, bytes: usize) -> Result<NonNull<u8>>;

    /// Gives host memory back.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// It came from `alloc_host`, and nothing uses it any more.
    unsafe fn free_host(&self, memory: NonNull<u8>) -> Result<()>;

    /// Copies host bytes to an address, in stream order.
    ///
    /// # Errors
    /// Those of the driver; part of the copy may be under way.
    ///
    /// # Safety
    /// As many bytes at `to` are memory of this device; those at `from` stay as they are until
    /// the stream has passed this point.
    unsafe fn copy_in(&self, stream: StreamHandle, to: u64, from: *const [u8]) -> Result<()>;

    /// Copies from an address to the host, in stream order.
    ///
    /// # Errors
    /// Those of the driver; part of the copy may be under way.
    ///
    /// # Safety
    /// As many bytes at `from` are memory of this device; those at `to` are written until the
    /// stream has passed this point.
    unsafe fn copy_out(&self, stream: StreamHandle, to: *mut [u8], from: u64) -> Result<()>;

    /// Copies from one address to another, in stream order.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// So many bytes at both are memory of this device.
    unsafe fn copy(&self, stream: StreamHandle, to: u64, from: u64, bytes: usize) -> Result<()>;

    /// Sets bytes, in stream order.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// So many bytes at `to` are memory of this device.
    unsafe fn fill(&self, stream: StreamHandle, to: u64, byte: u8, bytes: usize) -> Result<()>;

    /// A stream that is not ordered with the process's default one.
    ///
    /// # Errors
    /// Those of the driver.
    fn new_stream(&self) -> Result<StreamHandle>;

    /// Ends a stream.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// It came from `new_stream`, was waited for, and is not used any more.
    unsafe fn end_stream(&self, stream: StreamHandle) -> Result<()>;

    /// Whether a stream of another program part is one of this device.
    ///
    /// # Errors
    /// [`Error::Invalid`](strata_core::Error::Invalid) where it is not.
    ///
    /// # Safety
    /// It is a stream.
    unsafe fn check_stream(&self, stream: StreamHandle) -> Result<()>;

    /// Waits for a stream.
    ///
    /// # Errors
    /// What of its work failed.
    fn wait_stream(&self, stream: StreamHandle) -> Result<()>;

    /// An event that stands nowhere yet; `timed` ones know when a stream passed them.
    ///
    /// # Errors
    /// Those of the driver.
    fn new_event(&self, timed: bool) -> Result<EventHandle>;

    /// Ends an event; a stream that has yet to pass it does so.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// It came from `new_event` and is not used any more.
    unsafe fn end_event(&self, event: EventHandle) -> Result<()>;

    /// Puts an event at this point of a stream.
    ///
    /// # Errors
    /// Those of the driver.
    fn record(&self, event: EventHandle, stream: StreamHandle) -> Result<()>;

    /// Whether a stream has passed an event.
    ///
    /// # Errors
    /// Those of the driver.
    fn passed(&self, event: EventHandle) -> Result<bool>;

    /// Waits on the host until a stream has passed an event.
    ///
    /// # Errors
    /// Those of the driver.
    fn wait_event(&self, event: EventHandle) -> Result<()>;

    /// Orders what comes behind an event in another stream, on the device.
    ///
    /// # Errors
    /// Those of the driver.
    fn wait_for(&self, stream: StreamHandle, event: EventHandle) -> Result<()>;

    /// Milliseconds from one timed event to another; both have been passed.
    ///
    /// # Errors
    /// Those of the driver.
    fn elapsed(&self, from: EventHandle, to: EventHandle) -> Result<f32>;

    /// Loads an image.
    ///
    /// # Errors
    /// Those of the driver.
    fn load(&self, image: &'static [u8]) -> Result<ImageHandle>;

    /// Unloads an image.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// It came from `load`, and neither it nor a kernel of it is used any more.
    unsafe fn unload(&self, image: ImageHandle) -> Result<()>;

    /// The words of a variable that an image exports.
    ///
    /// # Errors
    /// Those of the driver.
    fn words(&self, image: ImageHandle, name: &str) -> Result<Vec<u32>>;

    /// A kernel of an image.
    ///
    /// # Errors
    /// Those of the driver.
    fn kernel(&self, image: ImageHandle, name: &str) -> Result<KernelHandle>;

    /// Prepares a kernel for blocks of so many threads with so many bytes of dynamic shared
    /// memory: how many of them a multiprocessor runs at once.
    ///
    /// # Errors
    /// Those of the driver.
    fn prepare(&self, kernel: KernelHandle, threads: u32, shared: u32) -> Result<u32>;

    /// Launches a kernel of one argument, which has these bytes.
    ///
    /// # Errors
    /// Those of the driver.
    ///
    /// # Safety
    /// The kernel takes what is at `args`, and what that says holds: addresses in it are of
    /// this device's memory, as large as its sizes say.
    unsafe fn launch(&self, stream: StreamHandle, launch: Launch, args: *const [u8]) -> Result<()>;
}
