// Products of bytes.
#pragma once

#include "base.hpp"

// c + the dot products of COUNT / 4 words of four unsigned codes in each lane
// with as many words of signed ones at `b`, which all lanes share.
//
// The instructions name their result only as an early-clobber output: a tied
// operand ("+v") is not kept tied on the way through SPIR-V. They read memory
// that no operand names, hence the clobber: staged codes are stored before.
template <int COUNT> inline vint dot(const vuint *a, const u8 *b, vint c) {
#if DOT == DOT_AVX512_VNNI && LANES == 16
  vint r;
  if constexpr (COUNT == 32)
    asm volatile("vmovdqa64 %1, %0\n\t"
        "vpdpbusd (%10)%{1to16%}, %2, %0\n\t"
        "vpdpbusd 4(%10)%{1to16%}, %3, %0\n\t"
        "vpdpbusd 8(%10)%{1to16%}, %4, %0\n\t"
        "vpdpbusd 12(%10)%{1to16%}, %5, %0\n\t"
        "vpdpbusd 16(%10)%{1to16%}, %6, %0\n\t"
        "vpdpbusd 20(%10)%{1to16%}, %7, %0\n\t"
        "vpdpbusd 24(%10)%{1to16%}, %8, %0\n\t"
        "vpdpbusd 28(%10)%{1to16%}, %9, %0"
        : "=&v"(r)
        : "v"(c), "v"(a[0]), "v"(a[1]), "v"(a[2]), "v"(a[3]), "v"(a[4]), "v"(a[5]), "v"(a[6]),
          "v"(a[7]), "r"(b)
        : "memory");
  else
    asm volatile("vmovdqa64 %1, %0\n\t"
        "vpdpbusd (%6)%{1to16%}, %2, %0\n\t"
        "vpdpbusd 4(%6)%{1to16%}, %3, %0\n\t"
        "vpdpbusd 8(%6)%{1to16%}, %4, %0\n\t"
        "vpdpbusd 12(%6)%{1to16%}, %5, %0"
        : "=&v"(r)
        : "v"(c), "v"(a[0]), "v"(a[1]), "v"(a[2]), "v"(a[3]), "r"(b)
        : "memory");
  return r;
#else
#pragma unroll
  for (int j = 0; j < COUNT / 4; ++j) {
    const u32 w = load32(b + 4 * j);
#if DOT == DOT_AVX_VNNI && LANES == 8
    vint r, bb = vint(static_cast<int>(w));
    asm("vmovdqa %1, %0\n\t%{vex%} vpdpbusd %3, %2, %0" : "=&x"(r) : "x"(c), "x"(a[j]), "x"(bb));
    c = r;
#else
    c += vint(a[j] & 255) * vint(static_cast<i8>(w));
    c += vint(a[j] >> 8 & 255) * vint(static_cast<i8>(w >> 8));
    c += vint(a[j] >> 16 & 255) * vint(static_cast<i8>(w >> 16));
    c += vint(a[j] >> 24) * vint(static_cast<int>(w) >> 24);
#endif
  }
  return c;
#endif
}
