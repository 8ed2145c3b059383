// A tile made by warpgroups with roles, on the matrix units of sm_90a: two multiply, one
// decodes weights, one brings activations.
//
// Shared memory is what there is least of. So the rows of the products are activations, in
// the registers of their thread, and a warpgroup has two times 64 of them, so that both use
// what it reads of the scales of weights. Decoded weights are the columns, for all 256
// activation rows of the tile.
//
//   multipliers  two warpgroups of 2 x 64 activation rows (warpgroup_sums.cuh)
//   decoders     two threads per weight row, each for every other chunk; raw weights come by
//                asynchronous copies, two panels of two chunks ahead
//   bringers     q8_1 blocks come by bulk copies, two chunks ahead; scales of their headers
//
// Barriers hand over the buffers of a chunk, of which there are three:
//
//   landed    the q8_1 blocks are there
//   headed    their scales are stored
//   decoded   codes and scales of weights are stored
//   done      the multipliers are past the chunk
#pragma once
#include "rows.cuh"
#include "warpgroup_sums.cuh"

template <typename T, typename Tile> struct Warpgroups : WarpgroupSums<T, Tile> {
    typedef WarpgroupSums<T, Tile> Base;
    typedef typename Base::At At;
    typedef typename Base::Stage Stage;
    typedef typename Base::Slot Slot;
    using Base::args;
    using Base::blocks;
    using Base::decoded;
    using Base::done;
    using Base::headed;
    using Base::landed;
    using Base::shared;

    // Until what was in the buffers before is used; at once where nothing was.
    DEVICE void wait_free(const Stage &stage) const { done(stage.at).wait(stage.phase ^ 1); }

    DEVICE void run() const {
        if (thread_index() == 0) {
            for (int i = 0; i < At::stages; i++) {
                landed(i).init(1);
                headed(i).init(Tile::bringers);
                decoded(i).init(Tile::decoders / 2);
                done(i).init(Tile::multipliers);
            }
            Barrier::publish();
        }
        block_sync();
        const TileList<Tile> tiles(args);
        if (thread_index() < Tile::multipliers) {
            grow_registers<Tile::multiplier_registers>();
            this->multiply_all(tiles, thread_index());
        } else if (thread_index() < Tile::multipliers + Tile::decoders) {
            shrink_registers<Tile::decoder_registers>();
            decode_all(tiles, thread_index() - Tile::multipliers);
        } else {
            shrink_registers<Tile::bringer_registers>();
            bring_all(tiles, thread_index() - Tile::multipliers - Tile::decoders);
        }
    }

    // ---- the decoders ----------------------------------------------------------------

    typedef RawRows<T, At, Tile::rows, Tile::decoders, 2> Rows;

    DEVICE void decode_all(const TileList<Tile> &tiles, u32 thread) const {
        const Rows rows = {args, shared, thread};
        const u32 part = thread / (Tile::decoders / 2), row = thread % (Tile::decoders / 2);
        const u32 chunks = chunks_of(args);
        Cursor<Tile> raw(tiles), now(tiles);
        int staged = 0, oldest = 0; // buffers of raw weights
        const auto stage_next = [&] {
            if (raw.more(tiles)) rows.stage(raw.place, raw.chunk / 2, staged);
            copy_commit();
            raw.step(tiles, 2);
            staged ^= 1;
        };
        stage_next();
        stage_next();
        Stage stage;
        Slot slot;
        stage.step(part);
        slot.step(part);
        while (now.more(tiles)) {
            copy_wait<1>();
            named_sync<1, Tile::decoders>();
            const u32 chunk = now.chunk + part;
            if (chunk < chunks) {
                if (row < Tile::rows) decode_chunk(rows, now.place, row, chunk, oldest, stage, slot.at);
                publish_stores();
                decoded(stage.at).arrive();
            }
            const int made = now.chunk + 1 < chunks ? 2 : 1;
            named_sync<1, Tile::decoders>();
            stage_next();
            oldest ^= 1;
            now.step(tiles, 2);
            stage.step(made);
            slot.step(made);
        }
    }

    DEVICE void decode_chunk(const Rows &rows, const TilePlace &place, u32 row, u32 chunk, int buffer,
                             const Stage &stage, int slot) const {
        const u32 part = chunk % 2, values = args.cols - chunk * chunk_values;
        const u8 *block = rows.chunk_of(place, row, chunk, buffer) + (T::block > chunk_values ? 0 : part * At::part_bytes);
        // The last chunk of a row may be short.
        if (T::block >= chunk_values || values >= chunk_values)
            decode<true>(block, part, chunk_values, row, stage, slot);
        else
            decode<false>(block, part, values, row, stage, slot);
    }

    // Where a weight row's scales stand among those of the tile: those that a thread of a
    // product needs of two times eight columns follow each other.
    static DEVICE u32 scale_place(u32 row) {
        return row / 16 * 16 + row % 8 / 2 * 4 + row % 16 / 8 * 2 + row % 2;
    }

    template <bool all>
    DEVICE void decode(const u8 *block, int part, u32 values, u32 row, const Stage &stage, int slot) const {
        alignas(16) u32 words[chunk_values / 4];
        float scales[Scales<T>::count];
        UNROLL
        for (int unit = 0; unit < 4; unit++)
            if (all || 32 * unit < values) T::decode(block, part, unit, words);
        UNROLL
        for (int unit = 0; unit < 4; unit++)
            if (all || 32 * unit < values) T::scales(block, part, unit, ScaleSink<T>{scales, 1});
        wait_free(stage);
        float *to = this->row_scales(slot) + scale_place(row);
        UNROLL
        for (int i = Scales<T>::dw; i < Scales<T>::count; i++) to[i * At::scale_stride] = scales[i];
        u8 *first = this->codes(stage.at);
        if constexpr (At::in_bytes) {
            UNROLL
            for (int i = 0; i < panel_pieces; i++)
                put4(reinterpret_cast<u32 *>(first + swizzled(row, i)), words[4 * i], words[4 * i + 1],
                     words[4 * i + 2], words[4 * i + 3]);
        } else {
            UNROLL
            for (int i = 0; i < chunk_values / 16; i++) {
                u32 scale = 0;
                if constexpr (T::scaled) scale = f32_to_f16(scales[Scales<T>::sub + 16 * i / T::sub]) * 0x10001u;
                store_halves(first, row, i, words + 4 * i, scale);
            }
        }
    }

    // 16 codes in f16, times their sub-scale, which stands in both halves of a word: two
    // pieces of the column, see WarpgroupSums. Integers that f16 rounds leave a rest of -1, 0
    // or 1, which goes to panels of its own.
    static DEVICE void store_halves(u8 *first, u32 row, int i, const u32 *words, u32 scale) {
        u32 w[2][4];
        UNROLL
        for (int j = 0; j < 4; j++) widen<T::negated>(words[j], w[0][j], w[1][j]);
        UNROLL
        for (int h = 0; h < 2; h++) {
            const int piece = 2 * i + h;
            u8 *to = first + piece / panel_pieces * At::code_panel + swizzled(row, piece % panel_pieces);
            if constexpr (T::past_f16) {
                u32 rest[4];
                UNROLL
                for (int j = 0; j < 4; j++) rest[j] = fma16(w[h][j], scale, mul16(w[h][j], scale) ^ 0x80008000u);
                put4(reinterpret_cast<u32 *>(to + 2 * At::code_panel), rest[0], rest[1], rest[2], rest[3]);
            }
            if constexpr (T::scaled) {
                UNROLL
                for (int j = 0; j < 4; j++) w[h][j] = mul16(w[h][j], scale);
            }
            put4(reinterpret_cast<u32 *>(to), w[h][0], w[h][1], w[h][2], w[h][3]);
        }
    }

    // ---- the bringers ----------------------------------------------------------------

    static constexpr int brought = Tile::tokens / Tile::bringers; // activation rows of a thread

    DEVICE void bring_all(const TileList<Tile> &tiles, u32 thread) const {
        Cursor<Tile> next(tiles), now(tiles);
        Stage ahead, stage;
        Slot slot;
        u32 act_rows[brought]; // where rows are not in order
        const auto copy = [&] {
            if (!next.more(tiles)) return;
            wait_free(ahead);
            const u8 *chunk = args.activations + i64(next.chunk) * args.act_rows * block_bytes;
            u8 *to = blocks(ahead.at);
            const u32 tokens = next.place.tokens;
            const Barrier there = landed(ahead.at);
            if (thread == 0) there.expect(tokens * block_bytes);
            if (!args.src) {
                if (thread == 0)
                    there.copy_part(to, chunk + u64(next.place.first_out) * block_bytes, tokens * block_bytes);
            } else {
                UNROLL
                for (int i = 0; i < brought; i++) {
                    const u32 token = thread + i * Tile::bringers;
                    if (token >= tokens) break;
                    if (next.chunk == 0) act_rows[i] = next.place.act_row(args, token);
                    there.copy_part(to + token * block_bytes, chunk + u64(act_rows[i]) * block_bytes, block_bytes);
                }
            }
            next.step(tiles, 1);
            ahead.step(1);
        };
        copy();
        copy();
        while (now.more(tiles)) {
            landed(stage.at).wait(stage.phase);
            UNROLL
            for (int i = 0; i < brought; i++) {
                const u32 token = thread + i * Tile::bringers;
                Headers<T> header;
                header.read(blocks(stage.at) + token * block_bytes, true);
                header.store(this->col_scales(slot.at) + token, Tile::tokens);
            }
            headed(stage.at).arrive();
            copy();
            now.step(tiles, 1);
            stage.step(1);
            slot.step(1);
        }
    }
};
