// The steps around the products: q8_1 quantization, router scores, SwiGLU and
// combine. None of them depends on a weight type.
//
// Work is cut into units (a q8_1 block, or some columns of a row) and each
// work-item does a share of consecutive ones; the host launches as many
// work-items as the device keeps busy.
#include "activation.hpp"
#include "q8.hpp"

// What a launch is about; the host has the same struct.
struct step {
  u64 stride;      // values between input rows
  u64 out_stride;  // values between output rows, where the output is f32
  u32 rows;        // rows of the output (scatter: of the routed rows)
  u32 cols;        // values of an output row
  u32 k_blocks;    // q8_1 blocks of an output row, padding included
  u32 tokens;      // scatter, combine: tokens
  u32 k;           // scatter, combine: choices per token
  u32 layout;      // of q8_1
  u32 interleaved; // 1: gate and up values in turns; 2: up values alone
  u32 of_codes;    // whether sums of q8_1 are of the codes, not of the values
  u32 value_kind;  // what a value that is not finite is reported as
  u32 header_kind; // and a scale or sum
};

// ---- q8_1 ----

inline void report_block(u32 *word, seen bad, u32 token, const step &s) {
  if (word == nullptr)
    return;
  if (bad.value)
    report(word, token, s.value_kind);
  if (bad.header)
    report(word, token, s.header_kind);
}

// Runs f(row, k_block) for every block of `rows` rows of `k_blocks`. Units of a
// GPU are blocks in the order of the output, all rows of one k_block before the
// next: neighbours write what lies together. Those of a CPU device are runs of
// UNIT_ROWS rows, all of their k_blocks in turn: reads walk forwards too.
template <typename F> inline void blocks(u32 rows, u32 k_blocks, F &&f) {
#if LANES == 1
  share work(u64(rows) * k_blocks);
  for (u64 n = work.first; n < work.end; ++n)
    f(n % rows, n / rows);
#else
  share work(u64((rows + UNIT_ROWS - 1) / UNIT_ROWS) * k_blocks);
  u32 first = work.first / k_blocks * UNIT_ROWS, k_block = work.first % k_blocks;
  for (u64 n = work.first; n < work.end; ++n) {
    const u32 end = rows - first < UNIT_ROWS ? rows : first + UNIT_ROWS;
#pragma nounroll
    for (u32 row = first; row < end; ++row)
      f(row, k_block);
    if (++k_block == k_blocks) {
      k_block = 0;
      first += UNIT_ROWS;
    }
  }
#endif
}

// f(LAYOUT), the layout as a constant.
template <typename F> inline void with_layout(u32 layout, F &&f) {
  if (layout == LAYOUT_D4)
    f(std::integral_constant<int, LAYOUT_D4>());
  else if (layout == LAYOUT_DS4)
    f(std::integral_constant<int, LAYOUT_DS4>());
  else
    f(std::integral_constant<int, LAYOUT_D2S6>());
}

// One block of a row of `cols` values, zeros past its end.
template <int LAYOUT>
inline seen block_of_row(const float *row, u32 k_block, const step &s, u8 *out) {
  const u32 cols = s.cols;
  const u32 first = BLOCK_VALUES * k_block;
  if (LANES > 1 && first + BLOCK_VALUES <= cols)
    return quantize_block<LAYOUT>(row + first, s.of_codes, out);
  float x[BLOCK_VALUES];
  for (u32 i = 0; i < BLOCK_VALUES; ++i)
    x[i] = first + i < cols ? row[first + i] : 0.0f;
  return quantize_block<LAYOUT>(x, s.of_codes, out);
}

// Row r of the output is row src[r] of x, or row r without src. Reports the
// token of the input row: tokens[row], or the row itself.
KERNEL quantize(const float *x, const u32 *src, const u32 *tokens, u8 *out, u32 *word, step s) {
  with_layout(s.layout, [&](auto layout) {
    blocks(s.rows, s.k_blocks, [&](u32 row, u32 k_block) {
      const u32 from = src ? src[row] : row;
      const seen bad = block_of_row<layout>(x + from * s.stride, k_block, s,
                                            out + (u64(k_block) * s.rows + row) * BLOCK_BYTES);
      report_block(word, bad, tokens ? tokens[from] : from, s);
    });
  });
}

#if LANES > 1
typedef u32 v16u __attribute__((ext_vector_type(16)));
typedef u32 v4u __attribute__((ext_vector_type(4)));

