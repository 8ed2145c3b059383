//! Routes to the map, a counting sort in four launches, and from it the list of tiles.

use strata_core::Result;
use strata_core::backend::ops::MapRoutes;
use strata_core::backend::{Checked, RoutingMap};

use crate::args::{Address, Arguments, Layout, arguments};
use crate::backend::GpuBackend;
use crate::driver::Driver;
use crate::operand::{at, at_mut};
use crate::steps::chunks::{MapCut, id_bits};
use crate::steps::tiles;
use crate::stream::Grid;

/// The source of these kernels.
const UNIT: &str = "map";

/// Threads of the passes, threads of the ranking pass, experts a block sums at a time,
/// experts whose counters fit shared memory.
const SHAPE: &str = "strata_map_shape";

pub(super) const LAYOUTS: &[Layout] = &[MapArgs::LAYOUT, TilesArgs::LAYOUT];

arguments! {
    /// `map`: `strata_map_count` (a block per chunk), `strata_map_chunks` (a wave per
    /// expert), `strata_map_bounds` (one block), `strata_map_rank` (a wave per chunk),
    /// in this order.
    MapArgs in "map.cu" {
        /// Expert ids of the routes.
        ids: Address,
        /// Row of each route.
        slot: Address,
        /// Token of each row.
        src: Address,
        /// Rows of the experts.
        bounds: Address,
        /// Room for `experts * chunks` words.
        counts: Address,
        /// Tokens times k.
        routes: u32,
        /// Routes per token.
        k: u32,
        /// Experts.
        experts: u32,
        /// Chunks of routes.
        chunks: u32,
        /// Routes of a chunk; the last may have fewer.
        chunk_routes: u32,
        /// Bits in which ids below `experts` can differ.
        id_bits: u32,
    }
}

arguments! {
    /// `map`: `strata_map_tiles`, one block.
    TilesArgs in "map.cu" {
        /// Rows of the experts.
        bounds: Address,
        /// Room for one entry of 16 bytes, and one for each tile.
        tiles: Address,
        /// Experts.
        experts: u32,
        /// Rows of a tile.
        tile_tokens: u32,
    }
}

impl<D: Driver> GpuBackend<D> {
    pub(super) fn launch_map(&self, op: &mut Checked<MapRoutes<'_>>) -> Result<()> {
        let [threads, rank_threads, experts_at_once, range] = self.shape(UNIT, SHAPE)?;
        let count = self.kernel(UNIT, "strata_map_count", threads)?;
        let sums = self.kernel(UNIT, "strata_map_chunks", threads)?;
        let bounds = self.kernel(UNIT, "strata_map_bounds", threads)?;
        let rank = self.kernel(UNIT, "strata_map_rank", rank_threads)?;

        let routes = op.routes();
        let (rows, experts) = (routes.rows() as u64, routes.experts() as u64);
        let cut = MapCut::new(rows, experts, self.gpu().units().into());
        // A map of nothing has no chunks, but the address must still be one.
        let counts = self.scratch((experts * cut.chunks).max(1) as usize * size_of::<u32>())?;
        let (k, ids) = (routes.k(), at(routes.ids()));
        let (slot, src, bounds_out) = op.out();
        let args = MapArgs {
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

    /// The list of tiles of so many rows over a map's experts, at most `most` of them. It is
    /// this stream's scratch memory.
    pub(super) fn launch_tiles(
        &self,
        map: &RoutingMap,
        tile_tokens: u32,
        most: usize,
    ) -> Result<Address> {
        let [threads, ..] = self.shape::<4>(UNIT, SHAPE)?;
        let cut = self.kernel(UNIT, "strata_map_tiles", threads)?;
        let tiles = self.scratch((1 + most) * tiles::ENTRY)?;
        let (bounds, experts) = (at(map.bounds()), map.experts() as u32);
        let args = TilesArgs { bounds, tiles, experts, tile_tokens };
        // SAFETY: the list has room for the most tiles that the rows of a
        // map can make; the kernel takes one of these.
        unsafe { self.stream.launch(&cut, Grid::Exactly(1), &args)? };
        Ok(tiles)
    }
}
