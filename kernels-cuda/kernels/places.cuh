// An order of scores that integers have.
#pragma once
#include "numerics.cuh"

// Scores in an order that integers have: NaN as -inf, -0 as +0; ties go to the
// smaller id. No two experts of a token have the same place.
DEVICE u64 place(float score, u32 expert) {
    u32 bits = is_nan(score) ? 0xff800000 : f32_bits(score);
    bits = bits == 0x80000000 ? 0 : bits;
    bits = bits & 0x80000000 ? ~bits : bits | 0x80000000;
    return u64(bits) << 32 | u32(~expert);
}

DEVICE u64 max_in_wave(u64 x) {
    UNROLL
    for (int mask = wave_size / 2; mask > 0; mask /= 2) {
        const u64 other = u64(shuffle_xor(u32(x >> 32), mask)) << 32 | shuffle_xor(u32(x), mask);
        x = other > x ? other : x;
    }
    return x;
}
