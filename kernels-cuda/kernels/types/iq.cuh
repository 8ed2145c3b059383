// The IQ types of 256 values: codebook entries under integer sub-scales, which
// are stored as s and mean 2s + 1. A unit is 32 values.
#pragma once
#include "legacy.cuh"
#include "grids.cuh"

struct IqDefaults : WeightDefaults {
    static constexpr int block = 256, group = 256, raw_buffers = 1;
    static constexpr bool scaled = true;
    static constexpr Layout layout = D4;
};

DEVICE i32 odd(u32 s) { return i32(2 * s + 1); }

// Eight codebook values with their signs.
DEVICE void put_entry(u32 *words, u32 first, u32 second, u32 signs) {
    words[0] = with_signs(first, signs);
    words[1] = with_signs(second, signs >> 4);
}

struct IQ2_XXS : IqDefaults {
    static constexpr int bytes = 66;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 out[8];
        u32 w[2];
        read_words(w, at + 2 + 8 * (4 * part + unit));
        UNROLL
        for (int l = 0; l < 4; l++) {
            const u32x2 entry = grid_iq2_xxs[w[0] >> (8 * l) & 0xff];
            put_entry(out + 2 * l, entry.x, entry.y, even_signs(w[1] >> (7 * l) & 127));
        }
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ2_XXS> to) {
        if (unit == 0) to.dw(0, read_f16(at) * 0.125f);
        to.sub(unit, odd(at[9 + 8 * (4 * part + unit)] >> 4));
    }
};

struct IQ2_XS : IqDefaults {
    static constexpr int bytes = 74, sub = 16;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 out[8];
        u32 w[2];
        read_words(w, at + 2 + 8 * (4 * part + unit));
        UNROLL
        for (int l = 0; l < 4; l++) {
            const u32 code = w[l / 2] >> (l % 2 * 16) & 0xffff;
            const u32x2 entry = grid_iq2_xs[code & 511];
            put_entry(out + 2 * l, entry.x, entry.y, even_signs(code >> 9));
        }
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ2_XS> to) {
        if (unit == 0) to.dw(0, read_f16(at) * 0.125f);
        const u32 pair = at[66 + 4 * part + unit];
        to.sub(2 * unit, odd(pair & 15));
        to.sub(2 * unit + 1, odd(pair >> 4));
    }
};

struct IQ2_S : IqDefaults {
    static constexpr int bytes = 82, sub = 16;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 out[8];
        const int s = 4 * part + unit;
        const u32 low = read_word(at + 2 + 4 * s), signs = read_word(at + 34 + 4 * s), high = at[66 + s];
        UNROLL
        for (int l = 0; l < 4; l++) {
            const u32x2 entry = grid_iq2_s[(low >> (8 * l) & 0xff) | (high >> (2 * l) & 3) << 8];
            put_entry(out + 2 * l, entry.x, entry.y, signs >> (8 * l));
        }
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ2_S> to) {
        if (unit == 0) to.dw(0, read_f16(at) * 0.125f);
        const u32 pair = at[74 + 4 * part + unit];
        to.sub(2 * unit, odd(pair & 15));
        to.sub(2 * unit + 1, odd(pair >> 4));
    }
};

struct IQ3_XXS : IqDefaults {
    static constexpr int bytes = 98;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 out[8];
        const int s = 4 * part + unit;
        u32 codes[2];
        read_words(codes, at + 2 + 8 * s);
        const u32 word = read_word(at + 66 + 4 * s);
        UNROLL
        for (int l = 0; l < 4; l++) {
            const u32 pair = codes[l / 2] >> (l % 2 * 16);
            put_entry(out + 2 * l, grid_iq3_xxs[pair & 0xff], grid_iq3_xxs[pair >> 8 & 0xff],
                      even_signs(word >> (7 * l) & 127));
        }
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ3_XXS> to) {
        if (unit == 0) to.dw(0, read_f16(at) * 0.25f);
        to.sub(unit, odd(at[69 + 4 * (4 * part + unit)] >> 4));
    }
};

