// q8_1 blocks of activations: 128 values, by eight lanes of sixteen values each.
//
// A lane's codes are one of the 16-byte pieces that blocks are stored in. A
// scale is that of two lanes (D4, DS4) or four (D2S6). Sums of values come in the
// prescribed order: four values first, then the upper half onto the lower; those of
// codes are exact.
// Four blocks are the columns that rows are padded to: a panel, by 32 lanes.
#pragma once
#include "numerics.cuh"

constexpr int block_values = 128, block_bytes = 144;
constexpr int lane_values = 16, block_lanes = block_values / lane_values;
constexpr int panel_values = 512, panel_lanes = 32, panel_blocks = 4;

enum Layout { D4 = 0, DS4 = 1, D2S6 = 2 };

// Where the first token with a value that is not finite is reported: the
// minimum of token << 3 | kind. Null where nobody asks.
struct ReportTo {
    u32 *word;
    u32 value_kind, header_kind;
};

DEVICE void report(u32 *word, u32 token, u32 kind) { atomic_min(word, token << 3 | kind); }

// The codes of a lane's values, four to a word.
struct Codes {
    u32 words[4];
};

// The general form, for NaN, infinities and the smallest magnitudes: NaN is
// passed over, and counts where there is nothing else.
template <int lanes> DEVICE float unusual_scale_and_codes(const float (&x)[lane_values], Codes &codes) {
    // Magnitudes as integers order like floats.
    i32 top = -1;
    UNROLL
    for (int i = 0; i < lane_values; i++) {
        const i32 magnitude = i32(f32_bits(x[i]) & 0x7fffffff);
        const i32 known = magnitude > 0x7f800000 ? -1 : magnitude;
        top = known > top ? known : top;
    }
    UNROLL
    for (int mask = lanes / 2; mask > 0; mask /= 2) {
        const i32 other = i32(shuffle_xor(u32(top), mask));
        top = other > top ? other : top;
    }
    codes = {};
    if (top == 0) return 0.0f;
    const float d_inv = top < 0 ? bits_f32(nan_f32) : div32(127.0f, bits_f32(u32(top)));
    UNROLL
    for (int i = 0; i < lane_values; i++)
        codes.words[i / 4] |= (u32(round_code(x[i] * d_inv)) & 0xff) << (i % 4 * 8);
    return div32(1.0f, d_inv);
}

// One code of a value whose magnitude rounds to at most 127, or of NaN, which
// becomes 0. Adding the float below one half and cutting off is rounding half
// away from zero: one half itself would carry the float below it up to 1.
DEVICE u32 plain_code(float x) {
    const float half = bits_f32((f32_bits(x) & 0x80000000) | 0x3effffff);
    return u32(truncate_i32(x + half)) & 0xff;
}

// The scale of the values of `lanes` neighbours and this lane's codes.
template <int lanes> DEVICE float scale_and_codes(const float (&x)[lane_values], Codes &codes) {
    float top = magnitude(x[0]);
    UNROLL
    for (int i = 1; i < lane_values; i++) top = larger(top, magnitude(x[i]));
    UNROLL
    for (int mask = lanes / 2; mask > 0; mask /= 2) top = larger(top, shuffle_xor(top, mask));
    // From 2^-119 on 127 / top is finite, and no product is more than a rounding past 127.
    const bool zero = top == 0.0f, usual = zero || f32_bits(top) - 0x04000000u < 0x7f800000u - 0x04000000u;
    if (wave_ballot(!usual)) return unusual_scale_and_codes<lanes>(x, codes);
    const float d_inv = div32(127.0f, zero ? 127.0f : top);
    UNROLL
    for (int w = 0; w < 4; w++)
        codes.words[w] = plain_code(x[4 * w] * d_inv) | plain_code(x[4 * w + 1] * d_inv) << 8 |
                         plain_code(x[4 * w + 2] * d_inv) << 16 | plain_code(x[4 * w + 3] * d_inv) << 24;
    return zero ? 0.0f : div32(1.0f, d_inv);
}

// The sum of this lane's values, or of those of two lanes, in both.
template <int lanes> DEVICE float sum_of(const float (&x)[lane_values]) {
    float p[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        p[i] = ((x[4 * i] + x[4 * i + 1]) + x[4 * i + 2]) + x[4 * i + 3];
        if (lanes == 2) p[i] = p[i] + shuffle_xor(p[i], 1);
    }
    return (p[0] + p[2]) + (p[1] + p[3]);
}

// What the codes of this lane stand for, or those of two lanes, summed.
template <int lanes> DEVICE float sum_of(const Codes &codes, float d) {
    i32 sum = 0;
    UNROLL
    for (int w = 0; w < 4; w++) sum = dot4(codes.words[w], 0x01010101, sum);
    if (lanes == 2) sum += i32(shuffle_xor(u32(sum), 1));
    return float(sum) * d;
}

