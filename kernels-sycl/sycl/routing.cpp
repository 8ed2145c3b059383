// Top-k and the stable map.
#include "functions.hpp"

// The order of scores: NaN counts as -inf.
inline float key(float score) { return score == score ? score : as_float(0xff800000u); }

// The k best of each row of `scores` and their weights, in descending score,
// ties to the smaller id; a unit is a token.
KERNEL top_k(const float *scores, int *ids, float *weights, u32 *word, u64 stride, u32 tokens,
             u32 experts, u32 k, u32 norm_all, float scale, u32 kind) {
  share work(tokens);
  for (u64 t = work.first; t < work.end; ++t) {
    const float *row = scores + t * stride;
    int *id = ids + t * k;
    float *best = weights + t * k; // holds the scores of the best until the end
    u32 found = 0;
    bool bad = false;
    for (u32 e = 0; e < experts; ++e) {
      const float raw = row[e], score = key(raw);
      bad = bad || !finite(raw);
      if (found == k && score <= key(best[k - 1]))
        continue;
      u32 at = found < k ? found : k - 1;
      // A later id of equal score goes behind.
      while (at > 0 && score > key(best[at - 1])) {
        id[at] = id[at - 1];
        best[at] = best[at - 1];
        --at;
      }
      id[at] = static_cast<int>(e);
      best[at] = raw;
      found = found < k ? found + 1 : k;
    }
    if (bad && word)
      report(word, static_cast<u32>(t), kind);
    const float max = best[0];
    float sum = 0.0f;
    for (u32 j = 0; j < k; ++j) {
      best[j] = exp_f32(best[j] - max);
      sum += best[j];
    }
    if (norm_all) {
      sum = 0.0f;
      for (u32 e = 0; e < experts; ++e)
        sum += exp_f32(row[e] - max);
    }
    for (u32 j = 0; j < k; ++j)
      best[j] = canonical(best[j] / sum * scale);
  }
}

// How experts are chosen: strata-core's RouterOptions; the host has the same struct.
struct choose_how {
  u64 stride; // values between rows of the scores
  u32 tokens, experts, k;
  u32 gating;
  float near;              // of sparsemixer
  float softcap;           // 0: none
  u32 groups, groups_used; // 0 groups: all experts at once
  u32 top_two;             // a group is worth its two best, not its best
  u32 normalised;
  float epsilon, least;
  float scale;
  u32 kind; // of the report
};

#define SOFTMAX_OF_CHOSEN 0
#define SOFTMAX 1
#define SIGMOID 2
#define SQRT_SOFTPLUS 3
#define SPARSEMIXER 4
#define MOST_CHOSEN 32
#define MOST_GROUPS 64

// The k best of values(e) where allowed(e), in descending value, ties to the smaller id.
template <typename V, typename A>
inline void best_of(u32 count, u32 k, V &&values, A &&allowed, u32 *id, float *best) {
  u32 found = 0;
  for (u32 e = 0; e < count; ++e) {
    if (!allowed(e))
      continue;
    const float value = key(values(e));
    if (found == k && value <= best[k - 1])
      continue;
    u32 at = found < k ? found : k - 1;
    // A later id of equal value goes behind.
    while (at > 0 && value > best[at - 1]) {
      id[at] = id[at - 1];
      best[at] = best[at - 1];
      --at;
    }
    id[at] = e;
    best[at] = value;
    found = found < k ? found + 1 : k;
  }
}

