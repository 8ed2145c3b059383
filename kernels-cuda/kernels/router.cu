// Router scores, the choice of experts, and the combination of their outputs.
#include "places.cuh"
#include "quantize.cuh"

// ---- scores -----------------------------------------------------------------

struct ScoresArgs {
    const float *x, *weights;
    float *out;
    i64 tokens, experts, width;
    i64 x_stride, weights_stride, out_stride;
};

constexpr int scores_threads = 256;
constexpr int scores_experts = 64, scores_depth = 16;

// Rows of one operand of a tile, a few columns deep, on their way to shared
// memory: every thread brings some values, rows one after the other.
template <int rows> struct Slab {
    static constexpr int each = rows * scores_depth / scores_threads;
    float v[each];

    DEVICE void load(const float *from, i64 first, i64 count, i64 stride, i64 k0, i64 width) {
        UNROLL
        for (int i = 0; i < each; i++) {
            const int at = int(thread_index()) + i * scores_threads;
            const i64 k = k0 + at % scores_depth, row = first + at / scores_depth;
            v[i] = k < width && row < count ? from[row * stride + k] : 0.0f;
        }
    }
    DEVICE void store(float (&to)[scores_depth][rows + 4]) const {
        UNROLL
        for (int i = 0; i < each; i++) {
            const int at = int(thread_index()) + i * scores_threads;
            to[at % scores_depth][at / scores_depth] = v[i];
        }
    }
};

// A thread's sums, of n tokens and four experts.
template <int n> struct ScoreSums {
    float v[n][4];

    // One more k for every sum.
    DEVICE void add(const float *x, const float *w) {
        float a[n];
        UNROLL
        for (int i = 0; i < n; i += 2) {
            const u32x2 two = *reinterpret_cast<const u32x2 *>(x + i);
            a[i] = bits_f32(two.x), a[i + 1] = bits_f32(two.y);
        }
        const f32x4 b = *reinterpret_cast<const f32x4 *>(w);
        UNROLL
        for (int i = 0; i < n; i++) {
            v[i][0] = fma32(a[i], b.x, v[i][0]);
            v[i][1] = fma32(a[i], b.y, v[i][1]);
            v[i][2] = fma32(a[i], b.z, v[i][2]);
            v[i][3] = fma32(a[i], b.w, v[i][3]);
        }
    }
};

// A tile of 16n tokens and 64 experts; every thread has n x 4 sums, each one
// accumulator in ascending k. The next columns are loaded meanwhile.
template <int n> DEVICE void router_scores(const ScoresArgs &args) {
    constexpr int tile_tokens = 16 * n;
    SHARED alignas(16) float xs[scores_depth][tile_tokens + 4];
    SHARED alignas(16) float ws[scores_depth][scores_experts + 4];
    const i64 tiles_e = (args.experts + scores_experts - 1) / scores_experts;
    const i64 tiles = (args.tokens + tile_tokens - 1) / tile_tokens * tiles_e;
    const int t0 = int(thread_index()) / 16 * n, e0 = int(thread_index()) % 16 * 4;

    for (i64 tile = block_index(); tile < tiles; tile += grid_blocks()) {
        const i64 first_t = tile / tiles_e * tile_tokens, first_e = tile % tiles_e * scores_experts;
        ScoreSums<n> sums = {};
        Slab<tile_tokens> x;
        Slab<scores_experts> w;
        x.load(args.x, first_t, args.tokens, args.x_stride, 0, args.width);
        w.load(args.weights, first_e, args.experts, args.weights_stride, 0, args.width);
        for (i64 k0 = 0; k0 < args.width; k0 += scores_depth) {
            block_sync();
            x.store(xs);
            w.store(ws);
            block_sync();
            x.load(args.x, first_t, args.tokens, args.x_stride, k0 + scores_depth, args.width);
            w.load(args.weights, first_e, args.experts, args.weights_stride, k0 + scores_depth, args.width);
            if (args.width - k0 >= scores_depth) {
                UNROLL
                for (int k = 0; k < scores_depth; k++) sums.add(&xs[k][t0], &ws[k][e0]);
            } else {
                // Not a step past the width: adding a zero would turn a sum of -0 into +0.
                for (int k = 0; k < int(args.width - k0); k++) sums.add(&xs[k][t0], &ws[k][e0]);
            }
        }
        UNROLL
        for (int i = 0; i < n; i++) {
            UNROLL
            for (int j = 0; j < 4; j++)
                if (first_t + t0 + i < args.tokens && first_e + e0 + j < args.experts)
                    args.out[(first_t + t0 + i) * args.out_stride + first_e + e0 + j] = canonical(sums.v[i][j]);
        }
    }
}

