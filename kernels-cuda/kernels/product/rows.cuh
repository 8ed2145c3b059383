// Weights of a tile, from memory to codes and scales in shared memory.
#pragma once
#include "multiply.cuh"

// Raw weights of `tile_rows` rows, copied by `threads` threads of which `row_threads`
// share a row: a wave copies the rows that it decodes.
template <typename T, typename At, int tile_rows, int threads, int row_threads> struct RawRows {
    const MmqArgs &args;
    u8 *shared;
    const u32 thread;

    // Past the last row of the weights stands the last one again, so that all
    // reads stay inside; what comes of it is not stored.
    DEVICE const u8 *panel_of(const TilePlace &place, u32 row, u32 panel) const {
        const u32 left = args.rows - 1 - place.first_row;
        return place.weights + i64(place.first_row + (row < left ? row : left)) * args.row_stride +
               i64(panel) * At::panel_bytes;
    }

    // A row in a buffer of raw weights, where rows begin at 16 bytes.
    DEVICE u8 *raw_row(int buffer, u32 row) const {
        return shared + At::raw + (buffer * tile_rows + row) * At::raw_stride;
    }

    // Starts the copy of one panel: four lanes to a row, so that they read whole
    // sectors and few addresses are to be computed.
    DEVICE void stage(const TilePlace &place, u32 panel, int buffer) const {
        if (!stage_weights) return;
        constexpr int row_lanes = 4, turn_rows = wave_size / row_lanes, wave_rows = wave_size / row_threads;
        const u32 first = thread / wave_size * wave_rows + lane_index() / row_lanes;
        const u32 left = args.cols - panel * At::panel;
        const u32 bytes = (left < At::panel ? left : At::panel) / T::block * T::bytes;
        UNROLL
        for (int i = 0; i < wave_rows; i += turn_rows) {
            const u32 row = first + i;
            if (threads > row_threads * tile_rows && row >= tile_rows) return;
            const u8 *from = panel_of(place, row, panel);
            const u32 end = (u32(u64(from)) & 15) + bytes; // from the first piece on
            const u32 piece = lane_index() % row_lanes * 16;
            from += i64(piece) - (u32(u64(from)) & 15);
            u8 *here = raw_row(buffer, row) + piece;
            UNROLL
            for (int at = 0; at < 16 * At::pieces; at += 16 * row_lanes)
                if (piece + at < end) copy16_async(here + at, from + at);
        }
    }

    // A chunk of a row, in a buffer of raw weights or in memory where they are not staged.
    DEVICE const u8 *chunk_of(const TilePlace &place, u32 row, u32 chunk, int buffer) const {
        const u8 *from = panel_of(place, row, chunk / At::panel_chunks);
        return stage_weights ? raw_row(buffer, row) + (u32(u64(from)) & 15) : from;
    }
    static DEVICE int part_of(u32 chunk) { return At::panel_chunks > 1 ? chunk % 2 : 0; }
};

// How many of `threads` threads share a weight row and its four units of a chunk.
template <typename Tile, int threads> constexpr int row_threads_of() {
    return threads / Tile::rows >= 4 ? 4 : threads / Tile::rows >= 2 ? 2 : 1;
}

// The work of one of `threads` threads.
template <typename T, typename Tile, int threads>
struct WeightRows : RawRows<T, Shared<T, Tile>, Tile::rows, threads, row_threads_of<Tile, threads>()> {
    typedef Shared<T, Tile> At;
    static constexpr int row_threads = row_threads_of<Tile, threads>();
    typedef RawRows<T, At, Tile::rows, threads, row_threads> Base;
    static_assert(threads >= Tile::rows, "every row has a thread");

    const Multiply<T, Tile> &to;

    DEVICE WeightRows(const Multiply<T, Tile> &to_, u32 thread) : Base{to_.args, to_.shared, thread}, to(to_) {}
    DEVICE u32 row() const { return this->thread / row_threads; }
    DEVICE bool has_row() const { return this->thread < row_threads * Tile::rows; }

    // A chunk of this thread's row, from a buffer of raw weights (or from memory,
    // where they are not staged) to codes and scales.
    DEVICE void decode(const TilePlace &place, u32 chunk, int raw_buffer, int code_buffer, int slot) const {
        if (!has_row()) return;
        const int part = Base::part_of(chunk);
        const u8 *block = this->chunk_of(place, row(), chunk, raw_buffer);
        u32 *codes = reinterpret_cast<u32 *>(to.code_row(code_buffer, row()));
        const ScaleSink<T> scales = {to.row_scales(slot) + row(), At::scale_stride};
        // The last chunk of a row may be short.
        const u32 values = to.args.cols - chunk * chunk_values;
        if (T::block >= chunk_values || values >= chunk_values)
            decode_units<true>(block, part, chunk_values, codes, scales);
        else
            decode_units<false>(block, part, values, codes, scales);
    }

    template <bool all>
    DEVICE void decode_units(const u8 *block, int part, u32 values, u32 *codes, const ScaleSink<T> &scales) const {
        if constexpr (row_threads == 1) {
            // All of the row, in registers first: no load waits for a store.
            alignas(16) u32 words[chunk_values / 4];
            UNROLL
            for (int unit = 0; unit < 4; unit++)
                if (all || 32 * unit < values) T::decode(block, part, unit, words);
            UNROLL
            for (int unit = 0; unit < 4; unit++)
                if (all || 32 * unit < values) T::scales(block, part, unit, scales);
            UNROLL
            for (int i = 0; i < chunk_values / 4; i += 4)
                put4(codes + i, words[i], words[i + 1], words[i + 2], words[i + 3]);
        } else {
            UNROLL
            for (int i = 0; i < 4; i += row_threads) {
                const u32 unit = i + this->thread % row_threads;
                if (!all && 32 * unit >= values) break;
                T::decode(block, part, unit, codes);
                T::scales(block, part, unit, scales);
            }
        }
    }
};
