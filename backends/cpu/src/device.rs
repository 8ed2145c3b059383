//! Opening the CPU, its threads, and the memory half of the backend.

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use strata_core::backend::{
    Backend, BackendKind, Checked, Counters, Counts, DeviceId, DeviceInfo, HostBytes, Mark, Memory,
    MemoryInfo, Raw, RawEvent, RawMut, StreamState,
};
use strata_core::q8_1::BLOCK_BYTES;
use strata_core::{Error, Result, host_memory};

use crate::attention;
use crate::control::Control;
use crate::isa::{Cpu, Isa};
use crate::memory::{self, CpuMemory, Parts};
use crate::mmq::Worker;
use crate::scratch::{Bytes, Scratch};
use crate::time::{self, CpuMark};

/// How to open the CPU.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuOptions {
    /// Threads that work on a launch, the caller's among them; all of rayon's
    /// global pool where nothing is said.
    pub threads: Option<usize>,
    /// The instruction set; `STRATA_CPU_ISA` or the best of the machine where
    /// nothing is said.
    pub isa: Option<Isa>,
}

/// A handle on the CPU.
pub struct CpuBackend {
    pub(crate) shared: Arc<Shared>,
    stream: StreamState,
}

/// What all handles have in common.
pub(crate) struct Shared {
    info: DeviceInfo,
    pub(crate) cpu: Cpu,
    threads: usize,
    counters: Counters,
    /// Helpers of the calling thread; rayon's global pool where there is none.
    pool: Option<rayon::ThreadPool>,
    /// For products.
    pub(crate) workers: Scratch<Worker>,
    /// For attention.
    pub(crate) attention: Scratch<attention::Worker>,
    /// For maps: counts.
    pub(crate) counts: Scratch<Vec<u32>>,
    /// For scatter: blocks.
    pub(crate) blocks: Scratch<Vec<[u8; BLOCK_BYTES]>>,
}

impl CpuBackend {
    /// Opens the CPU.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the machine lacks the instruction set,
    /// [`Error::Invalid`] where `STRATA_CPU_ISA` names none or `threads` is 0,
    /// [`Error::Device`] where threads cannot be started.
    pub fn new(options: CpuOptions) -> Result<Self> {
        let named = std::env::var_os("STRATA_CPU_ISA").filter(|name| !name.is_empty());
        let isa = match (options.isa, named) {
            (Some(isa), _) => isa,
            (None, Some(name)) => name.to_string_lossy().parse()?,
            (None, None) => Isa::best(),
        };
        let cpu = Cpu::new(isa)?;
        let id = DeviceId { kind: BackendKind::Cpu, index: 0 };
        let (threads, pool) = match options.threads {
            Some(0) => return Err(Error::invalid("threads", 0, "at least 1")),
            // The calling thread works too.
            Some(1) => (1, None),
            Some(threads) => {
                let pool = rayon::ThreadPoolBuilder::new()
                    .num_threads(threads - 1)
                    .thread_name(|i| format!("strata-cpu-{i}"))
                    .build()
                    .map_err(|e| Error::Device {
                        device: id.to_string(),
                        call: "starting threads",
                        detail: e.to_string(),
                    })?;
                (threads, Some(pool))
            }
            None => (rayon::current_num_threads(), None),
        };
        let mut info = DeviceInfo::new(id, cpu_name());
        info.arch = isa.name().to_owned();
        info.units = u32::try_from(threads).unwrap_or(u32::MAX);
        (info.host_memory, info.imports_in_place) = (true, true);
        let shared = Shared {
            info,
            cpu,
            threads,
            counters: Counters::default(),
            pool,
            workers: Scratch::default(),
            attention: Scratch::default(),
            counts: Scratch::default(),
            blocks: Scratch::default(),
        };
        Ok(Self::on(Arc::new(shared)))
    }

    fn on(shared: Arc<Shared>) -> Self {
        Self { shared, stream: StreamState::new() }
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.shared.cpu.isa()
    }

    /// Threads that work on a launch.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// What was done so far through this handle and its forks; what threads work in is
    /// [`scratch`](Backend::scratch).
    pub fn counts(&self) -> Counts {
        self.shared.counters.counts()
    }
}

impl Shared {
    /// Threads that work on a launch.
    pub(crate) fn threads(&self) -> usize {
        self.threads
    }

    /// Calls `work(i)` for every task `0..tasks`, on all threads: each takes
    /// the next task when it is done with its last.
    pub(crate) fn parallel(&self, tasks: usize, work: impl Fn(usize) + Sync) {
        self.parallel_on(tasks, tasks, work);
    }

