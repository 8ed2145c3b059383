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

// Blocks of threads take rows, or where there are more blocks than rows, parts of one.
KERNEL(swiglu_threads, 4) strata_swiglu(SwiGluArgs args) {
    const Spread spread(u32(args.rows), u32((args.ffn + swiglu_threads - 1) / swiglu_threads), grid_blocks());
    const i64 total = args.rows * spread.parts;
    for (i64 item = block_index(); item < total; item += grid_blocks()) {
        const u32 row = u32(item) / spread.parts, part = u32(item) % spread.parts;
        const float *from = args.gate_up + i64(row) * args.stride;
        float *to = args.out + i64(row) * args.out_stride;
        const i64 begin = i64(part) * spread.blocks * swiglu_threads;
        const i64 wanted = begin + i64(spread.blocks) * swiglu_threads;
        const i64 end = wanted < args.ffn ? wanted : args.ffn;
        for (i64 c = begin + thread_index(); c < end; c += swiglu_threads)
            to[c] = hidden_at(from, c, args.ffn, args.interleaved);
    }
}

// A lane's gate and up values: x from one, u from the other.
struct Pairs {
    float gate[4], up[4];
};

DEVICE void load_pairs(Pairs &p, const float *row, i64 col, const SwiGluQuantizeArgs &args) {
    if (args.vector && !args.interleaved && col + 4 <= args.ffn) {
        const f32x4 g = *reinterpret_cast<const f32x4 *>(row + col);
        const f32x4 u = *reinterpret_cast<const f32x4 *>(row + args.ffn + col);
        p = {{g.x, g.y, g.z, g.w}, {u.x, u.y, u.z, u.w}};
        return;
    }
    UNROLL
    for (int i = 0; i < 4; i++) {
        const i64 c = col + i;
        const bool inside = c < args.ffn;
        p.gate[i] = inside ? row[args.interleaved ? 2 * c : c] : 0.0f;
        p.up[i] = inside ? row[args.interleaved ? 2 * c + 1 : args.ffn + c] : 0.0f;
    }
}

template <Layout layout> DEVICE void swiglu_quantize(const SwiGluQuantizeArgs &args) {
    constexpr int groups = swiglu_threads / group_lanes;
    SHARED alignas(16) u8 blocks[groups][block_bytes];
    const int lane = int(thread_index()) % group_lanes, group = int(thread_index()) / group_lanes;
    u8 *block = blocks[group];
    const u32 all_groups = grid_blocks() * groups;
    const Spread spread(u32(args.rows), args.k_blocks, all_groups);
    const i64 total = args.rows * spread.parts;

    for (i64 first = i64(block_index()) * groups; first < total; first += all_groups) {
        const u32 item = u32(first + group);
        const bool real = first + group < total;
        const u32 row = real ? item / spread.parts : 0;
        const u32 first_block = real ? item % spread.parts * spread.blocks : 0;
        const float *from = args.gate_up + i64(row) * args.stride;

        Pairs pairs, next = {};
        load_pairs(pairs, from, i64(first_block) * block_values + 4 * lane, args);
        for (u32 b = 0; b < spread.blocks; b++) {
            const u32 k_block = first_block + b;
            const bool inside = real && k_block < args.k_blocks;
            const i64 col = i64(k_block) * block_values + 4 * lane;
            if (b + 1 < spread.blocks) load_pairs(next, from, col + block_values, args);
            float x[4];
            // Past the columns there is +0, which the product of two zeros would be, too.
            UNROLL
            for (int i = 0; i < 4; i++) x[i] = swiglu(pairs.gate[i], pairs.up[i]);
            u32 codes;
            HeaderPart part;
            const bool header_finite = encode<layout>(x, lane, codes, part);
            if (args.report.word && inside) {
                const bool finite = is_finite(x[0]) && is_finite(x[1]) && is_finite(x[2]) && is_finite(x[3]);
                if (!finite || !header_finite) {
                    const u32 token = args.tokens ? args.tokens[row] : row;
                    report(args.report.word, token, finite ? args.report.header_kind : args.report.value_kind);
                }
            }

            wave_sync();
            reinterpret_cast<u32 *>(block + 16)[lane] = codes;
            store_header(block, part);
            wave_sync();

            if (inside && lane < 9)
                store16(args.out + (i64(k_block) * args.rows + row) * block_bytes + 16 * lane,
                        reinterpret_cast<const u32x4 *>(block)[lane], args.aligned);
            pairs = next;
        }
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