// Row r of the output is block src[r]. What goes past the caches need not be
// fetched before it is written. The two ways differ in more than that, or the
// compiler makes one of them that is half of each.
template <bool PAST_CACHES>
inline void copy_blocks(const u8 *blocks, const u32 *src, u32 rows, u8 *to) {
#pragma nounroll
  for (u32 row = 0; row < rows; ++row, to += BLOCK_BYTES) {
    const u8 *from = blocks + u64(src[row]) * BLOCK_BYTES;
    if constexpr (PAST_CACHES) {
#pragma unroll
      for (int i = 0; i < BLOCK_BYTES; i += 16)
        __builtin_nontemporal_store(load<v4u>(from + i), reinterpret_cast<v4u *>(to + i));
    } else {
      store(to, load<v16u>(from));
      store(to + 64, load<v16u>(from + 64));
      store(to + 128, load<v4u>(from + 128));
    }
  }
}
#endif

// Each token once, to its k rows. A work-item of a GPU writes all rows of a
// block. On a CPU device it quantizes one k_block of all tokens into its part
// of `aside`, and then writes the output's rows in their order: written token by
// token they would be half-filled lines here and there.
KERNEL quantize_scatter(const float *x, const u32 *slot, const u32 *src, u8 *aside, u8 *out,
                        u32 *word, step s) {
  with_layout(s.layout, [&](auto layout) {
#if LANES == 1
    blocks(s.tokens, s.k_blocks, [&](u32 token, u32 k_block) {
      alignas(16) u8 b[BLOCK_BYTES];
      const seen bad = block_of_row<layout>(x + token * s.stride, k_block, s, b);
      u8 *column = out + u64(k_block) * s.rows * BLOCK_BYTES;
      for (u32 j = 0; j < s.k; ++j)
        __builtin_memcpy(column + u64(slot[u64(token) * s.k + j]) * BLOCK_BYTES, b, BLOCK_BYTES);
      report_block(word, bad, token, s);
    });
#else
    u8 *own = aside + work_item().get_global_id(0) * s.tokens * BLOCK_BYTES;
    const u64 bytes = u64(s.k_blocks) * s.rows * BLOCK_BYTES;
    const bool past_caches = bytes >= 24 << 20 && reinterpret_cast<u64>(out) % 16 == 0;
    share work(s.k_blocks);
    for (u64 k_block = work.first; k_block < work.end; ++k_block) {
#pragma nounroll
      for (u32 token = 0; token < s.tokens; ++token) {
        const seen bad = block_of_row<layout>(x + token * s.stride, k_block, s,
                                              own + u64(token) * BLOCK_BYTES);
        report_block(word, bad, token, s);
      }
      u8 *to = out + k_block * s.rows * BLOCK_BYTES;
      if (past_caches)
        copy_blocks<true>(own, src, s.rows, to);
      else
        copy_blocks<false>(own, src, s.rows, to);
    }
    if (past_caches)
      sycl::atomic_fence(sycl::memory_order::seq_cst, sycl::memory_scope::system);
#endif
  });
}

// ---- SwiGLU ----

inline float hidden(const float *row, u32 c, const step &s) {
  return s.interleaved ? swiglu(row[2 * u64(c)], row[2 * u64(c) + 1])
                       : swiglu(row[c], row[u64(s.cols) + c]);
}

// LANES hidden values from column c.
inline vfloat hidden_vector(const float *row, u32 c, const step &s) {
#if LANES > 1
  if (s.interleaved) {
    vfloat g, u;
    for (int l = 0; l < LANES; ++l) {
      g[l] = row[2 * u64(c + l)];
      u[l] = row[2 * u64(c + l) + 1];
    }
    return swiglu(g, u);
  }
  return swiglu(load<vfloat>(row + c), load<vfloat>(row + s.cols + c));
#else
  return hidden(row, c, s);
#endif
}

// f(c) for the vectors, then g(c) for the single columns, of one unit.
template <typename F, typename G> inline void columns(u32 first, u32 cols, F &&f, G &&g) {
  const u32 end = cols - first < COLUMNS ? cols : first + COLUMNS;
  u32 c = first;
  for (; c + LANES <= end; c += LANES)
    f(c);
  for (; c < end; ++c)
    g(c);
}

