//! Routes to the map.

use strata_core::Result;
use strata_core::backend::Checked;
use strata_core::backend::ops::MapRoutes;
use strata_kernels_cuda::{args, shapes};

use crate::backend::CudaBackend;
use crate::operand::at;
use crate::operand::at_mut;
use crate::stream::Grid;

/// Routes of a chunk are a multiple of this, so that ranking reads whole batches.
const STEP: u64 = 256;

/// Chunks for each multiprocessor, where there are routes enough.
const CHUNKS_PER_UNIT: u64 = 4;

impl CudaBackend {
    pub(crate) fn launch_map(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        let [threads, rank_threads, experts_at_once, range] = self.shape("map", shapes::MAP)?;
        let count = self.kernel("map", "strata_map_count", threads)?;
        let sums = self.kernel("map", "strata_map_chunks", threads)?;
        let bounds = self.kernel("map", "strata_map_bounds", threads)?;
        let rank = self.kernel("map", "strata_map_rank", rank_threads)?;

        let routes = op.routes();
        let (rows, experts) = (routes.rows() as u64, routes.experts() as u64);
        let cut = Chunks::new(rows, experts, self.gpu().limits.units.into());
        // A map of nothing has no chunks, but the address must still be one.
        let counts = self.scratch((experts * cut.chunks).max(1) as usize * size_of::<u32>())?;
        let (k, ids) = (routes.k(), at(routes.ids()));
        let (slot, src, bounds_out) = op.out();
        let args = args::Map {
            ids,
            slot: at_mut(slot),
            src: at_mut(src),
            bounds: at_mut(bounds_out),
            counts,
            routes: rows as u32,
            k: k as u32,
            experts: experts as u32,
            chunks: cut.chunks as u32,
            chunk_routes: cut.routes as u32,
            // Ids are compared within a range of experts, from its first on.
            id_bits: bits(experts.min(range.into())),
        };
        let chunks = Grid::Exactly(cut.chunks);
        let per_expert = Grid::UpTo(experts.div_ceil(experts_at_once.into()), 1);
        // SAFETY: the operands were checked: `rows` ids below `experts`, as many
        // slots and sources, `experts + 1` bounds; the counts were just made room
        // for. Each kernel of the four takes one of these.
        unsafe {
            self.stream.launch(&count, chunks, &args)?;
            self.stream.launch(&sums, per_expert, &args)?;
            self.stream.launch(&bounds, Grid::Exactly(1), &args)?;
            self.stream.launch(&rank, chunks, &args)
        }
    }
}

/// How routes are cut.
#[derive(Debug, PartialEq, Eq)]
struct Chunks {
    chunks: u64,
    routes: u64,
}

impl Chunks {
    /// Enough to fill the device, but with no more counters than a small
    /// multiple of the routes and experts: the map stays linear in them.
    fn new(rows: u64, experts: u64, units: u64) -> Self {
        let most = (units * CHUNKS_PER_UNIT).min(8 * rows / experts).max(1);
        let routes = rows.div_ceil(most).next_multiple_of(STEP).max(STEP);
        Self { chunks: rows.div_ceil(routes), routes }
    }
}

/// Bits in which numbers below `n` can differ.
fn bits(n: u64) -> u32 {
    u64::BITS - n.saturating_sub(1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_cover_all_ids() {
        for (n, expected) in
            [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (512, 9), (513, 10), (4096, 12)]
        {
            assert_eq!(bits(n), expected, "{n}");
        }
    }

    #[test]
    fn chunks_cover_all_routes_and_stay_few() {
        for units in [1, 30, 132] {
            for experts in [1, 8, 512, 65_536, (1 << 31) - 1] {
                for rows in [0, 1, 255, 256, 257, 10, 6_000, 327_680, (1 << 31) - 1] {
                    let Chunks { chunks, routes } = Chunks::new(rows, experts, units);
                    let what = format!(
                        "{rows} rows, {experts} experts, {units} units: {chunks} of {routes}"
                    );
                    assert!(routes > 0 && routes.is_multiple_of(STEP), "{what}");
                    assert!(chunks * routes >= rows, "{what}");
                    assert!(chunks == 0 || (chunks - 1) * routes < rows, "{what}");
                    assert!(u32::try_from(routes).is_ok(), "{what}");
                    assert!(chunks * experts <= (8 * rows).max(experts), "{what}");
                    assert!(chunks <= units * CHUNKS_PER_UNIT, "{what}");
                }
            }
        }
    }
}
