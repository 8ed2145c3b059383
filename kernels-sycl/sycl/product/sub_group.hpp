// The form of a GPU without matrix units, or one that leaves them alone: byte
// products are the compiler's.
#pragma once

#include "lanes.hpp"

// The first of the weight rows in the tile that a work-item has.
inline int own_row() { return work_item().get_local_id(0) * VECTORS; }

template <int R> using act_rows = lane_rows<R>;

template <int R>
inline act_rows<R> rows_of(const activations &x, const u32 *at, bool, u32 first, u32 count, int,
                           room<R> &) {
  act_rows<R> rows;
  find_rows(x, at, first, count, rows);
  return rows;
}

// Nothing is staged: activations are read where they are.
inline void stage(const activations &, u32, u32, const u32 *, int, u32, u32) {}

#include "dots.hpp"
