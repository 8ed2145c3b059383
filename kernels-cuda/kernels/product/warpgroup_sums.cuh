// What the multipliers of warpgroups.cuh do: from codes, blocks and scales in shared memory
// to the output.
//
// A step is 32 values of k, or 16 where these have a float scale. While the matrix units
// make a step's sums of one half of a warpgroup's activation rows, those of the other half
// are scaled, in the order of docs/numerics.md. A half without rows is passed over.
//
// Exactness. Types without integer sub-scales are multiplied as signed bytes. The others, and
// where a scale covers 16 values, as integers in f16: codes times their sub-scale, which stay
// within 2048, and the codes of activations. All products and sums are integers below 2^24,
// so that f32 sums are exact, and no sub-scale is left to multiply with. (An integer of up to
// 4096 is cut into what f16 rounds it to and the rest, and both are multiplied with the same
// activations: the magnitudes of 32 products of 4096 and 127 still add up to less than 2^24.)
//
// Order of values. A thread with q of four takes words q and q + 4 of 32 bytes, as they are.
// In f16 it takes word q of 16 bytes: the first two values become its word q, the last two
// its word q + 4; decoded weights stand accordingly.
#pragma once
#include "tile.cuh"
#include "wgmma.cuh"

template <int rows_> struct WarpgroupTile {
    static constexpr int rows = rows_, halves = 2, groups = 2;
    static constexpr int half_tokens = 64, tokens = groups * halves * half_tokens;
    static constexpr int multipliers = 128 * groups, decoders = 128, bringers = 128;
    static constexpr int threads = multipliers + decoders + bringers, blocks = 1;
    static constexpr bool roles = true, warpgroups = true, needs_aligned = true;
    // Of each thread, from 128 at the start; multiples of 8.
    static constexpr int multiplier_registers = 200, decoder_registers = 80, bringer_registers = 32;
    // What an activation row costs: measured, with what each tile costs beside, where rows
    // are 40, 160 and 640 an expert; 45 to 77, by type.
    static constexpr int price = 60;
    static_assert(rows % 16 == 0, "scales are read for two times eight columns");
};

// Where things lie in a block's shared memory, in bytes.
template <typename T, typename Tile> struct WarpgroupShared {
    // Raw weights that are staged at once: two chunks of a row, in whole 16-byte pieces
    // around bytes of any alignment.
    static constexpr int panel = 2 * chunk_values, panel_chunks = 2;
    static constexpr int panel_bytes = panel / T::block * T::bytes, part_bytes = panel_bytes / 2;
    static constexpr int pieces = (panel_bytes + 15 + 15) / 16;
    static constexpr int raw_stride = (pieces | 1) * 16;

    static constexpr int stages = 3;
    // Minimums are added where a group ends, a chunk later.
    static constexpr int ring = T::minimums && T::group > chunk_values ? 4 : 3;
    static constexpr int scale_stride = Tile::rows;
    // Codes of a chunk: a panel of 128 bytes, two of 64 values in f16, or twice that for
    // integers in two parts.
    static constexpr bool in_bytes = !T::scaled && T::group >= 32;
    static constexpr int code_panel = Tile::rows * panel_column;
    static constexpr int code_panels = in_bytes ? 1 : T::past_f16 ? 4 : 2;

    static constexpr int codes = 0;
    static constexpr int blocks = codes + stages * code_panels * code_panel;
    static constexpr int row_scales = blocks + stages * Tile::tokens * block_bytes;
    static constexpr int col_scales = row_scales + ring * Scales<T>::count * scale_stride * 4;
    static constexpr int raw = col_scales + ring * Headers<T>::count * Tile::tokens * 4;
    static constexpr int barriers = raw + 2 * Tile::rows * raw_stride;
    static constexpr int bytes = barriers + 4 * 8 * stages;
};

// A place in a ring of buffers, and the phase that its barriers are in.
template <int length> struct Ring {
    int at = 0;
    u32 phase = 0;

    DEVICE void step(int by) {
        at += by;
        if (at < length) return;
        at -= length;
        phase ^= 1;
    }
};

