//! The stable map, by a counting sort in chunks.

use strata_core::Result;
use strata_core::backend::Checked;
use strata_core::backend::ops::MapRoutes;
use strata_kernels_sycl::Unit;
use sycl_bindgen::Arg;

use crate::SyclBackend;
use crate::launch::{read, write};
use crate::quantize::size;

/// Ids that a work-item of a GPU counts, one after the other.
const GPU_CHUNK: usize = 256;

/// Counters of all chunks together, at most: 64 MiB of them.
const MOST_COUNTERS: usize = 16 << 20;

impl SyclBackend {
    /// How many chunks `rows` ids are cut into, for `experts` counters each.
    fn chunks(&self, rows: usize, experts: usize) -> usize {
        let wanted = match self.shared.form.lanes {
            1 => rows.div_ceil(GPU_CHUNK),
            _ => 4 * self.shared.device.compute_units as usize,
        };
        wanted.min(MOST_COUNTERS / experts).min(rows).max(1)
    }

    pub(crate) fn map(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        let built = self.unit(Unit::Routing)?;
        let routes = op.routes();
        let (rows, experts) = (routes.rows(), routes.experts());
        let each = rows.div_ceil(self.chunks(rows, experts)).max(1);
        let chunks = rows.div_ceil(each).max(1);
        let counts = self.scratch("counts", 4 * chunks * experts)?;
        let (slot, src, bounds) = op.out();
        let (slot, src, bounds) = (write(slot), write(src), write(bounds));
        let ids = read(routes.ids());
        let [n_rows, n_each, n_chunks, n_experts, k] =
            [rows, each, chunks, experts, routes.k()].map(size);
        let [n_rows, n_each, n_chunks, n_experts, k] =
            [&n_rows, &n_each, &n_chunks, &n_experts, &k].map(Arg::value);
        let chunks = chunks as u64;
        // SAFETY: the arguments of the four kernels. Ids lie below `experts`, so every counter
        // and every row does; `counts` has one counter for each chunk and expert.
        unsafe {
            let args = [ids, counts, n_rows, n_each, n_chunks, n_experts];
            self.share(&built, "map_count", &args, chunks)?;
            let args = [counts, bounds, n_chunks, n_experts];
            self.share(&built, "map_sum", &args, experts as u64)?;
            self.share(&built, "map_bounds", &[bounds, n_experts], 1)?;
            let args = [ids, counts, bounds, slot, src, n_rows, n_each, n_chunks, n_experts, k];
            self.share(&built, "map_place", &args, chunks)
        }
    }
}
