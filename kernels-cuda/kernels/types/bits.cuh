// One- and two-bit codes and ternary digits.
#pragma once
#include "../weights.cuh"

// A unit is 32 values.
struct Q1_0 : WeightDefaults {
    static constexpr int block = 128, bytes = 18, group = 128;
    static constexpr Layout layout = D4;
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        const u32 bits = read_word(at + 2 + 4 * unit);
        u32 out[8];
        UNROLL
        for (int i = 0; i < 8; i++) out[i] = minus<1>(2 * spread_bits(bits >> (4 * i)));
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q1_0> to) {
        if (unit == 0) to.dw(0, read_f16(at));
    }
};

// A unit is half a block; a byte is four consecutive values.
struct Q2_0 : WeightDefaults {
    static constexpr int block = 64, bytes = 18, group = 64;
    static constexpr Layout layout = D4;
    static DEVICE void decode(const u8 *at, int, int unit, u32 *words) {
        u32 w[2], out[8];
        read_words(w, at + unit / 2 * bytes + 2 + 8 * (unit % 2));
        UNROLL
        for (int i = 0; i < 8; i++) {
            const u32 byte = w[i / 4] >> (i % 4 * 8) & 0xff;
            const u32 pairs = (byte | byte << 12) & 0x000f000fu;
            out[i] = minus<1>((pairs | pairs << 6) & 0x03030303u);
        }
        put8(words + 8 * unit, out);
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<Q2_0> to) {
        if (unit % 2 == 0) to.dw(unit / 2, read_f16(at + unit / 2 * bytes));
    }
};

// A unit is eight code bytes of the half, each of which has a value in every 32.
struct TQ2_0 : WeightDefaults {
    static constexpr int block = 256, bytes = 66, group = 256;
    static constexpr Layout layout = D4;
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        u32 w[2];
        read_words(w, at + 32 * part + 8 * unit);
        UNROLL
        for (int n = 0; n < 4; n++)
            put2(words + 8 * n + 2 * unit, minus<1>(w[0] >> (2 * n) & 0x03030303u),
                 minus<1>(w[1] >> (2 * n) & 0x03030303u));
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<TQ2_0> to) {
        if (unit == 0) to.dw(0, read_f16(at + 64));
    }
};

// A byte is a fraction in base 3: times a power of three, modulo 256, brings a
// digit to the front, and times three carries it out.
struct TQ1_0 : WeightDefaults {
    static constexpr int block = 256, bytes = 54, group = 256;
    static constexpr Layout layout = D4;
    static DEVICE u32 digits(u32 w, u32 power) {
        const u32 even = ((w & 0x00ff00ffu) * power & 0x00ff00ffu) * 3 >> 8 & 0x00ff00ffu;
        const u32 odd = ((w >> 8 & 0x00ff00ffu) * power & 0x00ff00ffu) * 3 >> 8 & 0x00ff00ffu;
        return minus<1>(even | odd << 8);
    }
    static DEVICE void decode(const u8 *at, int part, int unit, u32 *words) {
        const u32 powers[5] = {1, 3, 9, 27, 81};
        u32 w[2];
        read_words(w, at + 8 * unit);
        if (part == 0) {
            UNROLL
            for (int n = 0; n < 4; n++)
                put2(words + 8 * n + 2 * unit, digits(w[0], powers[n]), digits(w[1], powers[n]));
            return;
        }
        // Values 128..160 are the last digits of these bytes; then come 16
        // bytes of five digits, and four bytes of four.
        put2(words + 2 * unit, digits(w[0], 81), digits(w[1], 81));
        const u32 second = read_word(at + 32 + 4 * unit);
        UNROLL
        for (int n = 0; n < 5; n++) words[8 + 4 * n + unit] = digits(second, powers[n]);
        const u32 power = unit == 0 ? 1 : unit == 1 ? 3 : unit == 2 ? 9 : 27;
        words[28 + unit] = digits(read_word(at + 48), power);
    }
    static DEVICE void scales(const u8 *at, int, int unit, ScaleSink<TQ1_0> to) {
        if (unit == 0) to.dw(0, read_f16(at + 52));
    }
};
