// The 25 weight types: one decoder each, from a block's bytes to the parts of
// 32 consecutive values.
//
// A decoder works on four values at a time: a `u32` holds four codes, value
// 4j in the lowest byte. Codes are unsigned, `iw / sub-scale + OFFSET`, since
// that is what byte products of CPUs take on one side; the product takes
// OFFSET times the activations' sum off again, exactly.
//
// The host defines FORMAT (the decoder's name) and, from the same table that
// every backend uses, BLOCK, BYTES, GROUP, SUB_SCALE, MIN_GROUP (0: none) and
// OFFSET.
#pragma once

#include "base.hpp"

typedef u32 v4u __attribute__((ext_vector_type(4)));
typedef u32 v8u __attribute__((ext_vector_type(8)));

// The parts of 32 values. What a type does not have stays unset.
struct part {
  v8u code;        // four codes each, offset by OFFSET
  float scale[2];  // integer sub-scales: per 32 (the first), or per 16
  float dw[2];     // scale per group: per 32 or more (the first), or per 16
  float mn[2];     // integer minimums: per 32 (the first), or per 16
  float dm;        // scale of the minimums, sign included
};

#define BYTES4(n) ((n) * 0x01010101u)

// The four low bits of n, one in each byte.
template <typename T> inline T spread4(T n) { return (n & 15) * 0x00204081u & BYTES4(1); }

template <typename T> inline T low_nibbles(T w) { return w & BYTES4(15); }

inline v8u join(v4u low, v4u high) {
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7);
}

// ---- 32 values, one f16 scale ----

// Sixteen code bytes: low nibbles, then high ones.
inline v8u nibbles(const u8 *q) {
  v4u w = load<v4u>(q);
  return join(low_nibbles(w), low_nibbles(w >> 4));
}

inline v8u fifth_bits(u32 high) {
  const v8u shift = {0, 4, 8, 12, 16, 20, 24, 28};
  return spread4(v8u(high) >> shift) << 4;
}

inline void q4_0(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.code = nibbles(b + 2);
}

inline void q4_1(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.dm = from_half(load16(b + 2));
  out.mn[0] = 1.0f;
  out.code = nibbles(b + 4);
}

inline void q5_0(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.code = nibbles(b + 6) | fifth_bits(load32(b + 2));
}

inline void q5_1(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.dm = from_half(load16(b + 2));
  out.mn[0] = 1.0f;
  out.code = nibbles(b + 8) | fifth_bits(load32(b + 4));
}

inline void q8_0(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  // Flipping the sign bit of a byte adds 128 to it.
  out.code = load<v8u>(b + 2) ^ BYTES4(0x80);
}

// ---- K types: 256 values; `s` is which 32 of them ----

// Two-bit codes: bits 2n of byte 32h + m are value 128h + 32n + m.
inline v8u pairs(const u8 *q, int s) {
  return load<v8u>(q + 32 * (s / 4)) >> (2 * (s % 4)) & BYTES4(3);
}

// Bit s of the 32 bytes at `q`, in each byte.
inline v8u bits(const u8 *q, int s) { return load<v8u>(q) >> s & BYTES4(1); }

inline void q2_k(const u8 *b, int s, const u32 *, part &out) {
  out.code = pairs(b + 16, s);
  for (int i = 0; i < 2; ++i) {
    out.scale[i] = static_cast<float>(b[2 * s + i] & 15);
    out.mn[i] = static_cast<float>(b[2 * s + i] >> 4);
  }
  out.dw[0] = from_half(load16(b + 80));
  out.dm = -from_half(load16(b + 82));
}

inline void q3_k(const u8 *b, int s, const u32 *, part &out) {
  out.code = pairs(b + 32, s) | bits(b, s) << 2;
  const u8 *packed = b + 96;
  for (int i = 0; i < 2; ++i) {
    int n = 2 * s + i;
    int low = n < 8 ? packed[n] & 15 : packed[n - 8] >> 4;
    int high = packed[8 + n % 4] >> (2 * (n / 4)) & 3;
    out.scale[i] = static_cast<float>((low | high << 4) - 32);
  }
  out.dw[0] = from_half(load16(b + 108));
}

