// Functions beside exp, as strata-core's numerics write them: one rounding a line.
#pragma once
#include "numerics.cuh"

DEVICE float with_sign(float x, float of) { return bits_f32((f32_bits(x) & 0x7fffffff) | (f32_bits(of) & 0x80000000)); }

// p = p * x + c for each coefficient, from the last but one down.
template <int n> DEVICE float polynomial(const u32 (&c)[n], float x) {
    float p = bits_f32(c[n - 1]);
    UNROLL
    for (int i = n - 2; i >= 0; i--) p = fma32(p, x, bits_f32(c[i]));
    return p;
}

// exp(x) as a sum of two, for x in -21..21.
DEVICE void exp_pair(float x, float &high, float &low) {
    const float round = 12582912.0f;
    const float n = fma32(x, bits_f32(0x3fb8aa3b), round) - round;
    const float r0 = fma32(n, bits_f32(0xbf317200), x);
    const float r = fma32(n, bits_f32(0xb5bfbe8e), r0);
    const float r_low = fma32(n, bits_f32(0xb5bfbe8e), r0 - r);
    const u32 c[6] = {0x3f000000, 0x3e2aaaab, 0x3d2aaaab, 0x3c088889, 0x3ab60b61, 0x39500d01};
    const float p = polynomial(c, r);
    const float one = 1.0f + r;
    const float one_low = ((1.0f - one) + r) + r_low;
    const float v = (r * r) * p;
    const float sum = one + v;
    const float rest = ((one - sum) + v) + one_low;
    const float power = bits_f32(u32(i32(n) + 127) << 23);
    high = sum * power;
    low = rest * power;
}

DEVICE float tanh_exact(float x) {
    if (is_nan(x)) return bits_f32(nan_f32);
    const float a = magnitude(x);
    float t = 1.0f;
    if (a < 0.5625f) {
        const u32 c[6] = {0xbeaaaaab, 0x3e088880, 0xbd5d08fa, 0x3cb2a602, 0xbc0af9a0, 0x3b218002};
        const float u = a * a;
        t = fma32(a * u, polynomial(c, u), a);
    } else if (a < 9.0625f) {
        float high, low;
        exp_pair(a + a, high, low);
        const float d = high + 1.0f;
        const float d_low = (1.0f - (d - high)) + low;
        const float q = div32(2.0f, d);
        float e = fma32(-q, d, 2.0f);
        e = fma32(-q, d_low, e);
        const float q_low = e * (q * 0.5f);
        const float whole = 1.0f - q;
        const float rest = (1.0f - whole) - q;
        t = whole + (rest - q_low);
    }
    return with_sign(t, x);
}

// a + b rounded, and what the rounding lost.
DEVICE float two_sum(float a, float b, float &lost) {
    const float s = a + b;
    const float t = s - a;
    lost = (a - (s - t)) + (b - t);
    return s;
}

DEVICE float softplus_exact(float x) {
    if (is_nan(x)) return bits_f32(nan_f32);
    if (x > 20.0f) return x;
    if (x < -20.0f) return exp_exact(x);
    float high, low;
    exp_pair(-magnitude(x), high, low);
    float f = high, f_low = low, ln2 = 0.0f, rest = 0.0f;
    if (high > bits_f32(0x3ed413cd)) {
        const float whole = high - 1.0f;
        const float part = (high - (whole + 1.0f)) + low;
        f = whole * 0.5f, f_low = part * 0.5f, ln2 = bits_f32(0x3f317218), rest = bits_f32(0xb102e308);
    }
    const u32 c[9] = {0x3eaaaaaa, 0xbe7ffffe, 0x3e4cceae, 0xbe2aada9, 0x3e11e8ec,
                      0xbdfe7956, 0x3def52d3, 0xbdeb2402, 0x3d8ecef9};
    const float p = fma32(polynomial(c, f), f, -0.5f);
    const float g = fma32(f * f, p, fma32(-f, f_low, f_low));
    float e, e2;
    float t = two_sum(x > 0.0f ? x : 0.0f, ln2, e);
    t = two_sum(t, f, e2);
    return t + ((e + (e2 + rest)) + g);
}

DEVICE float softcap_exact(float x, float cap) { return cap * tanh_exact(div32(x, cap)); }

DEVICE float erf_exact(float x) {
    if (is_nan(x)) return bits_f32(nan_f32);
    const float a = magnitude(x);
    float v = 1.0f;
    if (a < bits_f32(0x3f733333)) {
        const u32 c[7] = {0x3e0375d4, 0xbec093a1, 0x3de716f0, 0xbcdc0593, 0x3baa5311, 0xba5485bc, 0x38ac6265};
        v = fma32(a, polynomial(c, a * a), a);
    } else if (a < bits_f32(0x407ad445)) {
        const u32 c[8] = {0xbe03c0c7, 0xbf229647, 0xbdd99f5d, 0x3cc244ba,
                          0xbb69a0c3, 0x3990d459, 0x35e8d714, 0xb5bb134f};
        v = 1.0f - exp_exact(fma32(polynomial(c, a), a, -a));
    }
    return with_sign(v, x);
}

DEVICE float gelu_tanh(float x) {
    const float u = x * fma32(x * x, bits_f32(0x3d922279), bits_f32(0x3fcc422a));
    return div32(x, 1.0f + exp_exact(-u));
}

DEVICE float gelu_erf(float x) {
    const float h = 0.5f * x;
    return fma32(h, erf_exact(x * bits_f32(0x3f3504f3)), h);
}
