//! The images that are embedded, and the tables the kernels were given.

use strata_core::WeightType;
use strata_core::format::grids;

#[test]
fn every_type_and_step_has_an_image() {
    let mut wanted: Vec<String> =
        WeightType::ALL.iter().map(|ty| format!("mmq_{}", ty.name().to_lowercase())).collect();
    wanted.extend(["choose", "map", "quantize", "router", "scatter", "swiglu"].map(str::to_owned));
    wanted.sort();
    let have: Vec<&str> = strata_kernels_cuda::names().collect();
    assert_eq!(have, wanted);
    for name in have {
        let image = strata_kernels_cuda::image(name).expect("an image that is listed");
        // The magic number of nvcc's fatbins.
        assert_eq!(&image[..4], 0xba55_ed50_u32.to_le_bytes(), "{name}");
    }
    assert!(!strata_kernels_cuda::archs().is_empty());
}

/// The words of one table of the kernels' codebooks.
fn table(name: &str) -> Vec<u32> {
    let text = include_str!("../kernels/types/grids.cuh");
    let from = text.find(&format!(" {name}[")).expect("a table of that name");
    let body = &text[from..];
    let body = &body[body.find('=').expect("a definition")..body.find(';').expect("an end")];
    body.split("0x")
        .skip(1)
        .map(|word| u32::from_str_radix(&word[..8], 16).expect("eight hexadecimal digits"))
        .collect()
}

fn words<const N: usize>(entries: &[[i8; N]]) -> Vec<u32> {
    entries
        .as_flattened()
        .chunks_exact(4)
        .map(|v| u32::from_le_bytes([v[0] as u8, v[1] as u8, v[2] as u8, v[3] as u8]))
        .collect()
}

#[test]
fn codebooks_are_cores() {
    assert_eq!(table("grid_iq2_xxs"), words(&grids::IQ2_XXS));
    assert_eq!(table("grid_iq2_xs"), words(&grids::IQ2_XS));
    assert_eq!(table("grid_iq2_s"), words(&grids::IQ2_S));
    assert_eq!(table("grid_iq1"), words(&grids::IQ1_S));
    assert_eq!(table("grid_iq3_xxs"), words(&grids::IQ3_XXS));
    assert_eq!(table("grid_iq3_s"), words(&grids::IQ3_S));
}
