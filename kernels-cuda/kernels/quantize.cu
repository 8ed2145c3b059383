// q8_1 quantization: rows to rows, gathered rows, or tokens scattered to their rows.
//
// One group of 32 lanes makes one block, in shared memory, and its nine pieces
// of 16 bytes are then stored by all lanes: for a scatter, 9k pieces, so that
// k = 10 takes three stores a lane instead of twenty.
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

template <Layout layout, bool scatter> DEVICE void quantize(const QuantizeArgs &args) {
    constexpr int groups = quantize_threads / group_lanes;
    SHARED alignas(16) u8 blocks[groups][block_bytes];
    const int lane = int(thread_index()) % group_lanes, group = int(thread_index()) / group_lanes;
    u8 *block = blocks[group];

    const i64 total = args.items * args.k_blocks;
    const i64 step = i64(grid_blocks()) * groups;
    // All groups of a wave take the same number of turns: the barriers below are the wave's.
    for (i64 first = i64(block_index()) * groups; first < total; first += step) {
        const i64 item = first + group;
        const bool real = item < total;
        const i64 row = real ? item / args.k_blocks : 0;
        const u32 k_block = real ? u32(item % args.k_blocks) : 0;
        const i64 from = !scatter && args.src ? args.src[row] : row;

        float x[4];
        load_row(x, args.x + from * args.stride, i64(k_block) * block_values + 4 * lane, args.cols, args.vector);
        u32 codes;
        HeaderPart part;
        const bool header_finite = encode<layout>(x, lane, codes, part);
        if (args.report.word && real) {
            const bool finite = is_finite(x[0]) && is_finite(x[1]) && is_finite(x[2]) && is_finite(x[3]);
            const u32 token = args.tokens ? args.tokens[from] : u32(from);
            if (!finite) report(args.report.word, token, args.report.value_kind);
            if (!header_finite) report(args.report.word, token, args.report.header_kind);
        }

        wave_sync();
        reinterpret_cast<u32 *>(block + 16)[lane] = codes;
        store_header(block, part);
        wave_sync();

        if (!real) continue;
        const u32 pieces = 9 * (scatter ? args.k : 1);
        for (u32 piece = lane; piece < pieces; piece += group_lanes) {
            const u32 j = piece / 9, part16 = piece % 9;
            const i64 to = scatter ? args.slot[row * args.k + j] : row;
            store16(args.out + (i64(k_block) * args.out_rows + to) * block_bytes + 16 * part16,
                    reinterpret_cast<const u32x4 *>(block)[part16], args.aligned);
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
