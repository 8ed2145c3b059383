// HIP's half of `vendor.cuh`: the names that the kernels are written against,
// for clang alone. No header of ROCm or of a host library is included, so that
// a plain clang with the AMDGPU target compiles the kernels.
//
// A wave is what the hardware has: 64 lanes on gfx9, 32 after it.
#pragma once

#if !defined(__HIP__) || !defined(__clang__)
#error "this header is for clang in HIP mode"
#endif

// The second bound, blocks per multiprocessor, has no counterpart here: within
// the first, the compiler takes the registers that it needs.
#define KERNEL(threads, blocks)                                                                    \
    extern "C" __attribute__((global, amdgpu_flat_work_group_size(1, threads))) void
#define DEVICE __attribute__((device, always_inline)) inline
#define EXPORT extern "C" __attribute__((device))
#define SHARED __attribute__((shared))
#define SHARED_DYNAMIC(name)                                                                       \
    extern __attribute__((shared, aligned(16))) unsigned char name[]
#define TABLE static __attribute__((device)) const
#define UNROLL _Pragma("unroll")

#if defined(__GFX9__)
constexpr int wave_size = 64;
#else
constexpr int wave_size = 32;
#endif

// The hidden arguments of code object version 5 begin with the grid in blocks
// (three u32), then the block in threads (three u16).
#define STRATA_HIDDEN(T, index)                                                                    \
    (((const __attribute__((address_space(4))) T *)__builtin_amdgcn_implicitarg_ptr())[index])

DEVICE u32 thread_index() { return __builtin_amdgcn_workitem_id_x(); }
DEVICE u32 block_threads() { return STRATA_HIDDEN(u16, 6); }
DEVICE u32 block_index() { return __builtin_amdgcn_workgroup_id_x(); }
DEVICE u32 block_index_y() { return __builtin_amdgcn_workgroup_id_y(); }
DEVICE u32 grid_blocks() { return STRATA_HIDDEN(u32, 0); }
DEVICE u32 grid_blocks_y() { return STRATA_HIDDEN(u32, 1); }
DEVICE u32 lane_index() { return thread_index() % wave_size; }

#undef STRATA_HIDDEN

DEVICE void block_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
// Lanes of a wave run in step and their shared memory accesses in order; what
// has to be held back is the compiler.
DEVICE void wave_sync() {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront");
    __builtin_amdgcn_wave_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront");
}

DEVICE float bits_f32(u32 x) { return __builtin_bit_cast(float, x); }
DEVICE u32 f32_bits(float x) { return __builtin_bit_cast(u32, x); }

DEVICE u32 shuffle(u32 x, int lane) {
    return u32(__builtin_amdgcn_ds_bpermute(lane << 2, i32(x)));
}
DEVICE u32 shuffle_xor(u32 x, int mask) { return shuffle(x, int(lane_index()) ^ mask); }
// Lanes below `delta` keep their own value.
DEVICE u32 shuffle_up(u32 x, int delta) {
    const int lane = int(lane_index());
    return shuffle(x, lane < delta ? lane : lane - delta);
}
DEVICE float shuffle(float x, int lane) { return bits_f32(shuffle(f32_bits(x), lane)); }
DEVICE float shuffle_xor(float x, int mask) { return bits_f32(shuffle_xor(f32_bits(x), mask)); }
DEVICE u64 wave_ballot(bool x) {
#if defined(__GFX9__)
    return __builtin_amdgcn_ballot_w64(x);
#else
    return __builtin_amdgcn_ballot_w32(x);
#endif
}

DEVICE float fma32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
// Correctly rounded by -fhip-fp32-correctly-rounded-divide-sqrt.
DEVICE float div32(float a, float b) { return a / b; }
DEVICE float sqrt32(float x) { return __builtin_sqrtf(x); }
DEVICE float magnitude(float x) { return __builtin_fabsf(x); }
DEVICE float larger(float a, float b) { return __builtin_fmaxf(a, b); }
// A conversion of NaN has no meaning in the language.
DEVICE i32 truncate_i32(float x) { return x == x ? i32(x) : 0; }

DEVICE float f16_to_f32(u16 h) { return float(__builtin_bit_cast(_Float16, h)); }
DEVICE u16 f32_to_f16(float f) {
    return f != f ? u16(0x7e00) : __builtin_bit_cast(u16, _Float16(f));
}

// Relaxed is enough: the kernels order what they publish by barriers and launches.
DEVICE u32 atomic_min(u32 *at, u32 x) {
    return __hip_atomic_fetch_min(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}
DEVICE u32 atomic_add(u32 *at, u32 x) {
    return __hip_atomic_fetch_add(at, x, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

DEVICE i32 dot4(u32 a, u32 b, i32 c) {
#if defined(__GFX11__) || defined(__GFX12__)
    return __builtin_amdgcn_sudot4(true, i32(a), true, i32(b), c, false);
#else
    return __builtin_amdgcn_sdot4(i32(a), i32(b), c, false);
#endif
}
DEVICE u32 funnel(u32 lo, u32 hi, u32 bits) { return __builtin_amdgcn_alignbit(hi, lo, bits); }
DEVICE int popcount(u32 x) { return __builtin_popcount(x); }

// Four bytes of a table of sixteen: the low three bits of an index pick one of each
// half of the table, and the fourth bit one of these two.
DEVICE u32 lookup_bytes(u32 index, const u32 (&table)[4]) {
    const u32 low = index & 0x07070707;
    const u32 first = __builtin_amdgcn_perm(table[1], table[0], low);
    const u32 second = __builtin_amdgcn_perm(table[3], table[2], low);
    const u32 upper = (index >> 3 & 0x01010101) * 255;
    return (second & upper) | (first & ~upper);
}
DEVICE void lookup16(u32 w, const u32 (&table)[4], u32 &low, u32 &high) {
    low = lookup_bytes(w & 0x0f0f0f0f, table);
    high = lookup_bytes(w >> 4 & 0x0f0f0f0f, table);
}

// clang reads ahead over all steps it sees, and on gfx11 spills registers for it.
constexpr int unrolled_steps = 1;

#define STRATA_ROLES 0

constexpr bool stage_weights = false;
// Through registers; the compiler moves the loads ahead of what does not need them.
DEVICE void copy16_async(void *shared, const void *global) {
    *static_cast<u32x4 *>(shared) = *static_cast<const u32x4 *>(global);
}
DEVICE void copy_commit() {}
DEVICE void copy_wait_all() {}
