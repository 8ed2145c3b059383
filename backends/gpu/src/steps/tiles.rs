//! The tiles of a product: which are there, which to take, how many there can be.

/// Bytes of an entry of the list of tiles.
pub(crate) const ENTRY: usize = 16;

/// One tile of a product; all but `tokens` 0 where an architecture or a type has none
/// of so many.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct MmqShape {
    /// Weight rows.
    pub(crate) rows: u32,
    /// Activation rows.
    pub(crate) tokens: u32,
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Shared memory of a block, in bytes.
    pub(crate) shared_bytes: u32,
    /// What the tile costs beside its activation rows, in rows.
    pub(crate) overhead: u32,
    /// 1 where it takes 16-aligned activations alone.
    pub(crate) aligned: u32,
    /// Activation rows of a part of the tile, which costs nothing where it has none.
    pub(crate) part: u32,
    /// What a row costs, in hundredths of what it costs in other tiles.
    pub(crate) price: u32,
}

/// The shapes that an image exports, of so many tiles.
///
/// # Errors
/// What was found and what was expected, in words.
pub(crate) fn parse(words: &[u32], tiles: usize) -> Result<Vec<MmqShape>, String> {
    let (shapes, rest) = words.as_chunks::<8>();
    let sound = shapes.iter().all(|[rows, tokens, threads, shared, overhead, _, part, price]| {
        let sizes = [rows, threads, shared, overhead, part, price];
        let absent = sizes.iter().all(|&&word| word == 0);
        *tokens > 0 && (absent || sizes.iter().all(|&&word| word > 0))
    });
    if shapes.len() != tiles || !rest.is_empty() || !sound {
        return Err(format!(
            "{words:?}, expected 8 words for each of {tiles} tiles: all above 0 but the sixth, or the second alone"
        ));
    }
    let shape = |&[rows, tokens, threads, shared_bytes, overhead, aligned, part, price]: &[u32;
                      8]| {
        MmqShape { rows, tokens, threads, shared_bytes, overhead, aligned, part, price }
    };
    Ok(shapes.iter().map(shape).collect())
}

/// What a tile is chosen for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    /// Activation rows of all experts.
    pub(crate) rows: usize,
    /// Experts.
    pub(crate) experts: usize,
    /// Weight rows of an expert.
    pub(crate) weight_rows: usize,
    /// Whether the activations are 16-aligned; if not, the tiles that read them are taken.
    pub(crate) aligned: bool,
    /// Whether activation rows stand in the order of the output.
    pub(crate) in_order: bool,
    /// Multiprocessors, among which tiles are shared out; 0 where that does not count.
    pub(crate) processors: usize,
}

/// The tiles that fit `limit` bytes of shared memory, best first. `wanted` activation
/// rows come before others.
pub(crate) fn order(all: &[MmqShape], work: &Work, wanted: Option<u32>, limit: u32) -> Vec<usize> {
    let fits = |shape: &MmqShape| {
        shape.rows > 0 && shape.shared_bytes <= limit && (work.aligned || shape.aligned == 0)
    };
    let mut fit: Vec<usize> = (0..all.len()).filter(|&i| fits(&all[i])).collect();
    // The last is for devices that have room for no other.
    let spare = all.len().saturating_sub(1);
    fit.sort_by_cached_key(|&i| {
        let unwanted = wanted.is_some_and(|w| w != all[i].tokens);
        (i == spare, unwanted, cost(&all[i], work))
    });
    fit
}

/// That there is a tile of the activation rows that someone asks for.
///
/// # Errors
/// What there is, in words.
pub(crate) fn known(all: &[MmqShape], wanted: Option<u32>) -> Result<(), String> {
    let tokens: Vec<u32> = all.iter().map(|shape| shape.tokens).collect();
    match wanted {
        Some(wanted) if !tokens.contains(&wanted) => {
            Err(format!("the activation rows of a tile: one of {tokens:?}"))
        }
        _ => Ok(()),
    }
}

