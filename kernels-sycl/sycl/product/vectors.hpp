// The form of a CPU device: a work-item is a thread, has a work-group for itself
// and holds weight rows in vectors. Activation rows lie next to each other: one
// register, and the rows are offsets in instructions.
#pragma once

#include "args.hpp"

#define PRODUCT_KERNEL KERNEL
#define ROWS_LOOP

inline void group_barrier() {}

// The first of its weight rows in the tile.
inline int own_row() { return 0; }

// R activation rows at a q8_1 block, and how far it is to their next one.
template <int R> struct act_rows {
  u64 codes_step, prepared_step;
  const u8 *first_codes;
  const u32 *first_prepared;

  const u8 *codes(int r) const { return first_codes + r * BLOCK_BYTES; }
  const u32 *prepared(int r) const { return first_prepared + r * PREPARED; }
  void next() {
    first_codes += codes_step;
    first_prepared += prepared_step;
  }
};

// Room for a unit of rows that are not next to each other.
template <int R> struct room {
  u8 codes[UNIT / 128][R][BLOCK_BYTES];
  u32 prepared[UNIT / 128][R][PREPARED];
};

// Activation rows `first` .. `first + R` of the tile; rows past its end are the
// last one again. `scattered`: the tile's rows are not next to each other.
template <int R>
inline act_rows<R> rows_of(const activations &x, const u32 *at, bool scattered, u32 first,
                           u32 count, int parts, room<R> &own) {
  act_rows<R> rows;
  if (!scattered && first + R <= count) {
    rows.codes_step = x.step * BLOCK_BYTES;
    rows.prepared_step = x.step * PREPARED;
    rows.first_codes = x.codes + u64(at[first]) * BLOCK_BYTES;
    rows.first_prepared = x.prepared + u64(at[first]) * PREPARED;
    return rows;
  }
  for (int h = 0; h < (parts + 3) / 4; ++h)
    for (int r = 0; r < R; ++r) {
      const u64 row = h * x.step + at[first + r < count ? first + r : count - 1];
      __builtin_memcpy(own.codes[h][r], x.codes + row * BLOCK_BYTES, 128);
      __builtin_memcpy(own.prepared[h][r], x.prepared + row * PREPARED, 4 * PREPARED);
    }
  rows.codes_step = R * BLOCK_BYTES;
  rows.prepared_step = R * PREPARED;
  rows.first_codes = own.codes[0][0];
  rows.first_prepared = own.prepared[0][0];
  return rows;
}

// Nothing is staged: activations are read where they are.
inline void stage(const activations &, u32, u32, const u32 *, int, u32, u32) {}

#include "dots.hpp"
