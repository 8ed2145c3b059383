// Matrix fragments: what one wave multiplies at a time.
//
// An `Mma` takes 32 values of k of `rows` weight rows and `cols` activation
// rows, both as bytes in shared memory, and leaves `lane_rows * lane_cols`
// sums in every lane. Sum (i, j) of a lane belongs to weight row `row(i)` and
// activation row `col(j)` of the fragment. Sums start at a constant that the
// caller passes; they are exact.
//
//   load_a(A &, const u8 *rows_begin)   weight rows, `stride` bytes apart
//   load_b(B &, const u8 *rows_begin)   activation rows, `stride` bytes apart
//   load_rows(v, values)   a float per row of the fragment: this lane's
//   load_cols(v, values)   likewise per column
//   multiply32(raw, a, b, start)        raw[i * lane_cols + j] over 32 values
//   multiply16(low, high, a, b, start)  the same, over each half of the 32
#pragma once
#include "vendor.cuh"

// Byte stride of the rows that fragments are loaded from: an odd multiple of
// 16, so that 16 bytes of eight consecutive rows lie in different banks.
constexpr int fragment_stride = 144;

// Integer dot products of four bytes: works everywhere. A wave covers 16 rows;
// eight lanes along the rows, the others along the columns.
struct DotMma {
    static constexpr int rows = 16, lane_rows = 2, lane_cols = 2;
    static constexpr int cols = wave_size / 8 * lane_cols;
    struct A {
        u32 v[lane_rows][8];
    };
    struct B {
        u32 v[lane_cols][8];
    };

    static DEVICE int row(int i) { return int(lane_index() / (wave_size / 8)) + 8 * i; }
    static DEVICE int col(int j) { return int(lane_index() % (wave_size / 8)) * lane_cols + j; }

    static DEVICE void load(u32 (&v)[8], const u8 *from) {
        UNROLL
        for (int h = 0; h < 2; h++) {
            const u32x4 w = reinterpret_cast<const u32x4 *>(from)[h];
            v[4 * h] = w.x, v[4 * h + 1] = w.y, v[4 * h + 2] = w.z, v[4 * h + 3] = w.w;
        }
    }
    static DEVICE void load_a(A &a, const u8 *rows_begin) {
        UNROLL
        for (int i = 0; i < lane_rows; i++) load(a.v[i], rows_begin + row(i) * fragment_stride);
    }
    static DEVICE void load_b(B &b, const u8 *rows_begin) {
        UNROLL
        for (int j = 0; j < lane_cols; j++) load(b.v[j], rows_begin + col(j) * fragment_stride);
    }
    static DEVICE void load_rows(float (&v)[lane_rows], const float *values) {
        UNROLL
        for (int i = 0; i < lane_rows; i++) v[i] = values[row(i)];
    }
    static DEVICE void load_cols(float (&v)[lane_cols], const float *values) {
        UNROLL
        for (int j = 0; j < lane_cols; j++) v[j] = values[col(j)];
    }
    static DEVICE i32 dot(const u32 *a, const u32 *b, i32 sum) {
        UNROLL
        for (int w = 0; w < 4; w++) sum = dot4(a[w], b[w], sum);
        return sum;
    }
    static DEVICE void multiply32(i32 (&raw)[4], const A &a, const B &b, i32 start) {
        UNROLL
        for (int i = 0; i < lane_rows; i++) {
            UNROLL
            for (int j = 0; j < lane_cols; j++) {
                const i32 low = dot(a.v[i], b.v[j], start);
                raw[i * lane_cols + j] = dot(a.v[i] + 4, b.v[j] + 4, low);
            }
        }
    }
    static DEVICE void multiply16(i32 (&low)[4], i32 (&high)[4], const A &a, const B &b, i32 start) {
        UNROLL
        for (int i = 0; i < lane_rows; i++) {
            UNROLL
            for (int j = 0; j < lane_cols; j++) {
                low[i * lane_cols + j] = dot(a.v[i], b.v[j], start);
                high[i * lane_cols + j] = dot(a.v[i] + 4, b.v[j] + 4, start);
            }
        }
    }
};