/// Time for the rows of all experts in such tiles, in any unit.
fn cost(shape: &MmqShape, work: &Work) -> u64 {
    let Work { rows, experts, weight_rows, processors, .. } = *work;
    let of = |tokens: u32| match experts {
        1 => rows.div_ceil(tokens as usize) as f64,
        _ => experts as f64 * expected_tiles(rows as f64 / experts as f64, tokens.into()),
    };
    let (tiles, parts) = (of(shape.tokens), of(shape.part));
    let price = f64::from(shape.price) / 100.0;
    // Tiles of parts have one thread for the copies, and twice the time for rows one by one.
    let rows_alone = if !work.in_order && shape.part < shape.tokens { 2.0 } else { 1.0 };
    let time =
        (price * parts * f64::from(shape.part) + tiles * f64::from(shape.overhead)) * rows_alone;
    // Where tiles do not come out even, multiprocessors wait for the last of them.
    let blocks = (processors * (512 / shape.threads.max(1)).max(1) as usize) as f64;
    let turns = tiles * weight_rows.div_ceil(shape.rows as usize) as f64 / blocks;
    let uneven = if turns > 1.0 && turns.is_finite() { turns.ceil() / turns } else { 1.0 };
    (1024.0 * time * uneven) as u64
}

/// Tiles of an expert of about `mean` rows: the sum over j of how likely it has
/// more than j tiles of `tokens` full. Rows are taken to scatter as if each chose
/// its expert by itself, with the logistic curve for the normal one.
fn expected_tiles(mean: f64, tokens: f64) -> f64 {
    let deviation = mean.sqrt().max(0.5);
    let more_than = |rows: f64| 1.0 / (1.0 + (1.702 * (rows + 0.5 - mean) / deviation).exp());
    // Far below the mean every tile is there, far above none is.
    let certain = ((mean - 6.0 * deviation) / tokens).floor().max(0.0);
    let last = ((mean + 6.0 * deviation) / tokens).ceil();
    let mut tiles = certain;
    let mut j = certain;
    while j <= last {
        tiles += more_than(j * tokens);
        j += 1.0;
    }
    tiles
}

