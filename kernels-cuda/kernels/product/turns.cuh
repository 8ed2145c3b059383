// A tile made by waves that all load, decode and multiply.
//
// While chunk c is multiplied, the activations and raw weights of chunk c + 1
// arrive, and are then decoded. With two buffers of raw weights they arrive a
// chunk earlier, so that some waves can decode while others multiply. One
// barrier a chunk separates the turns. Blocks of two chunks are staged whole,
// every other time.
#pragma once
#include "rows.cuh"

template <typename T, typename Tile> struct Turns : Multiply<T, Tile> {
    typedef Multiply<T, Tile> Base;
    typedef typename Base::At At;
    typedef Headers<T> Header;
    typedef typename Base::Sums Sums;
    using Base::args;

    // 16-byte pieces of activations that a thread copies.
    static constexpr int act_pieces = (Tile::tokens * 8 + Tile::threads - 1) / Tile::threads;
    static_assert(Tile::threads % 8 == 0, "a thread's pieces stand at one place of their rows");
    static_assert(Tile::tokens <= Tile::threads, "a thread per token reads the headers");

    DEVICE const u8 *act_block(u32 row, u32 chunk) const {
        return args.activations + i64(chunk) * args.act_rows * block_bytes + u64(row) * block_bytes;
    }

    DEVICE void copy_acts(const u32 (&rows)[act_pieces], u32 chunk) const {
        UNROLL
        for (int i = 0; i < act_pieces; i++) {
            const u32 token = (thread_index() + i * Tile::threads) / 8, at = thread_index() % 8 * 16;
            if (Tile::tokens * 8 % Tile::threads != 0 && token >= Tile::tokens) break;
            const u8 *from = act_block(rows[i], chunk) + Header::header_bytes + at;
            u8 *here = this->act_row(chunk % 2, token) + Header::header_bytes + at;
            if (args.aligned) {
                copy16_async(here, from);
            } else {
                u32 w[4];
                read_words(w, from);
                *reinterpret_cast<u32x4 *>(here) = {w[0], w[1], w[2], w[3]};
            }
        }
    }

    DEVICE void load_header(Header &header, u32 row, u32 chunk) const {
        if (thread_index() < Tile::tokens) header.read(act_block(row, chunk), args.aligned);
    }
    DEVICE void store_header(const Header &header, int slot) const {
        if (thread_index() < Tile::tokens) Base::store_header(header, thread_index(), slot);
    }

    DEVICE void run(const TilePlace &place) const {
        const WeightRows<T, Tile, Tile::threads> rows(*this, thread_index());
        const u32 chunks = chunks_of(args);
        u32 act_rows[act_pieces];
        UNROLL
        for (int i = 0; i < act_pieces; i++)
            act_rows[i] = place.act_row(args, (thread_index() + i * Tile::threads) / 8);
        const u32 header_row = place.act_row(args, thread_index());
        const auto stage = [&](u32 chunk) {
            const u32 panel = chunk / At::panel_chunks;
            if (chunk < chunks && chunk % At::panel_chunks == 0) rows.stage(place, panel, panel % At::raw_buffers);
        };
        const auto decode = [&](u32 chunk, int slot) {
            rows.decode(place, chunk, chunk / At::panel_chunks % At::raw_buffers, chunk % 2, slot);
        };

        Header header;
        stage(0);
        if (At::raw_buffers == 2) stage(1);
        copy_acts(act_rows, 0);
        load_header(header, header_row, 0);
        copy_commit();
        copy_wait_all();
        block_sync();
        decode(0, 0);
        store_header(header, 0);
        block_sync();

        Sums acc, t;
        Base::zero(acc);
        Base::zero(t);
        int slot = 0;
        for (u32 chunk = 0; chunk < chunks; chunk++) {
            const bool more = chunk + 1 < chunks;
            const int next = Base::next_slot(slot);
            stage(chunk + At::raw_buffers);
            if (more) {
                copy_acts(act_rows, chunk + 1);
                load_header(header, header_row, chunk + 1);
            }
            copy_commit();
            if (At::raw_buffers == 2) {
                const bool early = thread_index() / wave_size / 4 % 2;
                if (early && more) decode(chunk + 1, next);
                this->multiply(acc, t, chunk, chunk % 2, chunk % 2, slot);
                if (!early && more) decode(chunk + 1, next);
            } else {
                this->multiply(acc, t, chunk, chunk % 2, chunk % 2, slot);
                // A wave decodes what it copied itself.
                copy_wait_all();
                wave_sync();
                if (more) decode(chunk + 1, next);
            }
            if (more) store_header(header, next);
            copy_wait_all();
            block_sync();
            slot = next;
        }
        this->store(acc, place);
    }
};

// All tiles of this block.
template <typename T, typename Tile> DEVICE void take_turns(const MmqArgs &args, u8 *shared) {
    const TileList<Tile> tiles(args);
    for (u64 tile = block_index(); tile < tiles.count; tile += grid_blocks()) {
        Turns<T, Tile>{{args, shared}}.run(tiles.at(tile));
        block_sync();
    }
}
