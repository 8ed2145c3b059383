// The minimums of types with blocks of 256, which a unit adds at its end.
#pragma once

#include "unit.hpp"

#if MIN_GROUP != 0 && BLOCK == 256
// The minimums of a whole unit.
template <int R>
inline void add_minimums(const unit &w, int lane, const act_rows<R> &x,
                         vfloat (&acc)[R][VECTORS]) {
  vfloat u[R][VECTORS];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      u[r][v] = vfloat(0.0f);
#pragma nounroll
  for (int m = 0; m < UNIT / MIN_GROUP; ++m) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      vfloat mn = load<vfloat>(&w.mn[m][lane + v * LANES]);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const u32 *sums = x.prepared(r) + (m / SUMS) * x.prepared_step + 4 + BIASES;
        u[r][v] = fma(mn, vfloat(as_float(sums[m % SUMS])), u[r][v]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    vfloat dm = load<vfloat>(&w.dm[0][lane + v * LANES]);
#pragma unroll
    for (int r = 0; r < R; ++r)
      acc[r][v] = fma(u[r][v], dm, acc[r][v]);
  }
}
#else
// Such a type has none.
template <int R>
inline void add_minimums(const unit &, int, const act_rows<R> &, vfloat (&)[R][VECTORS]) {}
#endif
