// Byte products of a sub-group at once: 8 activation rows by 32 values, times
// 32 values by SUB_GROUP weight rows, into exact integers.
//
// With DOT_JOINT_MATRIX these are a device's matrix units, which the host has
// asked for this shape and probes first. DOT_MATRIX_BY_HAND is the same tile
// by a loop, so that all around it can run where there are none.
#pragma once

#include "base.hpp"

#define MATRIX_ROWS 8

#if DOT == DOT_JOINT_MATRIX
template <typename T> inline auto local_pointer(T *p) {
  return sycl::address_space_cast<sycl::access::address_space::local_space,
                                  sycl::access::decorated::no>(p);
}
#endif

// sums[r] becomes the dot product of activation row r, `a + r * a_step`, with
// the weight row of this work-item's place in its sub-group: word j of that row,
// four unsigned codes, is b[j * b_step + place]. `own` is room for MATRIX_ROWS *
// SUB_GROUP sums of this sub-group. All pointers are to local memory.
inline void multiply_tile(const i8 *a, u32 a_step, const u32 *b, u32 b_step, int *own,
                          int (&sums)[MATRIX_ROWS]) {
  const auto sub_group = sycl::ext::oneapi::this_work_item::get_sub_group();
  const u32 place = sub_group.get_local_linear_id();
#if DOT == DOT_JOINT_MATRIX
  namespace matrix = sycl::ext::oneapi::experimental::matrix;
  matrix::joint_matrix<sycl::sub_group, i8, matrix::use::a, MATRIX_ROWS, 32,
                       matrix::layout::row_major>
      acts;
  // Four values of each row, then the next four: packed is how words lie.
  matrix::joint_matrix<sycl::sub_group, u8, matrix::use::b, 32, SUB_GROUP,
                       matrix::layout::ext_intel_packed>
      weights;
  matrix::joint_matrix<sycl::sub_group, int, matrix::use::accumulator, MATRIX_ROWS, SUB_GROUP>
      products;
  matrix::joint_matrix_load(sub_group, acts, local_pointer(a), a_step);
  matrix::joint_matrix_load(sub_group, weights, local_pointer(reinterpret_cast<const u8 *>(b)),
                            4 * b_step);
  matrix::joint_matrix_fill(sub_group, products, 0);
  matrix::joint_matrix_mad(sub_group, products, acts, weights, products);
  // Which work-item holds which product is the device's affair: by way of memory.
  matrix::joint_matrix_store(sub_group, products, local_pointer(own), SUB_GROUP,
                             matrix::layout::row_major);
#else
  for (u32 r = 0; r < MATRIX_ROWS; ++r) {
    int sum = 0;
    for (u32 j = 0; j < 8; ++j)
      for (u32 i = 0; i < 4; ++i)
        sum += static_cast<int>(b[j * b_step + place] >> 8 * i & 255) * a[r * a_step + 4 * j + i];
    own[r * SUB_GROUP + place] = sum;
  }
#endif
  sycl::group_barrier(sub_group);
#pragma unroll
  for (u32 r = 0; r < MATRIX_ROWS; ++r)
    sums[r] = own[r * SUB_GROUP + place];
  sycl::group_barrier(sub_group);
}
