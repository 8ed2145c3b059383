//! The kernels of `kernels-cuda`, compiled for AMD GPUs by the build script
//! and embedded: one ELF code object per source file and architecture.
//!
//! There is one set of sources for NVIDIA and AMD. What differs stands in
//! their `vendor.cuh`, whose other half is `include/strata_hip.cuh` of this
//! crate: it is written for clang alone, so that neither ROCm nor its headers
//! are needed to compile.
//! What a host must know of the sources is in the crate `strata-gpu`.

mod arch;

pub use arch::{KNOWN, wave};

/// The entry points of every product's tiles, widest first.
pub const MMQ_TILES: [&str; 5] = [
    "strata_mmq_tile128",
    "strata_mmq_tile64",
    "strata_mmq_tile32",
    "strata_mmq_tile16",
    "strata_mmq_tile_small",
];

/// One compiled source file.
#[derive(Debug, Clone, Copy)]
pub struct Image {
    /// The source's name, without extension.
    pub unit: &'static str,
    /// The architecture, as `gfx1100`.
    pub arch: &'static str,
    /// The ELF code object.
    pub code: &'static [u8],
}

/// Gives bytes the alignment that an ELF file is read with.
#[repr(C, align(16))]
struct Aligned<T: ?Sized>(T);

macro_rules! embed {
    ($path:literal) => {{
        static CODE: &Aligned<[u8]> = &Aligned(*include_bytes!($path));
        &CODE.0
    }};
}

include!(concat!(env!("OUT_DIR"), "/images.rs"));

/// Everything that was compiled in.
pub const IMAGES: &[Image] = IMAGE_TABLE;

/// What the compiler says of itself.
pub const COMPILER: &str = COMPILER_BANNER;

/// The architectures compiled in, in order of name.
pub fn archs() -> Vec<&'static str> {
    let mut archs: Vec<_> = IMAGES.iter().map(|i| i.arch).collect();
    archs.dedup();
    archs
}

/// The code object of one source for one architecture.
pub fn image(unit: &str, arch: &str) -> Option<&'static [u8]> {
    IMAGES.iter().find(|i| i.unit == unit && i.arch == arch).map(|i| i.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waves_follow_the_generation() {
        for (arch, lanes) in KNOWN {
            assert_eq!(wave(arch), Some(lanes), "{arch}");
        }
        for arch in
            ["gfx803", "gfx900", "gfx909", "gfx90c", "gfx1010", "gfx11-generic", "sm_90", "gfx"]
        {
            assert_eq!(wave(arch), None, "{arch}");
        }
        assert_eq!(wave("gfx1201"), Some(32));
    }

    #[test]
    fn every_type_has_kernels_for_every_architecture() {
        for &ty in strata_core::WeightType::ALL {
            for arch in archs() {
                let unit = format!("mmq_{}", ty.name().to_ascii_lowercase());
                assert!(super::image(&unit, arch).is_some(), "{ty} for {arch}");
            }
        }
    }

    #[test]
    fn every_image_is_an_elf_file_of_its_architecture() {
        assert!(!IMAGES.is_empty());
        for image in IMAGES {
            assert_eq!(&image.code[..4], b"\x7fELF", "{} {}", image.unit, image.arch);
            assert_eq!(image.code.as_ptr().align_offset(16), 0);
            assert_eq!(
                super::image(image.unit, image.arch).map(<[u8]>::len),
                Some(image.code.len())
            );
            // e_machine: EM_AMDGPU.
            assert_eq!(u16::from_le_bytes([image.code[18], image.code[19]]), 224);
        }
        let units = IMAGES.iter().filter(|i| i.arch == IMAGES[0].arch).count();
        assert_eq!(IMAGES.len(), units * archs().len(), "every unit for every architecture");
    }
}