struct IQ3_S : IqDefaults {
    static constexpr int bytes = 110;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 out[8];
        const int s = 4 * part + unit;
        u32 low[2];
        read_words(low, at + 2 + 8 * s);
        const u32 high = at[66 + s], signs = read_word(at + 74 + 4 * s);
        UNROLL
        for (int l = 0; l < 4; l++) {
            const u32 pair = low[l / 2] >> (l % 2 * 16);
            const u32 first = (pair & 0xff) | (high >> (2 * l) & 1) << 8;
            const u32 second = (pair >> 8 & 0xff) | (high >> (2 * l + 1) & 1) << 8;
            put_entry(out + 2 * l, grid_iq3_s[first], grid_iq3_s[second], signs >> (8 * l));
        }
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ3_S> to) {
        if (unit == 0) to.dw(0, read_f16(at));
        to.sub(unit, odd(at[106 + 2 * part + unit / 2] >> (unit % 2 * 4) & 15));
    }
};

struct IQ1_S : IqDefaults {
    static constexpr int bytes = 50, minimums = 32;
    static constexpr Layout layout = DS4;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 out[8];
        const int s = 4 * part + unit;
        const u32 low = read_word(at + 2 + 4 * s), high = read_u16(at + 34 + 2 * s);
        UNROLL
        for (int l = 0; l < 4; l++) {
            const u32x2 entry = grid_iq1[(low >> (8 * l) & 0xff) | (high >> (3 * l) & 7) << 8];
            out[2 * l] = entry.x;
            out[2 * l + 1] = entry.y;
        }
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ1_S> to) {
        if (unit == 0) to.dw(0, read_f16(at));
        if (unit == 1) to.dm(0, read_f16(at) * 0.125f);
        const u32 word = read_u16(at + 34 + 2 * (4 * part + unit));
        const i32 scale = odd(word >> 12 & 7);
        to.sub(unit, scale);
        to.mn(unit, word & 0x8000 ? -scale : scale);
    }
};

struct IQ1_M : IqDefaults {
    static constexpr int bytes = 56, sub = 16;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 out[8];
        const int s = 4 * part + unit;
        const u32 low = read_word(at + 4 * s), high = read_u16(at + 32 + 2 * s);
        UNROLL
        for (int l = 0; l < 4; l++) {
            const u32 nibble = high >> (4 * l) & 15;
            const u32x2 entry = grid_iq1[(low >> (8 * l) & 0xff) | (nibble & 7) << 8];
            out[2 * l] = shifted(entry.x, nibble >> 3);
            out[2 * l + 1] = shifted(entry.y, nibble >> 3);
        }
        put8(words + 8 * unit, out);
    }
    // 8 * grid + 1 or - 1 in each byte.
    static DEVICE u32 shifted(u32 grid, u32 down) {
        const u32 eight = grid << 3 & 0xf8f8f8f8u;
        return down ? minus_bytes(eight, 0x01010101u) : eight | 0x01010101u;
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ1_M> to) {
        if (unit == 0) {
            u32 d = 0;
            UNROLL
            for (int i = 0; i < 4; i++) d |= u32(at[49 + 2 * i] >> 4) << (4 * i);
            to.dw(0, f16_to_f32(u16(d)) * 0.125f);
        }
        const u32 word = read_u16(at + 48 + 2 * (2 * part + unit / 2)) >> (unit % 2 * 6);
        to.sub(2 * unit, odd(word & 7));
        to.sub(2 * unit + 1, odd(word >> 3 & 7));
    }
};

struct IQ4_XS : IqDefaults {
    static constexpr int bytes = 136;
    static constexpr bool past_f16 = true;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        const u32 table[4] = IQ4_TABLE;
        put_looked_up(words + 8 * unit, at + 8 + 16 * (4 * part + unit), table);
    }
    static DEVICE void scales(const u8 *at, int part, int unit, ScaleSink<IQ4_XS> to) {
        if (unit == 0) to.dw(0, read_f16(at));
        const int s = 4 * part + unit;
        const u32 low = at[4 + s / 2] >> (s % 2 * 4) & 15, upper = at[2 + s / 4] >> (s % 4 * 2) & 3;
        to.sub(unit, i32(low | upper << 4) - 32);
    }
};