KERNEL swiglu_rows(const float *x, const float *scale, const float *bias, const u32 *bounds,
                   float *out, experts_how h, step s) {
  const u32 units = (s.cols + COLUMNS - 1) / COLUMNS;
  share work(u64(s.rows) * units);
  for (u64 n = work.first; n < work.end; ++n) {
    const u64 r = n / units;
    const float *from = x + r * s.stride;
    float *to = out + r * s.out_stride;
    if (h.any) {
      const any_row row(from, r, s.cols, s.interleaved, scale, bias, bounds, h);
      columns(
          n % units * COLUMNS, s.cols, [&](u32 c) { store(to + c, row.hidden_vector(c, h)); },
          [&](u32 c) { to[c] = row.hidden(c, h); });
      continue;
    }
    columns(
        n % units * COLUMNS, s.cols,
        [&](u32 c) { store(to + c, hidden_vector(from, c, s)); },
        [&](u32 c) { to[c] = hidden(from, c, s); });
  }
}

KERNEL swiglu_quantize(const float *x, const float *scale, const float *bias, const u32 *bounds,
                       const u32 *tokens, u8 *out, u32 *word, experts_how h, step s) {
  with_layout(s.layout, [&](auto layout) {
    blocks(s.rows, s.k_blocks, [&](u32 row, u32 k_block) {
      const float *from = x + row * s.stride;
      const u32 first = BLOCK_VALUES * k_block;
      float v[BLOCK_VALUES];
      if (h.any) {
        const any_row values(from, row, s.cols, s.interleaved, scale, bias, bounds, h);
        if (first + BLOCK_VALUES <= s.cols)
          for (u32 i = 0; i < BLOCK_VALUES; i += LANES)
            store(v + i, values.hidden_vector(first + i, h));
        else
          for (u32 i = 0; i < BLOCK_VALUES; ++i)
            v[i] = first + i < s.cols ? values.hidden(first + i, h) : 0.0f;
      } else if (first + BLOCK_VALUES <= s.cols) {
        for (u32 i = 0; i < BLOCK_VALUES; i += LANES)
          store(v + i, hidden_vector(from, first + i, s));
      } else {
        for (u32 i = 0; i < BLOCK_VALUES; ++i)
          v[i] = first + i < s.cols ? hidden(from, first + i, s) : 0.0f;
      }
      u8 *to = out + (u64(k_block) * s.rows + row) * BLOCK_BYTES;
      const seen bad = quantize_block<layout>(v, s.of_codes, to);
      report_block(word, bad, tokens ? tokens[row] : row, s);
    });
  });
}

// ---- combine ----

// Scales and biases of experts, and factors; the host has the same struct.
struct combine_how {
  u64 scale_stride, bias_stride;
  u32 weighed; // 0: every row has weight 1
  float shared_factor, sum_factor;
};

