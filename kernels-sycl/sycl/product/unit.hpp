// A unit of weights in local memory, and how a row's bytes become a part of it.
//
// It is laid out with the weight rows next to each other, so that a vector (or a
// sub-group) loads one row per lane.
#pragma once

#include "../format.hpp"
#include "args.hpp"

// A unit of weights, decoded, in local memory.
struct unit {
  u32 code[UNIT / 4][TILE_ROWS];
  float scale[SUB_SCALE != 0 ? UNIT / SUB_SCALE : 1][TILE_ROWS];
  float dw[UNIT / GROUP][TILE_ROWS];
  float mn[MIN_GROUP != 0 ? UNIT / MIN_GROUP : 1][TILE_ROWS];
  float dm[MIN_GROUP != 0 ? UNIT / BLOCK : 1][TILE_ROWS];
};

// Decodes part `p` of one row but for its codes, which it returns; `row` is the
// row's bytes at the unit.
inline v8u decode_part(const u8 *row, int p, int lane, const u32 *grid, unit &to) {
  part w;
  const int block = p * 32 / BLOCK, s = p * 32 % BLOCK / 32;
  FORMAT(row + block * BYTES, s, grid, w);
  if constexpr (SUB_SCALE == 32)
    to.scale[p][lane] = w.scale[0];
  if constexpr (SUB_SCALE == 16) {
    to.scale[2 * p][lane] = w.scale[0];
    to.scale[2 * p + 1][lane] = w.scale[1];
  }
  if constexpr (GROUP == 16) {
    to.dw[2 * p][lane] = w.dw[0];
    to.dw[2 * p + 1][lane] = w.dw[1];
  } else if (p * 32 % GROUP == 0) {
    to.dw[p * 32 / GROUP][lane] = w.dw[0];
  }
  if constexpr (MIN_GROUP == 32)
    to.mn[p][lane] = w.mn[0];
  if constexpr (MIN_GROUP == 16) {
    to.mn[2 * p][lane] = w.mn[0];
    to.mn[2 * p + 1][lane] = w.mn[1];
  }
  if constexpr (MIN_GROUP != 0)
    if (s == 0)
      to.dm[block][lane] = w.dm;
  return w.code;
}

// Where the rows of a work-group's tile are in memory, at the unit.
struct tile_rows {
  const u8 *first; // row 0 of the expert
  u64 stride;
  u32 row0, rows;

  // Rows past the last one are the last one again; they are not written.
  const u8 *at(int lane) const {
    return first + (row0 + lane < rows ? row0 + lane : rows - 1) * stride;
  }
};
