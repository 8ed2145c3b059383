use super::*;

/// Shapes as an image of this project exports them, widest first.
fn shapes() -> Vec<MmqShape> {
    let words = [
        [128, 128, 256, 90_000, 8, 1],
        [128, 96, 384, 75_000, 13, 0],
        [128, 64, 256, 60_000, 13, 0],
        [128, 32, 256, 45_000, 28, 0],
        [64, 16, 128, 40_000, 28, 0],
        [16, 16, 32, 12_000, 28, 0],
    ];
    parse(words.as_flattened()).unwrap()
}

fn first(rows: usize, experts: usize) -> u32 {
    shapes()[order(&shapes(), rows, experts, true, None, u32::MAX)[0]].tokens
}

#[test]
fn names_are_those_of_the_images() {
    for (name, tile) in NAMES.iter().zip(MMQ_TILES) {
        assert_eq!(*name, format!("strata_mmq_{tile}"));
    }
    for ty in WeightType::ALL {
        assert_eq!(unit(ty), format!("mmq_{}", ty.name().to_lowercase()));
        assert!(strata_kernels_cuda::image(unit(ty)).is_some(), "{ty}");
    }
}

#[test]
fn wide_tiles_are_for_many_rows() {
    assert_eq!(first(32_768 * 10, 512), 128);
    assert_eq!(first(8_192 * 10, 512), 96);
    assert_eq!(first(2_048 * 10, 512), 64);
    assert_eq!(first(600 * 10, 512), 16);
    assert_eq!(first(1, 1), 16);
    assert_eq!(first(2_048, 1), 128);
}

#[test]
fn less_shared_memory_takes_a_smaller_tile_and_too_little_takes_none() {
    let tiles = |limit| order(&shapes(), 327_680, 512, true, None, limit);
    assert_eq!(tiles(100_000)[0], 0);
    assert_eq!(tiles(80_000)[0], 1);
    assert_eq!(tiles(64 << 10)[0], 2);
    assert_eq!(tiles(48 << 10)[0], 3);
    assert_eq!(tiles(28 << 10), [5]);
    assert!(tiles(8 << 10).is_empty());
}

#[test]
fn the_spare_tile_is_last_and_a_wanted_one_first() {
    for rows in [1, 10, 100, 100_000] {
        let tiles = order(&shapes(), rows, 8, true, None, u32::MAX);
        assert_eq!((tiles.len(), tiles[5]), (6, 5));
        for (index, wanted) in [(0, 128), (1, 96), (2, 64), (3, 32), (4, 16)] {
            assert_eq!(order(&shapes(), rows, 8, true, Some(wanted), u32::MAX)[0], index);
        }
    }
}

#[test]
fn activations_of_any_alignment_take_a_tile_that_reads_them() {
    let tiles = order(&shapes(), 327_680, 512, false, Some(128), u32::MAX);
    assert_eq!((tiles.len(), tiles[0]), (5, 1));
}

#[test]
fn an_image_with_other_shapes_is_refused() {
    assert!(parse(&[1; 36]).is_ok());
    assert!(parse(&[1; 35]).is_err());
    assert!(parse(&[1; 30]).is_err());
    assert!(parse(&[]).is_err());
    let mut zero = [1; 36];
    zero[7] = 0;
    assert!(parse(&zero).is_err());
}

#[test]
fn there_is_room_for_the_tiles_of_any_map() {
    // Rows of each expert; what the kernel makes of them.
    let maps: [&[usize]; 6] =
        [&[0, 0, 0], &[1; 40], &[17; 40], &[0, 1000, 0, 16, 15], &[640], &[15, 16, 17, 31, 32, 33]];
    for map in maps {
        for tokens in [16, 32, 64, 128] {
            let made: usize = map.iter().map(|rows| rows.div_ceil(tokens)).sum();
            let most = Tiles::most(map.iter().sum(), map.len(), tokens);
            assert!(made <= most, "{map:?} in tiles of {tokens}: {made}, room for {most}");
        }
    }
}
