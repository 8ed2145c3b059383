// The product with quantized weights of one type, over all experts.
//
// A work-group owns TILE_ROWS weight rows of one expert and up to TILE_TOKENS
// activation rows of it. It walks k in units of UNIT values: its work-items
// decode the unit's weights into local memory once, as byte codes and scales,
// and then multiply them with every activation row. Each work-item holds
// VECTORS * LANES of the weight rows, one accumulator per output element.
//
// Local memory is laid out with the weight rows next to each other, so that a
// vector (or a sub-group) loads one row per lane, and the activations are the
// same for all lanes.
#include "dot.hpp"
#include "format.hpp"
#if MATRIX
#include "matrix.hpp"
#endif

// A build also defines TILE_TOKENS, STEP (activation rows multiplied at once,
// a divisor of TILE_TOKENS), and VECTORS (vectors of weight rows of a
// work-item).
#if LANES > 1
#define TILE_ROWS (LANES * VECTORS)
#define ROWS_LOOP
#else
#define TILE_ROWS (WORK_GROUP * VECTORS)
// Unrolled whole: accumulators that are indexed by a variable leave registers.
#define ROWS_LOOP _Pragma("unroll")
#endif

// Values decoded at once: a q8_1 block, or a weight block where that is larger.
#define UNIT (BLOCK > 128 ? BLOCK : 128)
#define PARTS (UNIT / 32)

// Values per dot product: as many as share every scale.
#define DOT_VALUES (SUB_SCALE == 16 || GROUP == 16 ? 16 : 32)
#define DOTS (UNIT / DOT_VALUES)

// Words that `prepare` makes of each q8_1 block: scales, biases, sums.
#if OFFSET != 0
#define BIASES (128 / DOT_VALUES)
#else
#define BIASES 0
#endif
#if MIN_GROUP != 0
#define SUMS (128 / MIN_GROUP)
#else
#define SUMS 0
#endif
#define PREPARED (4 + BIASES + SUMS)

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

// ---- before the product ----

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

// ---- the product ----

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

#if LANES == 16
typedef vuint v16u;

