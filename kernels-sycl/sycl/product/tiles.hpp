// The form of a GPU with matrix units: a sub-group multiplies a tile at once, and
// a work-group stages the activations of a unit for it.
#pragma once

#include "../matrix.hpp"
#include "lanes.hpp"
#include "unit.hpp"

// Tiles are 32 values deep. Where sub-scales are for 16, the other 16 are zeros
// in a second copy of the activations: a tile of each.
#define COPIES (32 / DOT_VALUES)

// The activations of a unit, and the sums of each sub-group's tile.
struct staged {
  i8 code[COPIES][TILE_TOKENS][UNIT];
  int sums[WORK_GROUP * MATRIX_ROWS];
};
sycl::ext::oneapi::experimental::work_group_static<staged> local_staged;

// The weight row in the tile that a work-item has: by its place in the sub-group,
// which multiplies neighbours.
inline int own_row() {
  const auto sub_group = sycl::ext::oneapi::this_work_item::get_sub_group();
  return sub_group.get_group_linear_id() * SUB_GROUP + sub_group.get_local_linear_id();
}

template <int R> struct act_rows : lane_rows<R> {
  const i8 *tile; // their staged codes
};

template <int R>
inline act_rows<R> rows_of(const activations &x, const u32 *at, bool, u32 first, u32 count, int,
                           room<R> &) {
  act_rows<R> rows;
  find_rows(x, at, first, count, rows);
  rows.tile = static_cast<staged &>(local_staged).code[0][first];
  return rows;
}

// Copies the codes of the first `parts` parts of a unit; rows past the tile's
// end are the last one again.
inline void stage(const activations &x, u32 first, u32 count, const u32 *src, int parts, u32 id,
                  u32 items) {
  staged &to = local_staged;
  for (u32 n = id; n < TILE_TOKENS * UNIT / 4; n += items) {
    const u32 r = n / (UNIT / 4), word = n % (UNIT / 4);
    if (word >= 8 * static_cast<u32>(parts))
      continue;
    const u32 row = first + (r < count ? r : count - 1);
    const u64 block = word / 32 * x.step + (src ? src[row] : row);
    const u32 value = load32(x.codes + block * BLOCK_BYTES + word % 32 * 4);
#pragma unroll
    for (u32 c = 0; c < COPIES; ++c) {
      const u32 own = COPIES == 1 || word / 4 % 2 == c ? value : 0;
      __builtin_memcpy(&to.code[c][r][4 * word], &own, 4);
    }
  }
}

// Dot product `c` of part `p` with R activation rows: a tile of the sub-group's
// weight rows, of which each work-item takes its own.
template <int R> struct dots {
  static_assert(R == MATRIX_ROWS && VECTORS == 1, "a tile is what is multiplied at once");
  int sums[MATRIX_ROWS];

  dots(const unit &w, int lane, int p, int c, const act_rows<R> &x) {
    const int first = lane / SUB_GROUP * SUB_GROUP;
    multiply_tile(x.tile + c * (TILE_TOKENS * UNIT) + 32 * p, UNIT, &w.code[8 * p][first],
                  TILE_ROWS, static_cast<staged &>(local_staged).sums + first * MATRIX_ROWS, sums);
  }

  // With activation row r, plus `bias`.
  vint with(int, int r, int bias) const { return sums[r] + bias; }
};
