//! Products: which tile, how many blocks, and the list of tiles over the experts.

use strata_core::backend::ops::{Product, Rows as Order};
use strata_core::backend::{Checked, Mmq};
use strata_core::{Error, Result, WeightType};
use strata_gpu::shapes::MmqShape;
use strata_gpu::tiles::Work;
use strata_gpu::{args, shapes, tiles};
use strata_kernels_cuda::MMQ_TILES;

use crate::backend::CudaBackend;
use crate::module::Kernel;
use crate::operand::{Rows, aligned, at};
use crate::stream::Grid;

/// Entry points of [`MMQ_TILES`].
const NAMES: [&str; MMQ_TILES.len()] = [
    "strata_mmq_tile256",
    "strata_mmq_tile128",
    "strata_mmq_tile96",
    "strata_mmq_tile64",
    "strata_mmq_tile32",
    "strata_mmq_tile16",
    "strata_mmq_tile_small",
];

impl Mmq for CudaBackend {
    fn supports(&self, ty: WeightType) -> bool {
        strata_kernels_cuda::image(unit(ty)).is_some()
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
            processors: self.gpu().limits.units as usize,
        };
        let (shape, kernel) = self.tile(weights.ty(), &work)?;
        let most = tiles::most(dst.rows, weights.experts(), shape.tokens as usize);
        let list = match map {
            None => 0,
            Some(map) => {
                let [threads, ..] = self.shape::<4>("map", shapes::MAP)?;
                let cut = self.kernel("map", "strata_map_tiles", threads)?;
                let list = self.scratch((1 + most) * tiles::ENTRY)?;
                let args = args::Tiles {
                    bounds: at(map.bounds()),
                    tiles: list,
                    experts: map.experts() as u32,
                    tile_tokens: shape.tokens,
                };
                // SAFETY: the list has room for the most tiles that the rows of a
                // map can make; the kernel takes one of these.
                unsafe { self.stream.launch(&cut, Grid::Exactly(1), &args)? };
                list
            }
        };
        let args = args::Mmq {
            weights: at(weights.data()),
            activations: input,
            src,
            tiles: list,
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

impl CudaBackend {
    /// The best tile, and its kernel.
    fn tile(&self, ty: WeightType, work: &Work) -> Result<(MmqShape, Kernel)> {
        let (device, unit) = (self.gpu(), unit(ty));
        let words = device.modules.shape(device, unit, shapes::MMQ)?;
        let all = tiles::parse(&words, &MMQ_TILES).map_err(|detail| {
            device.error("reading a launch shape", format!("{unit}: {detail}"))
        })?;
        let wanted = self.options.tile;
        tiles::known(&all, wanted).map_err(|expected| {
            Error::invalid("STRATA_CUDA_TILE", wanted.unwrap_or_default(), expected)
        })?;
        let limit = self.options.shared_bytes.unwrap_or(u32::MAX).min(device.limits.shared);
        let mut failure = None;
        for index in tiles::order(&all, work, wanted, limit) {
            let MmqShape { threads, shared_bytes, .. } = all[index];
            // The driver has the last word on what fits: the next tile is smaller.
            match device.modules.kernel(device, unit, NAMES[index], threads, shared_bytes) {
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

/// The source of a type's kernels.
fn unit(ty: WeightType) -> &'static str {
    match ty {
        WeightType::Q1_0 => "mmq_q1_0",
        WeightType::Q2_0 => "mmq_q2_0",
        WeightType::Q4_0 => "mmq_q4_0",
        WeightType::Q4_1 => "mmq_q4_1",
        WeightType::Q5_0 => "mmq_q5_0",
        WeightType::Q5_1 => "mmq_q5_1",
        WeightType::Q8_0 => "mmq_q8_0",
        WeightType::Q2_K => "mmq_q2_k",
        WeightType::Q3_K => "mmq_q3_k",
        WeightType::Q4_K => "mmq_q4_k",
        WeightType::Q5_K => "mmq_q5_k",
        WeightType::Q6_K => "mmq_q6_k",
        WeightType::TQ1_0 => "mmq_tq1_0",
        WeightType::TQ2_0 => "mmq_tq2_0",
        WeightType::IQ1_S => "mmq_iq1_s",
        WeightType::IQ1_M => "mmq_iq1_m",
        WeightType::IQ2_XXS => "mmq_iq2_xxs",
        WeightType::IQ2_XS => "mmq_iq2_xs",
        WeightType::IQ2_S => "mmq_iq2_s",
        WeightType::IQ3_XXS => "mmq_iq3_xxs",
        WeightType::IQ3_S => "mmq_iq3_s",
        WeightType::IQ4_NL => "mmq_iq4_nl",
        WeightType::IQ4_XS => "mmq_iq4_xs",
        WeightType::MXFP4 => "mmq_mxfp4",
        WeightType::NVFP4 => "mmq_nvfp4",
        // None is left: `names_are_those_of_the_images` goes through all.
        other => unreachable!("{other} has no unit"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_images() {
        for (name, tile) in NAMES.iter().zip(MMQ_TILES) {
            assert_eq!(*name, format!("strata_mmq_{tile}"));
        }
        for &ty in WeightType::ALL {
            assert_eq!(unit(ty), format!("mmq_{}", ty.name().to_lowercase()));
            assert!(strata_kernels_cuda::image(unit(ty)).is_some(), "{ty}");
        }
    }
}
