//! Times of launches, and what memory allows at best.

use std::time::{Duration, Instant};

use strata::Result;
use strata::backend::{Backend, BackendKind};

/// Byte that outputs are filled with before each run: a run that writes nothing shows.
pub const POISON: u8 = 0xA5;

/// The median of several values of one kind.
pub fn median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// The median time of `launch`, which `prepare` precedes outside the measurement,
/// over `runs` runs after one to warm up.
pub fn time<S>(
    backend: &dyn Backend,
    runs: usize,
    state: &mut S,
    prepare: impl Fn(&mut S) -> Result<()>,
    launch: impl Fn(&mut S) -> Result<()>,
) -> Result<Duration> {
    let mut times = Vec::new();
    for run in 0..=runs {
        prepare(state)?;
        backend.synchronize()?;
        let from = backend.mark()?;
        launch(state)?;
        let to = backend.mark()?;
        let time = backend.elapsed(&*from, &*to)?;
        if run > 0 {
            times.push(time);
        }
    }
    Ok(median(&mut times).unwrap_or_default())
}

/// How fast a device's memory is, measured.
pub struct Bandwidth {
    /// Bytes a second; reads and writes both count.
    pub bytes_per_second: f64,
    /// What was measured.
    pub how: String,
}

impl Bandwidth {
    /// Measures it: `memcpy` on all threads of a CPU, a fill on a device.
    pub fn measure(backend: &dyn Backend) -> Result<Self> {
        match backend.id().kind {
            BackendKind::Cpu => Ok(Self::copy(backend.device().units.max(1) as usize)),
            _ => Self::fill(backend),
        }
    }

    /// The least time in which so many bytes can be moved.
    pub fn floor(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second)
    }

    fn copy(threads: usize) -> Self {
        // Past any cache, and a whole number of pieces.
        let piece = (256usize << 20).div_ceil(threads);
        let source = vec![1u8; piece * threads];
        let mut target = vec![2u8; piece * threads];
        let mut times = Vec::new();
        for run in 0..6 {
            let start = Instant::now();
            std::thread::scope(|scope| {
                for (to, from) in target.chunks_mut(piece).zip(source.chunks(piece)) {
                    scope.spawn(move || to.copy_from_slice(from));
                }
            });
            if run > 0 {
                times.push(start.elapsed());
            }
            std::hint::black_box(&mut target);
        }
        let time = median(&mut times).unwrap_or_default().as_secs_f64().max(1e-9);
        let threads = if threads == 1 { "1 thread".into() } else { format!("{threads} threads") };
        Self {
            bytes_per_second: 2.0 * source.len() as f64 / time,
            how: format!("memcpy on {threads}"),
        }
    }

    fn fill(backend: &dyn Backend) -> Result<Self> {
        let free = usize::try_from(backend.memory()?.free).unwrap_or(usize::MAX);
        let bytes = (1usize << 30).min(free / 2);
        let mut buffer = backend.alloc::<u8>(bytes)?;
        let none = |_: &mut _| Ok(());
        let time = time(backend, 10, &mut buffer, none, |b| backend.fill(&mut *b, POISON))?;
        Ok(Self {
            bytes_per_second: bytes as f64 / time.as_secs_f64().max(1e-9),
            how: "fill".to_owned(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(&mut [5, 1, 3]), Some(3));
        assert_eq!(median(&mut [2, 1]), Some(2));
        assert_eq!(median::<u8>(&mut []), None);
    }
}
