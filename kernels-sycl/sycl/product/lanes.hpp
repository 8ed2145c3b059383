// What the forms of a GPU share: a work-item has one weight row, its sub-group
// the next ones, and activation rows are wherever they are.
#pragma once

#include "args.hpp"

#define PRODUCT_KERNEL SUB_GROUP_KERNEL
// Unrolled whole: accumulators that are indexed by a variable leave registers.
#define ROWS_LOOP _Pragma("unroll")

inline void group_barrier() { sycl::group_barrier(work_item().get_group()); }

// R activation rows at a q8_1 block, and how far it is to their next one.
template <int R> struct lane_rows {
  u64 codes_step, prepared_step;
  const u8 *row_codes[R];
  const u32 *row_prepared[R];

  const u8 *codes(int r) const { return row_codes[r]; }
  const u32 *prepared(int r) const { return row_prepared[r]; }
  void next() {
#pragma unroll
    for (int r = 0; r < R; ++r) {
      row_codes[r] += codes_step;
      row_prepared[r] += prepared_step;
    }
  }
};

// Rows need no room of their own.
template <int R> struct room {};

// Activation rows `first` .. `first + R` of the tile; rows past its end are the
// last one again.
template <int R>
inline void find_rows(const activations &x, const u32 *at, u32 first, u32 count,
                      lane_rows<R> &rows) {
  rows.codes_step = x.step * BLOCK_BYTES;
  rows.prepared_step = x.step * PREPARED;
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const u64 row = at[first + r < count ? first + r : count - 1];
    rows.row_codes[r] = x.codes + row * BLOCK_BYTES;
    rows.row_prepared[r] = x.prepared + row * PREPARED;
  }
}
