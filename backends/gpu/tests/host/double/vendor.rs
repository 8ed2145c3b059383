//! The two vendors, as far as the host half can tell them apart.

use strata_core::backend::BackendKind;
use strata_gpu::Opened;

use super::Double;
use crate::sources::{self, Units};

/// A vendor whose driver is pretended.
pub trait Vendor: Send + Sync + Sized + 'static {
    const KIND: BackendKind;
    /// What the names of the driver's calls begin with.
    const CALLS: &'static str;
    /// Entry points of a product's image.
    const TILES: &'static [&'static str];
    /// What the image says of each tile.
    const SHAPES: &'static [[u32; 8]];
    /// Lanes of a warp or wave.
    const WAVE: u32;
    /// Bytes of dynamic shared memory that a block may have.
    const SHARED: u32;
    /// KiB of shared memory, and the tile that they are enough for.
    const TILE_OF: &'static [(u32, &'static str)];

    /// The sources as this vendor compiles them.
    fn units() -> &'static Units;

    fn opened() -> &'static Opened<Double<Self>>;

    /// A variable of an image.
    fn words(name: &str) -> Option<Vec<u32>> {
        let words: &[u32] = match name {
            "strata_quantize_shape" | "strata_swiglu_shape" => &[256, 8],
            "strata_router_scores_shape" => &[256, 128, 64],
            "strata_router_few_scores_shape" => &[256, 32, 64],
            "strata_top_k_shape" | "strata_choose_shape" => &[128, 128 / Self::WAVE],
            "strata_combine_shape" => &[256],
            "strata_map_shape" => &[256, Self::WAVE, 256 / Self::WAVE, 4096],
            "strata_scatter_shape" => &[512, 4160, 144, 6],
            "strata_mmq_shapes" => Self::SHAPES.as_flattened(),
            _ => return None,
        };
        Some(words.to_vec())
    }

    /// What the image says of a tile.
    fn tile(kernel: &str) -> Option<[u32; 8]> {
        Self::TILES.iter().position(|&tile| tile == kernel).map(|tile| Self::SHAPES[tile])
    }

    /// Threads of a block.
    fn threads(kernel: &str) -> u32 {
        if let Some(shape) = Self::tile(kernel) {
            return shape[2];
        }
        match kernel {
            "strata_map_rank" => Self::WAVE,
            "strata_top_k" | "strata_choose" => 128,
            _ if kernel.starts_with("strata_scatter_") => 512,
            _ => 256,
        }
    }
}

pub struct Cuda;

impl Vendor for Cuda {
    const KIND: BackendKind = BackendKind::Cuda;
    const CALLS: &'static str = "cu";
    const TILES: &'static [&'static str] = &[
        "strata_mmq_tile256",
        "strata_mmq_tile128",
        "strata_mmq_tile96",
        "strata_mmq_tile64",
        "strata_mmq_tile32",
        "strata_mmq_tile16",
        "strata_mmq_tile_small",
    ];
    const SHAPES: &'static [[u32; 8]] = &[
        // No tile by warpgroups.
        [0, 256, 0, 0, 0, 0, 0, 0],
        [128, 128, 512, 90000, 8, 1, 128, 100],
        [128, 96, 384, 75000, 13, 0, 96, 100],
        [128, 64, 256, 60000, 13, 0, 64, 100],
        [128, 32, 256, 45000, 28, 0, 32, 100],
        [128, 16, 256, 40000, 28, 0, 16, 100],
        [16, 16, 32, 12000, 28, 0, 16, 100],
    ];
    const WAVE: u32 = 32;
    const SHARED: u32 = 100 << 10;
    const TILE_OF: &'static [(u32, &'static str)] =
        &[(80, "96"), (64, "64"), (48, "32"), (28, "_small")];

    fn units() -> &'static Units {
        sources::cuda()
    }

    fn opened() -> &'static Opened<Double<Self>> {
        static OPENED: Opened<Double<Cuda>> = Opened::new();
        &OPENED
    }
}

pub struct Hip;

impl Vendor for Hip {
    const KIND: BackendKind = BackendKind::Hip;
    const CALLS: &'static str = "hip";
    const TILES: &'static [&'static str] = &[
        "strata_mmq_tile128",
        "strata_mmq_tile64",
        "strata_mmq_tile32",
        "strata_mmq_tile16",
        "strata_mmq_tile_small",
    ];
    const SHAPES: &'static [[u32; 8]] = &[
        [128, 128, 512, 60000, 8, 1, 128, 100],
        [128, 64, 256, 40000, 13, 0, 64, 100],
        [128, 32, 256, 28000, 28, 0, 32, 100],
        [128, 16, 256, 20000, 28, 0, 16, 100],
        [16, 16, 64, 12000, 28, 0, 16, 100],
    ];
    const WAVE: u32 = 64;
    const SHARED: u32 = 64 << 10;
    const TILE_OF: &'static [(u32, &'static str)] =
        &[(64, "128"), (48, "64"), (32, "32"), (16, "_small")];

    fn units() -> &'static Units {
        sources::hip()
    }

    fn opened() -> &'static Opened<Double<Self>> {
        static OPENED: Opened<Double<Hip>> = Opened::new();
        &OPENED
    }
}
