// q8_1 quantization: rows to rows, gathered rows, or tokens scattered to their rows.
//
// A group of 32 lanes walks the panels of a row. What it makes stays in
// registers until it is stored, by a scatter to each of the token's rows.
#include "quantize.cuh"
#include "scan.cuh"

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
    u32 of_codes; // sums are of the codes, not of the values
};

constexpr int quantize_threads = 256;

template <Layout layout, bool scatter> DEVICE void quantize(const QuantizeArgs &args) {
    constexpr int groups = quantize_threads / panel_lanes;
    const u32 lane = thread_index() % panel_lanes, group = thread_index() / panel_lanes;
    const u32 all_groups = grid_blocks() * groups;
    const Spread spread(u32(args.items), args.k_blocks / panel_blocks, all_groups);
    const i64 total = args.items * spread.parts;

    // All groups of a wave take the same number of turns: shuffles are the wave's.
    for (i64 first = i64(block_index()) * groups; first < total; first += all_groups) {
        const bool real = first + group < total;
        const u32 item = real ? u32(first + group) : 0;
        const u32 row = item / spread.parts, first_panel = item % spread.parts * spread.steps;
        const i64 from = !scatter && args.src ? args.src[row] : row;
        const u32 *slots = scatter ? args.slot + i64(row) * args.k : nullptr;

        for (u32 step = 0; step < spread.steps; step++) {
            const u32 k_block = (first_panel + step) * panel_blocks + lane / block_lanes;
            const bool inside = real && k_block < args.k_blocks;
            float x[lane_values];
            load_row(x, args.x + from * args.stride, i64(first_panel + step) * panel_values + lane * lane_values,
                     args.cols, args.vector);
            Codes codes;
            HeaderWord header;
            const bool header_finite = encode<layout>(x, args.of_codes, codes, header);
            if (!inside) continue;
            if (args.report.word)
                report_block(args.report, x, header_finite, args.tokens ? args.tokens[from] : u32(from));
            u8 *blocks = args.out + i64(k_block) * args.out_rows * block_bytes;
            if (scatter) {
                for (u32 j = 0; j < args.k; j++)
                    store_block(blocks + i64(slots[j]) * block_bytes, codes, header, args.aligned);
            } else {
                store_block(blocks + i64(row) * block_bytes, codes, header, args.aligned);
            }
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

// Launch shape of this image: threads of a block, q8_1 blocks they make at a time.
EXPORT u32 strata_quantize_shape[2] = {quantize_threads, quantize_threads / block_lanes};
