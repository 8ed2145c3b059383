//! The routing map: a counting sort, on several threads where it is long.
//!
//! What it costs is not bytes but stores: a route counts, takes a row, writes
//! its token there, and adds one to its expert's rows, and a core writes to one
//! line of its first cache per cycle. See `docs/performance.md`.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use strata_core::backend::Checked;
use strata_core::backend::ops::MapRoutes;
use strata_core::{Error, Result};

use crate::CpuBackend;
use crate::device::Shared;
use crate::isa::Work;
use crate::memory::{self, Parts};

/// Routed rows of a part; fewer are not worth another thread, which takes some
/// microseconds to come and as many to be waited for.
const PART_ROWS: usize = 16 << 10;
/// Counters between those of two parts, which two threads write: lines of their own, and the
/// next one that a cache may fetch along.
const APART: usize = 32;
/// Ids that are checked, then counted while the first cache holds them.
const CHECKED: usize = 2048;

impl CpuBackend {
    pub(crate) fn map(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        let (routes, (mut slot, mut src, mut bounds)) = (op.routes(), op.out());
        let ids = memory::values(routes.ids());
        let (slot, src) = (memory::values_mut(&mut slot)?, memory::values_mut(&mut src)?);
        let bounds = memory::values_mut(&mut bounds)?;
        // A part counts every expert: that must stay small beside its rows.
        let most = ids.len() / PART_ROWS.max(bounds.len());
        let parts = most.clamp(1, self.shared.threads());
        in_parts(&self.shared, ids, routes.k(), parts, slot, src, bounds)
    }
}

/// As [`strata_core::routing::map_into`]: every part counts its ids, then knows
/// where its rows of each expert begin (behind those of the parts before it)
/// and fills them.
///
/// # Errors
/// [`Error::OutOfMemory`] for the counts; [`Error::ExpertId`] for an id that is none.
fn in_parts(
    shared: &Shared,
    ids: &[i32],
    k: usize,
    parts: usize,
    slot: &mut [u32],
    src: &mut [u32],
    bounds: &mut [u32],
) -> Result<()> {
    let experts = bounds.len() - 1;
    let rows = ids.len();
    assert!(rows.is_multiple_of(k) && slot.len() == rows && src.len() == rows, "a row per route");
    let tokens = (rows / k).div_ceil(parts);
    let mut scratch = shared.counts.take();
    let stride = experts + APART;
    let len = 2 * parts * stride;
    shared.reserve(&mut scratch, len)?;
    scratch.clear();
    scratch.resize(len, 0);
    let (counts, next) = scratch.split_at_mut(parts * stride);
    let (counts, next) = (Parts::new(counts), Parts::new(next));
    let (slot, src, bounds) = (Parts::new(slot), Parts::new(src), Parts::new(bounds));
    let (counted, wrong) = (AtomicUsize::new(0), AtomicBool::new(false));
    // Counting and filling in one go: threads that came for the one need not be called again.
    shared.parallel_on(parts, 2 * parts, |task| {
        let part = task % parts;
        let first = part * tokens * k;
        let ids = &ids[first.min(rows)..(first + tokens * k).min(rows)];
        if task < parts {
            // SAFETY: one task counts for a part, and none reads before all have counted.
            let counts = unsafe { counts.part(part * stride, experts) };
            if !shared.cpu.run(Count { ids, counts }) {
                wrong.store(true, Ordering::Relaxed);
            }
            counted.fetch_add(1, Ordering::Release);
            return;
        }
        // Tasks are handed out in order: what is not counted yet, a running thread is counting.
        while counted.load(Ordering::Acquire) < parts {
            std::thread::yield_now();
        }
        if wrong.load(Ordering::Relaxed) {
            return;
        }
        // SAFETY: all have counted.
        let counts = unsafe { counts.shared() };
        // SAFETY: one task fills a part: its next rows and its slots are its own ...
        let (next, slot) =
            unsafe { (next.part(part * stride, experts), slot.part(first.min(rows), ids.len())) };
        // SAFETY: ... and so are the bounds, which only the first part writes.
        let mut bounds = (part == 0).then(|| unsafe { bounds.part(0, experts + 1) });
        let mut row = 0;
        for (e, next) in next.iter_mut().enumerate() {
            let count = |part: usize| counts[part * stride + e];
            if let Some(bounds) = &mut bounds {
                bounds[e] = row;
            }
            *next = row + (0..part).map(count).sum::<u32>();
            row += (0..parts).map(count).sum::<u32>();
        }
        if let Some(bounds) = bounds {
            bounds[experts] = row;
        }
        // SAFETY: `Count` saw every id to be one of `experts`, and the rows from `next` on were
        // counted for these very ids: they are inside `src`, and no other route's.
        unsafe { fill(ids, k, part * tokens, next, slot, src) };
    });
    match wrong.into_inner() {
        false => Ok(()),
        true => Err(not_an_expert(ids, k, experts)),
    }
}

