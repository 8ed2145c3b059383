// The steps around the products: q8_1 quantization, router scores, SwiGLU and
// combine. None of them depends on a weight type.
//
// Work is cut into units (a q8_1 block, or some columns of a row) and each
// work-item does a share of consecutive ones; the host launches as many
// work-items as the device keeps busy.
#include "base.hpp"

#define BLOCK_VALUES 128
#define BLOCK_BYTES 144
#define PER_BLOCK (BLOCK_VALUES / LANES)

#define LAYOUT_D4 0
#define LAYOUT_DS4 1
#define LAYOUT_D2S6 2

// Columns of a unit where a step works on columns.
#define COLUMNS (LANES > 1 ? 4 * LANES : 1)

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
  u32 interleaved; // gate and up values in turns
  u32 value_kind;  // what a value that is not finite is reported as
  u32 header_kind; // and a scale or sum
};

// ---- q8_1 ----

// The values of one block.
struct block_values {
  vfloat x[PER_BLOCK];
};

// One block as it lies in memory, and what was not finite about it.
struct block_bytes {
  u32 word[BLOCK_BYTES / 4];
  bool bad_value, bad_header;
};

template <typename V> inline V max_of(V a, V b) { return a > b ? a : b; }

// The largest of a vector's values, by halves.
#if LANES > 1
typedef int v8i __attribute__((ext_vector_type(8)));
typedef int v4i __attribute__((ext_vector_type(4)));
typedef int v2i __attribute__((ext_vector_type(2)));
inline int largest(v8i v) {
  const v4i a = max_of(v4i(v.lo), v4i(v.hi));
  const v2i b = max_of(v2i(a.lo), v2i(a.hi));
  return max_of(int(b.x), int(b.y));
}
#if LANES == 16
inline int largest(vint v) { return largest(max_of(v8i(v.lo), v8i(v.hi))); }
#endif
#else
inline int largest(vint v) { return v; }
#endif

// Scale and codes of `count` vectors: docs/numerics.md, q8_1. The result is d.
inline float scale_and_codes(const vfloat *x, int count, i8 *codes, bool &bad_value) {
  // Magnitudes of floats order like their bits, with NaN on top.
  vint most = vint(-1), raw = vint(0);
  for (int i = 0; i < count; ++i) {
    vint a = bits_of(x[i]) & 0x7fffffff;
    raw = max_of(raw, a);
    most = max_of(most, choose(a > 0x7f800000, vint(-1), a));
  }
  if (largest(raw) >= 0x7f800000)
    bad_value = true;
  int m = largest(most);
  float amax = as_float(m < 0 ? 0x7fc00000u : static_cast<u32>(m));
  float d_inv = 127.0f / amax;
  for (int i = 0; i < count; ++i) {
    vfloat y = x[i] * vfloat(d_inv);
    y = choose(y > vfloat(127.0f), vfloat(127.0f), y);
    y = choose(y < vfloat(-127.0f), vfloat(-127.0f), y);
    y = choose(y == y, y, vfloat(0.0f));
#if LANES > 1
    vint q = __builtin_convertvector(y, vint);
#else
    int q = static_cast<int>(y);
#endif
    vfloat rest = y - to_float(q); // exact
    q += choose(rest >= vfloat(0.5f), vint(1), vint(0));
    q -= choose(rest <= vfloat(-0.5f), vint(1), vint(0));
#if LANES > 1
    typedef i8 vbyte __attribute__((ext_vector_type(LANES)));
    store(codes + LANES * i, __builtin_convertvector(q, vbyte));
#else
    codes[i] = static_cast<i8>(q);
#endif
  }
  return 1.0f / d_inv;
}

