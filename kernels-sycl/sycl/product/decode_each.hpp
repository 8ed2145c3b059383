// A unit decoded by all work-items of a work-group, each some parts of rows.
#pragma once

#include "unit.hpp"

// Decodes `parts` parts of all rows: one part of one row after the other, and
// neighbours decode the same row.
inline void decode(const tile_rows &rows, int parts, int id, int items, const u32 *grid, unit &to) {
#pragma nounroll
  for (int n = id; n < TILE_ROWS * PARTS; n += items) {
    const int p = n % PARTS, lane = n / PARTS;
    if (p >= parts)
      continue;
    const v8u code = decode_part(rows.at(lane), p, lane, grid, to);
    for (int j = 0; j < 8; ++j)
      to.code[8 * p + j][lane] = code[j];
  }
}