// out[t]: fma over the token's rows in ascending j, then the shared expert's,
// which `shared_stride` and `score_stride` values lead from token to token.
// A shared score that is not finite is reported as a header, an output as a value.
KERNEL combine(const float *y, const u32 *slot, const float *weights, const float *shared,
               const float *score, const int *ids, const float *scale, const float *bias,
               float *out, u32 *word, u64 shared_stride, u64 score_stride, combine_how h, step s) {
  const u32 units = (s.cols + COLUMNS - 1) / COLUMNS;
  share work(u64(s.tokens) * units);
  for (u64 n = work.first; n < work.end; ++n) {
    const u64 t = n / units;
    const u32 *rows = slot + t * s.k;
    const float *w = weights + t * s.k;
    float *to = out + t * s.out_stride;
    const float *one = shared ? shared + t * shared_stride : nullptr;
    const float gate = score ? score[t * score_stride] : 0.0f;
    const float weight = (score ? sigmoid(gate) : 1.0f) * h.shared_factor;
    const auto weight_of = [&](u32 j) { return h.weighed ? w[j] : 1.0f; };
    bool bad = false;
    vfloat odd = vfloat(0.0f); // zeros, and NaN where a sum is not finite
    const auto write_one = [&](u32 c, float sum) {
      to[c] = canonical(sum);
      bad = bad || !finite(sum);
    };
    const auto write_vector = [&](u32 c, vfloat sum) {
      store(to + c, canonical(sum));
      odd = fma(sum, vfloat(0.0f), odd);
    };
    const auto say = [&] {
      for (u32 l = 0; l < LANES; ++l)
        bad = bad || !finite(get_lane(odd, l));
      if (word && !finite(gate))
        report(word, static_cast<u32>(t), s.header_kind);
      if (word && bad)
        report(word, static_cast<u32>(t), s.value_kind);
    };
    if (scale || bias) {
      const int *id = ids + t * s.k;
      const auto one_column = [&](u32 c) {
        float acc = 0.0f;
        for (u32 j = 0; j < s.k; ++j) {
          const u64 expert = id[j];
          const float v = fma(y[rows[j] * s.stride + c], scale ? scale[expert * h.scale_stride] : 1.0f,
                              bias ? bias[expert * h.bias_stride + c] : 0.0f);
          acc = fma(weight_of(j), v, acc);
        }
        if (one)
          acc = fma(weight, one[c], acc);
        write_one(c, acc * h.sum_factor);
      };
      columns(
          n % units * COLUMNS, s.cols,
          [&](u32 c) {
            vfloat acc = vfloat(0.0f);
            for (u32 j = 0; j < s.k; ++j) {
              const u64 expert = id[j];
              const float factor = scale ? scale[expert * h.scale_stride] : 1.0f;
              vfloat added = vfloat(0.0f);
              if (bias)
                added = load<vfloat>(bias + expert * h.bias_stride + c);
              const vfloat v = fma(load<vfloat>(y + rows[j] * s.stride + c), vfloat(factor), added);
              acc = fma(vfloat(weight_of(j)), v, acc);
            }
            if (one)
              acc = fma(vfloat(weight), load<vfloat>(one + c), acc);
            write_vector(c, acc * vfloat(h.sum_factor));
          },
          one_column);
      say();
      continue;
    }
    columns(
        n % units * COLUMNS, s.cols,
        [&](u32 c) {
          vfloat acc = vfloat(0.0f);
          for (u32 j = 0; j < s.k; ++j)
            acc = fma(vfloat(weight_of(j)), load<vfloat>(y + rows[j] * s.stride + c), acc);
          if (one)
            acc = fma(vfloat(weight), load<vfloat>(one + c), acc);
          write_vector(c, acc * vfloat(h.sum_factor));
        },
        [&](u32 c) {
          float acc = 0.0f;
          for (u32 j = 0; j < s.k; ++j)
            acc = fma(weight_of(j), y[rows[j] * s.stride + c], acc);
          if (one)
            acc = fma(weight, one[c], acc);
          write_one(c, acc * h.sum_factor);
        });
    say();
  }
}

// ---- router scores ----

// Values of k of a tile of transposed router rows, which serves SCORE_TOKENS tokens.
#define SCORE_K 16

// out[t][e]: one accumulator, fma in ascending k; `s.rows` tokens, `s.cols`
// experts, `width` values.
KERNEL router_scores(const float *x, const float *weights, float *out, u64 weights_stride,
                     u32 width, step s) {
  const u32 expert_tiles = (s.cols + LANES - 1) / LANES;
  const u32 token_tiles = (s.rows + SCORE_TOKENS - 1) / SCORE_TOKENS;
  share work(u64(expert_tiles) * token_tiles);
  for (u64 n = work.first; n < work.end; ++n) {
    const u32 e0 = n / token_tiles * LANES, t0 = n % token_tiles * SCORE_TOKENS;
    const u32 tokens = s.rows - t0 < SCORE_TOKENS ? s.rows - t0 : SCORE_TOKENS;
    vfloat acc[SCORE_TOKENS];
    for (u32 i = 0; i < SCORE_TOKENS; ++i)
      acc[i] = vfloat(0.0f);
    for (u32 k = 0; k < width; k += SCORE_K) {
      const u32 end = width - k < SCORE_K ? width - k : SCORE_K;
      float tile[SCORE_K][LANES];
      for (u32 l = 0; l < LANES; ++l) {
        const u32 e = e0 + l < s.cols ? e0 + l : s.cols - 1;
        const float *row = weights + e * weights_stride + k;
        for (u32 i = 0; i < end; ++i)
          tile[i][l] = row[i];
      }
      for (u32 i = 0; i < tokens; ++i) {
        const float *row = x + (t0 + i) * s.stride + k;
        for (u32 j = 0; j < end; ++j)
          acc[i] = fma(vfloat(row[j]), load<vfloat>(tile[j]), acc[i]);
      }
    }
    for (u32 i = 0; i < tokens; ++i) {
      float *to = out + (t0 + i) * s.out_stride + e0;
      const vfloat value = canonical(acc[i]);
      for (u32 l = 0; l < LANES && e0 + l < s.cols; ++l)
        to[l] = get_lane(value, l);
    }
  }
}
