// A decoded unit times some activation rows, in the order of docs/numerics.md.
// What differs between forms (activation rows, dots of codes) is theirs.
#pragma once

#include "minimums.hpp"

// The integer dot products of one part with R activation rows, sub-scales
// folded in, as floats; NVFP4 has float scales there and is summed at once.
template <int R>
inline void dot_part(const unit &w, int lane, int p, const act_rows<R> &x,
                     vfloat (&isum)[R][VECTORS], vfloat (&acc)[R][VECTORS]) {
  constexpr int per_part = 32 / DOT_VALUES;
  const int i = p % 4; // which 32 values of the q8_1 block
#pragma unroll
  for (int c = 0; c < per_part; ++c) {
    const dots<R> of(w, lane, p, c, x);
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int at = lane + v * LANES, n = p * per_part + c;
      vfloat scale = vfloat(1.0f);
      if constexpr (SUB_SCALE != 0)
        scale = load<vfloat>(&w.scale[n][at]);
      if constexpr (GROUP == 16)
        scale = load<vfloat>(&w.dw[n][at]);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        int bias = 0;
        if constexpr (BIASES != 0)
          bias = static_cast<int>(x.prepared(r)[4 + i * per_part + c]);
        const vfloat one = to_float(of.with(v, r, bias));
        if constexpr (GROUP == 16) {
          vfloat t = fma(one, vfloat(as_float(x.prepared(r)[i])), vfloat(0.0f));
          acc[r][v] = fma(t, scale, acc[r][v]);
        } else if constexpr (SUB_SCALE != 0) {
          // Integers below 2^24 throughout, so every step is exact; adding to
          // +0 keeps a zero from becoming -0.
          isum[r][v] = fma(one, scale, c == 0 ? vfloat(0.0f) : isum[r][v]);
        } else {
          isum[r][v] = one;
        }
      }
    }
  }
}

// Multiplies the first `parts` parts of a unit with R activation rows.
template <int R>
inline void multiply(const unit &w, int lane, int parts, const act_rows<R> &x,
                     vfloat (&acc)[R][VECTORS]) {
  vfloat t[R][VECTORS];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      t[r][v] = vfloat(0.0f);
  act_rows<R> at = x;
#pragma nounroll
  for (int p = 0; p < parts; ++p) {
    vfloat isum[R][VECTORS];
    dot_part<R>(w, lane, p, at, isum, acc);
    if constexpr (GROUP != 16) {
      const bool last = (p + 1) * 32 % GROUP == 0;
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        const int l = lane + v * LANES;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          vfloat dx = vfloat(as_float(at.prepared(r)[p % 4]));
          t[r][v] = fma(isum[r][v], dx, t[r][v]);
          if (last) {
            acc[r][v] = fma(t[r][v], load<vfloat>(&w.dw[p * 32 / GROUP][l]), acc[r][v]);
            t[r][v] = vfloat(0.0f);
          }
          if constexpr (MIN_GROUP != 0 && BLOCK == 32) {
            vfloat sx = vfloat(as_float(at.prepared(r)[4 + BIASES + p % 4]));
            vfloat u = fma(load<vfloat>(&w.mn[p][l]), sx, vfloat(0.0f));
            acc[r][v] = fma(u, load<vfloat>(&w.dm[p][l]), acc[r][v]);
          }
        }
      }
    }
    if (UNIT > 128 && p % 4 == 3)
      at.next();
  }
  add_minimums<R>(w, lane, x, acc);
}

// Multiplies a unit with activation rows `first` .. `first + R` of the tile; what
// is summed for rows past its end is not written.
template <int R>
inline void multiply_rows(const unit &w, int lane, int parts, const activations &x,
                          const u32 *at, bool scattered, u32 first, u32 count,
                          vfloat (*acc)[VECTORS]) {
  room<R> own;
  const act_rows<R> rows = rows_of<R>(x, at, scattered, first, count, parts, own);
  vfloat sums[R][VECTORS];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = acc[first + r][v];
  multiply<R>(w, lane, parts, rows, sums);
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      acc[first + r][v] = sums[r][v];
}
