// SwiGLU, alone and fused with the quantization of what it gives.
#include "quantize.cuh"

constexpr int swiglu_threads = 256;

struct SwiGluArgs {
    const float *gate_up;
    float *out;
    i64 rows, ffn;
    i64 stride, out_stride;
    u32 interleaved;
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
};

DEVICE float hidden_at(const float *row, i64 c, i64 ffn, bool interleaved) {
    return interleaved ? swiglu(row[2 * c], row[2 * c + 1]) : swiglu(row[c], row[ffn + c]);
}

KERNEL(swiglu_threads, 4) strata_swiglu(SwiGluArgs args) {
    const i64 total = args.rows * args.ffn;
    const i64 step = i64(grid_blocks()) * swiglu_threads;
    for (i64 i = i64(block_index()) * swiglu_threads + thread_index(); i < total; i += step) {
        const i64 row = i / args.ffn, c = i % args.ffn;
        args.out[row * args.out_stride + c] =
            hidden_at(args.gate_up + row * args.stride, c, args.ffn, args.interleaved);
    }
}

template <Layout layout> DEVICE void swiglu_quantize(const SwiGluQuantizeArgs &args) {
    constexpr int groups = swiglu_threads / group_lanes;
    SHARED alignas(16) u8 blocks[groups][block_bytes];
    const int lane = int(thread_index()) % group_lanes, group = int(thread_index()) / group_lanes;
    u8 *block = blocks[group];

    const i64 total = args.rows * args.k_blocks;
    const i64 step = i64(grid_blocks()) * groups;
    for (i64 first = i64(block_index()) * groups; first < total; first += step) {
        const i64 item = first + group;
        const bool real = item < total;
        const i64 row = real ? item / args.k_blocks : 0;
        const u32 k_block = real ? u32(item % args.k_blocks) : 0;
        const float *from = args.gate_up + row * args.stride;
        const i64 col = i64(k_block) * block_values + 4 * lane;

        float x[4];
        if (args.vector && !args.interleaved && col + 4 <= args.ffn) {
            const f32x4 g = *reinterpret_cast<const f32x4 *>(from + col);
            const f32x4 u = *reinterpret_cast<const f32x4 *>(from + args.ffn + col);
            x[0] = swiglu(g.x, u.x), x[1] = swiglu(g.y, u.y);
            x[2] = swiglu(g.z, u.z), x[3] = swiglu(g.w, u.w);
        } else {
            UNROLL
            for (int i = 0; i < 4; i++)
                x[i] = col + i < args.ffn ? hidden_at(from, col + i, args.ffn, args.interleaved) : 0.0f;
        }
        u32 codes;
        HeaderPart part;
        const bool header_finite = encode<layout>(x, lane, codes, part);
        if (args.report.word && real) {
            const bool finite = is_finite(x[0]) && is_finite(x[1]) && is_finite(x[2]) && is_finite(x[3]);
            const u32 token = args.tokens ? args.tokens[row] : u32(row);
            if (!finite) report(args.report.word, token, args.report.value_kind);
            if (!header_finite) report(args.report.word, token, args.report.header_kind);
        }

        wave_sync();
        reinterpret_cast<u32 *>(block + 16)[lane] = codes;
        store_header(block, part);
        wave_sync();

        if (real && lane < 9)
            store16(args.out + (i64(k_block) * args.rows + row) * block_bytes + 16 * lane,
                    reinterpret_cast<const u32x4 *>(block)[lane], args.aligned);
    }
}

#define SWIGLU_QUANTIZE(layout)                                                                      \
    KERNEL(swiglu_threads, 4) strata_swiglu_quantize_##layout(SwiGluQuantizeArgs args) {             \
        swiglu_quantize<layout>(args);                                                               \
    }
SWIGLU_QUANTIZE(D4)
SWIGLU_QUANTIZE(DS4)
SWIGLU_QUANTIZE(D2S6)

EXPORT u32 strata_swiglu_shape[2] = {swiglu_threads, swiglu_threads / group_lanes};