// What even lanes store in the header of their block.
struct HeaderWord {
    u32 word;
    int index;
};

// A lane's codes and header word, with sums of the codes or of the values. Returns
// whether the scale and sum behind it are finite as stored.
template <Layout layout>
DEVICE bool encode(const float (&x)[lane_values], u32 of_codes, Codes &codes, HeaderWord &header) {
    const int lane = int(lane_index()) % block_lanes;
    if (layout == D4) {
        const float d = canonical(scale_and_codes<2>(x, codes));
        header = {f32_bits(d), lane / 2};
        return is_finite(d);
    }
    if (layout == DS4) {
        const float scale = scale_and_codes<2>(x, codes);
        const u16 d = f32_to_f16(scale);
        const u16 s = f32_to_f16(of_codes ? sum_of<2>(codes, scale) : sum_of<2>(x));
        header = {d | u32(s) << 16, lane / 2};
        return is_finite_f16(d) && is_finite_f16(s);
    }
    const float scale = scale_and_codes<4>(x, codes);
    const u16 d = f32_to_f16(scale);
    const u16 s = f32_to_f16(of_codes ? sum_of<1>(codes, scale) : sum_of<1>(x));
    // The sums of the first six lanes follow the two scales; the last two have none.
    const u32 next = shuffle_xor(u32(s), 1);
    const u32 first = shuffle(u32(d), int(lane_index()) - lane);
    header = lane < 6 ? HeaderWord{s | next << 16, 1 + lane / 2} : HeaderWord{first | u32(d) << 16, 0};
    return is_finite_f16(d) && (lane >= 6 || is_finite_f16(s));
}

// Whether all values are finite: a product with 0 is NaN otherwise.
DEVICE bool all_finite(const float (&x)[lane_values]) {
    float zero = 0.0f;
    UNROLL
    for (int i = 0; i < lane_values; i++) zero = fma32(x[i], 0.0f, zero);
    return zero == 0.0f;
}

// A lane's values of a row from column `col`; past the columns there is +0.
DEVICE void load_row(float (&x)[lane_values], const float *row, i64 col, i64 cols, bool vector) {
    if (vector && col + lane_values <= cols) {
        UNROLL
        for (int i = 0; i < lane_values; i += 4) {
            const f32x4 v = *reinterpret_cast<const f32x4 *>(row + col + i);
            x[i] = v.x, x[i + 1] = v.y, x[i + 2] = v.z, x[i + 3] = v.w;
        }
        return;
    }
    UNROLL
    for (int i = 0; i < lane_values; i++) x[i] = col + i < cols ? row[col + i] : 0.0f;
}

// 16 bytes to the output, by bytes where it is not aligned.
DEVICE void store16(u8 *to, const u32x4 &from, bool aligned) {
    if (aligned) {
        *reinterpret_cast<u32x4 *>(to) = from;
        return;
    }
    const u32 words[4] = {from.x, from.y, from.z, from.w};
    UNROLL
    for (int i = 0; i < 16; i++) to[i] = u8(words[i / 4] >> (i % 4 * 8));
}

// This lane's part of a block: 16 bytes of codes and, from even lanes, a word of
// the header; by bytes where blocks are not aligned.
DEVICE void store_block(u8 *block, const Codes &codes, const HeaderWord &header, bool aligned) {
    const int lane = int(lane_index()) % block_lanes;
    u8 *piece = block + 16 + 16 * lane;
    if (aligned) {
        *reinterpret_cast<u32x4 *>(piece) = {codes.words[0], codes.words[1], codes.words[2], codes.words[3]};
        if (lane % 2 == 0) reinterpret_cast<u32 *>(block)[header.index] = header.word;
        return;
    }
    store16(piece, {codes.words[0], codes.words[1], codes.words[2], codes.words[3]}, false);
    if (lane % 2 == 0) {
        UNROLL
        for (int i = 0; i < 4; i++) block[4 * header.index + i] = u8(header.word >> (8 * i));
    }
}

// What lanes report of the values they quantized.
DEVICE void report_block(const ReportTo &to, const float (&x)[lane_values], bool header_finite, u32 token) {
    const bool finite = all_finite(x);
    if (!finite || !header_finite) report(to.word, token, finite ? to.header_kind : to.value_kind);
}

// How a grid shares out rows of some steps: its groups take a row each, or where
// there are more groups than rows, an equal part of one.
struct Spread {
    u32 parts, steps; // of a row: parts, and the steps in each

    DEVICE Spread(u32 rows, u32 row_steps, u32 groups) {
        const u32 most = groups / (rows ? rows : 1);
        const u32 wanted = most < row_steps ? most : row_steps;
        steps = (row_steps + (wanted ? wanted : 1) - 1) / (wanted ? wanted : 1);
        parts = (row_steps + steps - 1) / steps;
    }
};
