//! Routes to the map.

use strata_core::Result;
use strata_core::backend::Checked;
use strata_core::backend::ops::MapRoutes;
use strata_gpu::chunks::{MapCut, id_bits};
use strata_gpu::{args, shapes};

use crate::backend::CudaBackend;
use crate::operand::at;
use crate::operand::at_mut;
use crate::stream::Grid;

impl CudaBackend {
    pub(crate) fn launch_map(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        let [threads, rank_threads, experts_at_once, range] = self.shape("map", shapes::MAP)?;
        let count = self.kernel("map", "strata_map_count", threads)?;
        let sums = self.kernel("map", "strata_map_chunks", threads)?;
        let bounds = self.kernel("map", "strata_map_bounds", threads)?;
        let rank = self.kernel("map", "strata_map_rank", rank_threads)?;

        let routes = op.routes();
        let (rows, experts) = (routes.rows() as u64, routes.experts() as u64);
        let cut = MapCut::new(rows, experts, self.gpu().limits.units.into());
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
            id_bits: id_bits(experts.min(range.into())),
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
