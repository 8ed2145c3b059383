// What the decoders of the weight types share.
//
// A weight type is a struct with
//   block, bytes     values and bytes of a block
//   layout           the q8_1 layout it is multiplied with
//   group            values per float scale
//   sub              values per integer sum: 32, or 16 where a sub-scale or a
//                    float scale covers no more
//   scaled           whether a sum is multiplied with an integer sub-scale; if
//                    not, the codes are the integers of docs/formats.md ...
//   negated          ... or their negatives, where those fit a byte
//   past_f16         whether codes times sub-scales may be past 2048 (up to 4096), from
//                    where f16 does not hold all integers
//   minimums         values per minimum, 0 where there is none
//   minimum_is_one   whether the integer of the minimum is always 1
//   decode(block, part, unit, words)
//                    a quarter of the 128 values of a chunk to signed bytes;
//                    `words` is the chunk's 32 words of four values
//   scales(block, part, unit, to)
//                    that quarter's scales to `to`, see Scales
//
// A chunk is 128 consecutive values of a row: `block` points to its first
// block, or to the block it is `part` 0 or 1 of. Blocks have any alignment:
// they are read in whole words and shifted together, so that no load leaves
// the words that the block touches.
#pragma once
#include "quantize.cuh"

constexpr int chunk_values = block_values;

template <int n> DEVICE void read_words(u32 (&w)[n], const u8 *at) {
    const u32 skip = u32(u64(at)) & 3;
    const u32 *from = reinterpret_cast<const u32 *>(at - skip);
    u32 low = from[0];
    UNROLL
    for (int i = 0; i < n; i++) {
        const u32 high = from[i + 1 < n || skip ? i + 1 : i];
        w[i] = funnel(low, high, 8 * skip);
        low = high;
    }
}

DEVICE u32 read_word(const u8 *at) {
    u32 w[1];
    read_words(w, at);
    return w[0];
}

DEVICE u32 read_u16(const u8 *at) { return at[0] | u32(at[1]) << 8; }
DEVICE float read_f16(const u8 *at) { return f16_to_f32(u16(read_u16(at))); }

// Words to shared memory in one store; `to` is as aligned as they are together.
DEVICE void put2(u32 *to, u32 a, u32 b) { *reinterpret_cast<u32x2 *>(to) = {a, b}; }
DEVICE void put4(u32 *to, u32 a, u32 b, u32 c, u32 d) { *reinterpret_cast<u32x4 *>(to) = {a, b, c, d}; }
DEVICE void put8(u32 *to, const u32 (&w)[8]) {
    put4(to, w[0], w[1], w[2], w[3]);
    put4(to + 4, w[4], w[5], w[6], w[7]);
}

// x - n in each byte, for bytes of x below 128 and n up to 128.
template <u32 n> DEVICE u32 minus(u32 x) { return (x + (0x80 - n) * 0x01010101u) ^ 0x80808080u; }

// a - b in each byte, modulo 256.
DEVICE u32 minus_bytes(u32 a, u32 b) {
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}

// Bit i of four to bit 0 of byte i.
DEVICE u32 spread_bits(u32 bits) { return (bits & 15) * 0x00204081u & 0x01010101u; }

// The four bytes of x, none 0, negated where the bit is set.
DEVICE u32 with_signs(u32 x, u32 bits) {
    const u32 ones = spread_bits(bits);
    return (x ^ ones * 255) + ones;
}

// Eight signs of a seven-bit code: the eighth makes their number even.
DEVICE u32 even_signs(u32 code) { return code | (popcount(code) & 1) << 7; }

// Which scales a chunk of a weight row has, as floats, one after the other.
template <typename T> struct Scales {
    // Integer sub-scales, one per sum.
    static constexpr int sub = 0, subs = T::scaled ? chunk_values / T::sub : 0;
    // Float scales; one, too, for groups of several chunks.
    static constexpr int dw = sub + subs, dws = T::group < chunk_values ? chunk_values / T::group : 1;
    // Integer minimums.
    static constexpr int mn = dw + dws, mns = T::minimums && !T::minimum_is_one ? chunk_values / T::minimums : 0;
    // The minimums' scale.
    static constexpr int dm = mn + mns, dms = T::minimums ? dws : 0;
    static constexpr int count = dm + dms;
};

// Where `scales` puts them: `stride` floats apart.
template <typename T> struct ScaleSink {
    float *to;
    int stride;

    DEVICE void sub(int i, i32 x) const { to[(Scales<T>::sub + i) * stride] = float(x); }
    DEVICE void dw(int i, float x) const { to[(Scales<T>::dw + i) * stride] = x; }
    DEVICE void mn(int i, i32 x) const { to[(Scales<T>::mn + i) * stride] = float(x); }
    DEVICE void dm(int i, float x) const { to[(Scales<T>::dm + i) * stride] = x; }
};

// The defaults that most types share.
struct WeightDefaults {
    static constexpr int sub = 32, minimums = 0;
    // Buffers of raw weights that pay where a tile has room for two: decoders
    // with much to keep are better off after the multiplication.
    static constexpr int raw_buffers = 2;
    static constexpr bool scaled = false, negated = false, minimum_is_one = false, past_f16 = false;
};
