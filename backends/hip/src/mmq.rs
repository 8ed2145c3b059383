//! Products with quantized weights, over all experts in one launch.

use strata_core::backend::ops::{Product, Rows};
use strata_core::backend::{Checked, Mmq};
use strata_core::{Error, Result, WeightType};

use crate::HipBackend;
use crate::map;
use crate::memory::{HipMemory, of, of_mut};
use crate::module::{Launch, Module};

/// `MmqArgs` of `mmq.cuh`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MmqArgs {
    weights: u64,
    activations: u64,
    src: u64,
    tiles: u64,
    out: u64,
    row_stride: i64,
    expert_stride: i64,
    act_rows: i64,
    out_stride: i64,
    rows: u32,
    cols: u32,
    out_rows: u32,
    aligned: u32,
}

/// `TilesArgs` of `map.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TilesArgs {
    bounds: u64,
    tiles: u64,
    experts: u32,
    tile_tokens: u32,
}

/// The tiles of `tiles.cuh`, in the order in which an image lists their shapes.
const TILES: [&str; 5] = ["tile128", "tile64", "tile32", "tile16", "tile_small"];
/// Words of a tile's shape.
const SHAPE_WORDS: usize = 6;
/// Bytes of an entry of a list of tiles.
const TILE_BYTES: usize = 16;

/// One of an image's tiles, `MmqShape` of `mmq.cuh`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tile {
    name: &'static str,
    rows: u32,
    tokens: u32,
    threads: u32,
    shared: u32,
}

/// The tile for `rows` rows an expert: the narrowest that takes them at once,
/// else the widest, of those whose shared memory the device has.
fn choose(shapes: &[u32; SHAPE_WORDS * TILES.len()], rows: u64, limit: u32) -> Option<Tile> {
    let fitting = || {
        {
            TILES.into_iter().zip(shapes.as_chunks::<SHAPE_WORDS>().0).map(
                |(name, &[rows, tokens, threads, shared, ..])| Tile {
                    name,
                    rows,
                    tokens,
                    threads,
                    shared,
                },
            )
        }
        .filter(|tile| tile.shared <= limit)
    };
    let enough =
        fitting().filter(|tile| u64::from(tile.tokens) >= rows).min_by_key(|tile| tile.tokens);
    enough.or_else(|| fitting().max_by_key(|tile| tile.tokens))
}

impl HipBackend {
    fn tile(&self, module: &Module, ty: WeightType, rows: u64) -> Result<Tile> {
        let shapes = module.shape(&self.stream, "strata_mmq_shapes")?;
        let limit = self.stream.device.shared;
        choose(&shapes, rows, limit).ok_or_else(|| Error::Device {
            device: self.stream.device.info.id.to_string(),
            call: "choosing a tile",
            detail: format!(
                "products of {ty} take {} bytes of shared memory at least, a block has {limit}",
                shapes.as_chunks::<SHAPE_WORDS>().0.iter().map(|shape| shape[3]).min().unwrap_or(0)
            ),
        })
    }
}

impl Mmq for HipBackend {
    fn supports(&self, ty: WeightType) -> bool {
        strata_kernels_hip::image(&unit(ty), &self.stream.device.info.arch).is_some()
    }

    fn multiply(&self, op: &mut Checked<Product<'_>>) -> Result<()> {
        let (weights, activations, rows) = (op.weights(), op.activations(), op.rows());
        let dst = op.dst();
        let out_rows = dst.rows() as u64;
        if out_rows == 0 {
            return Ok(());
        }
        let module = self.module(&unit(weights.ty()))?;
        let experts = weights.experts() as u64;
        let tile = self.tile(&module, weights.ty(), out_rows.div_ceil(experts))?;

        let (src, map) = match rows {
            Rows::Dense => (0, None),
            Rows::Experts(map) => (0, Some(map)),
            Rows::Indexed(map) => (of(map.src()), Some(map)),
        };
        // Every expert with rows may end in a tile of its own.
        let most = out_rows / u64::from(tile.tokens) + experts.min(out_rows);
        let list = match map {
            None => None,
            Some(map) => {
                let bytes = (1 + most as usize) * TILE_BYTES;
                let list = HipMemory::new(&self.stream.device, bytes)?;
                let args = TilesArgs {
                    bounds: of(map.bounds()),
                    tiles: list.address(),
                    experts: experts as u32,
                    tile_tokens: tile.tokens,
                };
                let module = self.module(map::UNIT)?;
                let launch = Launch::row(1, map::threads(&module, &self.stream)?);
                // SAFETY: the arguments are `TilesArgs`, the bounds experts + 1 values, and the
                // list has room for every tile.
                unsafe { module.launch(&self.stream, "strata_map_tiles", launch, &args)? };
                Some(list)
            }
        };
        let data = of(activations.data());
        let args = MmqArgs {
            weights: of(weights.data()),
            activations: data,
            src,
            tiles: list.as_ref().map_or(0, HipMemory::address),
            out: of_mut(dst.data()),
            row_stride: weights.row_stride() as i64,
            expert_stride: weights.expert_stride() as i64,
            act_rows: activations.rows() as i64,
            out_stride: dst.stride() as i64,
            rows: weights.rows() as u32,
            cols: weights.cols() as u32,
            out_rows: out_rows as u32,
            aligned: data.is_multiple_of(16).into(),
        };
        let work = most * weights.rows().div_ceil(tile.rows as usize) as u64;
        let launch =
            Launch { grid: [self.blocks(work, 1), 1], threads: tile.threads, shared: tile.shared };
        // SAFETY: the arguments are `MmqArgs`, made of views that core has checked; the launch has
        // the threads and the shared memory that the image asks for.
        unsafe { module.launch(&self.stream, &format!("strata_mmq_{}", tile.name), launch, &args) }
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
        for ty in WeightType::ALL {
            for arch in strata_kernels_hip::archs() {
                assert!(strata_kernels_hip::image(&unit(ty), arch).is_some(), "{ty} for {arch}");
            }
        }
    }

    #[test]
    fn tiles_follow_the_rows_and_the_shared_memory() {
        let mut shapes = [0; SHAPE_WORDS * TILES.len()];
        for (i, (tokens, shared)) in
            [(128, 60_000), (64, 40_000), (32, 20_000), (16, 10_000), (16, 5_000)]
                .into_iter()
                .enumerate()
        {
            shapes[SHAPE_WORDS * i..SHAPE_WORDS * i + 4]
                .copy_from_slice(&[64, tokens, 256, shared]);
        }
        let name = |rows, limit| choose(&shapes, rows, limit).map(|tile| tile.name);
        assert_eq!(name(1, 65_536), Some("tile16"));
        assert_eq!(name(17, 65_536), Some("tile32"));
        assert_eq!(name(65, 65_536), Some("tile128"));
        assert_eq!(name(10_000, 65_536), Some("tile128"));
        assert_eq!(name(10_000, 49_152), Some("tile64"));
        assert_eq!(name(1, 8_192), Some("tile_small"));
        assert_eq!(name(10_000, 8_192), Some("tile_small"));
        assert_eq!(name(1, 4_096), None);
    }
}