// Sixteen rows of eight words to eight words of sixteen rows: rows[i] holds
// rows 2i and 2i + 1. In three steps, each of which joins the rows of two
// vectors: 4, 8, then 16 rows stand next to each other for each word.
inline void transpose(const v16u (&rows)[8], u32 (*to)[TILE_ROWS], int lane) {
  v16u a[8], b[8];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const v16u x = rows[2 * i], y = rows[2 * i + 1];
    a[2 * i] = __builtin_shufflevector(x, y, 0, 8, 16, 24, 1, 9, 17, 25, 2, 10, 18, 26, 3, 11, 19, 27);
    a[2 * i + 1] = __builtin_shufflevector(x, y, 4, 12, 20, 28, 5, 13, 21, 29, 6, 14, 22, 30, 7, 15, 23, 31);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const v16u x = a[4 * i + h], y = a[4 * i + 2 + h];
      b[4 * i + 2 * h] = __builtin_shufflevector(x, y, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      b[4 * i + 2 * h + 1] = __builtin_shufflevector(x, y, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
    }
#pragma unroll
  for (int h = 0; h < 4; ++h) {
    const v16u x = b[h], y = b[4 + h];
    store(&to[2 * h][lane], __builtin_shufflevector(x, y, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23));
    store(&to[2 * h + 1][lane], __builtin_shufflevector(x, y, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31));
  }
}

// Decodes `parts` parts of all rows: sixteen rows of a part at a time.
inline void decode(const tile_rows &rows, int parts, int, int, const u32 *grid, unit &to) {
  for (int lane = 0; lane < TILE_ROWS; lane += LANES) {
#pragma nounroll
    for (int p = 0; p < parts; ++p) {
      v16u pair[8];
      for (int i = 0; i < 8; ++i) {
        const v8u low = decode_part(rows.at(lane + 2 * i), p, lane + 2 * i, grid, to);
        const v8u high = decode_part(rows.at(lane + 2 * i + 1), p, lane + 2 * i + 1, grid, to);
        pair[i] = __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
      }
      transpose(pair, to.code + 8 * p, lane);
    }
  }
}
#else
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
#endif

#if MATRIX
// Tiles are 32 values deep. Where sub-scales are for 16, the other 16 are zeros
// in a second copy of the activations: a tile of each.
#define COPIES (32 / DOT_VALUES)

// The activations of a unit, and the sums of each sub-group's tile.
struct staged {
  i8 code[COPIES][TILE_TOKENS][UNIT];
  int sums[WORK_GROUP * MATRIX_ROWS];
};
sycl::ext::oneapi::experimental::work_group_static<staged> local_staged;
#endif

// Where R activation rows stand at the first q8_1 block of a unit, and how far
// it is from there to their next one.
template <int R> struct act_rows {
#if MATRIX
  const i8 *tile; // their staged codes
#endif
  u64 codes_step, prepared_step;
#if LANES > 1
  // Next to each other: one register, and the rows are offsets in instructions.
  const u8 *first_codes;
  const u32 *first_prepared;
  const u8 *codes(int r) const { return first_codes + r * BLOCK_BYTES; }
  const u32 *prepared(int r) const { return first_prepared + r * PREPARED; }
  void next() {
    first_codes += codes_step;
    first_prepared += prepared_step;
  }
#else
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
#endif
};

// The integer dot products of one part with R activation rows, sub-scales
// folded in, as floats; NVFP4 has float scales there and is summed at once.
template <int R>
inline void dot_part(const unit &w, int lane, int p, const act_rows<R> &x,
                     vfloat (&isum)[R][VECTORS], vfloat (&acc)[R][VECTORS]) {
  constexpr int per_part = 32 / DOT_VALUES;
  const int i = p % 4; // which 32 values of the q8_1 block
#pragma unroll
  for (int c = 0; c < per_part; ++c) {
    [[maybe_unused]] vuint code[VECTORS][DOT_VALUES / 4];
#if MATRIX
    static_assert(R == MATRIX_ROWS && VECTORS == 1, "a tile is what is multiplied at once");
    const int first = lane / SUB_GROUP * SUB_GROUP;
    int sums[MATRIX_ROWS];
    multiply_tile(x.tile + c * (TILE_TOKENS * UNIT) + 32 * p, UNIT, &w.code[8 * p][first],
                  TILE_ROWS, static_cast<staged &>(local_staged).sums + first * MATRIX_ROWS, sums);
#else
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
#pragma unroll
      for (int j = 0; j < DOT_VALUES / 4; ++j)
        code[v][j] = load<vuint>(&w.code[8 * p + c * (DOT_VALUES / 4) + j][lane + v * LANES]);
#endif
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      const int at = lane + v * LANES, n = p * per_part + c;
      vfloat scale = vfloat(1.0f);
      if constexpr (SUB_SCALE != 0)
        scale = load<vfloat>(&w.scale[n][at]);
      if constexpr (GROUP == 16)
        scale = load<vfloat>(&w.dw[n][at]);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        int bias = 0;
        if constexpr (BIASES != 0)
          bias = static_cast<int>(x.prepared(r)[4 + i * per_part + c]);
#if MATRIX
        vfloat one = to_float(sums[r] + bias);
#else
        const u8 *q = x.codes(r) + 32 * i + DOT_VALUES * c;
        vfloat one = to_float(dot<DOT_VALUES>(code[v], q, vint(bias)));
#endif
        if constexpr (GROUP == 16) {
          vfloat t = fma(one, vfloat(as_float(x.prepared(r)[i])), vfloat(0.0f));
          acc[r][v] = fma(t, scale, acc[r][v]);
        } else if constexpr (SUB_SCALE != 0) {
          // Integers below 2^24 throughout, so every step is exact; adding to
          // +0 keeps a zero from becoming -0.
          isum[r][v] = fma(one, scale, c == 0 ? vfloat(0.0f) : isum[r][v]);
        } else {
          isum[r][v] = one;
        }
      }
    }
  }
}