    /// [`parallel`](Self::parallel) on at most `threads` threads.
    pub(crate) fn parallel_on(&self, threads: usize, tasks: usize, work: impl Fn(usize) + Sync) {
        let next = AtomicUsize::new(0);
        self.on_threads(threads.min(tasks), || {
            let mut task = next.fetch_add(1, Ordering::Relaxed);
            while task < tasks {
                work(task);
                task = next.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// [`parallel`](Self::parallel), with something that each thread has for itself.
    ///
    /// # Errors
    /// What a thread could not have; tasks are then left undone.
    pub(crate) fn parallel_with<S>(
        &self,
        tasks: usize,
        state: impl Fn() -> Result<S> + Sync,
        work: impl Fn(&mut S, usize) + Sync,
    ) -> Result<()> {
        let (next, failed) = (AtomicUsize::new(0), OnceLock::new());
        self.on_threads(tasks, || {
            let mut task = next.fetch_add(1, Ordering::Relaxed);
            if task >= tasks {
                return;
            }
            match state() {
                Ok(mut state) => {
                    while task < tasks {
                        work(&mut state, task);
                        task = next.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(error) => {
                    next.fetch_max(tasks, Ordering::Relaxed);
                    failed.get_or_init(|| error);
                }
            }
        });
        failed.into_inner().map_or(Ok(()), Err)
    }

    /// Calls `run` on at most `most` threads, the caller's among them, whatever modes of arithmetic
    /// they were left in.
    fn on_threads(&self, most: usize, run: impl Fn() + Sync) {
        let run = || {
            let _control = Control::plain();
            run();
        };
        let helpers = self.threads.min(most).saturating_sub(1);
        if helpers == 0 {
            return run();
        }
        let run = &run;
        match &self.pool {
            Some(pool) => pool.in_place_scope(|scope| {
                (0..helpers).for_each(|_| scope.spawn(move |_| run()));
                run();
            }),
            None => rayon::in_place_scope(|scope| {
                (0..helpers).for_each(|_| scope.spawn(move |_| run()));
                run();
            }),
        }
    }

    /// Makes room for `len` values; what `values` held may be lost.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub(crate) fn reserve<T>(&self, values: &mut Vec<T>, len: usize) -> Result<()> {
        if len <= values.capacity() {
            return Ok(());
        }
        values.clear();
        let bytes = len.saturating_mul(size_of::<T>());
        self.free(bytes)?;
        values.try_reserve_exact(len).map_err(|_| self.full(bytes))
    }

    /// A system that overcommits would hand out what it does not have, and end the process later:
    /// what is worth asking for is compared with the free memory first.
    fn free(&self, asked: usize) -> Result<()> {
        if asked < WORTH_ASKING || host_memory().is_none_or(|m| asked as u64 <= m.free) {
            return Ok(());
        }
        Err(self.full(asked))
    }

    fn full(&self, asked: usize) -> Error {
        let memory = host_memory();
        Error::OutOfMemory {
            device: self.info.id.to_string(),
            asked: asked as u64,
            free: memory.map_or(0, |m| m.free),
            total: memory.map_or(0, |m| m.total),
        }
    }
}

// SAFETY: memory is the host's, each step checks the slices that it indexes or covers what it is handed,
// and a launch has run when it returns.
unsafe impl Backend for CpuBackend {
    fn device(&self) -> &DeviceInfo {
        &self.shared.info
    }

    fn memory(&self) -> Result<MemoryInfo> {
        const UNKNOWN: MemoryInfo = MemoryInfo { free: u64::MAX, total: u64::MAX };
        Ok(host_memory().unwrap_or(UNKNOWN))
    }

    fn scratch(&self) -> u64 {
        let Shared { workers, attention, counts, blocks, .. } = &*self.shared;
        (workers.bytes() + attention.bytes() + counts.bytes() + blocks.bytes()) as u64
    }

    fn stream(&self) -> &StreamState {
        &self.stream
    }

    fn fork(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(Self::on(Arc::clone(&self.shared))))
    }

    fn alloc_raw(&self, bytes: Checked<usize>) -> Result<Box<dyn Memory>> {
        self.shared.counters.allocation();
        self.shared.free(*bytes)?;
        match CpuMemory::zeroed(*bytes) {
            Some(memory) => Ok(Box::new(memory)),
            None => Err(self.shared.full(*bytes)),
        }
    }

    fn import_raw(&self, host: Checked<HostBytes>) -> Result<Box<dyn Memory>> {
        Ok(Box::new(CpuMemory::Imported(host.into_inner())))
    }

    fn upload_raw(&self, dst: Checked<RawMut<'_>>, src: &[u8]) -> Result<()> {
        self.shared.counters.copy();
        memory::bytes_mut(dst.into_inner())?.copy_from_slice(src);
        Ok(())
    }

    fn download_raw(&self, src: Checked<Raw<'_>>, dst: &mut [u8]) -> Result<()> {
        self.shared.counters.copy();
        dst.copy_from_slice(memory::bytes(*src));
        Ok(())
    }

    fn fill_raw(&self, dst: Checked<RawMut<'_>>, byte: u8) -> Result<()> {
        memory::bytes_mut(dst.into_inner())?.fill(byte);
        Ok(())
    }

    fn copy_raw(&self, dst: Checked<RawMut<'_>>, src: Checked<Raw<'_>>) -> Result<()> {
        self.shared.counters.copy();
        let (from, to) = (memory::bytes(*src), memory::bytes_mut(dst.into_inner())?);
        let piece = from.len().div_ceil(self.shared.threads()).max(COPY_PIECE);
        let to = Parts::new(to);
        self.shared.parallel(from.len().div_ceil(piece), |task| {
            let from = &from[task * piece..from.len().min((task + 1) * piece)];
            // SAFETY: every piece belongs to one task.
            unsafe { to.part(task * piece, from.len()) }.copy_from_slice(from);
        });
        Ok(())
    }

    fn synchronize_raw(&self, _: Checked<()>) -> Result<()> {
        Ok(())
    }

    fn record_raw(&self, _: Checked<()>) -> Result<Box<dyn RawEvent>> {
        Ok(Box::new(CpuEvent))
    }

    fn wait_raw(&self, _: Checked<&dyn RawEvent>) -> Result<()> {
        Ok(())
    }

    fn mark(&self) -> Result<Box<dyn Mark>> {
        Ok(Box::new(CpuMark::now()))
    }

    fn elapsed(&self, from: &dyn Mark, to: &dyn Mark) -> Result<Duration> {
        time::elapsed(from, to)
    }
}

/// An event: what was launched before has run.
struct CpuEvent;

impl RawEvent for CpuEvent {
    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Bytes that a thread copies at least: one reaches a good part of the memory's speed.
const COPY_PIECE: usize = 1 << 20;

/// Allocations from here on are compared with the free memory first.
const WORTH_ASKING: usize = 64 << 20;

/// The processor's own name, where the system tells it.
fn cpu_name() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    parse_name(&text).unwrap_or_else(|| std::env::consts::ARCH.to_owned())
}

fn parse_name(text: &str) -> Option<String> {
    let value =
        |line: &str| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim().to_owned());
    text.lines().find_map(value).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files() {
        let name = parse_name("processor\t: 0\nmodel name\t: A CPU @ 1 GHz\n");
        assert_eq!(name.as_deref(), Some("A CPU @ 1 GHz"));
        assert_eq!(parse_name("processor : 0\n"), None);
    }

    #[test]
    fn options() {
        let open = |threads, isa| CpuBackend::new(CpuOptions { threads, isa });
        assert!(open(Some(0), None).is_err());
        let backend = open(Some(3), Some(Isa::Plain)).unwrap();
        assert_eq!((backend.threads(), backend.isa()), (3, Isa::Plain));
        for isa in Isa::ALL {
            assert_eq!(open(None, Some(isa)).is_ok(), isa.is_supported(), "{isa}");
            assert_eq!(isa.name().parse::<Isa>().unwrap(), isa);
        }
        assert!("mmx".parse::<Isa>().is_err());
    }

    #[test]
    fn every_task_runs_once() {
        for threads in [1, 2, 5] {
            let options = CpuOptions { threads: Some(threads), isa: None };
            let backend = CpuBackend::new(options).unwrap();
            for tasks in [0, 1, 2, 3, 1000] {
                let counts: Vec<_> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                backend.shared.parallel(tasks, |task| {
                    counts[task].fetch_add(1, Ordering::Relaxed);
                });
                assert!(counts.iter().all(|c| c.load(Ordering::Relaxed) == 1));
            }
        }
    }

    #[test]
    fn imported_bytes_are_not_written() {
        let backend: Box<dyn Backend> = Box::new(CpuBackend::new(CpuOptions::default()).unwrap());
        let mut buffer = backend.import(vec![1, 2, 3].into()).unwrap();
        assert_eq!(backend.download(&buffer).unwrap(), [1, 2, 3]);
        assert!(backend.fill(&mut buffer, 0).is_err());
        assert!(backend.upload(&mut buffer, &[0; 3]).is_err());
        assert_eq!(backend.download(&buffer).unwrap(), [1, 2, 3]);
    }

    #[test]
    fn too_much_memory_is_refused_with_figures() {
        let backend: Box<dyn Backend> = Box::new(CpuBackend::new(CpuOptions::default()).unwrap());
        let asked = 1usize << 50;
        match backend.alloc::<u8>(asked) {
            Err(Error::OutOfMemory { asked: a, free, total, .. }) => {
                assert_eq!(a, asked as u64);
                assert!(0 < free && free <= total);
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn scratch_is_refused_with_figures_and_counted() {
        let options = CpuOptions { threads: Some(2), isa: None };
        let backend = CpuBackend::new(options).unwrap();
        let shared = &backend.shared;
        let mut values = vec![1u64];
        for len in [1 << 50, usize::MAX] {
            match shared.reserve(&mut values, len) {
                Err(Error::OutOfMemory { asked, .. }) => {
                    assert_eq!(asked, (len as u64).saturating_mul(8));
                }
                other => panic!("{other:?}"),
            }
        }
        // A thread that has none ends the launch, and the others with it.
        let refused = shared.parallel_with(
            10,
            || shared.reserve(&mut Vec::<u64>::new(), usize::MAX),
            |(), _| panic!("a task without its memory"),
        );
        assert!(matches!(refused, Err(Error::OutOfMemory { .. })));

        assert_eq!(backend.scratch(), 0);
        shared.reserve(&mut shared.counts.take(), 1000).unwrap();
        assert_eq!(backend.scratch(), 4000);
    }
}