// The six-bit scale and minimum of Q4_K and Q5_K.
inline void six_bits(const u8 *packed, int s, part &out) {
  int scale, minimum;
  if (s < 4) {
    scale = packed[s] & 63;
    minimum = packed[s + 4] & 63;
  } else {
    scale = (packed[s + 4] & 15) | packed[s - 4] >> 6 << 4;
    minimum = packed[s + 4] >> 4 | packed[s] >> 6 << 4;
  }
  out.scale[0] = static_cast<float>(scale);
  out.mn[0] = static_cast<float>(minimum);
}

inline void q4_k(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.dm = -from_half(load16(b + 2));
  six_bits(b + 4, s, out);
  out.code = low_nibbles(load<v8u>(b + 16 + 32 * (s / 2)) >> (4 * (s % 2)));
}

inline void q5_k(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.dm = -from_half(load16(b + 2));
  six_bits(b + 4, s, out);
  out.code = low_nibbles(load<v8u>(b + 48 + 32 * (s / 2)) >> (4 * (s % 2))) |
             bits(b + 16, s) << 4;
}

inline void q6_k(const u8 *b, int s, const u32 *, part &out) {
  int half = s / 4, n = s % 4;
  out.code = low_nibbles(load<v8u>(b + 64 * half + 32 * (n % 2)) >> (4 * (n / 2))) |
             pairs(b + 128, s) << 4;
  for (int i = 0; i < 2; ++i)
    out.scale[i] = static_cast<float>(static_cast<i8>(b[192 + 2 * s + i]));
  out.dw[0] = from_half(load16(b + 208));
}

// ---- one- and two-bit codes, ternary digits ----

inline void q1_0(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  const v8u shift = {0, 4, 8, 12, 16, 20, 24, 28};
  out.code = spread4(v8u(load32(b + 2 + 4 * s)) >> shift) << 1;
}

inline void q2_0(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  // One code byte in the low byte of each word.
  const v4u shift = {0, 8, 16, 24};
  const v8u c = join(v4u(load32(b + 2 + 8 * s)) >> shift, v4u(load32(b + 6 + 8 * s)) >> shift) & 255;
  out.code = (c | c << 6 | c << 12 | c << 18) & BYTES4(3);
}

inline void tq2_0(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b + 64));
  out.code = pairs(b, s);
}

// Digit n of a byte that is a base-3 fraction: see the format's description.
inline u32 digit(u32 byte, u32 power) { return ((byte * power & 255) * 3) >> 8; }

inline void tq1_0(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b + 52));
  // Powers of three by digit, eight bits each: 1, 3, 9, 27, 81.
  const u64 powers = 0x511b090301ul;
  for (int j = 0; j < 8; ++j) {
    u32 w = 0;
    for (int i = 0; i < 4; ++i) {
      int m = 4 * j + i;
      int at, n;
      if (s < 5) {
        at = m, n = s;
      } else if (32 * s + m < 240) {
        at = 32 + m % 16, n = 2 * (s - 5) + m / 16;
      } else {
        at = 48 + m % 4, n = (m - 16) / 4;
      }
      w |= digit(b[at], static_cast<u32>(powers >> (8 * n)) & 255) << (8 * i);
    }
    out.code[j] = w;
  }
}

// ---- four-bit floats ----

// Twice the e2m1 value of four codes, plus 12: magnitudes 0 1 2 3 4 6 8 12.
template <typename T> inline T doubled_e2m1(T c) {
  T b0 = c & BYTES4(1), b1 = c >> 1 & BYTES4(1), b2 = c >> 2 & BYTES4(1);
  T magnitude = (c & BYTES4(7)) + (b2 & b0) + ((b2 & b1) << 1) + ((b2 & b1 & b0) << 1);
  T negative = (c >> 3 & BYTES4(1)) * 255u;
  return magnitude + BYTES4(12) - ((magnitude & negative) << 1);
}

