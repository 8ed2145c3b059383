// The scalar operations of docs/numerics.md, one rounding a line.
//
// Everything here is compiled without contraction: a fused operation is
// written as one. The constants are those of strata-core's numerics.
#pragma once
#include "vendor.cuh"

constexpr u32 nan_f32 = 0x7fc00000;

DEVICE bool is_nan(float x) { return (f32_bits(x) & 0x7fffffff) > 0x7f800000; }
DEVICE bool is_finite(float x) { return (f32_bits(x) & 0x7f800000) != 0x7f800000; }
DEVICE bool is_finite_f16(u16 x) { return (x & 0x7c00) != 0x7c00; }
DEVICE float canonical(float x) { return is_nan(x) ? bits_f32(nan_f32) : x; }

// e to the x. 2^n in two factors, so that the first product stays normal and
// the second rounds once.
DEVICE float exp_exact(float x) {
    if (is_nan(x)) return bits_f32(nan_f32);
    if (x > bits_f32(0x42b17217)) return bits_f32(0x7f800000);
    if (x < bits_f32(0xc2cff1b5)) return 0.0f;
    const float round = 12582912.0f; // 1.5 * 2^23: adding it rounds to the nearest integer
    const float n = fma32(x, bits_f32(0x3fb8aa3b), round) - round;
    float r = fma32(n, bits_f32(0xbf317200), x);
    r = fma32(n, bits_f32(0xb5bfbe8e), r);
    float p = bits_f32(0x39500d01);
    p = fma32(p, r, bits_f32(0x3ab60b61));
    p = fma32(p, r, bits_f32(0x3c088889));
    p = fma32(p, r, bits_f32(0x3d2aaaab));
    p = fma32(p, r, bits_f32(0x3e2aaaab));
    p = fma32(p, r, bits_f32(0x3f000000));
    p = fma32(p, r, 1.0f);
    p = fma32(p, r, 1.0f);
    const i32 i = i32(n);
    const i32 half = i >> 1;
    return p * bits_f32(u32(half + 127) << 23) * bits_f32(u32(i - half + 127) << 23);
}

DEVICE float silu(float g) { return div32(g, 1.0f + exp_exact(-g)); }
DEVICE float sigmoid(float x) { return div32(1.0f, 1.0f + exp_exact(-x)); }
DEVICE float swiglu(float g, float u) { return canonical(silu(g) * u); }

// Half away from zero, NaN to 0, clamped to -127..127. Clamping first gives the
// same code, as both ends are integers, and keeps the conversion in range.
DEVICE i32 round_code(float x) {
    if (is_nan(x)) return 0;
    x = x > 127.0f ? 127.0f : x < -127.0f ? -127.0f : x;
    const i32 whole = i32(x);
    const float rest = x - float(whole); // exact
    return whole + (rest >= 0.5f) - (rest <= -0.5f);
}
