// Probes of a device's arithmetic: the host knows what each must give.
#include "dot.hpp"
#if MATRIX
#include "matrix.hpp"
#endif

#define PROBES 11

// out[p * n + i] is probe p of a[i] and b[i], as bits. `lanes` repeats the
// probes in vectors, which other instructions serve; n is a multiple of LANES.
template <typename F, typename S> inline void probe(const float *a, const float *b, u32 *out, u32 n, u32 i, S put) {
  const F x = load<F>(a + i), y = load<F>(b + i);
  put(out + 0 * n + i, x + y);
  put(out + 1 * n + i, x * y);
  put(out + 2 * n + i, x / y);
  put(out + 3 * n + i, F(127.0f) / x);
  put(out + 4 * n + i, F(1.0f) / x);
  put(out + 5 * n + i, fma(x, y, x));
  put(out + 6 * n + i, x * y + x); // two roundings
  put(out + 7 * n + i, exp_f32(x));
  put(out + 8 * n + i, silu(x));
}

KERNEL probe_scalars(const float *a, const float *b, u32 *out, u32 n) {
  share work(n);
  for (u64 i = work.first; i < work.end; ++i) {
    probe<float>(a, b, out, n, i, [](u32 *to, float v) { *to = as_bits(v); });
    out[9 * n + i] = to_half(a[i]);
    out[10 * n + i] = as_bits(from_half(static_cast<u16>(as_bits(a[i]) >> 16)));
  }
}

KERNEL probe_vectors(const float *a, const float *b, u32 *out, u32 n) {
  share work(n / LANES);
  for (u64 i = work.first; i < work.end; ++i)
    probe<vfloat>(a, b, out, n, i * LANES, [](u32 *to, vfloat v) { store(to, v); });
}

// Dot products of 32 and of 16 values: `a` holds eight words for each of LANES
// lanes, lane by lane, `b` eight words of signed codes, `c` what is added.
KERNEL probe_dots(const u32 *a, const u32 *b, const int *c, int *out, u32 cases) {
  share work(cases);
  for (u64 n = work.first; n < work.end; ++n) {
    vuint codes[8];
    for (int j = 0; j < 8; ++j)
      codes[j] = load<vuint>(a + (n * 8 + j) * LANES);
    const u8 *q = reinterpret_cast<const u8 *>(b + n * 8);
    store(out + 2 * n * LANES, dot<32>(codes, q, vint(c[n])));
    store(out + (2 * n + 1) * LANES, dot<16>(codes, q, vint(c[n])));
  }
}

#if MATRIX
// Tiles with the steps that the product has: 64 values of 8 rows, of which the
// tile is 32, and the weight rows of all sub-groups of a work-group.
struct probe_memory {
  u32 act[MATRIX_ROWS][16];
  u32 weight[8][WORK_GROUP];
  int sums[WORK_GROUP * MATRIX_ROWS];
};
sycl::ext::oneapi::experimental::work_group_static<probe_memory> local_tiles;

// out[case][row][weight row] of `acts`, [case][row] of eight words of signed
// codes, and `weights`, [case] of eight words for each weight row.
SUB_GROUP_KERNEL probe_tiles(const u32 *acts, const u32 *weights, int *out, u32 cases) {
  const sycl::nd_item<1> item = work_item();
  const auto sub_group = sycl::ext::oneapi::this_work_item::get_sub_group();
  const u32 id = item.get_local_id(0), first = sub_group.get_group_linear_id() * SUB_GROUP;
  probe_memory &w = local_tiles;
  for (u32 n = 0; n < cases; ++n) {
    for (u32 i = id; i < MATRIX_ROWS * 16; i += WORK_GROUP)
      w.act[i / 16][i % 16] = i % 16 < 8 ? ~0u : acts[(n * MATRIX_ROWS + i / 16) * 8 + i % 16 - 8];
    for (u32 j = 0; j < 8; ++j)
      w.weight[j][id] = weights[(n * 8 + j) * WORK_GROUP + id];
    sycl::group_barrier(item.get_group());
    int sums[MATRIX_ROWS];
    multiply_tile(reinterpret_cast<const i8 *>(&w.act[0][8]), 64, &w.weight[0][first], WORK_GROUP,
                  w.sums + first * MATRIX_ROWS, sums);
    for (u32 r = 0; r < MATRIX_ROWS; ++r)
      out[(n * MATRIX_ROWS + r) * WORK_GROUP + first + sub_group.get_local_linear_id()] = sums[r];
    sycl::group_barrier(item.get_group());
  }
}
#endif
