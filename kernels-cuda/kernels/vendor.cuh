// Everything that differs between vendors, and nothing else.
//
// The kernels are written against the names of this header. CUDA's half is
// below; HIP's is the mapping header `strata_hip.cuh` (found with -I), which
// must define the same names for device code that is compiled without any
// vendor header. Kernels never assume a number of lanes: they use `wave_size`.
//
//   KERNEL(threads, blocks)   an entry point of at most `threads` threads of
//                             which `blocks` should fit a multiprocessor
//   DEVICE, EXPORT, SHARED    inlined device function; data the host can read
//                             from the image; shared memory of static size
//   TABLE                     constant data of the device code
//   SHARED_DYNAMIC(name)      the launch's shared memory as bytes, 16-aligned (1024 on CUDA)
//   UNROLL                    unroll the next loop completely
//   thread_index, block_threads, block_index(_y), grid_blocks(_y)
//   wave_size, lane_index()   lanes of a warp or wave, and this one
//   block_sync, wave_sync     barriers; both order shared memory
//   shuffle, shuffle_xor, shuffle_up   exchange of 32-bit values in a wave
//   wave_ballot                  64-bit mask of the lanes where it holds
//   fma32, div32, sqrt32      one rounding each; never contracted or approximate
//   magnitude, larger         |x|; the larger of two, or the one that is no NaN
//   truncate_i32              towards zero; NaN to 0
//   f16_to_f32, f32_to_f16    exact; nearest even to infinity, NaN as 0x7e00
//   f32_bits, bits_f32        reinterpretation
//   atomic_min, atomic_add    on u32 in device or shared memory
//   dot4(a, b, c)             c + sum of four signed byte products
//   funnel(lo, hi, bits)      low word of (hi:lo) >> bits, 0 <= bits < 32
//   popcount
//   lookup16(w, table, low, high)   bytes table[nibble] of the eight nibbles of w:
//                             those of the low nibbles, those of the high ones
//   stage_weights             whether raw weights go through shared memory, which
//                             pays where copy16_async does not wait
//   unrolled_steps            steps of 32 k that products unroll at most: the
//                             registers that reading ahead of them takes
//   STRATA_ROLES              whether waves may have roles, see product/roles.cuh
//   copy16_async, copy_commit, copy_wait_all   16 aligned bytes to shared memory
//   Mma                       matrix fragments, see mma.cuh
#pragma once

typedef signed char i8;
typedef unsigned char u8;
typedef short i16;
typedef unsigned short u16;
typedef int i32;
typedef unsigned int u32;
typedef long long i64;
typedef unsigned long long u64;

struct alignas(8) u32x2 {
    u32 x, y;
};
struct alignas(16) u32x4 {
    u32 x, y, z, w;
};
struct alignas(16) f32x4 {
    float x, y, z, w;
};

#if defined(STRATA_HIP)

#include "strata_hip.cuh"

#else

#define KERNEL(threads, blocks) extern "C" __global__ void __launch_bounds__(threads, blocks)
#define DEVICE __device__ __forceinline__
#define EXPORT extern "C" __device__
#define SHARED __shared__
#define SHARED_DYNAMIC(name) extern __shared__ __align__(1024) unsigned char name[]
#define TABLE static __device__ const
#define UNROLL _Pragma("unroll")

constexpr int wave_size = 32;

DEVICE u32 thread_index() { return threadIdx.x; }
DEVICE u32 block_threads() { return blockDim.x; }
DEVICE u32 block_index() { return blockIdx.x; }
DEVICE u32 block_index_y() { return blockIdx.y; }
DEVICE u32 grid_blocks() { return gridDim.x; }
DEVICE u32 grid_blocks_y() { return gridDim.y; }
DEVICE u32 lane_index() { return threadIdx.x % wave_size; }

DEVICE void block_sync() { __syncthreads(); }
DEVICE void wave_sync() { __syncwarp(); }

DEVICE float bits_f32(u32 x) { return __uint_as_float(x); }
DEVICE u32 f32_bits(float x) { return __float_as_uint(x); }

DEVICE u32 shuffle(u32 x, int lane) { return __shfl_sync(~0u, x, lane); }
DEVICE u32 shuffle_xor(u32 x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
DEVICE u32 shuffle_up(u32 x, int delta) { return __shfl_up_sync(~0u, x, delta); }
DEVICE float shuffle(float x, int lane) { return __shfl_sync(~0u, x, lane); }
DEVICE float shuffle_xor(float x, int mask) { return __shfl_xor_sync(~0u, x, mask); }
DEVICE u64 wave_ballot(bool x) { return __ballot_sync(~0u, x); }

DEVICE float fma32(float a, float b, float c) { return __fmaf_rn(a, b, c); }
DEVICE float div32(float a, float b) { return __fdiv_rn(a, b); }
DEVICE float sqrt32(float x) { return __fsqrt_rn(x); }

DEVICE float magnitude(float x) { return fabsf(x); }
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE i32 truncate_i32(float x) { return __float2int_rz(x); }

DEVICE float f16_to_f32(u16 h) {
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"(h));
    return f;
}
DEVICE u16 f32_to_f16(float f) {
    u16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(f));
    return f != f ? u16(0x7e00) : h;
}

DEVICE u32 atomic_min(u32 *at, u32 x) { return atomicMin(at, x); }
DEVICE u32 atomic_add(u32 *at, u32 x) { return atomicAdd(at, x); }

DEVICE i32 dot4(u32 a, u32 b, i32 c) { return __dp4a(i32(a), i32(b), c); }
DEVICE u32 funnel(u32 lo, u32 hi, u32 bits) { return __funnelshift_r(lo, hi, bits); }
DEVICE int popcount(u32 x) { return __popc(x); }

// A byte permutation takes three bits of an index; the fourth picks between two.
DEVICE u32 lookup4(u32 w, const u32 (&table)[4]) {
    const u32 index = w & 0x7777;
    const u32 pick = 0x3210 | (w & 0x8888) >> 1;
    return __byte_perm(__byte_perm(table[0], table[1], index), __byte_perm(table[2], table[3], index), pick);
}
DEVICE void lookup16(u32 w, const u32 (&table)[4], u32 &low, u32 &high) {
    const u32 first = lookup4(w, table), second = lookup4(w >> 16, table);
    low = __byte_perm(first, second, 0x6420);
    high = __byte_perm(first, second, 0x7531);
}

constexpr int unrolled_steps = 4;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define STRATA_ROLES 1
#else
#define STRATA_ROLES 0
#endif

// The host side of a compilation only takes sizes from here.
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
constexpr bool stage_weights = true;
DEVICE u32 shared_address(const void *p) { return u32(__cvta_generic_to_shared(p)); }
DEVICE void copy16_async(void *shared, const void *global) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)), "l"(global)
                 : "memory");
}
DEVICE void copy_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
DEVICE void copy_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
#else
constexpr bool stage_weights = false;
DEVICE void copy16_async(void *shared, const void *global) {
    *static_cast<u32x4 *>(shared) = *static_cast<const u32x4 *>(global);
}
DEVICE void copy_commit() {}
DEVICE void copy_wait_all() {}
#endif

#endif
