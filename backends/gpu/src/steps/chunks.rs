//! What is cut into chunks: routes of a map, and tokens of the scatter in the order of
//! the output.

/// How the routes of a map are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct MapCut {
    /// Chunks.
    pub(crate) chunks: u64,
    /// Routes of a chunk; the last may have fewer.
    pub(crate) routes: u64,
}

impl MapCut {
    /// Routes of a chunk are a multiple of this, so that ranking reads whole batches.
    const STEP: u64 = 256;
    /// Chunks for each multiprocessor, where there are routes enough.
    const PER_UNIT: u64 = 4;

    /// Enough to fill the device, but with no more counters than a small
    /// multiple of the routes and experts: the map stays linear in them.
    pub(crate) fn new(rows: u64, experts: u64, units: u64) -> Self {
        let most = (units * Self::PER_UNIT).min(8 * rows / experts).max(1);
        let routes = rows.div_ceil(most).next_multiple_of(Self::STEP).max(Self::STEP);
        Self { chunks: rows.div_ceil(routes), routes }
    }
}

/// Bits in which ids below `n` can differ.
pub(crate) fn id_bits(n: u64) -> u32 {
    u64::BITS - n.saturating_sub(1).leading_zeros()
}

/// From so many bytes of output on it is written in its order: neighbouring rows
/// together, which saves more of the memory's time than listing the rows takes.
/// Measured on an H200.
pub(crate) const IN_ORDER_FROM: usize = 80 << 20;

/// What a launch of the kernels of `scatter` takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ScatterShape {
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Bytes of shared memory beside those of a chunk's tokens.
    pub(crate) fixed_bytes: u32,
    /// Bytes that each token of a chunk takes.
    pub(crate) token_bytes: u32,
    /// Bytes that each of a token's rows takes.
    pub(crate) route_bytes: u32,
}

impl From<[u32; 4]> for ScatterShape {
    /// Of the words that the image exports.
    fn from([threads, fixed_bytes, token_bytes, route_bytes]: [u32; 4]) -> Self {
        Self { threads, fixed_bytes, token_bytes, route_bytes }
    }
}

/// Chunks that tokens are cut into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunks {
    /// Chunks.
    pub(crate) count: u32,
    /// Tokens of a chunk; the last may have fewer.
    pub(crate) tokens: u32,
}

impl Chunks {
    /// Chunks that fit `room` bytes of shared memory, for `tokens` tokens of `k` rows
    /// and `k_blocks` blocks each, where `blocks` blocks of threads run at once. None
    /// where there is nothing, or the room is too small for a chunk worth it.
    pub(crate) fn within(
        room: u32,
        shape: ScatterShape,
        tokens: usize,
        k: usize,
        k_blocks: usize,
        blocks: u64,
    ) -> Option<Self> {
        if tokens == 0 || k_blocks == 0 {
            return None;
        }
        let fit = u64::from(room.saturating_sub(shape.fixed_bytes)) / each(shape, k);
        Self::new(tokens as u64, fit, k_blocks as u64, blocks)
    }

    /// Bytes of shared memory that a chunk takes, of tokens of `k` rows.
    pub(crate) fn shared_bytes(&self, shape: ScatterShape, k: usize) -> u32 {
        shape.fixed_bytes + self.tokens * each(shape, k) as u32
    }

    /// The fewest that give the blocks of a grid the same number of turns, where a
    /// chunk has at most `fit` tokens, which 16 bits number.
    fn new(tokens: u64, fit: u64, k_blocks: u64, blocks: u64) -> Option<Self> {
        let fit = fit.min(u64::from(u16::MAX));
        // Fewer tokens have hardly two rows that are neighbours.
        if fit < 16 {
            return None;
        }
        let turns = (tokens.div_ceil(fit) * k_blocks).div_ceil(blocks);
        let even = (turns * blocks / k_blocks).max(tokens.div_ceil(fit));
        let each = tokens.div_ceil(even);
        Some(Self { count: tokens.div_ceil(each) as u32, tokens: each as u32 })
    }
}

/// Bytes that a token with its `k` rows takes.
fn each(shape: ScatterShape, k: usize) -> u64 {
    u64::from(shape.token_bytes) + u64::from(shape.route_bytes) * k as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_and_cover_all_tokens() {
        for tokens in [1, 2, 15, 16, 17, 599, 2_048, 32_768, 1 << 20, u64::from(u32::MAX)] {
            for fit in [16, 100, 993, u64::MAX] {
                for (k_blocks, blocks) in [(4, 1), (4, 132), (20, 132), (8_192, 264)] {
                    let Chunks { count, tokens: each } =
                        Chunks::new(tokens, fit, k_blocks, blocks).unwrap();
                    let (count, each) = (u64::from(count), u64::from(each));
                    assert!(each <= fit && each <= u64::from(u16::MAX), "{tokens} {fit}");
                    assert!(count * each >= tokens && (count - 1) * each < tokens);
                }
            }
        }
        assert_eq!(Chunks::new(32_768, 993, 20, 132), Some(Chunks { count: 33, tokens: 993 }));
        assert_eq!(Chunks::new(32_768, 15, 20, 132), None);
    }

    #[test]
    fn chunks_take_no_more_room_than_there_is() {
        let shape = ScatterShape::from([512, 4_164, 144, 6]);
        for room in [8 << 10, 12 << 10, 64 << 10, 227 << 10] {
            for (tokens, k) in [(1, 2), (5, 8), (600, 10), (32_768, 10)] {
                let chunks = Chunks::within(room, shape, tokens, k, 20, 132);
                match chunks {
                    Some(chunks) => assert!(chunks.shared_bytes(shape, k) <= room, "{chunks:?}"),
                    None => assert!(room < shape.fixed_bytes + 16 * (144 + 6 * k as u32)),
                }
            }
        }
    }

    #[test]
    fn bits_cover_all_ids() {
        for (n, expected) in
            [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (512, 9), (513, 10), (4096, 12)]
        {
            assert_eq!(id_bits(n), expected, "{n}");
        }
    }

    #[test]
    fn a_map_s_chunks_cover_all_routes_and_stay_few() {
        for units in [1, 30, 132] {
            for experts in [1, 8, 512, 65_536, (1 << 31) - 1] {
                for rows in [0, 1, 255, 256, 257, 10, 6_000, 327_680, (1 << 31) - 1] {
                    let MapCut { chunks, routes } = MapCut::new(rows, experts, units);
                    let what = format!(
                        "{rows} rows, {experts} experts, {units} units: {chunks} of {routes}"
                    );
                    assert!(routes > 0 && routes.is_multiple_of(MapCut::STEP), "{what}");
                    assert!(chunks * routes >= rows, "{what}");
                    assert!(chunks == 0 || (chunks - 1) * routes < rows, "{what}");
                    assert!(u32::try_from(routes).is_ok(), "{what}");
                    assert!(chunks * experts <= (8 * rows).max(experts), "{what}");
                    assert!(chunks <= units * MapCut::PER_UNIT, "{what}");
                }
            }
        }
    }
}
