// A unit decoded by a work-item with vectors of sixteen: sixteen rows at a time.
#pragma once

#include "unit.hpp"

typedef vuint v16u;

// Sixteen rows of eight words to eight words of sixteen rows: rows[i] holds
// rows 2i and 2i + 1. In three steps, each of which joins the rows of two
// vectors: 4, 8, then 16 rows stand next to each other for each word.
inline void transpose(const v16u (&rows)[8], u32 (*to)[TILE_ROWS], int lane) {
  v16u a[8], b[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const v16u x = rows[2 * i], y = rows[2 * i + 1];
    a[2 * i] = __builtin_shufflevector(x, y, 0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    a[2 * i + 1] = __builtin_shufflevector(x, y, 4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const v16u x = a[4 * i + h], y = a[4 * i + 2 + h];
      b[4 * i + 2 * h] = __builtin_shufflevector(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      b[4 * i + 2 * h + 1] = __builtin_shufflevector(x, y, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    }
#pragma unroll
  for (int h = 0; h < 4; ++h) {
    const v16u x = b[h], y = b[4 + h];
    store(&to[2 * h][lane], __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
    store(&to[2 * h + 1][lane], __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
  }
}

// Decodes `parts` parts of all rows: sixteen rows of a part at a time.
inline void decode(const tile_rows &rows, int parts, int, int, const u32 *grid, unit &to) {
  for (int lane = 0; lane < TILE_ROWS; lane += LANES) {
#pragma nounroll
    for (int p = 0; p < parts; ++p) {
      v16u pair[8];
      for (int i = 0; i < 8; ++i) {
        const v8u low = decode_part(rows.at(lane + 2 * i), p, lane + 2 * i, grid, to);
        const v8u high = decode_part(rows.at(lane + 2 * i + 1), p, lane + 2 * i + 1, grid, to);
        pair[i] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      }
      transpose(pair, to.code + 8 * p, lane);
    }
  }
}
