// Dot products of codes, by a work-item for its own weight rows.
#pragma once

#include "../dot.hpp"
#include "unit.hpp"

// Dot product `c` of part `p` with R activation rows.
template <int R> struct dots {
  vuint code[VECTORS][DOT_VALUES / 4];
  const act_rows<R> &rows;
  int at; // of its first code in a q8_1 block

  dots(const unit &w, int lane, int p, int c, const act_rows<R> &x)
      : rows(x), at(32 * (p % 4) + DOT_VALUES * c) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
#pragma unroll
      for (int j = 0; j < DOT_VALUES / 4; ++j)
        code[v][j] = load<vuint>(&w.code[8 * p + c * (DOT_VALUES / 4) + j][lane + v * LANES]);
  }

  // With activation row r, plus `bias`.
  vint with(int v, int r, int bias) const {
    return dot<DOT_VALUES>(code[v], rows.codes(r) + at, vint(bias));
  }
};
