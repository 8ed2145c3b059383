// What a launch of the product is about, and where its activations are.
#pragma once

#include "../base.hpp"

// Parts of 32 values of a unit.
#define PARTS (UNIT / 32)

// What a launch is about; the host has the same struct.
struct product {
  u64 row_stride;    // bytes between weight rows
  u64 expert_stride; // bytes between experts
  u64 ld;            // values between output rows
  u32 rows;          // weight rows of an expert
  u32 cols;          // values of a weight row
  u32 act_rows;      // rows of the activations
  u32 row_tiles;     // work-groups along the weight rows
};

// Where a work-group's activation rows begin, and the step to the next q8_1
// block of a row.
struct activations {
  const u8 *codes;     // past the header of the unit's first block of row 0
  const u32 *prepared; // of that block
  u64 step;            // blocks from a row's block to its next one: act_rows
};