#if MIN_GROUP != 0 && BLOCK == 256
// The minimums of a whole unit.
template <int R>
inline void add_minimums(const unit &w, int lane, const act_rows<R> &x,
                         vfloat (&acc)[R][VECTORS]) {
  vfloat u[R][VECTORS];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      u[r][v] = vfloat(0.0f);
#pragma nounroll
  for (int m = 0; m < UNIT / MIN_GROUP; ++m) {
#pragma unroll
    for (int v = 0; v < VECTORS; ++v) {
      vfloat mn = load<vfloat>(&w.mn[m][lane + v * LANES]);
#pragma unroll
      for (int r = 0; r < R; ++r) {
        const u32 *sums = x.prepared(r) + (m / SUMS) * x.prepared_step + 4 + BIASES;
        u[r][v] = fma(mn, vfloat(as_float(sums[m % SUMS])), u[r][v]);
      }
    }
  }
#pragma unroll
  for (int v = 0; v < VECTORS; ++v) {
    vfloat dm = load<vfloat>(&w.dm[0][lane + v * LANES]);
#pragma unroll
    for (int r = 0; r < R; ++r)
      acc[r][v] = fma(u[r][v], dm, acc[r][v]);
  }
}
#endif

// Multiplies the first `parts` parts of a unit with R activation rows.
template <int R>
inline void multiply(const unit &w, int lane, int parts, const act_rows<R> &x,
                     vfloat (&acc)[R][VECTORS]) {
  vfloat t[R][VECTORS];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      t[r][v] = vfloat(0.0f);
  act_rows<R> at = x;
#pragma nounroll
  for (int p = 0; p < parts; ++p) {
    vfloat isum[R][VECTORS];
    dot_part<R>(w, lane, p, at, isum, acc);
    if constexpr (GROUP != 16) {
      const bool last = (p + 1) * 32 % GROUP == 0;
#pragma unroll
      for (int v = 0; v < VECTORS; ++v) {
        const int l = lane + v * LANES;
#pragma unroll
        for (int r = 0; r < R; ++r) {
          vfloat dx = vfloat(as_float(at.prepared(r)[p % 4]));
          t[r][v] = fma(isum[r][v], dx, t[r][v]);
          if (last) {
            acc[r][v] = fma(t[r][v], load<vfloat>(&w.dw[p * 32 / GROUP][l]), acc[r][v]);
            t[r][v] = vfloat(0.0f);
          }
          if constexpr (MIN_GROUP != 0 && BLOCK == 32) {
            vfloat sx = vfloat(as_float(at.prepared(r)[4 + BIASES + p % 4]));
            vfloat u = fma(load<vfloat>(&w.mn[p][l]), sx, vfloat(0.0f));
            acc[r][v] = fma(u, load<vfloat>(&w.dm[p][l]), acc[r][v]);
          }
        }
      }
    }
    if (UNIT > 128 && p % 4 == 3)
      at.next();
  }
#if MIN_GROUP != 0 && BLOCK == 256
  add_minimums<R>(w, lane, x, acc);
#endif
}

// Where a work-group's activation rows begin, and the step to the next q8_1
// block of a row.
struct activations {
  const u8 *codes;     // past the header of the unit's first block of row 0
  const u32 *prepared; // of that block
  u64 step;            // blocks from a row's block to its next one: act_rows
};

