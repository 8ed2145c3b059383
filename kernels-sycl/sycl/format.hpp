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

// The parts of 32 values. What a type does not have stays unset.
struct part {
  u32 code[8];     // four codes each, offset by OFFSET
  float scale[2];  // integer sub-scales: per 32 (the first), or per 16
  float dw[2];     // scale per group: per 32 or more (the first), or per 16
  float mn[2];     // integer minimums: per 32 (the first), or per 16
  float dm;        // scale of the minimums, sign included
};

#define BYTES4(n) ((n) * 0x01010101u)

// The four low bits of n, one in each byte.
inline u32 spread4(u32 n) { return (n & 15) * 0x00204081u & BYTES4(1); }

inline u32 low_nibbles(u32 w) { return w & BYTES4(15); }

// ---- 32 values, one f16 scale ----

// Sixteen code bytes: low nibbles, then high ones.
inline void nibbles(const u8 *q, part &out) {
  for (int j = 0; j < 4; ++j) {
    u32 w = load32(q + 4 * j);
    out.code[j] = low_nibbles(w);
    out.code[j + 4] = low_nibbles(w >> 4);
  }
}

inline void fifth_bits(u32 high, part &out) {
  for (int j = 0; j < 8; ++j)
    out.code[j] |= spread4(high >> (4 * j)) << 4;
}

inline void q4_0(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  nibbles(b + 2, out);
}

inline void q4_1(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.dm = from_half(load16(b + 2));
  out.mn[0] = 1.0f;
  nibbles(b + 4, out);
}

inline void q5_0(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  nibbles(b + 6, out);
  fifth_bits(load32(b + 2), out);
}

inline void q5_1(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.dm = from_half(load16(b + 2));
  out.mn[0] = 1.0f;
  nibbles(b + 8, out);
  fifth_bits(load32(b + 4), out);
}

inline void q8_0(const u8 *b, int, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  // Flipping the sign bit of a byte adds 128 to it.
  for (int j = 0; j < 8; ++j)
    out.code[j] = load32(b + 2 + 4 * j) ^ BYTES4(0x80);
}

// ---- K types: 256 values; `s` is which 32 of them ----

// Two-bit codes: bits 2n of byte 32h + m are value 128h + 32n + m.
inline void pairs(const u8 *q, int s, part &out) {
  for (int j = 0; j < 8; ++j)
    out.code[j] = load32(q + 32 * (s / 4) + 4 * j) >> (2 * (s % 4)) & BYTES4(3);
}

inline void q2_k(const u8 *b, int s, const u32 *, part &out) {
  pairs(b + 16, s, out);
  for (int i = 0; i < 2; ++i) {
    out.scale[i] = static_cast<float>(b[2 * s + i] & 15);
    out.mn[i] = static_cast<float>(b[2 * s + i] >> 4);
  }
  out.dw[0] = from_half(load16(b + 80));
  out.dm = -from_half(load16(b + 82));
}

inline void q3_k(const u8 *b, int s, const u32 *, part &out) {
  pairs(b + 32, s, out);
  for (int j = 0; j < 8; ++j)
    out.code[j] |= (load32(b + 4 * j) >> s & BYTES4(1)) << 2;
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
  for (int j = 0; j < 8; ++j)
    out.code[j] = low_nibbles(load32(b + 16 + 32 * (s / 2) + 4 * j) >> (4 * (s % 2)));
}

inline void q5_k(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  out.dm = -from_half(load16(b + 2));
  six_bits(b + 4, s, out);
  for (int j = 0; j < 8; ++j) {
    u32 low = low_nibbles(load32(b + 48 + 32 * (s / 2) + 4 * j) >> (4 * (s % 2)));
    out.code[j] = low | (load32(b + 16 + 4 * j) >> s & BYTES4(1)) << 4;
  }
}