// Two integers in f16 to a word.
DEVICE u32 sub16(u32 a, u32 b) {
    u32 d;
    asm("sub.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
DEVICE u32 mul16(u32 a, u32 b) {
    u32 d;
    asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
    return d;
}
DEVICE u32 fma16(u32 a, u32 b, u32 c) {
    u32 d;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
    return d;
}
// Four signed bytes: as bytes u from 128 on they are the low bits of 1024 + u.
template <bool negated> DEVICE void widen(u32 bytes, u32 &first, u32 &second) {
    constexpr u32 f16_1152 = 0x64806480; // 1024 + 128
    const u32 u = bytes ^ 0x80808080u;
    const u32 a = __byte_perm(u, 0x64646464u, 0x4140), b = __byte_perm(u, 0x64646464u, 0x4342);
    first = negated ? sub16(f16_1152, a) : sub16(a, f16_1152);
    second = negated ? sub16(f16_1152, b) : sub16(b, f16_1152);
}

template <typename T, typename Tile> struct WarpgroupSums {
    typedef WarpgroupShared<T, Tile> At;
    typedef Ring<At::stages> Stage;
    typedef Ring<At::ring> Slot;
    static constexpr int sums = Tile::rows / 2; // of 64 activation rows, a thread's
    typedef float Sums[sums];
    typedef Either<At::in_bytes, i32, float> Raw[sums];

    static constexpr int chunks_per_group = T::group > chunk_values ? T::group / chunk_values : 1;
    static constexpr int step = T::group < 32 ? T::group : 32, steps = chunk_values / step;
    static constexpr bool alone = T::group <= 32; // a float scale for every step

    const MmqArgs &args;
    u8 *shared;

    DEVICE u8 *codes(int stage) const { return shared + At::codes + stage * (At::code_panels * At::code_panel); }
    DEVICE u8 *blocks(int stage) const { return shared + At::blocks + stage * (Tile::tokens * block_bytes); }
    DEVICE float *row_scales(int slot) const {
        return reinterpret_cast<float *>(shared + At::row_scales) + slot * Scales<T>::count * At::scale_stride;
    }
    DEVICE float *col_scales(int slot) const {
        return reinterpret_cast<float *>(shared + At::col_scales) + slot * Headers<T>::count * Tile::tokens;
    }
    DEVICE Barrier barrier(int kind, int stage) const {
        return Barrier(shared + At::barriers + 8 * (kind * At::stages + stage));
    }
    DEVICE Barrier landed(int stage) const { return barrier(0, stage); }
    DEVICE Barrier headed(int stage) const { return barrier(1, stage); }
    DEVICE Barrier decoded(int stage) const { return barrier(2, stage); }
    DEVICE Barrier done(int stage) const { return barrier(3, stage); }

    // ---- tiles -----------------------------------------------------------------------

    // A thread's place: its first activation row of the first half (the second is eight
    // further on, those of the second half are half_stride further on), and which of four
    // threads it is that share them.
    struct Lane {
        u32 token, quarter;
    };
    static constexpr int half_stride = Tile::groups * Tile::half_tokens;

    DEVICE void multiply_all(const TileList<Tile> &tiles, u32 thread) const {
        const u32 first = thread / 128 * Tile::half_tokens;
        const Lane lane = {first + thread % 128 / 32 * 16 + thread % 32 / 4, thread % 4};
        Stage stage;
        Slot slot;
        for (u64 tile = block_index(); tile < tiles.count; tile += grid_blocks()) {
            const TilePlace place = tiles.at(tile);
            if (place.tokens > first + half_stride)
                multiply_tile<2>(place, lane, stage, slot);
            else if (place.tokens > first)
                multiply_tile<1>(place, lane, stage, slot);
            else
                multiply_tile<0>(place, lane, stage, slot);
        }
    }

    // With so many halves that have rows.
    template <int live>
    DEVICE void multiply_tile(const TilePlace &place, const Lane &lane, Stage &stage, Slot &slot) const {
        Sums acc[live ? live : 1], t[live ? live : 1];
        UNROLL
        for (int h = 0; h < live; h++) {
            UNROLL
            for (int e = 0; e < sums; e++) acc[h][e] = t[h][e] = 0.0f;
        }
        for (u32 chunk = 0; chunk < chunks_of(args); chunk++) {
            landed(stage.at).wait(stage.phase);
            headed(stage.at).wait(stage.phase);
            decoded(stage.at).wait(stage.phase);
            if constexpr (live > 0) multiply(acc, t, chunk, lane, stage.at, slot.at);
            done(stage.at).arrive();
            stage.step(1);
            slot.step(1);
        }
        UNROLL
        for (int h = 0; h < live; h++) store(acc[h], place, lane.token + h * half_stride, 2 * lane.quarter);
    }

    // ---- a chunk ---------------------------------------------------------------------

    // What a thread reads of a chunk: columns, codes of its first row, scales.
    struct Chunk {
        u64 cols;
        const u8 *acts;
        const float *of_row, *of_col;
    };

    template <int live>
    DEVICE void multiply(Sums (&acc)[live], Sums (&t)[live], u32 chunk, const Lane &lane, int stage, int slot) const {
        const Chunk at = {panel_at(codes(stage)),
                          blocks(stage) + Headers<T>::header_bytes + lane.token * block_bytes + 4 * lane.quarter,
                          row_scales(slot) + 4 * lane.quarter, col_scales(slot) + lane.token};
        const u32 values = args.cols - chunk * chunk_values;
        if (T::block >= chunk_values || values >= chunk_values) {
            multiply_steps<steps>(acc, t, at, 0);
        } else {
            // The last chunk of a row may be short.
#pragma unroll 1
            for (int s = 0; s < int(values / step); s++) multiply_steps<1>(acc, t, at, s);
        }
        if (T::group >= chunk_values && (chunk + 1) % chunks_per_group == 0) {
            end_group(acc, t, at, Scales<T>::dw);
            if constexpr (T::minimums != 0) add_minimums(acc, lane, slot);
            UNROLL
            for (int h = 0; h < live; h++) {
                UNROLL
                for (int e = 0; e < sums; e++) t[h][e] = 0.0f;
            }
        }
    }

    // The words that a thread takes of a step, of its two activation rows, and what they
    // become.
    struct Words {
        u32 v[step / 16][2];
    };
    struct Operand {
        WgmmaRows v[At::in_bytes ? 1 : step / 16];
    };
    static DEVICE void load(Words &words, const Chunk &at, int s, int h) {
        const u8 *from = at.acts + h * half_stride * block_bytes + s * step;
        UNROLL
        for (int i = 0; i < step / 16; i++) {
            UNROLL
            for (int r = 0; r < 2; r++)
                words.v[i][r] = *reinterpret_cast<const u32 *>(from + 16 * i + r * 8 * block_bytes);
        }
    }
    static DEVICE void convert(Operand &operand, const Words &words) {
        UNROLL
        for (int i = 0; i < step / 16; i++) {
            UNROLL
            for (int r = 0; r < 2; r++) {
                if constexpr (At::in_bytes)
                    operand.v[0].v[2 * i + r] = words.v[i][r];
                else
                    widen<false>(words.v[i][r], operand.v[i].v[r], operand.v[i].v[2 + r]);
            }
        }
    }

    // Starts the products of a step.
    static DEVICE void issue(Raw &raw, const Operand &operand, const Chunk &at, int s) {
        wgmma_fence();
        if constexpr (At::in_bytes) {
            WgmmaBytes<Tile::rows>::multiply(raw, operand.v[0], along(at.cols, s * step));
        } else {
            typedef WgmmaHalves<Tile::rows> Product;
            UNROLL
            for (int i = 0; i < step / 16; i++) {
                const int k = s * step + 16 * i;
                const u64 cols = along(at.cols, k / 64 * At::code_panel + k % 64 * 2);
                if (i == 0)
                    Product::template add<true>(raw, operand.v[i], cols);
                else
                    Product::template add<false>(raw, operand.v[i], cols);
                if constexpr (T::past_f16)
                    Product::template add<false>(raw, operand.v[i], along(cols, 2 * At::code_panel));
            }
        }
        wgmma_commit();
    }

    // A thread's columns of a scale of weight rows: those of sums e are e / 4 * 2 + e % 2.
    struct RowScales {
        float v[Tile::rows / 4];
    };
    static DEVICE void read(RowScales &scales, const float *of_row, int which) {
        UNROLL
        for (int i = 0; i < Tile::rows / 16; i++) {
            const f32x4 v = *reinterpret_cast<const f32x4 *>(of_row + which * At::scale_stride + 16 * i);
            scales.v[4 * i] = v.x, scales.v[4 * i + 1] = v.y, scales.v[4 * i + 2] = v.z, scales.v[4 * i + 3] = v.w;
        }
    }
    // Of its two activation rows: those of sums e are e / 2 % 2.
    static DEVICE void read(float (&scales)[2], const float *of_col, int which) {
        scales[0] = of_col[which * Tile::tokens];
        scales[1] = of_col[which * Tile::tokens + 8];
    }

    // `count` steps: each half's products run while the other's sums are scaled.
    template <int count, int live>
    static DEVICE void multiply_steps(Sums (&acc)[live], Sums (&t)[live], const Chunk &at, int first) {
        Raw raw[live];
        Operand operand[live];
        Words words;
        UNROLL
        for (int h = 0; h < live; h++) {
            load(words, at, first, h);
            convert(operand[h], words);
            issue(raw[h], operand[h], at, first);
        }
        UNROLL
        for (int i = 0; i < count; i++) {
            const int s = first + i;
            RowScales dw, dm;
            if (alone) read(dw, at.of_row, Scales<T>::dw + s);
            if (alone && T::minimums) read(dm, at.of_row, Scales<T>::dm + s);
            UNROLL
            for (int h = 0; h < live; h++) {
                float dx[2], sx[2];
                read(dx, at.of_col + h * half_stride, s * step / 32);
                if (alone && T::minimums) read(sx, at.of_col + h * half_stride, 4 + s);
                if (i + 1 < count) load(words, at, s + 1, h);
                if (live == 2 && (h == 0 || i + 1 < count))
                    wgmma_wait<1>();
                else
                    wgmma_wait<0>();
                const bool fresh = T::group < chunk_values && s * step % T::group == 0;
                UNROLL
                for (int e = 0; e < sums; e++) {
                    const int r = e / 2 % 2, c = e / 4 * 2 + e % 2;
                    const float sum = At::in_bytes && T::negated ? -float(raw[h][e]) : float(raw[h][e]);
                    float &to = acc[h][e], &group = t[h][e];
                    if (alone) {
                        to = fma32(fma32(sum, dx[r], 0.0f), dw.v[c], to);
                        if (T::minimums) to = fma32(sx[r], dm.v[c], to);
                    } else {
                        group = fma32(sum, dx[r], fresh ? 0.0f : group);
                    }
                }
                if (i + 1 < count) {
                    convert(operand[h], words);
                    issue(raw[h], operand[h], at, s + 1);
                }
            }
            if (T::group == 64 && s % 2 == 1) end_group(acc, t, at, Scales<T>::dw + s / 2);
        }
    }

    // acc = fma(t, dw, acc)
    template <int live>
    static DEVICE void end_group(Sums (&acc)[live], const Sums (&t)[live], const Chunk &at, int which) {
        RowScales dw;
        read(dw, at.of_row, which);
        UNROLL
        for (int h = 0; h < live; h++) {
            UNROLL
            for (int e = 0; e < sums; e++) acc[h][e] = fma32(t[h][e], dw.v[e / 4 * 2 + e % 2], acc[h][e]);
        }
    }

    // Of a group that ends here: the scales of its chunks before this one are still in the
    // ring. 16 columns at a time.
    template <int live> DEVICE void add_minimums(Sums (&acc)[live], const Lane &lane, int slot) const {
        constexpr int of_chunk = Headers<T>::sums;
        UNROLL
        for (int j = 0; j < Tile::rows / 16; j++) {
            float u[live][8];
            UNROLL
            for (int back = chunks_per_group - 1; back >= 0; back--) {
                const int from = slot >= back ? slot - back : slot - back + At::ring;
                const float *of_row = row_scales(from) + 4 * lane.quarter + 16 * j;
                const float *of_col = col_scales(from) + lane.token;
                UNROLL
                for (int s = 0; s < of_chunk; s++) {
                    const f32x4 v = *reinterpret_cast<const f32x4 *>(of_row + (Scales<T>::mn + s) * At::scale_stride);
                    const float mn[4] = {v.x, v.y, v.z, v.w};
                    const bool fresh = back == chunks_per_group - 1 && s == 0;
                    UNROLL
                    for (int h = 0; h < live; h++) {
                        float sx[2];
                        read(sx, of_col + h * half_stride, 4 + s);
                        UNROLL
                        for (int e = 0; e < 8; e++)
                            u[h][e] = fma32(mn[e / 4 * 2 + e % 2], sx[e / 2 % 2], fresh ? 0.0f : u[h][e]);
                    }
                }
            }
            const float *of_row = row_scales(slot) + 4 * lane.quarter + 16 * j;
            const f32x4 v = *reinterpret_cast<const f32x4 *>(of_row + Scales<T>::dm * At::scale_stride);
            const float dm[4] = {v.x, v.y, v.z, v.w};
            UNROLL
            for (int h = 0; h < live; h++) {
                UNROLL
                for (int e = 0; e < 8; e++)
                    acc[h][8 * j + e] = fma32(u[h][e], dm[e / 4 * 2 + e % 2], acc[h][8 * j + e]);
            }
        }
    }

    // ---- the output ------------------------------------------------------------------

    DEVICE void store(const Sums &acc, const TilePlace &place, u32 token, u32 col) const {
        const u32 first = place.first_row + col;
        UNROLL
        for (int r = 0; r < 2; r++) {
            if (token + 8 * r >= place.tokens) return;
            float *to = args.out + i64(place.first_out + token + 8 * r) * args.out_stride + first;
            const bool pairs = (u64(to) & 7) == 0;
            UNROLL
            for (int j = 0; j < Tile::rows / 8; j++) {
                const float a = canonical(acc[4 * j + 2 * r]), b = canonical(acc[4 * j + 2 * r + 1]);
                if (pairs && first + 8 * j + 1 < args.rows) {
                    *reinterpret_cast<u32x2 *>(to + 8 * j) = {f32_bits(a), f32_bits(b)};
                } else {
                    if (first + 8 * j < args.rows) to[8 * j] = a;
                    if (first + 8 * j + 1 < args.rows) to[8 * j + 1] = b;
                }
            }
        }
    }
};
