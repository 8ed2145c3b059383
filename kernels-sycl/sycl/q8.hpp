// q8_1 blocks of 128 values: docs/numerics.md, q8_1.
//
// `quantize_block<LAYOUT>(x, of_codes, out)` writes one block, with sums of the
// codes or of the values, and says what in it was not finite. A work-item of a GPU does it value by value. On a CPU device all
// groups of a block go through the same vectors, and a block that holds
// something other than everyday numbers takes the general way.
#pragma once

#include "base.hpp"

// What a block was seen to hold.
struct seen {
  bool value;  // an input that is not finite
  bool header; // a stored scale or sum that is not finite
};

// ---- the general way ----

// On a CPU device few blocks go it: it is kept small.
#if LANES > 1
#define ROLLED _Pragma("clang loop unroll(disable) vectorize(disable)")
#else
#define ROLLED
#endif

// Codes and scale of `count` values.
inline float group_codes(const float *x, int count, i8 *codes, seen &bad) {
  // Magnitudes of floats order like their bits, with NaN on top.
  int most = -1;
ROLLED
  for (int i = 0; i < count; ++i) {
    const int a = static_cast<int>(as_bits(x[i]) & 0x7fffffffu);
    bad.value = bad.value || a >= 0x7f800000;
    most = a <= 0x7f800000 && a > most ? a : most;
  }
  const float d_inv = 127.0f / as_float(most < 0 ? 0x7fc00000u : static_cast<u32>(most));
ROLLED
  for (int i = 0; i < count; ++i) {
    float y = x[i] * d_inv;
    y = y > 127.0f ? 127.0f : y;
    y = y < -127.0f ? -127.0f : y;
    y = y == y ? y : 0.0f;
    int q = static_cast<int>(y);
    const float rest = y - static_cast<float>(q); // exact
    q += rest >= 0.5f ? 1 : 0;
    q -= rest <= -0.5f ? 1 : 0;
    codes[i] = static_cast<i8>(q);
  }
  return 1.0f / d_inv;
}

// The sum of values: four at a time in order, then halves.
template <int PARTS> inline float sum(const float *x) {
  float p[PARTS];
ROLLED
  for (int i = 0; i < PARTS; ++i)
    p[i] = ((x[4 * i] + x[4 * i + 1]) + x[4 * i + 2]) + x[4 * i + 3];
  for (int half = PARTS / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i)
      p[i] += p[i + half];
  return p[0];
}

// What codes of one scale stand for, summed.
template <int COUNT> inline float sum_of_codes(const i8 *codes, float d) {
  int total = 0;
ROLLED
  for (int i = 0; i < COUNT; ++i)
    total += codes[i];
  return static_cast<float>(total) * d;
}

// f16 bits for the header; infinity and NaN are noted.
inline u32 header_half(float x, seen &bad) {
  const u32 h = to_half(x);
  bad.header = bad.header || (h & 0x7c00) == 0x7c00;
  return h;
}

template <int LAYOUT> inline seen quantize_plainly(const float *x, bool of_codes, u8 *out) {
  constexpr int groups = LAYOUT == LAYOUT_D2S6 ? 2 : 4, each = BLOCK_VALUES / groups;
  seen bad = {false, false};
  u32 word[BLOCK_BYTES / 4];
  i8 *codes = reinterpret_cast<i8 *>(word + HEADER_BYTES / 4);
  float d[groups];
ROLLED
  for (int g = 0; g < groups; ++g)
    d[g] = group_codes(x + each * g, each, codes + each * g, bad);
  if constexpr (LAYOUT == LAYOUT_D4) {
    for (int g = 0; g < 4; ++g) {
      word[g] = as_bits(canonical(d[g]));
      bad.header = bad.header || !finite(d[g]);
    }
  } else if constexpr (LAYOUT == LAYOUT_DS4) {
    for (int g = 0; g < 4; ++g) {
      const float s = of_codes ? sum_of_codes<32>(codes + 32 * g, d[g]) : sum<8>(x + 32 * g);
      word[g] = header_half(d[g], bad) | header_half(s, bad) << 16;
    }
  } else {
    word[0] = header_half(d[0], bad) | header_half(d[1], bad) << 16;
    for (int j = 0; j < 6; j += 2) {
      u32 s[2];
      for (int i = 0; i < 2; ++i) {
        const int at = 16 * (j + i);
        s[i] = header_half(of_codes ? sum_of_codes<16>(codes + at, d[j / 4]) : sum<4>(x + at), bad);
      }
      word[1 + j / 2] = s[0] | s[1] << 16;
    }
  }
  for (int i = 0; i < BLOCK_BYTES; i += 16)
    __builtin_memcpy(out + i, reinterpret_cast<const u8 *>(word) + i, 16);
  return bad;
}

