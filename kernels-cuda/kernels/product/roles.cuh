// A tile made by waves with roles: one warpgroup loads and decodes, the others multiply.
//
// The loader is ahead of the multipliers by up to two chunks, across the ends of
// tiles: it decodes chunk n while they multiply chunks n - 2 and n - 1. Raw
// weights are on their way two panels before they are decoded, activations a
// chunk before. Barriers in shared memory hand the buffers over:
//
//   arrived   the blocks of activations of a chunk are there
//   ready     codes and scales are decoded
//   done      the multipliers are past a chunk: its buffers are free
//
// Every thread arrives for itself, so that a checker of races can follow. Chunks are
// counted over all tiles of the block; each barrier serves every 3rd, 2nd, 4th.
#pragma once
#include "hopper.cuh"
#include "rows.cuh"

template <typename T, typename Tile> struct Roles : Multiply<T, Tile> {
    typedef Multiply<T, Tile> Base;
    typedef typename Base::At At;
    typedef typename Base::Sums Sums;
    using Base::args;
    using Base::shared;
    static constexpr int producers = Tile::producers;
    static_assert(Tile::tokens <= producers, "a thread per token reads the headers");

    DEVICE Barrier barrier(int index) const { return Barrier(shared + At::barriers + 8 * index); }
    DEVICE Barrier arrived(u32 n) const { return barrier(n % 3); }
    DEVICE Barrier ready(u32 n) const { return barrier(3 + n % 2); }
    DEVICE Barrier done(u32 n) const { return barrier(5 + n % 4); }

    DEVICE void run() const {
        if (thread_index() == 0) {
            // Rows in their order come in one copy, others as every thread copies its own.
            for (int i = 0; i < 3; i++) barrier(i).init(args.src ? producers : 1);
            for (int i = 3; i < 5; i++) barrier(i).init(producers);
            for (int i = 5; i < 9; i++) barrier(i).init(Tile::multipliers);
            Barrier::publish();
        }
        block_sync();
        const TileList<Tile> tiles(args);
        if (thread_index() < Tile::multipliers) {
            grow_registers<Tile::multiplier_registers>();
            multiply_all(tiles);
        } else {
            shrink_registers<Tile::producer_registers>();
            produce(tiles);
        }
    }

    // ---- the loader -------------------------------------------------------------

    // Rows of activations that a thread copies pieces of, where they are not in order:
    // four lanes to a row.
    static constexpr int row_lanes = 4, turn_rows = producers / row_lanes;
    static constexpr int turns = Tile::tokens / turn_rows;
    static_assert(Tile::tokens % turn_rows == 0, "turns are whole");
    typedef u32 ActRows[turns];

    DEVICE void find_acts(ActRows &rows, const TilePlace &place, u32 thread) const {
        if (!args.src) return;
        UNROLL
        for (int i = 0; i < turns; i++) rows[i] = place.act_row(args, thread / row_lanes + i * turn_rows);
    }

    DEVICE void copy_acts(const Cursor<Tile> &at, const ActRows &rows, u32 n, u32 thread) const {
        const u8 *chunk = args.activations + i64(at.chunk) * args.act_rows * block_bytes;
        if (!args.src) {
            if (thread == 0)
                arrived(n).copy(this->act_row(n % 3, 0), chunk + u64(at.place.first_out) * block_bytes,
                                at.place.tokens * block_bytes);
            return;
        }
        const u32 lane = thread % row_lanes;
        UNROLL
        for (int i = 0; i < turns; i++) {
            const u8 *from = chunk + u64(rows[i]) * block_bytes + 16 * lane;
            u8 *to = this->act_row(n % 3, thread / row_lanes + i * turn_rows) + 16 * lane;
            UNROLL
            for (int piece = 0; piece < block_bytes / 16; piece += row_lanes)
                if (piece + lane < block_bytes / 16) copy16_async(to + 16 * piece, from + 16 * piece);
        }
        arrived(n).arrive_after_copies();
    }

    DEVICE void produce(const TileList<Tile> &tiles) const {
        const u32 thread = thread_index() - Tile::multipliers;
        const WeightRows<T, Tile, producers> rows(*this, thread);
        Cursor<Tile> raw(tiles), acts(tiles);
        Cursor<Tile> now = acts; // a chunk behind `acts`, where the first place of a tile was read
        u32 staged = 0;
        const auto stage = [&] {
            if (raw.more(tiles)) rows.stage(raw.place, raw.chunk / At::panel_chunks, staged % At::raw_buffers);
            copy_commit();
            raw.step(tiles, At::panel_chunks);
            staged++;
        };
        ActRows act_rows;
        const auto next_acts = [&](u32 n) {
            if (!acts.more(tiles)) return;
            if (acts.chunk == 0) find_acts(act_rows, acts.place, thread);
            copy_acts(acts, act_rows, n, thread);
        };
        for (int i = 0; i < At::raw_buffers; i++) stage();
        next_acts(0);
        int slot = 0;
        for (u32 n = 0; now.more(tiles); n++) {
            if (n >= 2) done(n - 2).wait((n - 2) / 4);
            acts.step(tiles, 1);
            next_acts(n + 1);
            if (now.chunk % At::panel_chunks == 0) {
                copy_wait<At::raw_buffers - 1>();
                wave_sync();
            }
            const int raw_buffer = staged % At::raw_buffers; // the oldest
            rows.decode(now.place, now.chunk, raw_buffer, n % 2, slot);
            arrived(n).wait(n / 3);
            if (thread < Tile::tokens) {
                Headers<T> header;
                header.read(this->act_row(n % 3, thread), true);
                this->store_header(header, thread, slot);
            }
            ready(n).arrive();
            if ((now.chunk + 1) % At::panel_chunks == 0) {
                wave_sync(); // its rows were read by the lanes that decoded them
                stage();
            }
            now = acts;
            slot = Base::next_slot(slot);
        }
    }

    // ---- the multipliers --------------------------------------------------------

    DEVICE void multiply_all(const TileList<Tile> &tiles) const {
        const u32 chunks = chunks_of(args);
        u32 n = 0;
        int slot = 0;
        for (u64 tile = block_index(); tile < tiles.count; tile += grid_blocks()) {
            Sums acc, t;
            Base::zero(acc);
            Base::zero(t);
            for (u32 chunk = 0; chunk < chunks; chunk++, n++) {
                ready(n).wait(n / 2);
                arrived(n).wait(n / 3);
                this->multiply(acc, t, chunk, n % 2, n % 3, slot);
                done(n).arrive();
                slot = Base::next_slot(slot);
            }
            this->store(acc, tiles.at(tile));
        }
    }
};
