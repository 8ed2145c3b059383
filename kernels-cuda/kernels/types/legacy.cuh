// Blocks of 32 values with one f16 scale, and IQ4_NL and MXFP4, which are laid
// out alike. A unit is a block.
#pragma once
#include "../weights.cuh"

template <int block_size, Layout with> struct Block32 : WeightDefaults {
    static constexpr int block = 32, bytes = block_size, group = 32;
    static constexpr Layout layout = with;
};

// Nibbles of 16 bytes: the low ones are the first 16 values.
template <typename F> DEVICE void put_nibbles(u32 *words, const u8 *codes, F change) {
    u32 w[4], out[8];
    read_words(w, codes);
    UNROLL
    for (int i = 0; i < 4; i++) {
        out[i] = change(w[i] & 0x0f0f0f0fu, i);
        out[4 + i] = change(w[i] >> 4 & 0x0f0f0f0fu, 4 + i);
    }
    put8(words, out);
}

DEVICE void put_looked_up(u32 *words, const u8 *codes, const u32 (&table)[4]) {
    u32 w[4], out[8];
    read_words(w, codes);
    UNROLL
    for (int i = 0; i < 4; i++) lookup16(w[i], table, out[i], out[4 + i]);
    put8(words, out);
}

struct Q4_0 : Block32<18, DS4> {
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        put_nibbles(words + 8 * unit, at + unit * bytes + 2, [](u32 x, int) { return minus<8>(x); });
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q4_0> to) {
        to.dw(unit, read_f16(at + unit * bytes));
    }
};

struct Q4_1 : Block32<20, DS4> {
    static constexpr int minimums = 32;
    static constexpr bool minimum_is_one = true;
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        put_nibbles(words + 8 * unit, at + unit * bytes + 4, [](u32 x, int) { return x; });
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q4_1> to) {
        to.dw(unit, read_f16(at + unit * bytes));
        to.dm(unit, read_f16(at + unit * bytes + 2));
    }
};

struct Q5_0 : Block32<22, D4> {
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        const u32 high = read_word(at + unit * bytes + 2);
        put_nibbles(words + 8 * unit, at + unit * bytes + 6,
                    [=](u32 x, int i) { return minus<16>(x | spread_bits(high >> (4 * i)) << 4); });
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q5_0> to) {
        to.dw(unit, read_f16(at + unit * bytes));
    }
};

struct Q5_1 : Block32<24, DS4> {
    static constexpr int minimums = 32;
    static constexpr bool minimum_is_one = true;
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        const u32 high = read_word(at + unit * bytes + 4);
        put_nibbles(words + 8 * unit, at + unit * bytes + 8,
                    [=](u32 x, int i) { return x | spread_bits(high >> (4 * i)) << 4; });
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q5_1> to) {
        to.dw(unit, read_f16(at + unit * bytes));
        to.dm(unit, read_f16(at + unit * bytes + 2));
    }
};

struct Q8_0 : Block32<34, D4> {
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        u32 w[8];
        read_words(w, at + unit * bytes + 2);
        put8(words + 8 * unit, w);
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q8_0> to) {
        to.dw(unit, read_f16(at + unit * bytes));
    }
};

// The values of non-linear four-bit codes, four to a word.
#define IQ4_TABLE {0xbfad9881u, 0xf6eaddcfu, 0x26190d01u, 0x71594535u}
// Twice the value of four-bit floats.
#define E2M1_TABLE {0x03020100u, 0x0c080604u, 0xfdfeff00u, 0xf4f8fafcu}

struct IQ4_NL : Block32<18, D4> {
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        const u32 table[4] = IQ4_TABLE;
        put_looked_up(words + 8 * unit, at + unit * bytes + 2, table);
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<IQ4_NL> to) {
        to.dw(unit, read_f16(at + unit * bytes));
    }
};

struct MXFP4 : Block32<17, D4> {
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        const u32 table[4] = E2M1_TABLE;
        put_looked_up(words + 8 * unit, at + unit * bytes + 1, table);
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<MXFP4> to) {
        const u32 e = at[unit * bytes];
        to.dw(unit, bits_f32(e < 2 ? 0x00200000u << e : (e - 1) << 23));
    }
};

// Four-bit floats with a scale of eight bits per 16 values. A unit is half a block.
struct NVFP4 : WeightDefaults {
    static constexpr int block = 64, bytes = 36, group = 16, sub = 16;
    static constexpr Layout layout = D4;
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        const u32 table[4] = E2M1_TABLE;
        u32 w[4], out[8];
        read_words(w, at + unit / 2 * bytes + 4 + 16 * (unit % 2));
        UNROLL
        for (int i = 0; i < 4; i++) lookup16(w[i], table, out[i / 2 * 4 + i % 2], out[i / 2 * 4 + 2 + i % 2]);
        put8(words + 8 * unit, out);
    }
    // Half of an unsigned e4m3: the top bit has no meaning, except that 0x7f alone is 0.
    static DEVICE float half_ue4m3(u32 code) {
        const u32 exponent = code >> 3 & 15;
        const float mantissa = float(code & 7);
        if (code == 0x7f) return 0.0f;
        if (exponent == 0) return mantissa * bits_f32(0x3a800000u); // 2^-10
        return (8.0f + mantissa) * bits_f32((exponent + 116) << 23);
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<NVFP4> to) {
        UNROLL
        for (int s = 0; s < 2; s++) to.dw(2 * unit + s, half_ue4m3(at[unit / 2 * bytes + unit % 2 * 2 + s]));
    }
};
