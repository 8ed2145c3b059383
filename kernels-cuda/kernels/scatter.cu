// The scatter for many rows: tokens quantized once, written in the order of the output.
//
// Tokens are cut into chunks that fit shared memory. A block quantizes one k block
// of a chunk there, and writes it to all rows of these tokens in ascending order:
// an expert's are neighbours, so that whole lines are written at once, and
// nothing is read twice.
#include "quantize.cuh"
#include "scan.cuh"

struct ScatterArgs {
    const float *x;
    const u32 *src;    // token of each output row
    const u32 *bounds; // rows of the experts
    u8 *out;
    ReportTo report;
    i64 out_rows; // rows of the output
    i64 cols, stride;
    u32 tokens, k; // rows of x, output rows of each
    u32 experts, k_blocks;
    u32 chunks, chunk_tokens; // that the tokens are cut into
    u32 vector;               // rows of x are 16-aligned
    u32 aligned;              // out is 16-aligned
    u32 of_codes;             // sums are of the codes, not of the values
};

constexpr int scatter_threads = 512;

template <Layout layout> struct RowOrder {
    static constexpr int groups = scatter_threads / block_lanes;
    static constexpr int loads = 2;  // blocks a group has on their way at once
    static constexpr int stores = 4; // 16-byte pieces a thread writes at once

    const ScatterArgs &args;
    u8 *blocks;                  // of the chunk's tokens
    u32 *rows;                   // of the chunk, in ascending order
    u32 *first;                  // of each run: its first row
    Runs<scatter_threads> *runs; // an expert's rows each, of as many experts as there are threads
    u16 *tokens;                 // of each of the rows, counted from the chunk's first

    static constexpr u32 fixed_bytes = scatter_threads * sizeof(u32) + sizeof(Runs<scatter_threads>);
    static constexpr u32 token_bytes = block_bytes, route_bytes = sizeof(u32) + sizeof(u16);

    DEVICE RowOrder(const ScatterArgs &args_, u8 *shared) : args(args_) {
        const u32 routes = args.chunk_tokens * args.k;
        blocks = shared;
        rows = reinterpret_cast<u32 *>(blocks + args.chunk_tokens * block_bytes);
        first = rows + routes;
        runs = reinterpret_cast<Runs<scatter_threads> *>(first + scatter_threads);
        tokens = reinterpret_cast<u16 *>(runs + 1);
    }

    // The first rows of [row, end) whose tokens are not below `from` and `to`.
    DEVICE u32x2 lower_bounds(u32 row, u32 end, u32 from, u32 to) const {
        u32x2 at = {row, row};
        // Both at once: each step waits for memory.
        for (u32 left = end - row; left > 0;) {
            const u32 half = (left + 1) / 2; // of the `left` rows that may come before
            const u32 first = args.src[at.x + half - 1], second = args.src[at.y + half - 1];
            if (first < from) at.x += half;
            if (second < to) at.y += half;
            left -= half;
        }
        return at;
    }

    // The rows of tokens `from` to `to`. All threads of the block come here.
    DEVICE void list(u32 from, u32 to) const {
        const u32 tid = thread_index(), wave = tid / wave_size;
        u32 listed = 0;
        for (u32 e0 = 0; e0 < args.experts; e0 += scatter_threads) {
            u32x2 run = {0, 0};
            if (e0 + tid < args.experts)
                run = lower_bounds(args.bounds[e0 + tid], args.bounds[e0 + tid + 1], from, to);
            first[tid] = run.x;
            runs->set(run.y - run.x);
            const u32 here = args.experts - e0 < scatter_threads ? args.experts - e0 : scatter_threads;
#pragma unroll 4
            for (u32 e = wave; e < here; e += scatter_threads / wave_size) {
                const u32 begin = runs->begin(e), length = runs->ends[e] - begin;
                for (u32 i = lane_index(); i < length; i += wave_size) {
                    rows[listed + begin + i] = first[e] + i;
                    tokens[listed + begin + i] = u16(args.src[first[e] + i] - from);
                }
            }
            listed += runs->length();
            block_sync();
        }
    }

    DEVICE void quantize(u32 first_token, u32 count, u32 k_block) const {
        const u32 lane = thread_index() % block_lanes, group = thread_index() / block_lanes;
        const float *x0 = args.x + i64(first_token) * args.stride;
        const i64 col = i64(k_block) * block_values + lane * lane_values;
        // All groups of a wave take the same number of turns: shuffles are the wave's.
        for (u32 t0 = 0; t0 < count; t0 += groups * loads) {
            float x[loads][lane_values];
            UNROLL
            for (int i = 0; i < loads; i++) {
                const u32 t = t0 + i * groups + group;
                load_row(x[i], x0 + i64(t < count ? t : count - 1) * args.stride, col, args.cols, args.vector);
            }
            UNROLL
            for (int i = 0; i < loads; i++) {
                const u32 t = t0 + i * groups + group;
                Codes codes;
                HeaderWord header;
                const bool header_finite = encode<layout>(x[i], args.of_codes, codes, header);
                if (t >= count) continue;
                if (args.report.word) report_block(args.report, x[i], header_finite, first_token + t);
                store_block(blocks + t * block_bytes, codes, header, true);
            }
        }
    }

    DEVICE void write(u32 count, u32 k_block) const {
        u8 *out = args.out + i64(k_block) * args.out_rows * block_bytes;
        const u32 pieces = count * args.k * (block_bytes / 16);
        for (u32 p0 = thread_index(); p0 < pieces; p0 += stores * scatter_threads) {
            UNROLL
            for (int i = 0; i < stores; i++) {
                const u32 p = p0 + i * scatter_threads;
                if (p >= pieces) break;
                const u32 row = p / (block_bytes / 16), at = p % (block_bytes / 16) * 16;
                const u32x4 piece = *reinterpret_cast<const u32x4 *>(blocks + tokens[row] * block_bytes + at);
                store16(out + i64(rows[row]) * block_bytes + at, piece, args.aligned);
            }
        }
    }

    // Every block takes an equal share of all (chunk, k block) pairs, in order.
    DEVICE void run() const {
        const u64 items = u64(args.chunks) * args.k_blocks;
        const u64 begin = items * block_index() / grid_blocks(), end = items * (block_index() + 1) / grid_blocks();
        u32 listed = ~0u;
        for (u64 item = begin; item < end; item++) {
            const u32 chunk = u32(item / args.k_blocks), k_block = u32(item % args.k_blocks);
            const u32 from = chunk * args.chunk_tokens, left = args.tokens - from;
            const u32 count = left < args.chunk_tokens ? left : args.chunk_tokens;
            if (chunk != listed) list(from, from + count);
            listed = chunk;
            quantize(from, count, k_block);
            block_sync();
            write(count, k_block);
            block_sync();
        }
    }
};

#define SCATTER(layout)                                                                              \
    KERNEL(scatter_threads, 1) strata_scatter_##layout(ScatterArgs args) {                           \
        SHARED_DYNAMIC(shared);                                                                      \
        RowOrder<layout>(args, shared).run();                                                        \
    }
SCATTER(D4)
SCATTER(DS4)
SCATTER(D2S6)

// Threads of a block; bytes of shared memory that it takes, that a token of its
// chunk takes beside it, and that each of the token's rows does.
EXPORT u32 strata_scatter_shape[4] = {scatter_threads, RowOrder<D4>::fixed_bytes, RowOrder<D4>::token_bytes,
                                      RowOrder<D4>::route_bytes};
