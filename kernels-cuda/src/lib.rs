//! The CUDA kernels of Strata, compiled at build time and embedded.
//!
//! The sources in `kernels/` are shared with HIP: what differs between vendors
//! is behind `kernels/vendor.cuh`. [`image`] gives the fatbin of one source.
//! What a host must know of the entry points, their arguments and what each
//! image exports about its launches, is in the crate `strata-gpu`.
//!
//! # What kernels ask of memory
//! Loads are whole words of 4 or 16 bytes, aligned, around the bytes that are
//! needed. They never cross a multiple of 16, so memory must be readable up to
//! the next multiple of 16 bytes past its end, and begin at one.

/// The entry points of every product's tiles, widest first. The widest is there on sm_90a
/// alone, and not for every type.
pub const MMQ_TILES: [&str; 7] = [
    "strata_mmq_tile256",
    "strata_mmq_tile128",
    "strata_mmq_tile96",
    "strata_mmq_tile64",
    "strata_mmq_tile32",
    "strata_mmq_tile16",
    "strata_mmq_tile_small",
];

/// The folder of the sources.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/kernels");

#[cfg(feature = "images")]
mod images {
    include!(concat!(env!("OUT_DIR"), "/images.rs"));
}

/// The fatbin of `kernels/{name}.cu`.
#[cfg(feature = "images")]
pub fn image(name: &str) -> Option<&'static [u8]> {
    images::IMAGES.iter().find(|(n, _)| *n == name).map(|(_, bytes)| *bytes)
}

/// The names of all images.
#[cfg(feature = "images")]
pub fn names() -> impl Iterator<Item = &'static str> {
    images::IMAGES.iter().map(|(name, _)| *name)
}

/// The architectures that the images hold code for, as `sm_90a`; `compute_80` is
/// PTX, which the driver compiles for later cards.
#[cfg(feature = "images")]
pub fn archs() -> &'static [&'static str] {
    images::ARCHS
}

/// Bytes by which memory must be readable past its end: see the crate's page.
pub const READ_ALIGN: usize = 16;
