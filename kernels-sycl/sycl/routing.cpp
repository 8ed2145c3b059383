// Top-k and the stable map.
#include "base.hpp"

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
