//! Products: which tile, how many blocks, and the list of tiles over the experts.

use strata_core::backend::ops::{Product, Rows as Order};
use strata_core::backend::{Checked, Mmq};
use strata_core::{Error, Result, WeightType};

use crate::args::{Address, Arguments, Layout, arguments};
use crate::backend::GpuBackend;
use crate::driver::Driver;
use crate::images::{Kernel, Unit};
use crate::operand::{Rows, aligned, at};
use crate::options::variable;
use crate::steps::tiles::{self, MmqShape, Work};
use crate::stream::Grid;

/// An [`MmqShape`] for each tile.
const SHAPES: &str = "strata_mmq_shapes";

pub(super) const LAYOUTS: &[Layout] = &[MmqArgs::LAYOUT];

arguments! {
    /// `mmq_{type}`: `strata_mmq_{tile}`.
    MmqArgs in "product/tile.cuh" {
        /// Blocks of weights.
        weights: Address,
        /// q8_1 blocks.
        activations: Address,
        /// Activation row of each output row; null: the same.
        src: Address,
        /// What `strata_map_tiles` made; null for one expert.
        tiles: Address,
        /// Output.
        out: Address,
        /// Bytes from weight row to weight row.
        row_stride: i64,
        /// Bytes from expert to expert.
        expert_stride: i64,
        /// Rows of the activations.
        act_rows: i64,
        /// Values from row to row of the output.
        out_stride: i64,
        /// Weight rows of an expert.
        rows: u32,
        /// Weight columns.
        cols: u32,
        /// Output rows, without tiles.
        out_rows: u32,
        /// 1 where the activations are 16-aligned.
        aligned: u32,
    }
}

impl<D: Driver> Mmq for GpuBackend<D> {
    fn supports(&self, ty: WeightType) -> bool {
        D::image(&Unit::Mmq(ty).name(), &self.gpu().info).is_some()
    }

    fn multiply(&self, op: &mut Checked<Product<'_>>) -> Result<()> {
        let (weights, activations, map) = (op.weights(), op.activations(), op.map());
        let src = match op.rows() {
            Order::Indexed(map) => at(map.src()),
            Order::Dense | Order::Experts(_) => 0,
        };
        let dst = Rows::from(op.dst());
        if dst.rows == 0 {
            return Ok(());
        }
        let input = at(activations.data());
        let work = Work {
            rows: dst.rows,
            experts: weights.experts(),
            weight_rows: weights.rows(),
            aligned: aligned(input),
            in_order: src == 0,
            processors: self.gpu().units() as usize,
        };
        let (shape, kernel) = self.tile(weights.ty(), &work)?;
        let most = tiles::most(dst.rows, weights.experts(), shape.tokens as usize);
        let tiles = match map {
            None => 0,
            Some(map) => self.launch_tiles(map, shape.tokens, most)?,
        };
        let args = MmqArgs {
            weights: at(weights.data()),
            activations: input,
            src,
            tiles,
            out: dst.address,
            row_stride: weights.row_stride() as i64,
            expert_stride: weights.expert_stride() as i64,
            act_rows: activations.rows() as i64,
            out_stride: dst.stride as i64,
            rows: weights.rows() as u32,
            cols: weights.cols() as u32,
            out_rows: dst.rows as u32,
            aligned: aligned(input).into(),
        };
        let blocks = most as u64 * (weights.rows() as u64).div_ceil(shape.rows.into());
        // SAFETY: the operands were checked, and the tiles cover the map's rows and
        // no others; the kernels take one of these.
        unsafe { self.stream.launch(&kernel, Grid::UpTo(blocks, 1), &args) }
    }
}

impl<D: Driver> GpuBackend<D> {
    /// The best tile, and its kernel.
    fn tile(&self, ty: WeightType, work: &Work) -> Result<(MmqShape, Kernel)> {
        let (device, unit) = (self.gpu(), Unit::Mmq(ty));
        let words = device.images.words(device, unit, SHAPES)?;
        let all = tiles::parse(&words, D::TILES.len()).map_err(|detail| {
            device.error("reading a launch shape", format!("{}: {detail}", unit.name()))
        })?;
        let wanted = self.options.tile;
        tiles::known(&all, wanted).map_err(|expected| {
            Error::invalid(variable(D::KIND, "TILE"), wanted.unwrap_or_default(), expected)
        })?;
        let limit = self.shared_memory();
        let mut failure = None;
        for index in tiles::order(&all, work, wanted, limit) {
            let MmqShape { threads, shared_bytes, .. } = all[index];
            // The driver has the last word on what fits: the next tile is smaller.
            match device.images.kernel(device, unit, D::TILES[index], threads, shared_bytes) {
                Ok(kernel) => return Ok((all[index], kernel)),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        Err(failure.unwrap_or_else(|| {
            let there = all.iter().filter(|s| s.rows > 0);
            let least = there.map(|s| s.shared_bytes).min().unwrap_or(0);
            Error::invalid(
                format!("{}: shared memory of a block", device.info.id),
                format!("{limit} bytes"),
                format!("at least {least}, for the smallest tile of {ty}"),
            )
        }))
    }
}