/// Core hands over only ids that are experts, but memory is safe only where that is seen here.
#[cold]
fn not_an_expert(ids: &[i32], k: usize, experts: usize) -> Error {
    let wrong = |&id: &i32| usize::try_from(id).map_or(true, |id| id >= experts);
    let at = ids.iter().position(wrong).unwrap_or_default();
    Error::ExpertId { token: at / k, choice: at % k, id: ids[at], experts }
}

/// Adds the ids to the counts of their experts; false where an id is none.
struct Count<'a> {
    ids: &'a [i32],
    counts: &'a mut [u32],
}

impl Work for Count<'_> {
    type Output = bool;

    #[inline(always)]
    fn run(self) -> bool {
        // Core numbers experts in 31 bits.
        let last = self.counts.len() as i32 - 1;
        for ids in self.ids.chunks(CHECKED) {
            // Below 0 where an id or what it lacks to the last expert is.
            let wrong = ids.iter().fold(0, |wrong, &id| wrong | id | last.wrapping_sub(id));
            if wrong < 0 {
                return false;
            }
            for &id in ids {
                // SAFETY: every id of the chunk was seen to be inside.
                unsafe { *self.counts.get_unchecked_mut(id as u32 as usize) += 1 };
            }
        }
        true
    }
}

/// Gives every route its expert's next row: `slot` the row, `src` the token.
///
/// Two rows are taken before they are used, and their slots are one store, as it is stores that
/// cores wait for.
///
/// # Safety
/// Every id is inside `next`, `slot` is as long as `ids`, a multiple of `k`, and the rows from
/// `next` on are inside `src` and this caller's alone, one for each id.
unsafe fn fill(
    ids: &[i32],
    k: usize,
    first: usize,
    next: &mut [u32],
    slot: &mut [u32],
    src: Parts<'_, u32>,
) {
    let mut take = |i: usize| {
        // SAFETY: i is below `ids.len()`, and the caller says that the id is inside `next`.
        let next = unsafe { next.get_unchecked_mut(*ids.get_unchecked(i) as u32 as usize) };
        *next += 1;
        *next - 1
    };
    let put = |row: u32, token: usize| {
        // SAFETY: the caller's: a row that was taken is inside `src`, and no other route's.
        unsafe { src.set(row as usize, token as u32) };
    };
    let slot = slot.as_mut_ptr();
    let mut i = 0;
    for token in first..first + ids.len() / k {
        let end = i + k;
        while i + 2 <= end {
            let (a, b) = (take(i), take(i + 1));
            put(a, token);
            put(b, token);
            let pair = u64::from(a) | u64::from(b) << 32;
            let pair = if cfg!(target_endian = "big") { pair.rotate_left(32) } else { pair };
            // SAFETY: i + 1 is below `end`, which is at most `ids.len()`, and slots are as many.
            unsafe { slot.add(i).cast::<u64>().write_unaligned(pair) };
            i += 2;
        }
        if i < end {
            let row = take(i);
            put(row, token);
            // SAFETY: as above.
            unsafe { slot.add(i).write(row) };
            i += 1;
        }
    }
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
        for (tokens, k, experts, threads) in
            [(1, 1, 1, 2), (100, 3, 7, 4), (700, 2, 9, 1), (5001, 10, 512, 3)]
        {
            let backend =
                CpuBackend::new(CpuOptions { threads: Some(threads), isa: None }).unwrap();
            let rows = tokens * k;
            let ids: Vec<i32> =
                (0..rows).map(|_| (random.next_u64() % experts as u64) as i32).collect();
            let new = || (vec![9; rows], vec![9; rows], vec![9; experts + 1]);
            let ((mut slot, mut src, mut bounds), mut expected) = (new(), new());
            in_parts(&backend.shared, &ids, k, threads, &mut slot, &mut src, &mut bounds).unwrap();
            routing::map_into(&ids, k, &mut expected.0, &mut expected.1, &mut expected.2);
            assert!((slot, src, bounds) == expected, "{tokens} tokens");
        }
    }

    #[test]
    fn an_id_that_is_no_expert_is_refused() {
        let options = CpuOptions { threads: Some(2), isa: None };
        let backend = CpuBackend::new(options).unwrap();
        for (at, id) in [(0, 7), (4999, -1), (5000, i32::MIN), (9999, i32::MAX)] {
            let mut ids = vec![6; 10_000];
            ids[at] = id;
            let (mut slot, mut src, mut bounds) = (vec![9; 10_000], vec![9; 10_000], vec![9; 8]);
            for parts in [1, 2] {
                let map =
                    in_parts(&backend.shared, &ids, 4, parts, &mut slot, &mut src, &mut bounds);
                let message = map.unwrap_err().to_string();
                let (token, choice) = (at / 4, at % 4);
                let expected =
                    format!("token {token}, choice {choice}: expert id {id}, expected 0..7");
                assert_eq!(message, expected);
            }
        }
    }
}