// Activation rows `first` .. `first + R` of the tile; rows past its end are the
// last one again, and what is summed for them is not written. `scattered`: the
// tile's rows are not next to each other.
template <int R>
inline void multiply_rows(const unit &w, int lane, int parts, const activations &x,
                          const u32 *at, bool scattered, u32 first, u32 count,
                          vfloat (*acc)[VECTORS]) {
  act_rows<R> rows;
  rows.codes_step = x.step * BLOCK_BYTES;
  rows.prepared_step = x.step * PREPARED;
#if MATRIX
  rows.tile = static_cast<staged &>(local_staged).code[0][first];
#endif
#if LANES > 1
  u8 codes[UNIT / 128][R][BLOCK_BYTES];
  u32 prepared[UNIT / 128][R][PREPARED];
  if (!scattered && first + R <= count) {
    rows.first_codes = x.codes + u64(at[first]) * BLOCK_BYTES;
    rows.first_prepared = x.prepared + u64(at[first]) * PREPARED;
  } else {
    for (int h = 0; h < (parts + 3) / 4; ++h)
      for (int r = 0; r < R; ++r) {
        const u64 row = h * x.step + at[first + r < count ? first + r : count - 1];
        __builtin_memcpy(codes[h][r], x.codes + row * BLOCK_BYTES, 128);
        __builtin_memcpy(prepared[h][r], x.prepared + row * PREPARED, 4 * PREPARED);
      }
    rows.first_codes = codes[0][0];
    rows.first_prepared = prepared[0][0];
    rows.codes_step = R * BLOCK_BYTES;
    rows.prepared_step = R * PREPARED;
  }
#else
#pragma unroll
  for (int r = 0; r < R; ++r) {
    const u64 row = at[first + r < count ? first + r : count - 1];
    rows.row_codes[r] = x.codes + row * BLOCK_BYTES;
    rows.row_prepared[r] = x.prepared + row * PREPARED;
  }
#endif
  vfloat sums[R][VECTORS];
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      sums[r][v] = acc[first + r][v];
  multiply<R>(w, lane, parts, rows, sums);
#pragma unroll
  for (int r = 0; r < R; ++r)
#pragma unroll
    for (int v = 0; v < VECTORS; ++v)
      acc[first + r][v] = sums[r][v];
}

#if MATRIX
// Copies the codes of the first `parts` parts of a unit; rows past the tile's
// end are the last one again.
inline void stage(const u8 *codes, u64 step, u32 first, u32 count, const u32 *src, int parts,
                  u32 id, u32 items) {
  staged &to = local_staged;
  for (u32 n = id; n < TILE_TOKENS * UNIT / 4; n += items) {
    const u32 r = n / (UNIT / 4), word = n % (UNIT / 4);
    if (word >= 8 * static_cast<u32>(parts))
      continue;
    const u32 row = first + (r < count ? r : count - 1);
    const u64 block = word / 32 * step + (src ? src[row] : row);
    const u32 value = load32(codes + block * BLOCK_BYTES + word % 32 * 4);
#pragma unroll
    for (u32 c = 0; c < COPIES; ++c) {
      const u32 own = COPIES == 1 || word / 4 % 2 == c ? value : 0;
      __builtin_memcpy(&to.code[c][r][4 * word], &own, 4);
    }
  }
}
#endif

inline void group_barrier() {
#if LANES == 1
  sycl::group_barrier(work_item().get_group());
#endif
}

sycl::ext::oneapi::experimental::work_group_static<unit> local_unit;

#if LANES == 1
SUB_GROUP_KERNEL
#else
KERNEL
#endif
mmq(const u8 *weights, const u8 *acts, const u32 *prepared, const u32 *tiles,
    const u32 *src, const u32 *grid, float *dst, product s) {
  const sycl::nd_item<1> item = work_item();
  const u64 group = item.get_group(0), tile = group / s.row_tiles;
  if (tile >= tiles[0])
    return;
  const u32 *entry = tiles + 1 + 3 * tile;
  const u32 first = entry[1], count = entry[2];
  const u32 row0 = static_cast<u32>(group % s.row_tiles) * TILE_ROWS;
  const int id = item.get_local_id(0), items = item.get_local_range(0);
#if MATRIX
  const auto sub_group = sycl::ext::oneapi::this_work_item::get_sub_group();
  const int lane =
      sub_group.get_group_linear_id() * SUB_GROUP + sub_group.get_local_linear_id();
#else
  const int lane = id * (LANES * VECTORS);
#endif
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
#if MATRIX
    stage(acts + u64(k) / 128 * s.act_rows * BLOCK_BYTES + HEADER_BYTES, s.act_rows, first, count,
          src, parts, id, items);
#endif
    group_barrier();
    const activations x = {acts + u64(k) / 128 * s.act_rows * BLOCK_BYTES + HEADER_BYTES,
                           prepared + u64(k) / 128 * s.act_rows * PREPARED, s.act_rows};
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