inline float e8m0_half(u32 e) {
  return as_float(e < 2 ? 0x00200000u << e : (e - 1) << 23);
}

inline float ue4m3_half(u32 code) {
  u32 exponent = code >> 3 & 15;
  float mantissa = static_cast<float>(code & 7);
  if (code == 0x7f)
    return 0.0f;
  if (exponent == 0)
    return mantissa * (1.0f / 1024.0f);
  return (8.0f + mantissa) * as_float((exponent + 127 - 11) << 23);
}

inline void mxfp4(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = e8m0_half(b[0]);
  out.code = doubled_e2m1(nibbles(b + 1));
}

inline void nvfp4(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = ue4m3_half(b[2 * s]);
  out.dw[1] = ue4m3_half(b[2 * s + 1]);
  const v4u w = load<v4u>(b + 4 + 16 * s);
  const v8u both = join(low_nibbles(w), low_nibbles(w >> 4));
  out.code = doubled_e2m1(__builtin_shufflevector(both, both, 0, 1, 4, 5, 2, 3, 6, 7));
}

// ---- codebooks ----
//
// `grid` is the type's table, an entry being eight values (IQ1, IQ2) in two
// words or four (IQ3) in one; IQ1 entries are stored plus one. For IQ4 it is
// the pairs of values, plus 128, of each pair of codes.

inline float odd(u32 s) { return static_cast<float>(2 * s + 1); }

// Seven sign bits and the eighth that makes their number even.
inline u32 even_signs(u32 code) { return code | (__builtin_popcount(code) & 1) << 7; }

// 32 values, negated where their bit of `signs` is set, plus 128. No value is
// 0, so that negation carries nothing into the next byte.
inline v8u put_signed(v8u values, u32 signs) {
  const v8u shift = {0, 4, 8, 12, 16, 20, 24, 28};
  const v8u bits = spread4(v8u(signs) >> shift);
  return ((values ^ bits * 255u) + bits) ^ BYTES4(0x80);
}

// The signs of four seven-bit codes, 32 bits in all.
inline u32 put_even(u32 a, u32 b, u32 c, u32 d) {
  return even_signs(a) | even_signs(b) << 8 | even_signs(c) << 16 | even_signs(d) << 24;
}

// Four entries of eight values.
inline v8u eights(const u32 *grid, u32 a, u32 b, u32 c, u32 d) {
  return v8u{grid[2 * a], grid[2 * a + 1], grid[2 * b], grid[2 * b + 1],
             grid[2 * c], grid[2 * c + 1], grid[2 * d], grid[2 * d + 1]};
}

inline void iq2_xxs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.125f;
  const u32 word = load32(b + 6 + 8 * s);
  const u8 *q = b + 2 + 8 * s;
  out.scale[0] = odd(word >> 28);
  out.code = put_signed(
      eights(grid, q[0], q[1], q[2], q[3]),
      put_even(word & 127, word >> 7 & 127, word >> 14 & 127, word >> 21 & 127));
}

inline void iq2_xs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.125f;
  out.scale[0] = odd(b[66 + s] & 15);
  out.scale[1] = odd(b[66 + s] >> 4);
  const u32 w = load32(b + 2 + 8 * s), x = load32(b + 6 + 8 * s);
  out.code = put_signed(eights(grid, w & 511, w >> 16 & 511, x & 511, x >> 16 & 511),
                        put_even(w >> 9 & 127, w >> 25, x >> 9 & 127, x >> 25));
}

inline void iq2_s(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.125f;
  out.scale[0] = odd(b[74 + s] & 15);
  out.scale[1] = odd(b[74 + s] >> 4);
  const u8 *q = b + 2 + 4 * s;
  const u32 h = b[66 + s];
  out.code = put_signed(eights(grid, q[0] | (h & 3) << 8, q[1] | (h & 12) << 6,
                               q[2] | (h & 48) << 4, q[3] | (h & 192) << 2),
                        load32(b + 34 + 4 * s));
}

