// What runs before the product: the list of its tiles, and what it reads of each
// q8_1 block beside the codes.
#pragma once

#include "args.hpp"

// Lists the tiles of activation rows: tiles[0] is how many, then (expert,
// first row, rows) of each. `bounds` is null for one expert that has all rows.
KERNEL list_tiles(u32 *tiles, const u32 *bounds, u32 experts, u32 rows) {
  if (work_item().get_global_id(0) != 0)
    return;
  u32 count = 0;
  for (u32 e = 0; e < experts; ++e) {
    u32 at = bounds ? bounds[e] : 0, end = bounds ? bounds[e + 1] : rows;
    while (at < end) {
      u32 n = end - at < TILE_TOKENS ? end - at : TILE_TOKENS;
      u32 *tile = tiles + 1 + 3 * count++;
      tile[0] = e;
      tile[1] = at;
      tile[2] = n;
      at += n;
    }
  }
  tiles[0] = count;
}

// Sum of four signed bytes.
inline int sum4(u32 w) {
  return static_cast<i8>(w) + static_cast<i8>(w >> 8) + static_cast<i8>(w >> 16) +
         static_cast<i8>(w >> 24);
}

inline int code_sum(const u8 *codes, int count) {
  int sum = 0;
  for (int i = 0; i < count; i += 4)
    sum += sum4(load32(codes + i));
  return sum;
}

// One q8_1 block to what the product reads of it beside the codes: the scale
// of each 32 values; what OFFSET adds to each dot product, negated; and the
// sums of the type's minimums.
inline void prepare_block(const u8 *block, u32 *out) {
  const u8 *codes = block + HEADER_BYTES;
  float d[4];
  for (int g = 0; g < 4; ++g) {
    if (LAYOUT == LAYOUT_D4)
      d[g] = as_float(load32(block + 4 * g));
    else if (LAYOUT == LAYOUT_DS4)
      d[g] = from_half(load16(block + 4 * g));
    else
      d[g] = from_half(load16(block + 2 * (g / 2)));
    out[g] = as_bits(d[g]);
  }
  for (int i = 0; i < BIASES; ++i)
    out[4 + i] = static_cast<u32>(-OFFSET * code_sum(codes + DOT_VALUES * i, DOT_VALUES));
  for (int i = 0; i < SUMS; ++i) {
    float sum;
    if (LAYOUT == LAYOUT_DS4)
      sum = from_half(load16(block + 4 * i + 2));
    else if (i < 6)
      sum = from_half(load16(block + 4 + 2 * i));
    else // not stored: the codes' sum stands for it
      sum = static_cast<float>(code_sum(codes + 16 * i, 16)) * d[3];
    out[4 + BIASES + i] = as_bits(sum);
  }
}

KERNEL prepare(const u8 *acts, u32 *out, u64 blocks) {
  share work(blocks);
  for (u64 b = work.first; b < work.end; ++b)
    prepare_block(acts + b * BLOCK_BYTES, out + b * PREPARED);
}
