// Warpgroup matrix products of sm_90a: 64 rows x N columns of sums over 16 values of f16 or
// 32 signed bytes, the rows in registers, the columns in shared memory.
//
// Columns are panels: columns of 64 values of f16 or 128 bytes, which are 128 bytes, one after
// the other; the 16-byte pieces of a column are exchanged by its place among eight (the
// swizzle of 128 bytes), so that neither columns nor pieces meet in a bank. Panels begin at
// multiples of 1024 bytes.
//
//   piece     0  1  2 ...       of column c lies at  piece ^ (c % 8)
//   column 0  0  1  2  3  4  5  6  7
//   column 1  1  0  3  2  5  4  7  6
//   column 2  2  3  0  1  6  7  4  5
//
// Thread t of the warpgroup holds rows r = t / 32 * 16 + t % 32 / 4 and r + 8. With q = t % 4,
// its words of 32 bytes of k (two values of f16 or four bytes each) are
//
//   rows.v[0]  row r,     word q        rows.v[2]  row r,     word q + 4
//   rows.v[1]  row r + 8, the same      rows.v[3]  row r + 8, the same
//
// and its sums are those of columns 8j + 2q (+ 1):
// sum[4j + 2 * (row is r + 8) + (column is the second)].
#pragma once
#include "hopper.cuh"

constexpr int panel_column = 128, panel_pieces = 8; // bytes and 16-byte pieces of a panel's column

// Where a piece of a column lies in its panel.
DEVICE u32 swizzled(u32 column, u32 piece) { return column * panel_column + ((piece ^ column % 8) << 4); }

// What the instruction knows a panel by: its address, and 1024 bytes from eight columns to the next.
DEVICE u64 panel_at(const u8 *panel) {
    return u64((shared_address(panel) & 0x3ffff) >> 4) | u64(1) << 16 | u64(1024 >> 4) << 32 | u64(1) << 62;
}
// The same panel some bytes of k further on: less than a column.
DEVICE u64 along(u64 panel, int bytes) { return panel + (bytes >> 4); }

// Before the first product whose operands or sums other instructions wrote or read.
DEVICE void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until at most `pending` of the committed groups are under way.
template <int pending> DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}
// What this thread stored to shared memory is seen by the products and copies of who
// learns of it by a barrier.
DEVICE void publish_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

struct WgmmaRows {
    u32 v[4];
};

// sums (+)= rows x columns, over 16 values of f16: `fresh` begins them.
template <int columns> struct WgmmaHalves;
// sums = rows x columns, over 32 signed bytes.
template <int columns> struct WgmmaBytes;

// The operands of an instruction in its text, and what they are.
#define SUMS8(kind, i)                                                                               \
    kind(sum[i]), kind(sum[i + 1]), kind(sum[i + 2]), kind(sum[i + 3]), kind(sum[i + 4]),            \
        kind(sum[i + 5]), kind(sum[i + 6]), kind(sum[i + 7])
#define SUMS24(kind) SUMS8(kind, 0), SUMS8(kind, 8), SUMS8(kind, 16)
#define TEXT24 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23"

template <> struct WgmmaHalves<48> {
    template <bool fresh> static DEVICE void add(float (&sum)[24], const WgmmaRows &rows, u64 cols) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.b32 p, %29, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n48k16.f32.f16.f16 {" TEXT24
                     "}, {%24,%25,%26,%27}, %28, p, 1, 1, 0;\n"
                     "}"
                     : SUMS24("+f")
                     : "r"(rows.v[0]), "r"(rows.v[1]), "r"(rows.v[2]), "r"(rows.v[3]), "l"(cols), "n"(int(!fresh)));
    }
};
template <> struct WgmmaBytes<48> {
    static DEVICE void multiply(i32 (&sum)[24], const WgmmaRows &rows, u64 cols) {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "setp.ne.b32 p, 0, 0;\n"
                     "wgmma.mma_async.sync.aligned.m64n48k32.s32.s8.s8 {" TEXT24
                     "}, {%24,%25,%26,%27}, %28, p;\n"
                     "}"
                     : SUMS24("+r")
                     : "r"(rows.v[0]), "r"(rows.v[1]), "r"(rows.v[2]), "r"(rows.v[3]), "l"(cols));
    }
};