inline void iq3_xxs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.25f;
  const u32 word = load32(b + 66 + 4 * s);
  const u8 *q = b + 2 + 8 * s;
  out.scale[0] = odd(word >> 28);
  const v8u values = {grid[q[0]], grid[q[1]], grid[q[2]], grid[q[3]],
                      grid[q[4]], grid[q[5]], grid[q[6]], grid[q[7]]};
  out.code = put_signed(
      values, put_even(word & 127, word >> 7 & 127, word >> 14 & 127, word >> 21 & 127));
}

inline void iq3_s(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b));
  out.scale[0] = odd(b[106 + s / 2] >> (4 * (s % 2)) & 15);
  const u8 *q = b + 2 + 8 * s;
  const u32 h = b[66 + s];
  const v8u values = {
      grid[q[0] | (h << 8 & 256)], grid[q[1] | (h << 7 & 256)], grid[q[2] | (h << 6 & 256)],
      grid[q[3] | (h << 5 & 256)], grid[q[4] | (h << 4 & 256)], grid[q[5] | (h << 3 & 256)],
      grid[q[6] | (h << 2 & 256)], grid[q[7] | (h << 1 & 256)]};
  out.code = put_signed(values, load32(b + 74 + 4 * s));
}

inline void iq1_s(const u8 *b, int s, const u32 *grid, part &out) {
  const float d = from_half(load16(b));
  const u32 h = load16(b + 34 + 2 * s);
  const u8 *q = b + 2 + 4 * s;
  out.dw[0] = d;
  out.dm = d * 0.125f;
  out.scale[0] = odd(h >> 12 & 7);
  out.mn[0] = h & 0x8000 ? -out.scale[0] : out.scale[0];
  out.code = eights(grid, q[0] | (h & 7) << 8, q[1] | (h & 070) << 5, q[2] | (h & 0700) << 2,
                    q[3] | (h >> 1 & 0x700));
}

inline void iq1_m(const u8 *b, int s, const u32 *grid, part &out) {
  u32 d = 0;
  for (int i = 0; i < 4; ++i)
    d |= static_cast<u32>(load16(b + 48 + 2 * i) >> 12) << (4 * i);
  out.dw[0] = from_half(static_cast<u16>(d)) * 0.125f;
  const u32 scales = load16(b + 48 + 2 * (s / 2)) >> (6 * (s % 2));
  out.scale[0] = odd(scales & 7);
  out.scale[1] = odd(scales >> 3 & 7);
  const u8 *q = b + 4 * s;
  const u32 h = load16(b + 32 + 2 * s);
  const v8u values = eights(grid, q[0] | (h & 7) << 8, q[1] | (h & 0x70) << 4,
                            q[2] | (h & 0x700), q[3] | (h >> 4 & 0x700));
  // 8 * value + 128 shifted by one down or up: 8 * (value + 1) + 119 or 121.
  const v8u shift = {3, 3, 7, 7, 11, 11, 15, 15};
  out.code = (values << 3) + (BYTES4(121) - (v8u(h) >> shift & 1) * BYTES4(2));
}

// Values of 32 codes, one nibble in each byte.
inline v8u iq4_values(const u32 *grid, v8u codes) {
  const v8u both = codes | codes >> 4; // bytes 0 and 2 hold two codes each
  v8u out;
  for (int j = 0; j < 8; ++j)
    out[j] = grid[both[j] & 255] | grid[both[j] >> 16 & 255] << 16;
  return out;
}

inline void iq4_nl(const u8 *b, int, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b));
  out.code = iq4_values(grid, nibbles(b + 2));
}

inline void iq4_xs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b));
  int low = b[4 + s / 2] >> (4 * (s % 2)) & 15;
  int high = load16(b + 2) >> (2 * s) & 3;
  out.scale[0] = static_cast<float>((low | high << 4) - 32);
  out.code = iq4_values(grid, nibbles(b + 8 + 16 * s));
}
