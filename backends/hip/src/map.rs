//! The routing map: a counting sort in four launches.

use strata_core::Result;
use strata_core::backend::Checked;
use strata_core::backend::ops::MapRoutes;
use strata_gpu::chunks::{MapCut, id_bits};
use strata_gpu::{args, shapes};

use crate::HipBackend;
use crate::memory::HipMemory;
use crate::module::Launch;
use crate::operand::{at, at_mut};

/// The source of these kernels.
pub(crate) const UNIT: &str = "map";

impl HipBackend {
    pub(crate) fn launch_map(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        let stream = &self.stream;
        let routes = op.routes();
        // Core keeps all three below 2^31.
        let (rows, k, experts) = (routes.rows() as u32, routes.k() as u32, routes.experts() as u32);
        let ids = at(routes.ids());
        let (slot, src, bounds) = op.out();
        let bounds = at_mut(bounds);
        if rows == 0 {
            let bytes = (experts as usize + 1) * size_of::<u32>();
            // SAFETY: the bounds are experts + 1 values.
            return unsafe { stream.device.runtime.fill(bounds, 0, bytes, stream.handle) };
        }
        let [threads, rank_threads, experts_at_once, range] = self.shape(UNIT, shapes::MAP)?;
        let cut = MapCut::new(rows.into(), experts.into(), stream.device.info.units.into());
        let (chunks, chunk_routes) = (cut.chunks as u32, cut.routes as u32);
        let counters = experts as usize * chunks as usize * size_of::<u32>();
        let counts = HipMemory::new(&stream.device, counters)?;
        let args = args::Map {
            ids,
            slot: at_mut(slot),
            src: at_mut(src),
            bounds,
            counts: counts.address(),
            routes: rows,
            k,
            experts,
            chunks,
            chunk_routes,
            // Ids are compared within a range of experts, from its first on.
            id_bits: id_bits(experts.min(range).into()),
        };
        for (name, launch) in [
            ("strata_map_count", Launch::row(chunks, threads)),
            (
                "strata_map_chunks",
                Launch::row(self.blocks(experts.into(), experts_at_once), threads),
            ),
            ("strata_map_bounds", Launch::row(1, threads)),
            ("strata_map_rank", Launch::row(chunks, rank_threads)),
        ] {
            // SAFETY: core has checked the operands: ids lie in 0..experts; the counters are
            // experts x chunks. Each kernel of the four takes one of these.
            unsafe { self.launch(UNIT, name, launch, &args)? };
        }
        Ok(())
    }
}
