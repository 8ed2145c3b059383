// q8_1 blocks of activations: 128 values, by 32 lanes of four values each.
//
// A block is a 16-byte header and 128 codes. Lanes of a group hold consecutive
// values, so the reductions of a scale or sum are butterflies among 8, 16 or 4
// neighbours, and sums come out in the prescribed order: four values first,
// then the upper half onto the lower.
#pragma once
#include "numerics.cuh"

constexpr int block_values = 128, block_bytes = 144, pad_values = 512;
constexpr int group_lanes = 32; // lanes that make one block; a wave has one or more such groups

enum Layout { D4 = 0, DS4 = 1, D2S6 = 2 };

// Where the first token with a value that is not finite is reported: the
// minimum of token << 2 | kind. Null where nobody asks.
struct ReportTo {
    u32 *word;
    u32 value_kind, header_kind;
};

DEVICE void report(u32 *word, u32 token, u32 kind) { atomic_min(word, token << 2 | kind); }

// The general form, for NaN, infinities and the smallest magnitudes: NaN is
// passed over, and counts where there is nothing else.
template <int lanes> DEVICE float unusual_scale_and_codes(const float (&x)[4], u32 &codes) {
    i32 top = -1;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const i32 magnitude = i32(f32_bits(x[i]) & 0x7fffffff);
        const i32 known = magnitude > 0x7f800000 ? -1 : magnitude;
        top = known > top ? known : top;
    }
    UNROLL
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
        const i32 other = i32(shuffle_xor(u32(top), mask));
        top = other > top ? other : top;
    }
    codes = 0;
    if (top == 0) return 0.0f;
    const float d_inv = top < 0 ? bits_f32(nan_f32) : div32(127.0f, bits_f32(u32(top)));
    UNROLL
    for (int i = 0; i < 4; i++) codes |= (u32(round_code(x[i] * d_inv)) & 0xff) << (8 * i);
    return div32(1.0f, d_inv);
}

// One code of a value whose magnitude rounds to at most 127. Adding the float
// below one half and cutting off is rounding half away from zero: one half
// itself would carry the float below it up to 1.
DEVICE u32 plain_code(float x) {
    const float half = bits_f32((f32_bits(x) & 0x80000000) | 0x3effffff);
    return u32(i32(x + half)) & 0xff;
}

// The scale of the `lanes` neighbours' values and this lane's four codes.
template <int lanes> DEVICE float scale_and_codes(const float (&x)[4], u32 &codes) {
    // Magnitudes as integers order like floats, with NaN above infinity.
    u32 top = 0;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const u32 magnitude = f32_bits(x[i]) & 0x7fffffff;
        top = magnitude > top ? magnitude : top;
    }
    UNROLL
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
        const u32 other = shuffle_xor(top, mask);
        top = other > top ? other : top;
    }
    // From 2^-119 on 127 / top is finite, and no product is more than a rounding past 127.
    const bool zero = top == 0, usual = zero || top - 0x04000000u < 0x7f800000u - 0x04000000u;
    if (wave_ballot(!usual)) return unusual_scale_and_codes<lanes>(x, codes);
    const float d_inv = div32(127.0f, zero ? 127.0f : bits_f32(top));
    codes = plain_code(x[0] * d_inv) | plain_code(x[1] * d_inv) << 8 | plain_code(x[2] * d_inv) << 16 |
            plain_code(x[3] * d_inv) << 24;
    return zero ? 0.0f : div32(1.0f, d_inv);
}

// The sum of the `lanes` neighbours' values, in every one of them.
template <int lanes> DEVICE float sum_of(const float (&x)[4]) {
    float sum = ((x[0] + x[1]) + x[2]) + x[3];
    UNROLL
    for (int mask = lanes / 2; mask > 0; mask /= 2) sum = sum + shuffle_xor(sum, mask);
    return sum;
}

// What a lane stores in the header: a word, a half-word or nothing.
struct HeaderPart {
    u32 bits;
    int half;  // index of the first half-word
    int count; // half-words: 2, 1 or 0
};

DEVICE void store_header(u8 *block, const HeaderPart &part) {
    if (part.count == 2)
        *reinterpret_cast<u32 *>(block + 2 * part.half) = part.bits;
    else if (part.count == 1)
        *reinterpret_cast<u16 *>(block + 2 * part.half) = u16(part.bits);
}

// This lane's four codes of the block and its part of the header. Returns
// whether the scale and sum behind the part are finite as stored.
template <Layout layout> DEVICE bool encode(const float (&x)[4], int lane, u32 &codes, HeaderPart &part) {
    if (layout == D4) {
        const float d = canonical(scale_and_codes<8>(x, codes));
        part = {f32_bits(d), lane / 8 * 2, lane % 8 == 0 ? 2 : 0};
        return is_finite(d);
    }
    if (layout == DS4) {
        const u16 d = f32_to_f16(scale_and_codes<8>(x, codes));
        const u16 s = f32_to_f16(sum_of<8>(x));
        part = {d | u32(s) << 16, lane / 8 * 2, lane % 8 == 0 ? 2 : 0};
        return is_finite_f16(d) && is_finite_f16(s);
    }
    const u16 d = f32_to_f16(scale_and_codes<16>(x, codes));
    const u16 s = f32_to_f16(sum_of<4>(x));
    // Every fourth lane has a sum of 16 values, of which the first six are
    // stored; lanes 24 and 28, whose sums are not, bring the two scales.
    const u32 first = shuffle(u32(d), int(lane_index()) / group_lanes * group_lanes);
    const int count = lane % 4 == 0 ? 1 : 0;
    if (lane < 24)
        part = {s, 2 + lane / 4, count};
    else
        part = {lane < 28 ? first : d, lane < 28 ? 0 : 1, count};
    return is_finite_f16(d) && (lane >= 24 || is_finite_f16(s));
}

// A lane's four values from column `col` of a row; past the columns there is +0.
DEVICE void load_row(float (&x)[4], const float *row, i64 col, i64 cols, bool vector) {
    if (vector && col + 4 <= cols) {
        const f32x4 v = *reinterpret_cast<const f32x4 *>(row + col);
        x[0] = v.x, x[1] = v.y, x[2] = v.z, x[3] = v.w;
        return;
    }
    UNROLL
    for (int i = 0; i < 4; i++) x[i] = col + i < cols ? row[col + i] : 0.0f;
}

// 16 bytes of shared memory to the output, by bytes where it is not aligned.
DEVICE void store16(u8 *to, const u32x4 &from, bool aligned) {
    if (aligned) {
        *reinterpret_cast<u32x4 *>(to) = from;
        return;
    }
    const u32 words[4] = {from.x, from.y, from.z, from.w};
    UNROLL
    for (int i = 0; i < 16; i++) to[i] = u8(words[i / 4] >> (i % 4 * 8));
}

// How a grid of groups shares out rows: each takes a row, or where there are
// more groups than rows, an equal part of one.
struct Spread {
    u32 parts, blocks; // of a row: parts, and k blocks in each

    DEVICE Spread(u32 rows, u32 k_blocks, u32 groups) {
        const u32 most = groups / (rows ? rows : 1);
        const u32 wanted = most < k_blocks ? most : k_blocks;
        blocks = (k_blocks + (wanted ? wanted : 1) - 1) / (wanted ? wanted : 1);
        parts = (k_blocks + blocks - 1) / blocks;
    }
};
