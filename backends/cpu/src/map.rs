//! The routing map: a counting sort, on several threads where it is long.

use strata_core::Result;
use strata_core::backend::ops::MapRoutes;

use crate::CpuBackend;
use crate::device::Shared;
use crate::memory::{self, Parts};

/// Routed rows of a part; fewer are not worth another thread.
const PART_ROWS: usize = 16 << 10;

impl CpuBackend {
    pub(crate) fn map(&self, op: &mut MapRoutes<'_>) -> Result<()> {
        let (routes, (mut slot, mut src, mut bounds)) = (op.routes(), op.out());
        let ids = memory::values(routes.ids());
        let (slot, src) = (memory::values_mut(&mut slot)?, memory::values_mut(&mut src)?);
        let bounds = memory::values_mut(&mut bounds)?;
        // A part counts every expert: that must stay small beside its rows.
        let most = ids.len() / PART_ROWS.max(bounds.len());
        in_parts(
            &self.shared,
            ids,
            routes.k(),
            most.clamp(1, self.shared.threads()),
            slot,
            src,
            bounds,
        );
        Ok(())
    }
}

/// As [`strata_core::routing::map_into`]: every part counts its ids, then knows
/// where its rows of each expert begin (behind those of the parts before it)
/// and fills them.
fn in_parts(
    shared: &Shared,
    ids: &[i32],
    k: usize,
    parts: usize,
    slot: &mut [u32],
    src: &mut [u32],
    bounds: &mut [u32],
) {
    let experts = bounds.len() - 1;
    let tokens = (ids.len() / k).div_ceil(parts);
    let mut counts = shared.counts.take();
    counts.clear();
    counts.resize(parts * experts, 0);
    let all = Parts::new(&mut counts);
    let of = |part: usize| {
        &ids[(part * tokens * k).min(ids.len())..((part + 1) * tokens * k).min(ids.len())]
    };
    shared.parallel(parts, |part| {
        // SAFETY: one task per part, and its counts are its own.
        let counts = unsafe { all.part(part * experts, experts) };
        for &id in of(part) {
            counts[id as usize] += 1;
        }
    });
    let mut rows = 0;
    for e in 0..experts {
        bounds[e] = rows;
        for part in 0..parts {
            let count = &mut counts[part * experts + e];
            rows += std::mem::replace(count, rows);
        }
    }
    bounds[experts] = rows;
    let (next, slot, src) = (Parts::new(&mut counts), Parts::new(slot), Parts::new(src));
    shared.parallel(parts, |part| {
        let ids = of(part);
        // SAFETY: one task per part: its counters and its slots are its own ...
        let (next, slot) = unsafe {
            (next.part(part * experts, experts), slot.part(part * tokens * k, ids.len()))
        };
        let first = part * tokens;
        for (t, (ids, slots)) in ids.chunks_exact(k).zip(slot.chunks_exact_mut(k)).enumerate() {
            for (&id, slot) in ids.iter().zip(slots) {
                let row = &mut next[id as usize];
                *slot = *row;
                // SAFETY: ... and so is every row, which was counted for one id of one part.
                unsafe { src.part(*row as usize, 1)[0] = (first + t) as u32 };
                *row += 1;
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CpuOptions;
    use strata_core::format::random::SplitMix64;
    use strata_core::routing;

    #[test]
    fn parts_give_the_map_of_one() {
        let mut random = SplitMix64::new(7);
        for (tokens, k, experts, threads) in [(1, 1, 1, 2), (100, 3, 7, 4), (5001, 10, 512, 3)] {
            let backend =
                CpuBackend::new(CpuOptions { threads: Some(threads), isa: None }).unwrap();
            let rows = tokens * k;
            let ids: Vec<i32> =
                (0..rows).map(|_| (random.next_u64() % experts as u64) as i32).collect();
            let new = || (vec![9; rows], vec![9; rows], vec![9; experts + 1]);
            let ((mut slot, mut src, mut bounds), mut expected) = (new(), new());
            in_parts(&backend.shared, &ids, k, threads, &mut slot, &mut src, &mut bounds);
            routing::map_into(&ids, k, &mut expected.0, &mut expected.1, &mut expected.2);
            assert!((slot, src, bounds) == expected, "{tokens} tokens");
        }
    }
}
