// q8_1 quantization: rows to rows, gathered rows, or tokens scattered to their rows.
//
// One group of 32 lanes makes the blocks of a row, one after the other, in
// shared memory; the nine pieces of 16 bytes of each are then stored by all
// lanes. A scatter has 9k pieces, so that k = 10 takes three stores a lane
// instead of twenty. The next block's values are loaded before.
#include "quantize.cuh"

struct QuantizeArgs {
    const float *x;
    const u32 *src;    // input row of each output row; null: the same row
    const u32 *tokens; // token of each input row, for the report; null: the row
    const u32 *slot;   // scatter: output rows of each input row, k of them
    u8 *out;
    ReportTo report;
    i64 items;    // rows that are quantized: output rows, or tokens of a scatter
    i64 out_rows; // rows of the output
    i64 cols, stride;
    u32 k;        // scatter: rows per token
    u32 k_blocks;
    u32 vector;   // rows of x are 16-aligned
    u32 aligned;  // out is 16-aligned
};

constexpr int quantize_threads = 256;

// Pieces of a token's rows that a lane keeps the places of; more are looked up.
constexpr int kept_pieces = 4;

template <Layout layout, bool scatter> DEVICE void quantize(const QuantizeArgs &args) {
    constexpr int groups = quantize_threads / group_lanes;
    SHARED alignas(16) u8 blocks[groups][block_bytes];
    const int lane = int(thread_index()) % group_lanes, group = int(thread_index()) / group_lanes;
    u8 *block = blocks[group];
    const u32 pieces = 9 * (scatter ? args.k : 1);
    const u32 all_groups = grid_blocks() * groups;
    const Spread spread(u32(args.items), args.k_blocks, all_groups);
    const i64 total = args.items * spread.parts;

    // All groups of a wave take the same number of turns: barriers and shuffles are the wave's.
    for (i64 first = i64(block_index()) * groups; first < total; first += all_groups) {
        const u32 item = u32(first + group);
        const bool real = first + group < total;
        const u32 row = real ? item / spread.parts : 0;
        const u32 first_block = real ? item % spread.parts * spread.blocks : 0;
        const i64 from = !scatter && args.src ? args.src[row] : row;
        const float *x_row = args.x + from * args.stride;

        // Where this lane's pieces go in the rows of a k block.
        i64 at[kept_pieces];
        UNROLL
        for (int i = 0; i < kept_pieces; i++) {
            const u32 piece = lane + i * group_lanes;
            const u32 j = piece / 9;
            const i64 to = scatter ? (piece < pieces ? args.slot[i64(row) * args.k + j] : 0) : row;
            at[i] = to * block_bytes + 16 * (piece % 9);
        }

        float x[4], next[4] = {};
        load_row(x, x_row, i64(first_block) * block_values + 4 * lane, args.cols, args.vector);
        for (u32 b = 0; b < spread.blocks; b++) {
            const u32 k_block = first_block + b;
            const bool inside = real && k_block < args.k_blocks;
            if (b + 1 < spread.blocks)
                load_row(next, x_row, i64(k_block + 1) * block_values + 4 * lane, args.cols, args.vector);
            u32 codes;
            HeaderPart part;
            const bool header_finite = encode<layout>(x, lane, codes, part);
            if (args.report.word && inside) {
                const bool finite = is_finite(x[0]) && is_finite(x[1]) && is_finite(x[2]) && is_finite(x[3]);
                if (!finite || !header_finite) {
                    const u32 token = args.tokens ? args.tokens[from] : u32(from);
                    report(args.report.word, token, finite ? args.report.header_kind : args.report.value_kind);
                }
            }

            wave_sync();
            reinterpret_cast<u32 *>(block + 16)[lane] = codes;
            store_header(block, part);
            wave_sync();

            if (inside) {
                u8 *to = args.out + i64(k_block) * args.out_rows * block_bytes;
                const u32x4 *from_block = reinterpret_cast<const u32x4 *>(block);
                UNROLL
                for (int i = 0; i < kept_pieces; i++) {
                    const u32 piece = lane + i * group_lanes;
                    if (piece < pieces) store16(to + at[i], from_block[piece % 9], args.aligned);
                }
                for (u32 piece = lane + kept_pieces * group_lanes; piece < pieces; piece += group_lanes) {
                    const i64 row_bytes = i64(args.slot[i64(row) * args.k + piece / 9]) * block_bytes;
                    store16(to + row_bytes + 16 * (piece % 9), from_block[piece % 9], args.aligned);
                }
            }
            UNROLL
            for (int i = 0; i < 4; i++) x[i] = next[i];
        }
    }
}

#define QUANTIZE(layout)                                                                             \
    KERNEL(quantize_threads, 4) strata_quantize_##layout(QuantizeArgs args) {                        \
        quantize<layout, false>(args);                                                               \
    }                                                                                                \
    KERNEL(quantize_threads, 4) strata_quantize_scatter_##layout(QuantizeArgs args) {                \
        quantize<layout, true>(args);                                                                \
    }
QUANTIZE(D4)
QUANTIZE(DS4)
QUANTIZE(D2S6)

// Launch shape of this image: threads of a block, values of the groups in it.
EXPORT u32 strata_quantize_shape[2] = {quantize_threads, quantize_threads / group_lanes};
