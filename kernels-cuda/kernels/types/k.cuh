// The K types: blocks of 256 values in two chunks, integer sub-scales under
// one f16 scale.
#pragma once
#include "../weights.cuh"

struct KDefaults : WeightDefaults {
    static constexpr int block = 256, group = 256;
};

// Sub-scales and codes are small enough to multiply in bytes. A unit is eight
// code bytes of the half, each of which has a value in every 32.
struct Q2_K : KDefaults {
    static constexpr int bytes = 84, minimums = 16, raw_buffers = 1;
    static constexpr Layout layout = D2S6;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 w[2];
        read_words(w, at + 16 + 32 * part + 8 * unit);
        UNROLL
        for (int n = 0; n < 4; n++) {
            const u32 scale = at[8 * part + 2 * n + unit / 2] & 15;
            put2(words + 8 * n + 2 * unit, (w[0] >> (2 * n) & 0x03030303u) * scale,
                 (w[1] >> (2 * n) & 0x03030303u) * scale);
        }
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<Q2_K> to) {
        if (unit == 0) to.dw(0, read_f16(at + 80));
        if (unit == 1) to.dm(0, -read_f16(at + 82));
        UNROLL
        for (int j = 0; j < 2; j++) to.mn(2 * unit + j, at[8 * part + 2 * unit + j] >> 4);
    }
};

// The product of scale and code reaches +128, but its negative fits a byte.
struct Q3_K : KDefaults {
    static constexpr int bytes = 110, raw_buffers = 1;
    static constexpr bool negated = true;
    static constexpr Layout layout = D4;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 w[2], high[2];
        read_words(w, at + 32 + 32 * part + 8 * unit);
        read_words(high, at + 8 * unit);
        UNROLL
        for (int n = 0; n < 4; n++) {
            const int s = 2 * n + unit / 2; // of the half's eight sub-scales
            const u32 nibble = at[96 + s] >> (4 * part) & 15;
            const u32 top = at[104 + s % 4] >> (2 * (2 * part + s / 4)) & 3;
            const i32 scale = i32(nibble | top << 4) - 32;
            const u32 size = u32(scale < 0 ? -scale : scale);
            u32 out[2];
            UNROLL
            for (int i = 0; i < 2; i++) {
                const u32 third = high[i] >> (4 * part + n) & 0x01010101u;
                // |scale| * code stays below 256, so a word's four products do not meet.
                const u32 product = ((w[i] >> (2 * n) & 0x03030303u) | third << 2) * size;
                const u32 offset = 4 * size * 0x01010101u;
                out[i] = scale < 0 ? minus_bytes(product, offset) : minus_bytes(offset, product);
            }
            put2(words + 8 * n + 2 * unit, out[0], out[1]);
        }
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q3_K> to) {
        if (unit == 0) to.dw(0, read_f16(at + 108));
    }
};

// One of the half's four six-bit scales and minimums of Q4_K and Q5_K; the
// first two units also bring the scales of all.
template <typename T> DEVICE void six_bit_scales(const u8 *at, int part, int unit, ScaleSink<T> to) {
    const u32 a = at[4 + unit], b = at[8 + unit], c = at[12 + unit];
    to.sub(unit, part == 0 ? a & 63 : (c & 15) | a >> 6 << 4);
    to.mn(unit, part == 0 ? b & 63 : c >> 4 | b >> 6 << 4);
    if (unit == 0) to.dw(0, read_f16(at));
    if (unit == 1) to.dm(0, -read_f16(at + 2));
}

// A unit is 16 code bytes: 16 values of one sub-scale and 16 of the next.
struct Q4_K : KDefaults {
    static constexpr int bytes = 144, minimums = 32;
    static constexpr bool scaled = true;
    static constexpr Layout layout = DS4;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 w[4];
        read_words(w, at + 16 + 64 * part + 16 * unit);
        u32 *to = words + 16 * (unit / 2) + 4 * (unit % 2);
        u32 low[4], high[4];
        UNROLL
        for (int i = 0; i < 4; i++) {
            low[i] = w[i] & 0x0f0f0f0fu;
            high[i] = w[i] >> 4 & 0x0f0f0f0fu;
        }
        put4(to, low[0], low[1], low[2], low[3]);
        put4(to + 8, high[0], high[1], high[2], high[3]);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<Q4_K> to) {
        six_bit_scales(at, part, unit, to);
    }
};

struct Q5_K : KDefaults {
    static constexpr int bytes = 176, minimums = 32;
    static constexpr bool scaled = true;
    static constexpr Layout layout = DS4;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 w[4], fifth[4], low[4], high[4];
        read_words(w, at + 48 + 64 * part + 16 * unit);
        read_words(fifth, at + 16 + 16 * (unit % 2));
        u32 *to = words + 16 * (unit / 2) + 4 * (unit % 2);
        const int s = 4 * part + unit / 2 * 2;
        UNROLL
        for (int i = 0; i < 4; i++) {
            low[i] = (w[i] & 0x0f0f0f0fu) | (fifth[i] >> s & 0x01010101u) << 4;
            high[i] = (w[i] >> 4 & 0x0f0f0f0fu) | (fifth[i] >> (s + 1) & 0x01010101u) << 4;
        }
        put4(to, low[0], low[1], low[2], low[3]);
        put4(to + 8, high[0], high[1], high[2], high[3]);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<Q5_K> to) {
        six_bit_scales(at, part, unit, to);
    }
};

// A unit is eight columns of the half's four rows of 32 values.
struct Q6_K : KDefaults {
    static constexpr int bytes = 210, sub = 16;
    static constexpr bool scaled = true, past_f16 = true;
    static constexpr Layout layout = D4;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 first[2], second[2], high[2];
        read_words(first, at + 64 * part + 8 * unit);
        read_words(second, at + 64 * part + 32 + 8 * unit);
        read_words(high, at + 128 + 32 * part + 8 * unit);
        UNROLL
        for (int n = 0; n < 4; n++) {
            u32 out[2];
            UNROLL
            for (int i = 0; i < 2; i++) {
                const u32 nibble = (n % 2 == 0 ? first[i] : second[i]) >> (n / 2 * 4) & 0x0f0f0f0fu;
                const u32 upper = high[i] >> (2 * n) & 0x03030303u;
                out[i] = minus<32>(nibble | upper << 4);
            }
            put2(words + 8 * n + 2 * unit, out[0], out[1]);
        }
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<Q6_K> to) {
        if (unit == 0) to.dw(0, read_f16(at + 208));
        UNROLL
        for (int j = 0; j < 2; j++) to.sub(2 * unit + j, i8(at[192 + 8 * part + 2 * unit + j]));
    }
};
