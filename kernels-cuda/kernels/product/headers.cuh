// Headers of activation blocks: from 16 bytes to the scales and sums of a column.
#pragma once
#include "../weights.cuh"

template <typename T> struct Headers {
    static constexpr int header_bytes = block_bytes - block_values;
    // Floats of a column and chunk: a scale for every 32 values, then the sums that
    // minimums are multiplied with.
    static constexpr int sums = T::minimums ? chunk_values / T::minimums : 0;
    static constexpr int count = chunk_values / 32 + sums;

    u32 words[4];
    i32 last[2]; // sums of the codes of values 96..112 and 112..128

    // From a block of any alignment.
    DEVICE void read(const u8 *block, bool aligned) {
        read16(words, block, aligned);
        if constexpr (T::layout == D2S6 && T::minimums != 0) {
            UNROLL
            for (int i = 0; i < 2; i++) {
                u32 codes[4];
                read16(codes, block + header_bytes + 96 + 16 * i, aligned);
                last[i] = 0;
                UNROLL
                for (int w = 0; w < 4; w++) last[i] = dot4(codes[w], 0x01010101, last[i]);
            }
        }
    }
    static DEVICE void read16(u32 (&w)[4], const u8 *from, bool aligned) {
        if (aligned) {
            const u32x4 all = *reinterpret_cast<const u32x4 *>(from);
            w[0] = all.x, w[1] = all.y, w[2] = all.z, w[3] = all.w;
        } else {
            read_words(w, from);
        }
    }

    static DEVICE float half_of(u32 word, int upper) { return f16_to_f32(u16(upper ? word >> 16 : word)); }

    // To the scales of a column, `stride` floats apart.
    DEVICE void store(float *to, int stride) const {
        UNROLL
        for (int s = 0; s < 4; s++) {
            const float d = T::layout == D4    ? bits_f32(words[s])
                            : T::layout == DS4 ? half_of(words[s], 0)
                                               : half_of(words[0], s / 2);
            to[s * stride] = d;
        }
        UNROLL
        for (int s = 0; s < sums; s++) {
            float sum;
            if (T::layout == DS4)
                sum = half_of(words[s % 4], 1);
            else if (s < 6)
                sum = half_of(words[1 + s / 2], s % 2);
            else
                sum = float(last[s % 2]) * half_of(words[0], 1);
            // A minimum that is 1 multiplies nothing: its u is the sum added to +0.
            to[(4 + s) * stride] = T::minimum_is_one ? sum + 0.0f : sum;
        }
    }
};