// The same for any router.
KERNEL choose_experts(const float *scores, const float *score_bias, const float *selection_bias,
                      int *ids, float *weights, u32 *word, choose_how h) {
  share work(h.tokens);
  for (u64 t = work.first; t < work.end; ++t) {
    const float *row = scores + t * h.stride;
    const auto score = [&](u32 e) {
      float s = row[e];
      if (score_bias)
        s = s + score_bias[e];
      return h.softcap != 0.0f ? softcap_f32(s, h.softcap) : s;
    };
    bool bad = false;
    float max = score(0);
    for (u32 e = 0; e < h.experts; ++e) {
      bad = bad || !finite(score_bias ? row[e] + score_bias[e] : row[e]);
      const float s = score(e);
      max = key(s) > key(max) ? s : max;
    }
    float all = 0.0f;
    if (h.gating == SOFTMAX)
      for (u32 e = 0; e < h.experts; ++e)
        all = all + exp_f32(score(e) - max);
    const auto gate = [&](float s) {
      switch (h.gating) {
      case SOFTMAX:
        return exp_f32(s - max) / all;
      case SIGMOID:
        return sigmoid(s);
      case SQRT_SOFTPLUS:
        return sycl::sqrt(softplus_f32(s));
      default:
        return s;
      }
    };
    const bool by_gate = selection_bias || h.groups;
    const auto value = [&](u32 e) {
      float v = score(e);
      if (by_gate)
        v = gate(v);
      return selection_bias ? v + selection_bias[e] : v;
    };
    if (selection_bias)
      for (u32 e = 0; e < h.experts; ++e)
        bad = bad || !finite(value(e));
    if (bad && word)
      report(word, static_cast<u32>(t), h.kind);

    u32 each = h.experts;
    u64 used = 1;
    if (h.groups) {
      each = h.experts / h.groups;
      float worth[MOST_GROUPS], best[MOST_GROUPS];
      u32 group[MOST_GROUPS];
      for (u32 g = 0; g < h.groups; ++g) {
        float first = as_float(0xff800000u), second = first;
        for (u32 e = g * each; e < (g + 1) * each; ++e) {
          const float v = key(value(e));
          if (v > first) {
            second = first;
            first = v;
          } else if (v > second) {
            second = v;
          }
        }
        worth[g] = h.top_two && each > 1 ? first + second : first;
      }
      best_of(
          h.groups, h.groups_used, [&](u32 g) { return worth[g]; }, [](u32) { return true; },
          group, best);
      used = 0;
      for (u32 j = 0; j < h.groups_used; ++j)
        used |= u64(1) << group[j];
    }
    u32 id[MOST_CHOSEN];
    float w[MOST_CHOSEN];
    best_of(h.experts, h.k, value, [&](u32 e) { return used >> (e / each) & 1; }, id, w);

    float top = score(id[0]), sum = 0.0f;
    for (u32 j = 1; j < h.k; ++j) {
      const float s = score(id[j]);
      top = key(s) > key(top) ? s : top;
    }
    for (u32 j = 0; j < h.k; ++j) {
      const float s = score(id[j]);
      if (h.gating == SPARSEMIXER) {
        float near = 0.0f;
        for (u32 e = 0; e < h.experts; ++e) {
          bool left = true;
          for (u32 i = 0; i < j; ++i)
            left = left && id[i] != e;
          const float other = score(e);
          const float size = magnitude(other) < s ? s : magnitude(other);
          if (left && !((s - other) / size > h.near))
            near = near + exp_f32(other - s);
        }
        w[j] = 1.0f / near;
      } else {
        w[j] = h.gating == SOFTMAX_OF_CHOSEN ? exp_f32(s - top) : gate(s);
      }
      sum = sum + w[j];
    }
    float divisor = sum;
    if (h.normalised) {
      divisor = sum + h.epsilon;
      divisor = divisor < h.least ? h.least : divisor;
    }
    for (u32 j = 0; j < h.k; ++j) {
      const float p = h.normalised || h.gating == SOFTMAX_OF_CHOSEN ? w[j] / divisor : w[j];
      ids[t * h.k + j] = static_cast<int>(id[j]);
      weights[t * h.k + j] = canonical(p * h.scale);
    }
  }
}

// The map is a counting sort in four launches. The ids are cut into `chunks`
// of `each`; counts[chunk][expert] says first how many of the chunk's ids name
// the expert, then how many ids before the chunk do.

KERNEL map_count(const int *ids, u32 *counts, u32 rows, u32 each, u32 chunks, u32 experts) {
  share work(chunks);
  for (u64 c = work.first; c < work.end; ++c) {
    u32 *count = counts + c * experts;
    for (u32 e = 0; e < experts; ++e)
      count[e] = 0;
    const u32 end = rows - c * each < each ? rows : (c + 1) * each;
    for (u32 i = c * each; i < end; ++i)
      ++count[ids[i]];
  }
}

// bounds[e + 1] becomes the rows of expert e.
KERNEL map_sum(u32 *counts, u32 *bounds, u32 chunks, u32 experts) {
  share work(experts);
  for (u64 e = work.first; e < work.end; ++e) {
    u32 sum = 0;
    for (u32 c = 0; c < chunks; ++c) {
      u32 *count = counts + u64(c) * experts + e;
      const u32 own = *count;
      *count = sum;
      sum += own;
    }
    bounds[e + 1] = sum;
  }
}

// bounds[e + 1] becomes the end of expert e.
KERNEL map_bounds(u32 *bounds, u32 experts) {
  if (work_item().get_global_id(0) != 0)
    return;
  u32 sum = 0;
  bounds[0] = 0;
  for (u32 e = 0; e < experts; ++e) {
    sum += bounds[e + 1];
    bounds[e + 1] = sum;
  }
}

KERNEL map_place(const int *ids, u32 *counts, const u32 *bounds, u32 *slot, u32 *src, u32 rows,
                 u32 each, u32 chunks, u32 experts, u32 k) {
  share work(chunks);
  for (u64 c = work.first; c < work.end; ++c) {
    u32 *count = counts + c * experts;
    const u32 end = rows - c * each < each ? rows : (c + 1) * each;
    for (u32 i = c * each; i < end; ++i) {
      const u32 row = bounds[ids[i]] + count[ids[i]]++;
      slot[i] = row;
      src[row] = i / k;
    }
  }
}
