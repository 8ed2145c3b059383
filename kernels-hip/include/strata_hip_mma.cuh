// AMD's matrix units as fragments of `mma.cuh`: WMMA on gfx11 and gfx12, MFMA on
// gfx90a and newer gfx9, dot products elsewhere.
//
// A unit takes, in each lane, some k of one row of A and of one row of B. Which k
// a lane holds is free as long as it is the same for A and B, since a sum does not
// ask for order among integers. So every layout here loads 16 consecutive bytes,
// or 8, where the row's data stands.
#pragma once

// The values of a lane's rows and columns, which a fragment says the places of.
template <typename M, int n> DEVICE void strata_load_rows(float (&v)[n], const float *values) {
    UNROLL
    for (int i = 0; i < n; i++) v[i] = values[M::row(i)];
}
template <typename M, int n> DEVICE void strata_load_cols(float (&v)[n], const float *values) {
    UNROLL
    for (int j = 0; j < n; j++) v[j] = values[M::col(j)];
}

#if defined(__GFX11__)

typedef i32 strata_i32x4 __attribute__((ext_vector_type(4)));
typedef i32 strata_i32x8 __attribute__((ext_vector_type(8)));

// 16 x 16 x 16: lanes 0..16 hold rows, lanes 16..32 hold them again. Of the
// result, a lane has column lane % 16 of the rows 2 i + lane / 16.
struct WmmaMma {
    static constexpr int rows = 16, cols = 16, lane_rows = 8, lane_cols = 1;
    struct A {
        strata_i32x4 v[2];
    };
    typedef A B;

    static DEVICE int row(int i) { return 2 * i + int(lane_index() / 16); }
    static DEVICE int col(int) { return int(lane_index() % 16); }
    static DEVICE void load_a(A &a, const u8 *rows_begin) {
        const u8 *from = rows_begin + lane_index() % 16 * fragment_stride;
        UNROLL
        for (int h = 0; h < 2; h++) a.v[h] = reinterpret_cast<const strata_i32x4 *>(from)[h];
    }
    static DEVICE void load_b(B &b, const u8 *rows_begin) { load_a(b, rows_begin); }
    static DEVICE void load_rows(float (&v)[lane_rows], const float *values) {
        strata_load_rows<WmmaMma>(v, values);
    }
    static DEVICE void load_cols(float (&v)[lane_cols], const float *values) {
        strata_load_cols<WmmaMma>(v, values);
    }
    static DEVICE strata_i32x8 half(strata_i32x4 a, strata_i32x4 b, strata_i32x8 sum) {
        return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32(true, a, true, b, sum, false);
    }
    static DEVICE strata_i32x8 fill(i32 x) { return strata_i32x8{x, x, x, x, x, x, x, x}; }
    static DEVICE void multiply32(i32 (&raw)[8], const A &a, const B &b, i32 start) {
        const strata_i32x8 sum = half(a.v[1], b.v[1], half(a.v[0], b.v[0], fill(start)));
        UNROLL
        for (int i = 0; i < 8; i++) raw[i] = sum[i];
    }
    static DEVICE void multiply16(i32 (&low)[8], i32 (&high)[8], const A &a, const B &b, i32 start) {
        const strata_i32x8 first = half(a.v[0], b.v[0], fill(start));
        const strata_i32x8 second = half(a.v[1], b.v[1], fill(start));
        UNROLL
        for (int i = 0; i < 8; i++) low[i] = first[i], high[i] = second[i];
    }
};
typedef WmmaMma Mma;

#elif defined(__GFX12__)

typedef i32 strata_i32x2 __attribute__((ext_vector_type(2)));
typedef i32 strata_i32x8 __attribute__((ext_vector_type(8)));

// 16 x 16 x 16: lane l holds 8 of the 16 k of row l % 16. Of the result, a lane
// has column lane % 16 of the rows i + 8 (lane / 16).
struct WmmaMma {
    static constexpr int rows = 16, cols = 16, lane_rows = 8, lane_cols = 1;
    struct A {
        strata_i32x2 v[2];
    };
    typedef A B;