KERNEL(scores_threads, 2) strata_router_scores(ScoresArgs args) { router_scores<8>(args); }
// For tokens that would not give every multiprocessor a tile of the other size.
KERNEL(scores_threads, 2) strata_router_few_scores(ScoresArgs args) { router_scores<2>(args); }

EXPORT u32 strata_router_scores_shape[3] = {scores_threads, 16 * 8, scores_experts};
EXPORT u32 strata_router_few_scores_shape[3] = {scores_threads, 16 * 2, scores_experts};

// ---- top-k ------------------------------------------------------------------

struct TopKArgs {
    const float *scores;
    i32 *ids;
    float *weights;
    ReportTo report;
    i64 tokens, stride;
    u32 experts, k;
    u32 over_all; // weights are normalised over all experts, not over the chosen
    float scale;
};

constexpr int top_k_threads = 128;

// One wave a token. Each turn finds the best place below the last one, so that
// nothing has to be marked; a lane keeps what it writes, turn by turn.
KERNEL(top_k_threads, 4) strata_top_k(TopKArgs args) {
    constexpr int waves = top_k_threads / wave_size;
    const u32 lane = lane_index();
    const i64 step = i64(grid_blocks()) * waves;
    for (i64 token = i64(block_index()) * waves + thread_index() / wave_size; token < args.tokens; token += step) {
        const float *scores = args.scores + token * args.stride;
        i32 *ids = args.ids + token * args.k;
        float *weights = args.weights + token * args.k;
        u64 below = ~u64(0);
        float top = 0.0f, sum = 0.0f;
        for (u32 j = 0; j < args.k; j++) {
            u64 best = 0;
            bool finite = true;
            for (u32 e = lane; e < args.experts; e += wave_size) {
                const float score = scores[e];
                finite = finite && is_finite(score);
                const u64 here = place(score, e);
                best = here < below && here > best ? here : best;
            }
            if (j == 0 && !finite && args.report.word) report(args.report.word, u32(token), args.report.value_kind);
            best = max_in_wave(best);
            below = best;
            // Where another stream writes the scores meanwhile, nothing may be left below the last
            // place. The id names an expert all the same: maps and products index by it.
            const u32 found = ~u32(best);
            const u32 id = found < args.experts ? found : args.experts - 1;
            const float score = scores[id];
            top = j == 0 ? score : top;
            const float weight = exp_exact(score - top);
            sum = sum + weight;
            if (j % wave_size == lane) ids[j] = i32(id), weights[j] = weight;
        }
        if (args.over_all) {
            sum = 0.0f;
            for (u32 e0 = 0; e0 < args.experts; e0 += wave_size) {
                const float term = e0 + lane < args.experts ? exp_exact(scores[e0 + lane] - top) : 0.0f;
                const u32 count = args.experts - e0 < wave_size ? args.experts - e0 : wave_size;
                for (u32 i = 0; i < count; i++) sum = sum + shuffle(term, int(i));
            }
        }
        for (u32 j = lane; j < args.k; j += wave_size)
            weights[j] = canonical(div32(weights[j], sum) * args.scale);
    }
}

EXPORT u32 strata_top_k_shape[2] = {top_k_threads, top_k_threads / wave_size};

// ---- combine ----------------------------------------------------------------

struct CombineArgs {
    const float *y;
    const u32 *slot;
    const float *weights;
    const float *shared;       // null where there is no shared expert
    const float *shared_score; // null where it has weight 1
    float *out;
    ReportTo report; // the output as a value, the shared score as a header
    i64 tokens, width;
    i64 y_stride, shared_stride, score_stride, out_stride;
    u32 k;
    u32 vector; // all rows are 16-aligned and the width is a multiple of 4
    // Of strata_combine_any alone, for which weights may be null: each is 1.
    const i32 *ids;
    const float *scale; // one an expert; null: 1
    const float *bias;  // a row an expert; null: +0
    i64 scale_stride, bias_stride;
    float shared_factor, sum_factor;
};