inline void q6_k(const u8 *b, int s, const u32 *, part &out) {
  int half = s / 4, n = s % 4;
  for (int j = 0; j < 8; ++j) {
    u32 low = low_nibbles(load32(b + 64 * half + 32 * (n % 2) + 4 * j) >> (4 * (n / 2)));
    u32 high = load32(b + 128 + 32 * half + 4 * j) >> (2 * n) & BYTES4(3);
    out.code[j] = low | high << 4;
  }
  for (int i = 0; i < 2; ++i)
    out.scale[i] = static_cast<float>(static_cast<i8>(b[192 + 2 * s + i]));
  out.dw[0] = from_half(load16(b + 208));
}

// ---- one- and two-bit codes, ternary digits ----

inline void q1_0(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  for (int j = 0; j < 8; ++j)
    out.code[j] = spread4(b[2 + 4 * s + j / 2] >> (4 * (j % 2))) << 1;
}

inline void q2_0(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b));
  for (int j = 0; j < 8; ++j) {
    u32 byte = b[2 + 8 * s + j];
    out.code[j] = (byte | byte << 6 | byte << 12 | byte << 18) & BYTES4(3);
  }
}

inline void tq2_0(const u8 *b, int s, const u32 *, part &out) {
  out.dw[0] = from_half(load16(b + 64));
  pairs(b, s, out);
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
inline u32 doubled_e2m1(u32 c) {
  u32 b0 = c & BYTES4(1), b1 = c >> 1 & BYTES4(1), b2 = c >> 2 & BYTES4(1);
  u32 magnitude = (c & BYTES4(7)) + (b2 & b0) + ((b2 & b1) << 1) + ((b2 & b1 & b0) << 1);
  u32 negative = (c >> 3 & BYTES4(1)) * 255u;
  return BYTES4(12) + magnitude - ((magnitude & negative) << 1);
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
  nibbles(b + 1, out);
  for (int j = 0; j < 8; ++j)
    out.code[j] = doubled_e2m1(out.code[j]);
}

inline void nvfp4(const u8 *b, int s, const u32 *, part &out) {
  for (int h = 0; h < 2; ++h) {
    int q = 2 * s + h;
    out.dw[h] = ue4m3_half(b[q]);
    for (int j = 0; j < 2; ++j) {
      u32 w = load32(b + 4 + 8 * q + 4 * j);
      out.code[4 * h + j] = doubled_e2m1(low_nibbles(w));
      out.code[4 * h + j + 2] = doubled_e2m1(low_nibbles(w >> 4));
    }
  }
}

// ---- codebooks ----
//
// `grid` is the type's table, an entry being eight values (IQ1, IQ2) in two
// words or four (IQ3) in one; IQ1 entries are stored plus one. For IQ4 it is
// the pairs of values, plus 128, of each pair of codes.

inline float odd(u32 s) { return static_cast<float>(2 * s + 1); }

// Seven sign bits and the eighth that makes their number even.
inline u32 even_signs(u32 code) { return code | (__builtin_popcount(code) & 1) << 7; }

// Four values, negated where the bit is set, plus 128. No value is 0, so that
// negation carries nothing into the next byte.
inline u32 put_signed(u32 values, u32 signs) {
  u32 bits = spread4(signs);
  return ((values ^ bits * 255u) + bits) ^ BYTES4(0x80);
}

inline void put_eight(const u32 *grid, u32 index, u32 signs, u32 *code) {
  code[0] = put_signed(grid[2 * index], signs);
  code[1] = put_signed(grid[2 * index + 1], signs >> 4);
}

inline void iq2_xxs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.125f;
  u32 word = load32(b + 6 + 8 * s);
  out.scale[0] = odd(word >> 28);
  for (int l = 0; l < 4; ++l)
    put_eight(grid, b[2 + 8 * s + l], even_signs(word >> (7 * l) & 127), out.code + 2 * l);
}

inline void iq2_xs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.125f;
  out.scale[0] = odd(b[66 + s] & 15);
  out.scale[1] = odd(b[66 + s] >> 4);
  for (int l = 0; l < 4; ++l) {
    u32 word = load16(b + 2 + 8 * s + 2 * l);
    put_eight(grid, word & 511, even_signs(word >> 9), out.code + 2 * l);
  }
}

