// What every kernel file shares: fixed-size types, loads, the vector type of
// a work-item, and the rules of docs/numerics.md that are one line each.
//
// Before it stands what the host knows (kernels-sycl/src/facts.rs): q8_1's sizes
// and layouts, and the form,
//   LANES       values that a work-item holds in one vector: 16 or 8 on a CPU
//               device, where a work-item is a thread's whole vector unit, and
//               1 on a GPU, where the sub-group is
//   SUB_GROUP   the sub-group size that a kernel with LANES == 1 is built for
//   DOT         how bytes are multiplied: DOT_PLAIN, an instruction of the CPU
//               that the device is, or tiles (MATRIX); the host has asked the device
// and the sizes of its tiles and units of work.
#pragma once

#include <sycl/sycl.hpp>

using u8 = unsigned char;
using i8 = signed char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long;

// A kernel over one dimension. With vectors in a work-item there is nothing
// left for the device's compiler to spread over a sub-group, and work-groups
// are single. It would try all the same: the host tells it not to.
#if LANES > 1
#define KERNEL                                                                 \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                \
      (sycl::ext::oneapi::experimental::nd_range_kernel<1>))                   \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                       \
          (sycl::ext::oneapi::experimental::work_group_size<1>)) void
#else
#define SUB_GROUP_KERNEL                                                       \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                \
      (sycl::ext::oneapi::experimental::nd_range_kernel<1>))                   \
      SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                       \
          (sycl::ext::oneapi::experimental::sub_group_size<SUB_GROUP>)) void
#define KERNEL                                                                 \
  extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY(                                \
      (sycl::ext::oneapi::experimental::nd_range_kernel<1>)) void
#endif

inline sycl::nd_item<1> work_item() {
  return sycl::ext::oneapi::this_work_item::get_nd_item<1>();
}

// The share of `total` units of work that this work-item does: consecutive
// ones, so that a CPU thread walks memory forwards.
struct share {
  u64 first, end;
  explicit share(u64 total) {
    u64 i = work_item().get_global_id(0), n = work_item().get_global_range(0);
    u64 each = total / n, more = total % n;
    first = i * each + (i < more ? i : more);
    end = first + each + (i < more ? 1 : 0);
  }
};

inline u16 load16(const u8 *p) {
  u16 v;
  __builtin_memcpy(&v, p, 2);
  return v;
}

inline u32 load32(const u8 *p) {
  u32 v;
  __builtin_memcpy(&v, p, 4);
  return v;
}

inline float as_float(u32 bits) { return __builtin_bit_cast(float, bits); }
inline u32 as_bits(float x) { return __builtin_bit_cast(u32, x); }

// ---- vectors ----

#if LANES == 1
using vint = int;
using vuint = u32;
using vfloat = float;
inline vfloat fma(vfloat a, vfloat b, vfloat c) { return sycl::fma(a, b, c); }
inline vfloat to_float(vint v) { return static_cast<float>(v); }
inline vint bits_of(vfloat v) { return __builtin_bit_cast(int, v); }
inline vfloat from_bits(vint v) { return __builtin_bit_cast(float, v); }
inline vfloat choose(vint condition, vfloat a, vfloat b) { return condition ? a : b; }
inline vint choose(vint condition, vint a, vint b) { return condition ? a : b; }
inline vfloat get_lane(vfloat v, int) { return v; }
#else
typedef int vint __attribute__((ext_vector_type(LANES)));
typedef u32 vuint __attribute__((ext_vector_type(LANES)));
typedef float vfloat __attribute__((ext_vector_type(LANES)));
inline float fma(float a, float b, float c) { return sycl::fma(a, b, c); }
inline vfloat fma(vfloat a, vfloat b, vfloat c) {
  return __builtin_elementwise_fma(a, b, c);
}
inline vfloat to_float(vint v) { return __builtin_convertvector(v, vfloat); }
inline vint bits_of(vfloat v) { return __builtin_bit_cast(vint, v); }
inline vfloat from_bits(vint v) { return __builtin_bit_cast(vfloat, v); }
inline vfloat choose(vint condition, vfloat a, vfloat b) { return condition ? a : b; }
inline vint choose(vint condition, vint a, vint b) { return condition ? a : b; }
inline float get_lane(vfloat v, int i) { return v[i]; }
#endif

// A vector from memory that is aligned to its elements only.
template <typename V, typename T> inline V load(const T *p) {
  V v;
  __builtin_memcpy(&v, p, sizeof(V));
  return v;
}

template <typename V, typename T> inline void store(T *p, V v) {
  __builtin_memcpy(p, &v, sizeof(V));
}

// ---- numbers ----

// x, or the one NaN that is ever stored.
inline float canonical(float x) { return x == x ? x : as_float(0x7fc00000u); }
#if LANES > 1
inline vfloat canonical(vfloat x) {
  return choose(x == x, x, vfloat(as_float(0x7fc00000u)));
}
#endif