// Sums of values: four at a time in order, then halves. `sum32` is that of the
// 32 values at x, `sums16` those of the 16 at x and of the next 16.
#if LANES == 16
typedef float v8f __attribute__((ext_vector_type(8)));
typedef float v4f __attribute__((ext_vector_type(4)));
typedef float v2f __attribute__((ext_vector_type(2)));
inline v8f fours(const vfloat *x) {
  const vfloat a = x[0], b = x[1];
  v8f p = __builtin_shufflevector(a, b, 0, 4, 8, 12, 16, 20, 24, 28);
  p = p + __builtin_shufflevector(a, b, 1, 5, 9, 13, 17, 21, 25, 29);
  p = p + __builtin_shufflevector(a, b, 2, 6, 10, 14, 18, 22, 26, 30);
  return p + __builtin_shufflevector(a, b, 3, 7, 11, 15, 19, 23, 27, 31);
}
inline float sum32(const vfloat *x) {
  const v8f p = fours(x);
  const v4f q = v4f(p.lo) + v4f(p.hi);
  const v2f r = v2f(q.lo) + v2f(q.hi);
  return r.x + r.y;
}
inline v2f sums16(const vfloat *x) {
  const v8f p = fours(x);
  const v4f q = __builtin_shufflevector(p, p, 0, 1, 4, 5) + __builtin_shufflevector(p, p, 2, 3, 6, 7);
  return __builtin_shufflevector(q, q, 0, 2) + __builtin_shufflevector(q, q, 1, 3);
}
#else
typedef float v2f __attribute__((ext_vector_type(2)));
template <int PARTS> inline float sum(const float *x) {
  float p[PARTS];
  for (int i = 0; i < PARTS; ++i)
    p[i] = ((x[4 * i] + x[4 * i + 1]) + x[4 * i + 2]) + x[4 * i + 3];
  for (int half = PARTS / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      p[i] += p[i + half];
  return p[0];
}
inline float sum32(const vfloat *x) {
  float v[32];
  __builtin_memcpy(v, x, sizeof(v));
  return sum<8>(v);
}
inline v2f sums16(const vfloat *x) {
  float v[32];
  __builtin_memcpy(v, x, sizeof(v));
  return v2f{sum<4>(v), sum<4>(v + 16)};
}
#endif

// f16 bits for the header; infinity and NaN are noted.
inline u32 header_half(float x, block_bytes &out) {
  u32 h = to_half(x);
  out.bad_header = out.bad_header || (h & 0x7c00) == 0x7c00;
  return h;
}

inline void quantize_block(const block_values &in, u32 layout, block_bytes &out) {
  out.bad_value = out.bad_header = false;
  i8 *codes = reinterpret_cast<i8 *>(out.word + 4);
  const int groups = layout == LAYOUT_D2S6 ? 2 : 4, each = PER_BLOCK / groups;
  float d[4];
  for (int g = 0; g < groups; ++g)
    d[g] = scale_and_codes(in.x + g * each, each, codes + g * (BLOCK_VALUES / groups),
                           out.bad_value);
  if (layout == LAYOUT_D4) {
    for (int g = 0; g < 4; ++g) {
      out.word[g] = as_bits(canonical(d[g]));
      out.bad_header = out.bad_header || !finite(d[g]);
    }
    return;
  }
  constexpr int step = PER_BLOCK / 4; // vectors of 32 values
  if (layout == LAYOUT_DS4) {
    for (int g = 0; g < 4; ++g)
      out.word[g] = header_half(d[g], out) | header_half(sum32(in.x + step * g), out) << 16;
    return;
  }
  out.word[0] = header_half(d[0], out) | header_half(d[1], out) << 16;
  for (int g = 0; g < 3; ++g) {
    const v2f sums = sums16(in.x + step * g);
    out.word[1 + g] = header_half(sums.x, out) | header_half(sums.y, out) << 16;
  }
}

typedef u32 v4u __attribute__((ext_vector_type(4)));
#if LANES == 16
typedef vuint wide;
#else
typedef v4u wide;
#endif

// In pieces as wide as the device stores at once.
inline void write_block(u8 *to, const block_bytes &b) {
  constexpr int words = sizeof(wide) / 4, whole = BLOCK_BYTES / 4 / words * words;
#pragma unroll
  for (int i = 0; i < whole; i += words)
    store(to + 4 * i, load<wide>(b.word + i));
#pragma unroll
  for (int i = whole; i < BLOCK_BYTES / 4; i += 4)
    store(to + 4 * i, load<v4u>(b.word + i));
}

// Values 128 * k_block .. of a row of `cols`, zeros past its end.
inline void load_block(const float *row, u32 k_block, u32 cols, block_values &out) {
  const u32 first = BLOCK_VALUES * k_block;
  if (first + BLOCK_VALUES <= cols) {
    for (int i = 0; i < PER_BLOCK; ++i)
      out.x[i] = load<vfloat>(row + first + LANES * i);
    return;
  }
  float x[BLOCK_VALUES];
  for (u32 i = 0; i < BLOCK_VALUES; ++i)
    x[i] = first + i < cols ? row[first + i] : 0.0f;
  __builtin_memcpy(out.x, x, sizeof(x));
}

inline void report_block(u32 *word, const block_bytes &b, u32 token, const step &s) {
  if (word == nullptr)
    return;
  if (b.bad_value)
    report(word, token, s.value_kind);
  if (b.bad_header)
    report(word, token, s.header_kind);
}

// Units are in the order of the output's blocks, all rows of one k_block before
// the next, so that writes of a work-item stay close together.

// Row r of the output is row src[r] of x, or row r without src. Reports the
// token of the input row: tokens[row], or the row itself.
KERNEL quantize(const float *x, const u32 *src, const u32 *tokens, u8 *out, u32 *word, step s) {
  share work(u64(s.rows) * s.k_blocks);
  for (u64 n = work.first; n < work.end; ++n) {
    const u32 row = n % s.rows, k_block = n / s.rows;
    const u32 from = src ? src[row] : row;
    block_values v;
    block_bytes b;
    load_block(x + from * s.stride, k_block, s.cols, v);
    quantize_block(v, s.layout, b);
    write_block(out + (u64(k_block) * s.rows + row) * BLOCK_BYTES, b);
    report_block(word, b, tokens ? tokens[from] : from, s);
  }
}

// Each token once, to its k rows.
KERNEL quantize_scatter(const float *x, const u32 *slot, u8 *out, u32 *word, step s) {
  share work(u64(s.tokens) * s.k_blocks);
  for (u64 n = work.first; n < work.end; ++n) {
    const u32 token = n % s.tokens, k_block = n / s.tokens;
    block_values v;
    block_bytes b;
    load_block(x + token * s.stride, k_block, s.cols, v);
    quantize_block(v, s.layout, b);
    u8 *column = out + u64(k_block) * s.rows * BLOCK_BYTES;
    for (u32 j = 0; j < s.k; ++j)
      write_block(column + u64(slot[u64(token) * s.k + j]) * BLOCK_BYTES, b);
    report_block(word, b, token, s);
  }
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

KERNEL swiglu_rows(const float *x, float *out, step s) {
  const u32 units = (s.cols + COLUMNS - 1) / COLUMNS;
  share work(u64(s.rows) * units);
  for (u64 n = work.first; n < work.end; ++n) {
    const u64 r = n / units;
    const float *from = x + r * s.stride;
    float *to = out + r * s.out_stride;
    columns(
        n % units * COLUMNS, s.cols,
        [&](u32 c) { store(to + c, hidden_vector(from, c, s)); },
        [&](u32 c) { to[c] = hidden(from, c, s); });
  }
}

KERNEL swiglu_quantize(const float *x, const u32 *tokens, u8 *out, u32 *word, step s) {
  share work(u64(s.rows) * s.k_blocks);
  for (u64 n = work.first; n < work.end; ++n) {
    const u32 row = n % s.rows, k_block = n / s.rows;
    const float *from = x + row * s.stride;
    const u32 first = BLOCK_VALUES * k_block;
    block_values v;
    if (first + BLOCK_VALUES <= s.cols) {
      for (int i = 0; i < PER_BLOCK; ++i)
        v.x[i] = hidden_vector(from, first + LANES * i, s);
    } else {
      float h[BLOCK_VALUES];
      for (u32 i = 0; i < BLOCK_VALUES; ++i)
        h[i] = first + i < s.cols ? hidden(from, first + i, s) : 0.0f;
      __builtin_memcpy(v.x, h, sizeof(h));
    }
    block_bytes b;
    quantize_block(v, s.layout, b);
    write_block(out + (u64(k_block) * s.rows + row) * BLOCK_BYTES, b);
    report_block(word, b, tokens ? tokens[row] : row, s);
  }
}

// ---- combine ----

// out[t]: fma over the token's rows in ascending j, then the shared expert's,
// which `shared_stride` and `score_stride` values lead from token to token.
KERNEL combine(const float *y, const u32 *slot, const float *weights, const float *shared,
               const float *score, float *out, u64 shared_stride, u64 score_stride, step s) {
  const u32 units = (s.cols + COLUMNS - 1) / COLUMNS;
  share work(u64(s.tokens) * units);
  for (u64 n = work.first; n < work.end; ++n) {
    const u64 t = n / units;
    const u32 *rows = slot + t * s.k;
    const float *w = weights + t * s.k;
    float *to = out + t * s.out_stride;
    const float *one = shared ? shared + t * shared_stride : nullptr;
    const float weight = score ? sigmoid(score[t * score_stride]) : 1.0f;
    columns(
        n % units * COLUMNS, s.cols,
        [&](u32 c) {
          vfloat acc = vfloat(0.0f);
          for (u32 j = 0; j < s.k; ++j)
            acc = fma(vfloat(w[j]), load<vfloat>(y + rows[j] * s.stride + c), acc);
          if (one)
            acc = fma(vfloat(weight), load<vfloat>(one + c), acc);
          store(to + c, canonical(acc));
        },
        [&](u32 c) {
          float acc = 0.0f;
          for (u32 j = 0; j < s.k; ++j)
            acc = fma(w[j], y[rows[j] * s.stride + c], acc);
          if (one)
            acc = fma(weight, one[c], acc);
          to[c] = canonical(acc);
        });
  }
}

// ---- router scores ----

// Tokens and values of k that a tile of transposed router rows serves.
#define SCORE_TOKENS (LANES > 1 ? 16 : 1)
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
