// The choice of experts by any router: strata-core's RouterOptions.
#include "functions.cuh"
#include "places.cuh"
#include "quantize.cuh"

struct ChooseArgs {
    const float *scores;
    const float *score_bias, *selection_bias; // a value an expert; null where there is none
    i32 *ids;
    float *weights;
    ReportTo report;
    i64 tokens, stride;
    u32 experts, k;
    u32 gating;
    float near; // of sparsemixer
    float softcap; // 0: none
    u32 groups, groups_used; // 0 groups: all experts at once
    u32 top_two; // a group is worth its two best, not its best
    u32 normalised;
    float epsilon, least;
    float scale;
};

enum GatingKind { softmax_of_chosen, softmax_of_all, by_sigmoid, by_sqrt_softplus, sparsemixer };

constexpr int choose_threads = 128, most_experts = 1024, most_groups = 64;

// What the weights of a softmax over all experts need.
struct Softmax {
    float max, sum;
};

DEVICE float gate_value(u32 gating, const Softmax &all, float s) {
    switch (gating) {
    case softmax_of_all: return div32(exp_exact(s - all.max), all.sum);
    case by_sigmoid: return sigmoid(s);
    case by_sqrt_softplus: return sqrt32(softplus_exact(s));
    default: return s;
    }
}

// term(e) of every expert, added in ascending order by all lanes alike.
template <typename Term> DEVICE float sum_in_order(u32 experts, Term term) {
    float sum = 0.0f;
    for (u32 e0 = 0; e0 < experts; e0 += wave_size) {
        const u32 e = e0 + lane_index();
        bool counts = false;
        const float own = e < experts ? term(e, counts) : 0.0f;
        const u64 mask = wave_ballot(counts);
        const u32 count = experts - e0 < wave_size ? experts - e0 : wave_size;
        for (u32 i = 0; i < count; i++) {
            const float other = shuffle(own, int(i));
            if (mask >> i & 1) sum = sum + other;
        }
    }
    return sum;
}

// One wave a token. Scores, and what experts are chosen by, stand in shared memory
// meanwhile: every id comes from there, and is in range whoever writes the scores.
KERNEL(choose_threads, 4) strata_choose(ChooseArgs args) {
    constexpr int waves = choose_threads / wave_size;
    SHARED float all_scores[waves][most_experts];
    SHARED float all_values[waves][most_experts];
    SHARED float all_groups[waves][most_groups];
    const u32 lane = lane_index(), wave = thread_index() / wave_size;
    float *s = all_scores[wave], *value = all_values[wave], *worth = all_groups[wave];
    const u32 experts = args.experts, k = args.k;
    const i64 step = i64(grid_blocks()) * waves;
    for (i64 token = i64(block_index()) * waves + wave; token < args.tokens; token += step) {
        const float *scores = args.scores + token * args.stride;
        i32 *ids = args.ids + token * k;
        float *weights = args.weights + token * k;
        bool finite = true;
        u64 best = 0;
        for (u32 e = lane; e < experts; e += wave_size) {
            float score = scores[e];
            if (args.score_bias) score = score + args.score_bias[e];
            finite = finite && is_finite(score);
            if (args.softcap != 0.0f) score = softcap_exact(score, args.softcap);
            s[e] = score;
            const u64 here = place(score, e);
            best = here > best ? here : best;
        }
        wave_sync();

        Softmax all = {0.0f, 1.0f};
        if (args.gating == softmax_of_all) {
            all.max = s[~u32(max_in_wave(best))];
            all.sum = sum_in_order(experts, [&](u32 e, bool &counts) {
                counts = true;
                return exp_exact(s[e] - all.max);
            });
        }
        const bool by_value = args.selection_bias || args.groups;
        for (u32 e = lane; e < experts; e += wave_size) {
            float v = by_value ? gate_value(args.gating, all, s[e]) : s[e];
            if (args.selection_bias) v = v + args.selection_bias[e];
            finite = finite && is_finite(v);
            value[e] = v;
        }
        if (!finite && args.report.word) report(args.report.word, u32(token), args.report.value_kind);
        wave_sync();

        u64 allowed = ~u64(0);
        const u32 each = args.groups ? experts / args.groups : experts;
        if (args.groups) {
            for (u32 group = lane; group < args.groups; group += wave_size) {
                const float low = bits_f32(0xff800000);
                float first = low, second = low;
                for (u32 e = group * each; e < (group + 1) * each; e++) {
                    const float v = is_nan(value[e]) ? low : value[e];
                    if (v > first)
                        second = first, first = v;
                    else if (v > second)
                        second = v;
                }
                worth[group] = args.top_two && each > 1 ? first + second : first;
            }
            wave_sync();
            allowed = 0;
            u64 below = ~u64(0);
            for (u32 j = 0; j < args.groups_used; j++) {
                u64 top = 0;
                for (u32 group = lane; group < args.groups; group += wave_size) {
                    const u64 here = place(worth[group], group);
                    top = here < below && here > top ? here : top;
                }
                below = max_in_wave(top);
                allowed |= u64(1) << ~u32(below);
            }
        }

        // Each turn finds the best place below the last one.
        u64 below = ~u64(0);
        float top = 0.0f, own = 0.0f;
        for (u32 j = 0; j < k; j++) {
            u64 turn = 0;
            for (u32 e = lane; e < experts; e += wave_size) {
                if (!(allowed >> (e / each) & 1)) continue;
                const u64 here = place(value[e], e);
                turn = here < below && here > turn ? here : turn;
            }
            turn = max_in_wave(turn);
            const u64 before = below;
            below = turn;
            const u32 id = ~u32(turn);
            const float score = s[id];
            top = j == 0 || (is_nan(top) ? bits_f32(0xff800000) : top) < score ? score : top;
            float weight = gate_value(args.gating, all, score);
            if (args.gating == sparsemixer)
                weight = div32(1.0f, sum_in_order(experts, [&](u32 e, bool &counts) {
                                   const float here = s[e], size = magnitude(here) < score ? score : magnitude(here);
                                   counts = place(here, e) < before && !(div32(score - here, size) > args.near);
                                   return exp_exact(here - score);
                               }));
            // At most 32 are chosen: a lane keeps one.
            if (j == lane) ids[j] = i32(id), own = weight;
        }
        float sum = 0.0f;
        if (args.gating == softmax_of_chosen) own = exp_exact(own - top);
        for (u32 j = 0; j < k; j++) sum = sum + shuffle(own, int(j));
        if (args.gating == softmax_of_chosen) {
            own = div32(own, sum);
        } else if (args.normalised) {
            sum = sum + args.epsilon;
            own = div32(own, sum < args.least ? args.least : sum);
        }
        if (lane < k) weights[lane] = canonical(own * args.scale);
        wave_sync();
    }
}

EXPORT u32 strata_choose_shape[2] = {choose_threads, choose_threads / wave_size};
