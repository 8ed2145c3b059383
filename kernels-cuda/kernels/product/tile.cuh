// The tiles that a product is cut into, and what a block keeps in shared memory for one.
#pragma once
#include "../mma.cuh"
#include "headers.cuh"

struct MmqArgs {
    const u8 *weights, *activations;
    const u32 *src;     // activation row of each output row; null: the same row
    const u32x4 *tiles; // null for one expert; else tiles[0].x counts those that follow:
                        // expert, first output row, rows
    float *out;
    i64 row_stride, expert_stride; // bytes
    i64 act_rows;                  // rows of the activations
    i64 out_stride;                // floats
    u32 rows, cols;                // of each expert's weights
    u32 out_rows;                  // of one expert without a list
    u32 aligned;                   // activations are 16-aligned
};

// waves_m x waves_n waves, each of fragments_m x fragments_n fragments.
// All of them load, decode and multiply. With two raw buffers they take turns:
// half of them decode while the others multiply. With one, blocks beside this
// one on the multiprocessor do that.
template <int waves_m_, int waves_n_, int fragments_m_, int fragments_n_, int blocks_, int raw_buffers_ = 1> struct Tile {
    static constexpr int waves_m = waves_m_, waves_n = waves_n_;
    static constexpr int fragments_m = fragments_m_, fragments_n = fragments_n_;
    static constexpr int multipliers = waves_m * waves_n * wave_size; // threads that multiply
    static constexpr int threads = multipliers;
    static constexpr int rows = waves_m * fragments_m * Mma::rows;
    static constexpr int tokens = waves_n * fragments_n * Mma::cols;
    static constexpr int blocks = blocks_; // that should fit a multiprocessor
    static constexpr int raw_buffers = raw_buffers_, act_buffers = 2;
    static constexpr bool roles = false, warpgroups = false, needs_aligned = false;
    // Sub-blocks whose instructions are mixed: fewer where there are few registers.
    static constexpr int wanted = blocks * threads >= 512 ? 2 : 4;
    static constexpr int unroll = wanted < unrolled_steps ? wanted : unrolled_steps;
};

// The same with waves of their own that load and decode: see roles.cuh.
template <int waves_m, int waves_n, int fragments_m, int fragments_n>
struct RoleTile : Tile<waves_m, waves_n, fragments_m, fragments_n, 1, 2> {
    static constexpr int producers = 128; // a warpgroup
    static constexpr int threads = waves_m * waves_n * wave_size + producers;
    static constexpr int act_buffers = 3;
    static constexpr bool roles = true, needs_aligned = true;
    static constexpr int unroll = 4;
    // Of each thread, from 168 at the start; multiples of 8.
    static constexpr int producer_registers = 88;
    static constexpr int multiplier_registers = 168 + (168 - producer_registers) / 2;
};

// Where there is no tile of so many tokens.
template <int tokens_> struct NoTile {
    static constexpr int rows = 0, tokens = tokens_, threads = wave_size, blocks = 1;
};

template <bool first, typename A, typename B> struct EitherOf {
    typedef A type;
};
template <typename A, typename B> struct EitherOf<false, A, B> {
    typedef B type;
};
template <bool first, typename A, typename B> using Either = typename EitherOf<first, A, B>::type;

// Raw weights that are staged at once, of a row.
template <typename T> struct Panel {
    static constexpr int panel = T::block > chunk_values ? T::block : chunk_values; // values
    static constexpr int panel_chunks = panel / chunk_values;
    static constexpr int panel_bytes = panel / T::block * T::bytes;
    // Whole 16-byte pieces around bytes of any alignment.
    static constexpr int pieces = (panel_bytes + 15 + 15) / 16;
    static constexpr int raw_stride = (pieces | 1) * 16;
};

// Where things lie in a block's shared memory, in bytes.
template <typename T, typename Tile> struct Shared : Panel<T> {
    using Panel<T>::raw_stride;
    static constexpr int raw_buffers =
        Tile::roles || Tile::raw_buffers < T::raw_buffers ? Tile::raw_buffers : T::raw_buffers;
    // Minimums are added where a group ends, which may be a chunk later.
    static constexpr int ring = T::minimums && T::group > chunk_values ? 3 : 2;
    // Floats from one scale of the rows to the next: threads of a row store them at once.
    static constexpr int scale_stride = Tile::rows + 8;
    // Rows of codes are as far apart as blocks of activations are long, whose codes
    // follow their header.
    static_assert(fragment_stride == block_bytes, "blocks are fragments' rows");

    static constexpr int codes = 0;
    static constexpr int acts = codes + 2 * Tile::rows * fragment_stride;
    static constexpr int row_scales = acts + Tile::act_buffers * Tile::tokens * fragment_stride;
    static constexpr int col_scales = row_scales + ring * Scales<T>::count * scale_stride * 4;
    static constexpr int raw = col_scales + ring * Headers<T>::count * Tile::tokens * 4;
    static constexpr int barriers = raw + (stage_weights ? raw_buffers * Tile::rows * raw_stride : 0);
    static constexpr int bytes = barriers + (Tile::roles ? 128 : 0);
};

// One tile's place in the problem.
struct TilePlace {
    const u8 *weights; // of the expert
    u32 first_row;     // weight row
    u32 first_out;     // output row
    u32 tokens;        // output rows

    // Past the last token of the tile stands the last one again, so that all reads
    // stay inside; what comes of it is not stored.
    DEVICE u32 act_row(const MmqArgs &args, u32 token) const {
        const u32 row = first_out + (token < tokens ? token : tokens - 1);
        return args.src ? args.src[row] : row;
    }
};

// All tiles of a product: the row tiles of the same activations follow each other.
// A block takes every grid_blocks()-th.
template <typename Tile> struct TileList {
    const MmqArgs &args;
    u32 row_tiles;
    u64 count;

    DEVICE TileList(const MmqArgs &args_) : args(args_) {
        row_tiles = (args.rows + Tile::rows - 1) / Tile::rows;
        const u64 tiles = args.tiles ? args.tiles[0].x : (u64(args.out_rows) + Tile::tokens - 1) / Tile::tokens;
        count = tiles * row_tiles;
    }
    DEVICE TilePlace at(u64 index) const {
        const u32 tile = u32(index / row_tiles), row = u32(index % row_tiles) * Tile::rows;
        if (args.tiles) {
            const u32x4 of = args.tiles[1 + tile];
            return {args.weights + i64(of.x) * args.expert_stride, row, of.y, of.z};
        }
        const u32 left = args.out_rows - tile * Tile::tokens;
        return {args.weights, row, tile * Tile::tokens, left < Tile::tokens ? left : Tile::tokens};
    }
};

// Chunks of a row.
DEVICE u32 chunks_of(const MmqArgs &args) { return (args.cols + chunk_values - 1) / chunk_values; }

// A chunk of a block's tiles, with its tile: chunks are counted across tiles.
template <typename Tile> struct Cursor {
    u64 tile;
    u32 chunk;
    TilePlace place;

    DEVICE Cursor(const TileList<Tile> &tiles) : tile(block_index()), chunk(0) {
        if (more(tiles)) place = tiles.at(tile);
    }
    DEVICE bool more(const TileList<Tile> &tiles) const { return tile < tiles.count; }
    DEVICE void step(const TileList<Tile> &tiles, u32 by) {
        chunk += by;
        if (chunk < chunks_of(tiles.args)) return;
        chunk = 0;
        tile += grid_blocks();
        if (more(tiles)) place = tiles.at(tile);
    }
};
