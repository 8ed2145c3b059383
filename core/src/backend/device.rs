//! Which devices there are, and what they say of themselves.

/// The four kinds of backend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum BackendKind {
    /// Host memory and host threads.
    Cpu,
    /// NVIDIA GPUs.
    Cuda,
    /// AMD GPUs.
    Hip,
    /// Intel GPUs and OpenCL CPUs.
    Sycl,
}

impl BackendKind {
    /// All kinds; `auto` tries the GPUs in this order, then the CPU.
    pub const ALL: &[Self] = &[Self::Cpu, Self::Cuda, Self::Hip, Self::Sycl];

    /// The name, as in `cuda:0`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Hip => "hip",
            Self::Sycl => "sycl",
        }
    }
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// One device of this process: two handles with the same id share memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DeviceId {
    /// The kind of backend.
    pub kind: BackendKind,
    /// Its index among the devices of that kind.
    pub index: u32,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.kind, self.index)
    }
}

/// What a device says of itself.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceInfo {
    /// Its id.
    pub id: DeviceId,
    /// The vendor's name for it.
    pub name: String,
    /// Architecture or instruction set in use: `sm_90`, `gfx1100`, `avx2`.
    pub arch: String,
    /// Driver or runtime version, where there is one.
    pub driver: String,
    /// Multiprocessors, compute units or threads.
    pub units: u32,
    /// Lanes of a warp, wave or sub-group; 1 on a CPU.
    pub wave: u32,
    /// Whether its memory is the host's: what it allocates is missing there.
    pub host_memory: bool,
    /// Whether it uses imported host bytes where they are, so that weights of a mapped file take
    /// no memory of their own.
    pub imports_in_place: bool,
}

impl DeviceInfo {
    /// A device of which only this is known: one unit of one lane, with memory of its own.
    pub fn new(id: DeviceId, name: impl Into<String>) -> Self {
        Self {
            id,
            name: name.into(),
            arch: String::new(),
            driver: String::new(),
            units: 1,
            wave: 1,
            host_memory: false,
            imports_in_place: false,
        }
    }
}

/// Free and total bytes of a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryInfo {
    /// Bytes that can still be allocated; `u64::MAX` where nobody knows.
    pub free: u64,
    /// Bytes the device has; `u64::MAX` where nobody knows.
    pub total: u64,
}