inline bool finite(float x) { return (as_bits(x) & 0x7f800000u) != 0x7f800000u; }

// f16 bits to f32, exactly; a signalling NaN becomes quiet. By selects, so
// that a device without half precision has it too.
inline float from_half(u16 bits) {
  u32 magnitude = static_cast<u32>(bits & 0x7fff) << 13;
  u32 exponent = bits & 0x7c00;
  u32 normal = magnitude + (112u << 23);
  // Without exponent the value is mantissa * 2^-24: read it as 2^-14 more.
  u32 small = as_bits(as_float(normal + (1u << 23)) - as_float(113u << 23));
  u32 special = magnitude | 0x7f800000u | (magnitude & 0x7fffffu ? 0x400000u : 0u);
  u32 r = exponent == 0x7c00 ? special : exponent == 0 ? small : normal;
  return as_float(r | static_cast<u32>(bits & 0x8000) << 16);
}

// f32 to f16 bits: nearest even, overflow to infinity, the one NaN.
inline u16 to_half(float x) {
  u32 bits = as_bits(x), sign = bits >> 16 & 0x8000, a = bits & 0x7fffffff;
  if (a > 0x7f800000u)
    return 0x7e00;
  if (a >= 0x47800000u) // 2^16 and above, infinity included
    return static_cast<u16>(sign | 0x7c00);
  if (a < 0x38800000u) {
    // Below 2^-14: adding 1/2 puts the f16 subnormal's unit, 2^-24, on the
    // last bit of the sum, which the addition rounds to nearest even.
    u32 r = as_bits(as_float(a) + 0.5f) - 0x3f000000u;
    return static_cast<u16>(sign | r);
  }
  u32 odd = a >> 13 & 1;
  return static_cast<u16>(sign | ((a + 0xfff + odd - (112u << 23)) >> 13));
}

// ---- exp, as docs/numerics.md writes it out ----

#define EXP_MAX as_float(0x42b17217u)
#define EXP_MIN as_float(0xc2cff1b5u)
#define EXP_ROUND 12582912.0f

template <typename F> inline F exp_poly(F r) {
  F p = F(as_float(0x39500d01u));
  p = fma(p, r, F(as_float(0x3ab60b61u)));
  p = fma(p, r, F(as_float(0x3c088889u)));
  p = fma(p, r, F(as_float(0x3d2aaaabu)));
  p = fma(p, r, F(as_float(0x3e2aaaabu)));
  p = fma(p, r, F(as_float(0x3f000000u)));
  p = fma(p, r, F(1.0f));
  return fma(p, r, F(1.0f));
}

template <typename F> inline F exp_reduce(F x, F &n) {
  n = fma(x, F(as_float(0x3fb8aa3bu)), F(EXP_ROUND)) - F(EXP_ROUND);
  F r = fma(n, F(-as_float(0x3f317200u)), x);
  return fma(n, F(-as_float(0x35bfbe8eu)), r);
}

inline float exp_f32(float x) {
  if (x != x)
    return as_float(0x7fc00000u);
  if (x > EXP_MAX)
    return as_float(0x7f800000u);
  if (x < EXP_MIN)
    return 0.0f;
  float n;
  float r = exp_reduce(x, n);
  float p = exp_poly(r);
  int i = static_cast<int>(n), half = i >> 1;
  return p * as_float(static_cast<u32>(half + 127) << 23) *
         as_float(static_cast<u32>(i - half + 127) << 23);
}

#if LANES > 1
inline vfloat exp_f32(vfloat x) {
  // Outside the range n would not fit its exponent: compute with 0 there.
  vint in = (x <= vfloat(EXP_MAX)) & (x >= vfloat(EXP_MIN));
  vfloat n;
  vfloat r = exp_reduce(choose(in, x, vfloat(0.0f)), n);
  vfloat p = exp_poly(r);
  vint i = __builtin_convertvector(n, vint), half = i >> 1;
  p = p * from_bits((half + 127) << 23) * from_bits((i - half + 127) << 23);
  vfloat out = choose(x > vfloat(EXP_MAX), vfloat(as_float(0x7f800000u)), vfloat(0.0f));
  out = choose(x == x, out, vfloat(as_float(0x7fc00000u)));
  return choose(in, p, out);
}
#endif

template <typename F> inline F silu(F g) { return g / (F(1.0f) + exp_f32(-g)); }
template <typename F> inline F swiglu(F g, F u) { return canonical(silu(g) * u); }
inline float sigmoid(float x) { return 1.0f / (1.0f + exp_f32(-x)); }

// ---- the report of the checked call ----

// Keeps the smallest of `token << 3 | kind`.
inline void report(u32 *word, u32 token, u32 kind) {
  sycl::atomic_ref<u32, sycl::memory_order::relaxed, sycl::memory_scope::device,
                   sycl::access::address_space::global_space>
      least(*word);
  least.fetch_min(token << 3 | kind);
}
