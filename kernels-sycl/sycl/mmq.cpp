// The product with quantized weights of one type, over all experts.
//
// A work-group owns TILE_ROWS weight rows of one expert and up to TILE_TOKENS
// activation rows of it. It walks k in units of UNIT values: its work-items
// decode the unit's weights into local memory once, as byte codes and scales,
// and then multiply them with every activation row. Each work-item holds
// VECTORS * LANES of the weight rows, one accumulator per output element.
//
// `product/` has its parts: how a unit is decoded, the form of the device that it
// is compiled for, and the multiplication, which is the same for all of them.
#include "product/prepare.hpp"

#if LANES == 16
#include "product/decode_sixteen.hpp"
#else
#include "product/decode_each.hpp"
#endif

#if LANES > 1
#include "product/vectors.hpp"
#elif MATRIX
#include "product/tiles.hpp"
#else
#include "product/sub_group.hpp"
#endif

#include "product/multiply.hpp"

sycl::ext::oneapi::experimental::work_group_static<unit> local_unit;

PRODUCT_KERNEL mmq(const u8 *weights, const u8 *acts, const u32 *prepared, const u32 *tiles,
    const u32 *src, const u32 *grid, float *dst, product s) {
  const sycl::nd_item<1> item = work_item();
  const u64 group = item.get_group(0), tile = group / s.row_tiles;
  if (tile >= tiles[0])
    return;
  const u32 *entry = tiles + 1 + 3 * tile;
  const u32 first = entry[1], count = entry[2];
  const u32 row0 = static_cast<u32>(group % s.row_tiles) * TILE_ROWS;
  const int id = item.get_local_id(0), items = item.get_local_range(0);
  const int lane = own_row();
  const u8 *expert = weights + entry[0] * s.expert_stride;
  unit &w = local_unit;

  u32 at[TILE_TOKENS];
  vfloat acc[TILE_TOKENS][VECTORS];
  for (u32 i = 0; i < TILE_TOKENS; ++i) {
    u32 row = first + (i < count ? i : count - 1);
    at[i] = src ? src[row] : row;
    for (int v = 0; v < VECTORS; ++v)
      acc[i][v] = vfloat(0.0f);
  }

#pragma nounroll
  for (u32 k = 0; k < s.cols; k += UNIT) {
    const u32 left = (s.cols - k) / 32;
    const int parts = left < PARTS ? left : PARTS;
    decode({expert + u64(k) / BLOCK * BYTES, s.row_stride, row0, s.rows}, parts, id, items, grid, w);
    const activations x = {acts + u64(k) / 128 * s.act_rows * BLOCK_BYTES + HEADER_BYTES,
                           prepared + u64(k) / 128 * s.act_rows * PREPARED, s.act_rows};
    stage(x, first, count, src, parts, id, items);
    group_barrier();
    ROWS_LOOP
    for (u32 i = 0; i < TILE_TOKENS; i += STEP)
      if (i < count)
        multiply_rows<STEP>(w, lane, parts, x, at, src != nullptr, i, count, acc);
    group_barrier();
  }

  for (int v = 0; v < VECTORS; ++v) {
    const u32 row = row0 + lane + v * LANES;
    for (u32 i = 0; i < TILE_TOKENS; ++i) {
      if (i >= count)
        break;
      float *to = dst + u64(first + i) * s.ld + row;
      const vfloat value = canonical(acc[i][v]);
      if (row + LANES <= s.rows)
        store(to, value);
      else
        for (int l = 0; l < LANES; ++l)
          if (row + l < s.rows)
            to[l] = get_lane(value, l);
    }
  }
}
