// Hidden values from gate and up, alone and fused with their quantization: by SwiGLU,
// and by any activation with scales and biases of experts.
#include "activation.cuh"
#include "quantize.cuh"

constexpr int swiglu_threads = 256;

struct SwiGluArgs {
    const float *gate_up;
    float *out;
    i64 rows, ffn;
    i64 stride, out_stride;
    u32 interleaved; // 2: up values alone
    ExpertsArgs experts;
};

struct SwiGluQuantizeArgs {
    const float *gate_up;
    const u32 *tokens; // token of each row, for the report; null: the row
    u8 *out;
    ReportTo report;
    i64 rows, ffn;
    i64 stride;
    u32 k_blocks;
    u32 interleaved;
    u32 vector;  // rows of gate_up, and the up half of each, are 16-aligned
    u32 aligned; // out is 16-aligned
    u32 of_codes; // sums are of the codes, not of the values
    ExpertsArgs experts;
};

DEVICE float hidden_at(const float *row, i64 c, i64 ffn, bool interleaved) {
    return interleaved ? swiglu(row[2 * c], row[2 * c + 1]) : swiglu(row[c], row[ffn + c]);
}

// Blocks of threads take rows, or where there are more blocks than rows, parts of one.
template <bool any> DEVICE void hidden_rows(const SwiGluArgs &args) {
    const Spread spread(u32(args.rows), u32((args.ffn + swiglu_threads - 1) / swiglu_threads), grid_blocks());
    const i64 total = args.rows * spread.parts;
    for (i64 item = block_index(); item < total; item += grid_blocks()) {
        const u32 row = u32(item) / spread.parts, part = u32(item) % spread.parts;
        const float *from = args.gate_up + i64(row) * args.stride;
        float *to = args.out + i64(row) * args.out_stride;
        const i64 begin = i64(part) * spread.steps * swiglu_threads;
        const i64 wanted = begin + i64(spread.steps) * swiglu_threads;
        const i64 end = wanted < args.ffn ? wanted : args.ffn;
        if (any) {
            const HiddenRow hidden(from, row, args.ffn, args.interleaved, args.experts);
            for (i64 c = begin + thread_index(); c < end; c += swiglu_threads) to[c] = hidden.at(c);
        } else {
            for (i64 c = begin + thread_index(); c < end; c += swiglu_threads)
                to[c] = hidden_at(from, c, args.ffn, args.interleaved);
        }
    }
}

KERNEL(swiglu_threads, 4) strata_swiglu(SwiGluArgs args) { hidden_rows<false>(args); }
KERNEL(swiglu_threads, 4) strata_hidden(SwiGluArgs args) { hidden_rows<true>(args); }

// A lane's hidden values from column `col`; past the columns there is +0.
DEVICE void load_hidden(float (&x)[lane_values], const float *row, i64 col, const SwiGluQuantizeArgs &args) {
    if (args.vector && !args.interleaved && col + lane_values <= args.ffn) {
        float gate[lane_values];
        load_row(gate, row, col, args.ffn, true);
        load_row(x, row + args.ffn, col, args.ffn, true);
        UNROLL
        for (int i = 0; i < lane_values; i++) x[i] = swiglu(gate[i], x[i]);
        return;
    }
    UNROLL
    for (int i = 0; i < lane_values; i++)
        x[i] = col + i < args.ffn ? hidden_at(row, col + i, args.ffn, args.interleaved) : 0.0f;
}

// The same by any activation, with scales and biases.
DEVICE void load_any_hidden(float (&x)[lane_values], const float *row, u32 number, i64 col,
                            const SwiGluQuantizeArgs &args) {
    const HiddenRow hidden(row, number, args.ffn, args.interleaved, args.experts);
    UNROLL
    for (int i = 0; i < lane_values; i++) x[i] = 0.0f;
    // Not unrolled: sixteen copies of every activation would be long. Registers are not indexed
    // either: each value comes in behind the others, which move up by one.
#pragma unroll 1
    for (int turn = 0; turn < lane_values; turn++) {
        const float value = col + turn < args.ffn ? hidden.at(col + turn) : 0.0f;
        UNROLL
        for (int i = 0; i < lane_values - 1; i++) x[i] = x[i + 1];
        x[lane_values - 1] = value;
    }
}

template <Layout layout, bool any> DEVICE void swiglu_quantize(const SwiGluQuantizeArgs &args) {
    constexpr int groups = swiglu_threads / panel_lanes;
    const u32 lane = thread_index() % panel_lanes, group = thread_index() / panel_lanes;
    const u32 all_groups = grid_blocks() * groups;
    const Spread spread(u32(args.rows), args.k_blocks / panel_blocks, all_groups);
    const i64 total = args.rows * spread.parts;

    for (i64 first = i64(block_index()) * groups; first < total; first += all_groups) {
        const bool real = first + group < total;
        const u32 item = real ? u32(first + group) : 0;
        const u32 row = item / spread.parts, first_panel = item % spread.parts * spread.steps;
        for (u32 step = 0; step < spread.steps; step++) {
            const u32 k_block = (first_panel + step) * panel_blocks + lane / block_lanes;
            float x[lane_values];
            const float *from = args.gate_up + i64(row) * args.stride;
            const i64 col = i64(first_panel + step) * panel_values + lane * lane_values;
            if (any)
                load_any_hidden(x, from, row, col, args);
            else
                load_hidden(x, from, col, args);
            Codes codes;
            HeaderWord header;
            const bool header_finite = encode<layout>(x, args.of_codes, codes, header);
            if (!real || k_block >= args.k_blocks) continue;
            if (args.report.word)
                report_block(args.report, x, header_finite, args.tokens ? args.tokens[row] : row);
            store_block(args.out + (i64(k_block) * args.rows + row) * block_bytes, codes, header, args.aligned);
        }
    }
}

#define SWIGLU_QUANTIZE(layout)                                                                      \
    KERNEL(swiglu_threads, 4) strata_swiglu_quantize_##layout(SwiGluQuantizeArgs args) {             \
        swiglu_quantize<layout, false>(args);                                                        \
    }                                                                                                \
    KERNEL(swiglu_threads, 4) strata_hidden_quantize_##layout(SwiGluQuantizeArgs args) {             \
        swiglu_quantize<layout, true>(args);                                                         \
    }
SWIGLU_QUANTIZE(D4)
SWIGLU_QUANTIZE(DS4)
SWIGLU_QUANTIZE(D2S6)

EXPORT u32 strata_swiglu_shape[2] = {swiglu_threads, swiglu_threads / block_lanes};