constexpr int combine_threads = 256;

template <int n> DEVICE void load_values(float (&v)[n], const float *from) {
    if (n == 4) {
        const f32x4 w = *reinterpret_cast<const f32x4 *>(from);
        v[0] = w.x, v[1 % n] = w.y, v[2 % n] = w.z, v[3 % n] = w.w;
    } else {
        v[0] = *from;
    }
}

template <int n, bool any> DEVICE void combine_at(const CombineArgs &args, i64 token, i64 c) {
    float acc[n] = {};
    for (u32 j = 0; j < args.k; j++) {
        const float weight = any && !args.weights ? 1.0f : args.weights[token * args.k + j];
        float v[n];
        load_values<n>(v, args.y + i64(args.slot[token * args.k + j]) * args.y_stride + c);
        if (any && (args.scale || args.bias)) {
            const i64 expert = args.ids[token * args.k + j];
            const float scale = args.scale ? args.scale[expert * args.scale_stride] : 1.0f;
            UNROLL
            for (int l = 0; l < n; l++)
                v[l] = fma32(v[l], scale, args.bias ? args.bias[expert * args.bias_stride + c + l] : 0.0f);
        }
        UNROLL
        for (int l = 0; l < n; l++) acc[l] = fma32(weight, v[l], acc[l]);
    }
    if (args.shared) {
        const float score = args.shared_score ? args.shared_score[token * args.score_stride] : 0.0f;
        float weight = args.shared_score ? sigmoid(score) : 1.0f;
        if (any) weight = weight * args.shared_factor;
        if (!is_finite(score) && args.report.word) report(args.report.word, u32(token), args.report.header_kind);
        float v[n];
        load_values<n>(v, args.shared + token * args.shared_stride + c);
        UNROLL
        for (int l = 0; l < n; l++) acc[l] = fma32(weight, v[l], acc[l]);
    }
    if (any) {
        UNROLL
        for (int l = 0; l < n; l++) acc[l] = acc[l] * args.sum_factor;
    }
    bool finite = true;
    UNROLL
    for (int l = 0; l < n; l++) finite = finite && is_finite(acc[l]);
    if (!finite && args.report.word) report(args.report.word, u32(token), args.report.value_kind);
    float *to = args.out + token * args.out_stride + c;
    if (n == 4) {
        *reinterpret_cast<f32x4 *>(to) = {canonical(acc[0]), canonical(acc[1 % n]), canonical(acc[2 % n]),
                                          canonical(acc[3 % n])};
    } else {
        *to = canonical(acc[0]);
    }
}

// Blocks of threads take tokens, or where there are more blocks, parts of one.
template <int n, bool any> DEVICE void combine(const CombineArgs &args) {
    const u32 steps = u32((args.width + n * combine_threads - 1) / (n * combine_threads));
    const Spread spread(u32(args.tokens), steps, grid_blocks());
    const i64 total = args.tokens * spread.parts;
    for (i64 item = block_index(); item < total; item += grid_blocks()) {
        const u32 token = u32(item) / spread.parts, part = u32(item) % spread.parts;
        const i64 begin = i64(part) * spread.steps * n * combine_threads;
        const i64 wanted = begin + i64(spread.steps) * n * combine_threads;
        const i64 end = wanted < args.width ? wanted : args.width;
        for (i64 c = begin + n * thread_index(); c < end; c += n * combine_threads) combine_at<n, any>(args, token, c);
    }
}

template <bool any> DEVICE void combine_vectors(const CombineArgs &args) {
    if (args.vector)
        combine<4, any>(args);
    else
        combine<1, any>(args);
}

KERNEL(combine_threads, 4) strata_combine(CombineArgs args) { combine_vectors<false>(args); }
// With scales and biases of experts, and factors.
KERNEL(combine_threads, 4) strata_combine_any(CombineArgs args) { combine_vectors<true>(args); }

EXPORT u32 strata_combine_shape[1] = {combine_threads};