// Consecutive fragments of activation rows.
template <typename M> struct LoadB {
    template <int n> static DEVICE void load(typename M::B (&b)[n], const u8 *rows_begin) {
        UNROLL
        for (int j = 0; j < n; j++) M::load_b(b[j], rows_begin + j * M::cols * fragment_stride);
    }
};

#if defined(STRATA_HIP)

// WMMA or MFMA where the architecture has one; STRATA_HIP_DOT asks for dot products.
#if defined(STRATA_HIP_DOT)
typedef DotMma Mma;
#else
#include "strata_hip_mma.cuh"
#endif

#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// mma.sync m16n8k32 and m16n8k16 on signed bytes.
struct TensorMma {
    static constexpr int rows = 16, cols = 8, lane_rows = 2, lane_cols = 2;
    struct A {
        u32 v[4];
    };
    struct B {
        u32 v[2];
    };

    static DEVICE int row(int i) { return int(lane_index() / 4) + 8 * i; }
    static DEVICE int col(int j) { return int(lane_index() % 4) * 2 + j; }

    // Four 8x8 matrices of 16-bit pairs are the four words of A: rows 0..8 and
    // 8..16 of the first 16 bytes, then of the second.
    static DEVICE void load_a(A &a, const u8 *rows_begin) {
        const u32 lane = lane_index();
        const u8 *from = rows_begin + (lane % 16) * fragment_stride + lane / 16 * 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(a.v[0]), "=r"(a.v[1]), "=r"(a.v[2]), "=r"(a.v[3])
                     : "r"(shared_address(from)));
    }
    // Two fragments in one load.
    static DEVICE void load_b2(B &first, B &second, const u8 *rows_begin) {
        const u32 lane = lane_index();
        const u8 *from = rows_begin + (lane / 16 * 8 + lane % 8) * fragment_stride + lane / 8 % 2 * 16;
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(first.v[0]), "=r"(first.v[1]), "=r"(second.v[0]), "=r"(second.v[1])
                     : "r"(shared_address(from)));
    }
    static DEVICE void load_rows(float (&v)[lane_rows], const float *values) {
        v[0] = values[row(0)];
        v[1] = values[row(1)];
    }
    static DEVICE void load_cols(float (&v)[lane_cols], const float *values) {
        const u32x2 both = *reinterpret_cast<const u32x2 *>(values + col(0));
        v[0] = bits_f32(both.x);
        v[1] = bits_f32(both.y);
    }
    static DEVICE void multiply32(i32 (&raw)[4], const A &a, const B &b, i32 start) {
        asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %10, %10, %10};"
            : "=r"(raw[0]), "=r"(raw[1]), "=r"(raw[2]), "=r"(raw[3])
            : "r"(a.v[0]), "r"(a.v[1]), "r"(a.v[2]), "r"(a.v[3]), "r"(b.v[0]), "r"(b.v[1]), "r"(start));
    }
    static DEVICE void multiply16(i32 (&low)[4], i32 (&high)[4], const A &a, const B &b, i32 start) {
        half(low, a.v[0], a.v[1], b.v[0], start);
        half(high, a.v[2], a.v[3], b.v[1], start);
    }
    static DEVICE void half(i32 (&raw)[4], u32 a0, u32 a1, u32 b, i32 start) {
        asm("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 "
            "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%7, %7, %7, %7};"
            : "=r"(raw[0]), "=r"(raw[1]), "=r"(raw[2]), "=r"(raw[3])
            : "r"(a0), "r"(a1), "r"(b), "r"(start));
    }
};
typedef TensorMma Mma;

template <> struct LoadB<TensorMma> {
    template <int n> static DEVICE void load(TensorMma::B (&b)[n], const u8 *rows_begin) {
        static_assert(n % 2 == 0, "fragments are loaded in pairs");
        UNROLL
        for (int j = 0; j < n; j += 2)
            TensorMma::load_b2(b[j], b[j + 1], rows_begin + j * TensorMma::cols * fragment_stride);
    }
};

#else

typedef DotMma Mma;

#endif