#if LANES == 1
template <int LAYOUT> inline seen quantize_block(const float *x, bool of_codes, u8 *out) {
  return quantize_plainly<LAYOUT>(x, of_codes, out);
}
#else

// ---- in vectors ----

// Sixteen values whatever LANES is: the device's compiler halves what is too wide.
typedef float v16f __attribute__((ext_vector_type(16)));
typedef float v8f __attribute__((ext_vector_type(8)));
typedef float v4f __attribute__((ext_vector_type(4)));
typedef int v16i __attribute__((ext_vector_type(16)));
typedef int v8i __attribute__((ext_vector_type(8)));
typedef int v4i __attribute__((ext_vector_type(4)));
typedef i8 v16c __attribute__((ext_vector_type(16)));
typedef u16 v8h __attribute__((ext_vector_type(8)));

template <typename V> inline V max_of(V a, V b) { return a > b ? a : b; }

// Four vectors of eight to one of four: what `op` makes of each one's halves,
// again and again, the four side by side.
template <typename V4, typename V8, typename OP> inline V4 halves(const V8 *v, OP op) {
  V8 pair[2];
#pragma unroll
  for (int i = 0; i < 2; ++i)
    pair[i] = op(__builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 1, 2, 3, 8, 9, 10, 11),
                 __builtin_shufflevector(v[2 * i], v[2 * i + 1], 4, 5, 6, 7, 12, 13, 14, 15));
  const V8 all = op(__builtin_shufflevector(pair[0], pair[1], 0, 1, 4, 5, 8, 9, 12, 13),
                    __builtin_shufflevector(pair[0], pair[1], 2, 3, 6, 7, 10, 11, 14, 15));
  return op(V4(__builtin_shufflevector(all, all, 0, 2, 4, 6)),
            V4(__builtin_shufflevector(all, all, 1, 3, 5, 7)));
}

// The sums of each four of 32 values.
inline v8f fours(v16f a, v16f b) {
  v8f p = __builtin_shufflevector(a, b, 0, 4, 8, 12, 16, 20, 24, 28);
  p = p + __builtin_shufflevector(a, b, 1, 5, 9, 13, 17, 21, 25, 29);
  p = p + __builtin_shufflevector(a, b, 2, 6, 10, 14, 18, 22, 26, 30);
  return p + __builtin_shufflevector(a, b, 3, 7, 11, 15, 19, 23, 27, 31);
}

// The sums of the first six 16 values of a block; two more lanes hold anything.
inline v8f sums16(const v8f *p) {
  const v8f a = __builtin_shufflevector(p[0], p[1], 0, 1, 4, 5, 8, 9, 12, 13) +
                __builtin_shufflevector(p[0], p[1], 2, 3, 6, 7, 10, 11, 14, 15);
  const v8f b = __builtin_shufflevector(p[2], p[2], 0, 1, 4, 5, 8, 9, 12, 13) +
                __builtin_shufflevector(p[2], p[2], 2, 3, 6, 7, 10, 11, 14, 15);
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) +
         __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
}

// As to_half of one value.
inline v8i to_half(v8f x) {
  const v8i bits = __builtin_bit_cast(v8i, x), a = bits & 0x7fffffff;
  const v8i small =
      __builtin_bit_cast(v8i, __builtin_bit_cast(v8f, a) + v8f(0.5f)) - 0x3f000000;
  const v8i normal = (a + (0xfff - (112 << 23)) + (a >> 13 & 1)) >> 13;
  v8i r = a < 0x38800000 ? small : normal;
  r = (a >= 0x47800000 ? v8i(0x7c00) : r) | (bits >> 16 & 0x8000);
  return a > 0x7f800000 ? v8i(0x7e00) : r;
}