    static DEVICE int row(int i) { return i + 8 * int(lane_index() / 16); }
    static DEVICE int col(int) { return int(lane_index() % 16); }
    static DEVICE void load_a(A &a, const u8 *rows_begin) {
        const u8 *from = rows_begin + lane_index() % 16 * fragment_stride + lane_index() / 16 * 8;
        UNROLL
        for (int h = 0; h < 2; h++) a.v[h] = *reinterpret_cast<const strata_i32x2 *>(from + 16 * h);
    }
    static DEVICE void load_b(B &b, const u8 *rows_begin) { load_a(b, rows_begin); }
    static DEVICE void load_rows(float (&v)[lane_rows], const float *values) {
        strata_load_rows<WmmaMma>(v, values);
    }
    static DEVICE void load_cols(float (&v)[lane_cols], const float *values) {
        strata_load_cols<WmmaMma>(v, values);
    }
    static DEVICE strata_i32x8 half(strata_i32x2 a, strata_i32x2 b, strata_i32x8 sum) {
        return __builtin_amdgcn_wmma_i32_16x16x16_iu8_w32_gfx12(true, a, true, b, sum, false);
    }
    static DEVICE strata_i32x8 fill(i32 x) { return strata_i32x8{x, x, x, x, x, x, x, x}; }
    static DEVICE void multiply32(i32 (&raw)[8], const A &a, const B &b, i32 start) {
        const strata_i32x8 sum = half(a.v[1], b.v[1], half(a.v[0], b.v[0], fill(start)));
        UNROLL
        for (int i = 0; i < 8; i++) raw[i] = sum[i];
    }
    static DEVICE void multiply16(i32 (&low)[8], i32 (&high)[8], const A &a, const B &b, i32 start) {
        const strata_i32x8 first = half(a.v[0], b.v[0], fill(start));
        const strata_i32x8 second = half(a.v[1], b.v[1], fill(start));
        UNROLL
        for (int i = 0; i < 8; i++) low[i] = first[i], high[i] = second[i];
    }
};
typedef WmmaMma Mma;

#elif defined(__gfx90a__) || defined(__gfx942__) || defined(__gfx950__)

typedef i32 strata_i32x4 __attribute__((ext_vector_type(4)));

// 16 x 16, with four groups of 16 lanes that hold a quarter of the k each: 4 of
// 16 on gfx90a, 8 of 32 on gfx942 and gfx950, where 16 are multiplied with the
// other half zero. Of the result, a lane has column lane % 16 of the rows
// 4 (lane / 16) + i.
struct MfmaMma {
    static constexpr int rows = 16, cols = 16, lane_rows = 4, lane_cols = 1;
    struct A {
        u32 v[2]; // 4 of the first 16 k, and 4 of the second
    };
    typedef A B;

    static DEVICE int row(int i) { return 4 * int(lane_index() / 16) + i; }
    static DEVICE int col(int) { return int(lane_index() % 16); }
    static DEVICE void load_a(A &a, const u8 *rows_begin) {
        const u8 *from = rows_begin + lane_index() % 16 * fragment_stride + lane_index() / 16 * 4;
        UNROLL
        for (int h = 0; h < 2; h++) a.v[h] = *reinterpret_cast<const u32 *>(from + 16 * h);
    }
    static DEVICE void load_b(B &b, const u8 *rows_begin) { load_a(b, rows_begin); }
    static DEVICE void load_rows(float (&v)[lane_rows], const float *values) {
        strata_load_rows<MfmaMma>(v, values);
    }
    static DEVICE void load_cols(float (&v)[lane_cols], const float *values) {
        strata_load_cols<MfmaMma>(v, values);
    }
    static DEVICE strata_i32x4 fill(i32 x) { return strata_i32x4{x, x, x, x}; }
#if defined(__gfx90a__)
    static DEVICE strata_i32x4 half(u32 a, u32 b, strata_i32x4 sum) {
        return __builtin_amdgcn_mfma_i32_16x16x16i8(i32(a), i32(b), sum, 0, 0, 0);
    }
    static DEVICE strata_i32x4 whole(const A &a, const B &b, strata_i32x4 sum) {
        return half(a.v[1], b.v[1], half(a.v[0], b.v[0], sum));
    }
#else
    static DEVICE strata_i32x4 pair(u64 a, u64 b, strata_i32x4 sum) {
        return __builtin_amdgcn_mfma_i32_16x16x32_i8(i64(a), i64(b), sum, 0, 0, 0);
    }
    static DEVICE strata_i32x4 half(u32 a, u32 b, strata_i32x4 sum) { return pair(a, b, sum); }
    static DEVICE strata_i32x4 whole(const A &a, const B &b, strata_i32x4 sum) {
        return pair(a.v[0] | u64(a.v[1]) << 32, b.v[0] | u64(b.v[1]) << 32, sum);
    }
#endif
    static DEVICE void multiply32(i32 (&raw)[4], const A &a, const B &b, i32 start) {
        const strata_i32x4 sum = whole(a, b, fill(start));
        UNROLL
        for (int i = 0; i < 4; i++) raw[i] = sum[i];
    }
    static DEVICE void multiply16(i32 (&low)[4], i32 (&high)[4], const A &a, const B &b, i32 start) {
        const strata_i32x4 first = half(a.v[0], b.v[0], fill(start));
        const strata_i32x4 second = half(a.v[1], b.v[1], fill(start));
        UNROLL
        for (int i = 0; i < 4; i++) low[i] = first[i], high[i] = second[i];
    }
};
typedef MfmaMma Mma;

#else

typedef DotMma Mma;

#endif