/// The most tiles of `tokens` rows that `rows` rows of `experts` experts make: each
/// expert with rows has at most one that is not full.
pub(crate) fn most(rows: usize, experts: usize, tokens: usize) -> usize {
    match experts {
        1 => rows.div_ceil(tokens),
        _ => rows / tokens + experts.min(rows),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shapes as an image of this project exports them, widest first.
    fn shapes() -> Vec<MmqShape> {
        let words = [
            [0, 256, 0, 0, 0, 0, 0, 0],
            [128, 128, 256, 90_000, 8, 1, 128, 100],
            [128, 96, 384, 75_000, 13, 0, 96, 100],
            [128, 64, 256, 60_000, 13, 0, 64, 100],
            [128, 32, 256, 45_000, 28, 0, 32, 100],
            [64, 16, 128, 40_000, 28, 0, 16, 100],
            [16, 16, 32, 12_000, 28, 0, 16, 100],
        ];
        parse(words.as_flattened(), 7).unwrap()
    }

    /// The same with a tile by warpgroups.
    fn shapes_of_hopper() -> Vec<MmqShape> {
        let mut all = shapes();
        all[0] = MmqShape {
            rows: 48,
            tokens: 256,
            threads: 512,
            shared_bytes: 190_000,
            overhead: 72,
            aligned: 1,
            part: 64,
            price: 60,
        };
        all
    }

    fn work(rows: usize, experts: usize) -> Work {
        Work { rows, experts, weight_rows: 4096, aligned: true, in_order: true, processors: 0 }
    }

    fn best(all: &[MmqShape], work: Work) -> u32 {
        all[order(all, &work, None, u32::MAX)[0]].tokens
    }

    fn first(rows: usize, experts: usize) -> u32 {
        best(&shapes(), work(rows, experts))
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
    fn a_tile_by_warpgroups_is_for_many_rows_of_an_expert() {
        let of = |rows, experts| best(&shapes_of_hopper(), work(rows, experts));
        assert_eq!([of(32_768 * 10, 512), of(8_192 * 10, 512), of(8_192 * 8, 128)], [256; 3]);
        assert_eq!([of(2_048 * 10, 512), of(64, 1)], [64; 2]);
        assert_eq!(of(10, 512), 16);
        let indexed = Work { in_order: false, ..work(32_768 * 10, 512) };
        assert_eq!(best(&shapes_of_hopper(), indexed), 128);
    }

    #[test]
    fn a_few_tiles_more_than_there_are_multiprocessors_count_twice() {
        let of = |rows| {
            let work = Work { processors: 132, ..work(rows, 1) };
            best(&shapes_of_hopper(), work)
        };
        // 2 x 86 tiles or 4 x 32.
        assert_eq!(of(512), 128);
        assert_eq!(of(8_192), 256);
    }

    #[test]
    fn less_shared_memory_takes_a_smaller_tile_and_too_little_takes_none() {
        let tiles = |limit| order(&shapes(), &work(327_680, 512), None, limit);
        assert_eq!(tiles(100_000)[0], 1);
        assert_eq!(tiles(80_000)[0], 2);
        assert_eq!(tiles(64 << 10)[0], 3);
        assert_eq!(tiles(48 << 10)[0], 4);
        assert_eq!(tiles(28 << 10), [6]);
        assert!(tiles(8 << 10).is_empty());
    }

    #[test]
    fn the_spare_tile_is_last_and_a_wanted_one_first() {
        for rows in [1, 10, 100, 100_000] {
            let tiles = order(&shapes(), &work(rows, 8), None, u32::MAX);
            assert_eq!((tiles.len(), tiles[5]), (6, 6));
            for (index, wanted) in [(1, 128), (2, 96), (3, 64), (4, 32), (5, 16)] {
                assert_eq!(order(&shapes(), &work(rows, 8), Some(wanted), u32::MAX)[0], index);
            }
        }
    }

    #[test]
    fn activations_of_any_alignment_take_a_tile_that_reads_them() {
        let unaligned = Work { aligned: false, ..work(327_680, 512) };
        let tiles = order(&shapes(), &unaligned, Some(128), u32::MAX);
        assert_eq!((tiles.len(), tiles[0]), (5, 2));
    }

    #[test]
    fn a_tile_that_there_is_not_is_told() {
        assert!(known(&shapes(), None).is_ok() && known(&shapes(), Some(96)).is_ok());
        let told = known(&shapes(), Some(100)).unwrap_err();
        assert!(told.ends_with("one of [256, 128, 96, 64, 32, 16, 16]"), "{told}");
    }

    #[test]
    fn an_image_with_other_shapes_is_refused() {
        assert!(parse(&[1; 56], 7).is_ok());
        assert!(parse(&[1; 55], 7).is_err());
        assert!(parse(&[1; 48], 7).is_err());
        assert!(parse(&[1; 48], 6).is_ok());
        assert!(parse(&[], 7).is_err());
        let mut zero = [1; 56];
        zero[7] = 0;
        assert!(parse(&zero, 7).is_err());
        zero[..8].copy_from_slice(&[0, 1, 0, 0, 0, 0, 0, 0]);
        assert!(parse(&zero, 7).is_ok());
    }

    #[test]
    fn there_is_room_for_the_tiles_of_any_map() {
        // Rows of each expert; what the kernel makes of them.
        let maps: [&[usize]; 6] = [
            &[0, 0, 0],
            &[1; 40],
            &[17; 40],
            &[0, 1000, 0, 16, 15],
            &[640],
            &[15, 16, 17, 31, 32, 33],
        ];
        for map in maps {
            for tokens in [16, 32, 64, 128] {
                let made: usize = map.iter().map(|rows| rows.div_ceil(tokens)).sum();
                let room = most(map.iter().sum(), map.len(), tokens);
                assert!(made <= room, "{map:?} in tiles of {tokens}: {made}, room for {room}");
            }
        }
    }
}
