//! Products: which tile, how many blocks, and the list of tiles over the experts.

use strata_core::backend::ops::{Product, Rows as Order};
use strata_core::backend::{Checked, Mmq};
use strata_core::{Error, Result, WeightType};
use strata_gpu::shapes::MmqShape;
use strata_gpu::{args, shapes, tiles};
use strata_kernels_hip::MMQ_TILES;

use crate::HipBackend;
use crate::map;
use crate::memory::HipMemory;
use crate::module::Launch;
use crate::operand::{Rows, aligned, at};

impl Mmq for HipBackend {
    fn supports(&self, ty: WeightType) -> bool {
        strata_kernels_hip::image(&unit(ty), &self.gpu().info.arch).is_some()
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
        let (shape, name) = self.tile(weights.ty(), dst.rows, weights.experts(), aligned(input))?;
        let most = tiles::most(dst.rows, weights.experts(), shape.tokens as usize);
        let list = match map {
            None => None,
            Some(map) => {
                let [threads, ..] = self.shape::<4>(map::UNIT, shapes::MAP)?;
                let list = HipMemory::new(self.gpu(), (1 + most) * tiles::ENTRY)?;
                let args = args::Tiles {
                    bounds: at(map.bounds()),
                    tiles: list.address(),
                    experts: map.experts() as u32,
                    tile_tokens: shape.tokens,
                };
                // SAFETY: the list has room for the most tiles that the rows of a map can
                // make; the kernel takes one of these.
                unsafe {
                    self.launch(map::UNIT, "strata_map_tiles", Launch::row(1, threads), &args)?;
                }
                Some(list)
            }
        };
        let args = args::Mmq {
            weights: at(weights.data()),
            activations: input,
            src,
            tiles: list.as_ref().map_or(0, HipMemory::address),
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
        let work = most as u64 * (weights.rows() as u64).div_ceil(shape.rows.into());
        let grid = [self.blocks(work, 1), 1];
        let launch = Launch { grid, threads: shape.threads, shared: shape.shared_bytes };
        // SAFETY: core has checked the operands, and the tiles cover the map's rows and no
        // others; the kernels take one of these.
        unsafe { self.launch(&unit(weights.ty()), &name, launch, &args) }
    }
}

impl HipBackend {
    /// The tile for so many rows of so many experts, and its kernel's name.
    fn tile(
        &self,
        ty: WeightType,
        rows: usize,
        experts: usize,
        aligned: bool,
    ) -> Result<(MmqShape, String)> {
        let (device, unit) = (self.gpu(), unit(ty));
        let words = self.module(&unit)?.words(&self.stream, shapes::MMQ)?;
        let all = tiles::parse(&words, &MMQ_TILES).map_err(|detail| {
            device.error("reading a launch shape", format!("{unit}: {detail}"))
        })?;
        let wanted = self.options.tile;
        tiles::known(&all, wanted).map_err(|expected| {
            Error::invalid("STRATA_HIP_TILE", wanted.unwrap_or_default(), expected)
        })?;
        let limit = self.shared_bytes();
        let work =
            tiles::Work { rows, experts, weight_rows: 0, aligned, in_order: true, processors: 0 };
        match tiles::order(&all, &work, wanted, limit).first() {
            Some(&best) => Ok((all[best], format!("strata_mmq_{}", MMQ_TILES[best]))),
            None => {
                let least = all.iter().map(|s| s.shared_bytes).min().unwrap_or(0);
                Err(Error::invalid(
                    format!("{}: shared memory of a block", device.info.id),
                    format!("{limit} bytes"),
                    format!("at least {least}, for the smallest tile of {ty}"),
                ))
            }
        }
    }
}

/// The source of a type's kernels.
fn unit(ty: WeightType) -> String {
    format!("mmq_{}", ty.name().to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_has_kernels_for_every_architecture() {
        for &ty in WeightType::ALL {
            for arch in strata_kernels_hip::archs() {
                assert!(strata_kernels_hip::image(&unit(ty), arch).is_some(), "{ty} for {arch}");
            }
        }
    }
}
