// Functions beside exp, as docs/numerics.md writes them: one rounding a line.
#pragma once
#include "base.hpp"

inline float bits(u32 x) { return as_float(x); }
inline float with_sign(float x, float of) {
  return as_float((as_bits(x) & 0x7fffffffu) | (as_bits(of) & 0x80000000u));
}
inline float magnitude(float x) { return as_float(as_bits(x) & 0x7fffffffu); }

// p = p * x + c for each coefficient, from the last but one down.
template <int N> inline float polynomial(const u32 (&c)[N], float x) {
  float p = bits(c[N - 1]);
  for (int i = N - 2; i >= 0; --i)
    p = fma(p, x, bits(c[i]));
  return p;
}

// exp(x) as a sum of two, for x in -21..21.
inline void exp_pair(float x, float &high, float &low) {
  const float n = fma(x, bits(0x3fb8aa3bu), EXP_ROUND) - EXP_ROUND;
  const float r0 = fma(n, bits(0xbf317200u), x);
  const float r = fma(n, bits(0xb5bfbe8eu), r0);
  const float r_low = fma(n, bits(0xb5bfbe8eu), r0 - r);
  const u32 c[6] = {0x3f000000u, 0x3e2aaaabu, 0x3d2aaaabu, 0x3c088889u, 0x3ab60b61u, 0x39500d01u};
  const float p = polynomial(c, r);
  const float one = 1.0f + r;
  const float one_low = ((1.0f - one) + r) + r_low;
  const float v = (r * r) * p;
  const float sum = one + v;
  const float rest = ((one - sum) + v) + one_low;
  const float power = as_float(static_cast<u32>(static_cast<int>(n) + 127) << 23);
  high = sum * power;
  low = rest * power;
}

inline float tanh_f32(float x) {
  if (x != x)
    return bits(0x7fc00000u);
  const float a = magnitude(x);
  float t = 1.0f;
  if (a < 0.5625f) {
    const u32 c[6] = {0xbeaaaaabu, 0x3e088880u, 0xbd5d08fau, 0x3cb2a602u, 0xbc0af9a0u, 0x3b218002u};
    const float u = a * a;
    t = fma(a * u, polynomial(c, u), a);
  } else if (a < 9.0625f) {
    float high, low;
    exp_pair(a + a, high, low);
    const float d = high + 1.0f;
    const float d_low = (1.0f - (d - high)) + low;
    const float q = 2.0f / d;
    float e = fma(-q, d, 2.0f);
    e = fma(-q, d_low, e);
    const float q_low = e * (q * 0.5f);
    const float whole = 1.0f - q;
    const float rest = (1.0f - whole) - q;
    t = whole + (rest - q_low);
  }
  return with_sign(t, x);
}

// a + b rounded, and what the rounding lost.
inline float two_sum(float a, float b, float &lost) {
  const float s = a + b;
  const float t = s - a;
  lost = (a - (s - t)) + (b - t);
  return s;
}

inline float softplus_f32(float x) {
  if (x != x)
    return bits(0x7fc00000u);
  if (x > 20.0f)
    return x;
  if (x < -20.0f)
    return exp_f32(x);
  float high, low;
  exp_pair(-magnitude(x), high, low);
  float f = high, f_low = low, ln2 = 0.0f, rest = 0.0f;
  if (high > bits(0x3ed413cdu)) {
    const float whole = high - 1.0f;
    const float part = (high - (whole + 1.0f)) + low;
    f = whole * 0.5f;
    f_low = part * 0.5f;
    ln2 = bits(0x3f317218u);
    rest = bits(0xb102e308u);
  }
  const u32 c[9] = {0x3eaaaaaau, 0xbe7ffffeu, 0x3e4cceaeu, 0xbe2aada9u, 0x3e11e8ecu,
                    0xbdfe7956u, 0x3def52d3u, 0xbdeb2402u, 0x3d8ecef9u};
  const float p = fma(polynomial(c, f), f, -0.5f);
  const float g = fma(f * f, p, fma(-f, f_low, f_low));
  float e, e2;
  float t = two_sum(x > 0.0f ? x : 0.0f, ln2, e);
  t = two_sum(t, f, e2);
  return t + ((e + (e2 + rest)) + g);
}

inline float softcap_f32(float x, float cap) { return cap * tanh_f32(x / cap); }

inline float erf_f32(float x) {
  if (x != x)
    return bits(0x7fc00000u);
  const float a = magnitude(x);
  float v = 1.0f;
  if (a < bits(0x3f733333u)) {
    const u32 c[7] = {0x3e0375d4u, 0xbec093a1u, 0x3de716f0u, 0xbcdc0593u,
                      0x3baa5311u, 0xba5485bcu, 0x38ac6265u};
    v = fma(a, polynomial(c, a * a), a);
  } else if (a < bits(0x407ad445u)) {
    const u32 c[8] = {0xbe03c0c7u, 0xbf229647u, 0xbdd99f5du, 0x3cc244bau,
                      0xbb69a0c3u, 0x3990d459u, 0x35e8d714u, 0xb5bb134fu};
    v = 1.0f - exp_f32(fma(polynomial(c, a), a, -a));
  }
  return with_sign(v, x);
}

template <typename F> inline F gelu_tanh(F x) {
  const F u = x * fma(x * x, F(as_float(0x3d922279u)), F(as_float(0x3fcc422au)));
  return x / (F(1.0f) + exp_f32(-u));
}

inline float gelu_erf(float x) {
  const float h = 0.5f * x;
  return fma(h, erf_f32(x * bits(0x3f3504f3u)), h);
}
