//! Times of launches, and what memory allows at best.

use std::time::Duration;

use strata::Result;
use strata::backend::ops::{Cost, Launch};
use strata::backend::{Backend, BackendKind};

/// Byte that outputs are filled with before each run: a run that writes nothing shows.
pub const POISON: u8 = 0xA5;

/// The median of several values of one kind.
pub fn median<T: Ord + Copy>(values: &mut [T]) -> Option<T> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

/// Launches what is measured, and knows what that must move and compute.
pub struct Timed<'a> {
    backend: &'a dyn Backend,
    cost: Cost,
}

impl Timed<'_> {
    pub fn launch(&mut self, op: impl Launch) -> Result<()> {
        self.cost += op.cost();
        op.launch(self.backend)
    }
}

/// The median time of `launch`, which `prepare` precedes outside the measurement,
/// over `runs` runs after one to warm up; and the cost of what one run launches by [`Timed`].
pub fn time<S>(
    backend: &dyn Backend,
    runs: usize,
    state: &mut S,
    prepare: impl Fn(&mut S) -> Result<()>,
    launch: impl Fn(&mut S, &mut Timed<'_>) -> Result<()>,
) -> Result<(Duration, Cost)> {
    let mut timed = Timed { backend, cost: Cost::default() };
    let mut times = Vec::new();
    for run in 0..=runs {
        prepare(state)?;
        backend.synchronize()?;
        let from = backend.mark()?;
        timed.cost = Cost::default();
        launch(state, &mut timed)?;
        let to = backend.mark()?;
        let time = backend.elapsed(&*from, &*to)?;
        if run > 0 {
            times.push(time);
        }
    }
    Ok((median(&mut times).unwrap_or_default(), timed.cost))
}

/// How fast a device's memory is, measured.
pub struct Bandwidth {
    /// Bytes a second; reads and writes both count.
    pub bytes_per_second: f64,
    /// What was measured.
    pub how: String,
}

impl Bandwidth {
    /// Measures it by the backend's own copy, which reads as much as it writes.
    pub fn measure(backend: &dyn Backend) -> Result<Self> {
        // Past any cache.
        let (most, how) = match (backend.id().kind, backend.device().units) {
            (BackendKind::Cpu, 1) => (256usize << 20, "copy on 1 thread".to_owned()),
            (BackendKind::Cpu, threads) => (256 << 20, format!("copy on {threads} threads")),
            _ => (1 << 30, "copy on the device".to_owned()),
        };
        let free = usize::try_from(backend.memory()?.free).unwrap_or(usize::MAX);
        let bytes = most.min(free / 4).max(1);
        let (mut source, mut target) = (backend.alloc::<u8>(bytes)?, backend.alloc::<u8>(bytes)?);
        // Memory that was never written may not be there yet.
        backend.fill(&mut source, 1)?;
        backend.fill(&mut target, POISON)?;
        let none = |_: &mut _| Ok(());
        let (time, _) =
            time(backend, 10, &mut target, none, |to, _| backend.copy(&mut *to, &source))?;
        let bytes_per_second = 2.0 * bytes as f64 / time.as_secs_f64().max(1e-9);
        Ok(Self { bytes_per_second, how })
    }

    /// The least time in which so many bytes can be moved.
    pub fn floor(&self, bytes: u64) -> Duration {
        Duration::from_secs_f64(bytes as f64 / self.bytes_per_second)
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