// Whether any lane is not 0.
inline bool any(v4i v) { return (v[0] | v[1] | v[2] | v[3]) != 0; }

template <int LAYOUT> inline seen quantize_block(const float *from, bool of_codes, u8 *out) {
  v16f x[8];
#pragma unroll
  for (int i = 0; i < 8; ++i)
    x[i] = load<v16f>(from + 16 * i);
  v8i most[4];
#pragma unroll
  for (int g = 0; g < 4; ++g) {
    const v16i a = max_of(__builtin_bit_cast(v16i, x[2 * g]) & 0x7fffffff,
                          __builtin_bit_cast(v16i, x[2 * g + 1]) & 0x7fffffff);
    most[g] = max_of(v8i(a.lo), v8i(a.hi));
  }
  v4i amax = halves<v4i>(most, [](auto a, auto b) { return max_of(a, b); });
  if constexpr (LAYOUT == LAYOUT_D2S6)
    amax = max_of(amax, v4i(__builtin_shufflevector(amax, amax, 1, 0, 3, 2)));
  const v4f d_inv = v4f(127.0f) / __builtin_bit_cast(v4f, amax);
  // Something not finite, or a largest magnitude that 127 cannot be divided by.
  if (any((amax >= 0x7f800000) | (__builtin_bit_cast(v4i, d_inv) == 0x7f800000)))
    return quantize_plainly<LAYOUT>(from, of_codes, out);

  const v4f d = v4f(1.0f) / d_inv;
  v8i parts[8]; // eight parts of the sum of each 16 codes
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    // At most a rounding past 127. Below one half by its last bit, added away
    // from zero, then cut off: halves round away, and nothing else does.
    const v16f y = x[i] * v16f(d_inv[i / 2]);
    const v16i sign = __builtin_bit_cast(v16i, y) & static_cast<int>(0x80000000u);
    const v16f half = __builtin_bit_cast(v16f, sign | 0x3effffff);
    const v16i code = __builtin_convertvector(y + half, v16i);
    store(out + HEADER_BYTES + 16 * i, __builtin_convertvector(code, v16c));
    parts[i] = code.lo + code.hi;
  }
  if constexpr (LAYOUT == LAYOUT_D4) {
    store(out, d); // finite, as d_inv is, and not 0
    return {false, false};
  }
  const auto add = [](auto a, auto b) { return a + b; };
  v8f p[4], header;
#pragma unroll
  for (int g = 0; g < 4; ++g)
    p[g] = fours(x[2 * g], x[2 * g + 1]);
  if constexpr (LAYOUT == LAYOUT_DS4) {
    v4f sums = halves<v4f>(p, add);
    if (of_codes) {
      const v8i pairs[4] = {parts[0] + parts[1], parts[2] + parts[3], parts[4] + parts[5],
                            parts[6] + parts[7]};
      sums = __builtin_convertvector(halves<v4i>(pairs, add), v4f) * d;
    }
    header = __builtin_shufflevector(d, sums, 0, 4, 1, 5, 2, 6, 3, 7);
  } else {
    v8f sums = sums16(p);
    if (of_codes) {
      const v4i lower = halves<v4i>(parts, add), upper = halves<v4i>(parts + 4, add);
      sums = __builtin_convertvector(__builtin_shufflevector(lower, upper, 0, 1, 2, 3, 4, 5, 6, 7),
                                     v8f) *
             __builtin_shufflevector(d, d, 0, 0, 0, 0, 2, 2, 2, 2);
    }
    const v8f scales = __builtin_shufflevector(d, d, 0, 2, 0, 2, 0, 2, 0, 2);
    header = __builtin_shufflevector(scales, sums, 0, 1, 8, 9, 10, 11, 12, 13);
  }
  const v8i h = to_half(header);
  store(out, __builtin_convertvector(h, v8h));
  const v8i bad = (h & 0x7c00) == 0x7c00;
  return {false, any(v4i(bad.lo) | v4i(bad.hi))};
}
#endif