inline void iq2_s(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.125f;
  out.scale[0] = odd(b[74 + s] & 15);
  out.scale[1] = odd(b[74 + s] >> 4);
  for (int l = 0; l < 4; ++l) {
    u32 upper = (b[66 + s] >> (2 * l) & 3) << 8;
    put_eight(grid, b[2 + 4 * s + l] | upper, b[34 + 4 * s + l], out.code + 2 * l);
  }
}

inline void iq3_xxs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b)) * 0.25f;
  u32 word = load32(b + 66 + 4 * s);
  out.scale[0] = odd(word >> 28);
  for (int l = 0; l < 4; ++l) {
    u32 signs = even_signs(word >> (7 * l) & 127);
    out.code[2 * l] = put_signed(grid[b[2 + 8 * s + 2 * l]], signs);
    out.code[2 * l + 1] = put_signed(grid[b[2 + 8 * s + 2 * l + 1]], signs >> 4);
  }
}

inline void iq3_s(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b));
  out.scale[0] = odd(b[106 + s / 2] >> (4 * (s % 2)) & 15);
  u32 ninth = b[66 + s];
  for (int i = 0; i < 8; ++i) {
    u32 index = b[2 + 8 * s + i] | (ninth >> i & 1) << 8;
    u32 signs = b[74 + 4 * s + i / 2] >> (4 * (i % 2));
    out.code[i] = put_signed(grid[index], signs);
  }
}

inline void iq1_s(const u8 *b, int s, const u32 *grid, part &out) {
  float d = from_half(load16(b));
  u32 word = load16(b + 34 + 2 * s);
  out.dw[0] = d;
  out.dm = d * 0.125f;
  out.scale[0] = odd(word >> 12 & 7);
  out.mn[0] = word & 0x8000 ? -out.scale[0] : out.scale[0];
  for (int l = 0; l < 4; ++l) {
    u32 index = b[2 + 4 * s + l] | (word >> (3 * l) & 7) << 8;
    out.code[2 * l] = grid[2 * index];
    out.code[2 * l + 1] = grid[2 * index + 1];
  }
}

inline void iq1_m(const u8 *b, int s, const u32 *grid, part &out) {
  u32 d = 0;
  for (int i = 0; i < 4; ++i)
    d |= static_cast<u32>(load16(b + 48 + 2 * i) >> 12) << (4 * i);
  out.dw[0] = from_half(static_cast<u16>(d)) * 0.125f;
  for (int h = 0; h < 2; ++h) {
    int q = 2 * s + h;
    out.scale[h] = odd(load16(b + 48 + 2 * (q / 4)) >> (3 * (q % 4)) & 7);
    for (int e = 0; e < 2; ++e) {
      u32 nibble = b[32 + q] >> (4 * e);
      u32 index = b[2 * q + e] | (nibble & 7) << 8;
      // 8 * value + 128 shifted by one down or up: 8 * (value + 1) + 119 or 121.
      u32 shift = nibble & 8 ? BYTES4(119) : BYTES4(121);
      out.code[4 * h + 2 * e] = (grid[2 * index] << 3) + shift;
      out.code[4 * h + 2 * e + 1] = (grid[2 * index + 1] << 3) + shift;
    }
  }
}

// Values of four codes, one nibble in each byte.
inline u32 iq4_values(const u32 *grid, u32 codes) {
  u32 both = codes | codes >> 4; // bytes 0 and 2 hold two codes each
  return grid[both & 255] | grid[both >> 16 & 255] << 16;
}

inline void iq4_nl(const u8 *b, int, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b));
  nibbles(b + 2, out);
  for (int j = 0; j < 8; ++j)
    out.code[j] = iq4_values(grid, out.code[j]);
}

inline void iq4_xs(const u8 *b, int s, const u32 *grid, part &out) {
  out.dw[0] = from_half(load16(b));
  int low = b[4 + s / 2] >> (4 * (s % 2)) & 15;
  int high = load16(b + 2) >> (2 * s) & 3;
  out.scale[0] = static_cast<float>((low | high << 4) - 32);
  nibbles(b + 8 + 16 * s, out);
  for (int j = 0; j < 8; ++j)
    out.code[j] = iq4_values(grid, out.code[j]);
}
