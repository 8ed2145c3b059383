// The multiplication of one tile: from codes, blocks and scales in shared memory to sums in registers.
//
// Exactness. Integer sums start at the bits of 1.5 * 2^23 instead of 0, so that
// they are floats of that size and a subtraction (or, with a sub-scale, one
// fused multiply-add whose result is an integer below 2^24) makes them the
// exact float of the sum. From there on every element has one accumulator and
// the order of docs/numerics.md.
#pragma once
#include "headers.cuh"
#include "tile.cuh"

template <typename T, typename Tile> struct Multiply {
    typedef Shared<T, Tile> At;
    static constexpr int chunks_per_group = T::group > chunk_values ? T::group / chunk_values : 1;
    static constexpr float shift = 12582912.0f; // 1.5 * 2^23
    static constexpr i32 shift_bits = 0x4b400000;

    const MmqArgs &args;
    u8 *shared;

    struct Sums {
        float v[Tile::fragments_m][Tile::fragments_n][Mma::lane_rows * Mma::lane_cols];
    };

    // Buffers of a chunk: decoded weights, blocks of activations, scales.
    DEVICE u8 *code_row(int buffer, int row) const {
        return shared + At::codes + (buffer * Tile::rows + row) * fragment_stride;
    }
    DEVICE u8 *act_row(int buffer, int token) const {
        return shared + At::acts + (buffer * Tile::tokens + token) * fragment_stride;
    }
    DEVICE float *row_scales(int slot) const {
        return reinterpret_cast<float *>(shared + At::row_scales) + slot * Scales<T>::count * At::scale_stride;
    }
    DEVICE float *col_scales(int slot) const {
        return reinterpret_cast<float *>(shared + At::col_scales) + slot * Headers<T>::count * Tile::tokens;
    }
    static DEVICE int next_slot(int slot) { return slot + 1 == At::ring ? 0 : slot + 1; }

    // A token's header, to the scales of its column.
    DEVICE void store_header(const Headers<T> &header, u32 token, int slot) const {
        header.store(col_scales(slot) + token, Tile::tokens);
    }

    // ---- multiplication -----------------------------------------------------

    DEVICE int wave_row() const { return int(thread_index() / wave_size) / Tile::waves_n * Tile::fragments_m * Mma::rows; }
    DEVICE int wave_col() const { return int(thread_index() / wave_size) % Tile::waves_n * Tile::fragments_n * Mma::cols; }

    typedef typename Mma::A FragmentsA[Tile::fragments_m];
    typedef typename Mma::B FragmentsB[Tile::fragments_n];
    typedef float RowValues[Tile::fragments_m][Mma::lane_rows];
    typedef float ColValues[Tile::fragments_n][Mma::lane_cols];

    DEVICE void load_row_values(RowValues &v, int which, int slot) const {
        UNROLL
        for (int i = 0; i < Tile::fragments_m; i++)
            Mma::load_rows(v[i], row_scales(slot) + which * At::scale_stride + wave_row() + i * Mma::rows);
    }
    DEVICE void load_col_values(ColValues &v, int which, int slot) const {
        UNROLL
        for (int j = 0; j < Tile::fragments_n; j++)
            Mma::load_cols(v[j], col_scales(slot) + which * Tile::tokens + wave_col() + j * Mma::cols);
    }

    static DEVICE void zero(Sums &x) {
        each([&](int i, int j, int r, int c) { x.v[i][j][r * Mma::lane_cols + c] = 0.0f; });
    }
    // x[r][c] = fma(row, col, x[r][c])
    static DEVICE void outer(Sums &x, const RowValues &row, const ColValues &col, bool fresh) {
        each([&](int i, int j, int r, int c) {
            float &to = x.v[i][j][r * Mma::lane_cols + c];
            to = fma32(row[i][r], col[j][c], fresh ? 0.0f : to);
        });
    }
    // acc = fma(t, row, acc)
    static DEVICE void scale_by_row(Sums &acc, const Sums &t, const RowValues &row) {
        each([&](int i, int j, int r, int c) {
            const int at = r * Mma::lane_cols + c;
            acc.v[i][j][at] = fma32(t.v[i][j][at], row[i][r], acc.v[i][j][at]);
        });
    }
    template <typename F> static DEVICE void each(F f) {
        UNROLL
        for (int i = 0; i < Tile::fragments_m; i++) {
            UNROLL
            for (int j = 0; j < Tile::fragments_n; j++) {
                UNROLL
                for (int r = 0; r < Mma::lane_rows; r++) {
                    UNROLL
                    for (int c = 0; c < Mma::lane_cols; c++) f(i, j, r, c);
                }
            }
        }
    }

    // The float of an integer sum, times its sub-scale where there is one.
    static DEVICE float exact(i32 raw, float sub_scale) {
        const float sum = bits_f32(u32(raw));
        if (T::scaled) return fma32(sum, sub_scale, -shift * sub_scale);
        return T::negated ? shift - sum : sum - shift;
    }

    DEVICE void add_minimums(Sums &acc, Sums &u, int slot) const {
        // Groups of several chunks: the sums of the chunk before are still in the ring.
        constexpr int per_chunk = Headers<T>::sums;
        UNROLL
        for (int back = chunks_per_group - 1; back >= 0; back--) {
            const int from = slot >= back ? slot - back : slot - back + At::ring;
            UNROLL
            for (int s = 0; s < per_chunk; s++) {
                RowValues mn;
                ColValues sx;
                load_row_values(mn, Scales<T>::mn + s, from);
                load_col_values(sx, 4 + s, from);
                outer(u, mn, sx, back == chunks_per_group - 1 && s == 0);
            }
        }
        RowValues dm;
        load_row_values(dm, Scales<T>::dm, slot);
        scale_by_row(acc, u, dm);
    }

    // Chunk `chunk` of the tile, from these buffers: `acc` is the output, `t` the
    // sum of a group, zero where one begins.
    DEVICE void multiply(Sums &acc, Sums &t, u32 chunk, int code_buffer, int act_buffer, int slot) const {
        const u8 *codes = code_row(code_buffer, wave_row());
        const u8 *acts = act_row(act_buffer, wave_col()) + Headers<T>::header_bytes;
        const u32 values = args.cols - chunk * chunk_values;
        if (T::block >= chunk_values || values >= chunk_values) {
#pragma unroll Tile::unroll
            for (int s = 0; s < chunk_values / 32; s++) multiply_part(acc, t, codes, acts, s, slot);
        } else {
            // The last chunk of a row may be short.
            for (int s = 0; s < int(values / 32); s++) multiply_part(acc, t, codes, acts, s, slot);
        }
        if (T::group >= chunk_values && (chunk + 1) % chunks_per_group == 0) {
            RowValues dw;
            load_row_values(dw, Scales<T>::dw, slot);
            scale_by_row(acc, t, dw);
            if (T::minimums) add_minimums(acc, t, slot);
            zero(t);
        }
    }

    // 32 values of the chunk.
    DEVICE void multiply_part(Sums &acc, Sums &t, const u8 *codes, const u8 *acts, int s, int slot) const {
        FragmentsA a;
        FragmentsB b;
        UNROLL
        for (int i = 0; i < Tile::fragments_m; i++)
            Mma::load_a(a[i], codes + i * Mma::rows * fragment_stride + 32 * s);
        LoadB<Mma>::load(b, acts + 32 * s);
        ColValues dx;
        load_col_values(dx, s, slot);
        if (T::sub == 16)
            multiply16(acc, t, a, b, dx, s, slot);
        else
            multiply32(acc, t, a, b, dx, s, slot);
    }

    // Whether the sum of a group begins with sub-block s of a chunk: groups as
    // long as a chunk begin with a sum of zero instead.
    static DEVICE bool begins(int s) { return T::group < chunk_values && 32 * s % T::group == 0; }

    DEVICE void multiply32(Sums &acc, Sums &t, const FragmentsA &a, const FragmentsB &b, const ColValues &dx,
                           int s, int slot) const {
        constexpr bool alone = T::group == 32;
        RowValues sc, dw, dm;
        ColValues sx;
        if (T::scaled) load_row_values(sc, Scales<T>::sub + s, slot);
        if (alone) load_row_values(dw, Scales<T>::dw + s, slot);
        if (alone && T::minimums) load_row_values(dm, Scales<T>::dm + s, slot);
        if (alone && T::minimums) load_col_values(sx, 4 + s, slot);
        const bool fresh = begins(s);
        UNROLL
        for (int j = 0; j < Tile::fragments_n; j++) {
            UNROLL
            for (int i = 0; i < Tile::fragments_m; i++) {
                i32 raw[Mma::lane_rows * Mma::lane_cols];
                Mma::multiply32(raw, a[i], b[j], shift_bits);
                UNROLL
                for (int r = 0; r < Mma::lane_rows; r++) {
                    UNROLL
                    for (int c = 0; c < Mma::lane_cols; c++) {
                        const int at = r * Mma::lane_cols + c;
                        const float sum = exact(raw[at], T::scaled ? sc[i][r] : 0.0f);
                        float &group = t.v[i][j][at], &to = acc.v[i][j][at];
                        if (alone) {
                            to = fma32(fma32(sum, dx[j][c], 0.0f), dw[i][r], to);
                            if (T::minimums) to = fma32(sx[j][c], dm[i][r], to);
                        } else {
                            group = fma32(sum, dx[j][c], fresh ? 0.0f : group);
                        }
                    }
                }
            }
        }
        if (T::group == 64 && s % 2 == 1) {
            load_row_values(dw, Scales<T>::dw + s / 2, slot);
            scale_by_row(acc, t, dw);
        }
    }

    DEVICE void multiply16(Sums &acc, Sums &t, const FragmentsA &a, const FragmentsB &b, const ColValues &dx,
                           int s, int slot) const {
        constexpr bool alone = T::group == 16; // a float scale for every 16 values
        RowValues first, second;
        load_row_values(first, (alone ? Scales<T>::dw : Scales<T>::sub) + 2 * s, slot);
        load_row_values(second, (alone ? Scales<T>::dw : Scales<T>::sub) + 2 * s + 1, slot);
        const bool fresh = begins(s);
        UNROLL
        for (int j = 0; j < Tile::fragments_n; j++) {
            UNROLL
            for (int i = 0; i < Tile::fragments_m; i++) {
                i32 low[Mma::lane_rows * Mma::lane_cols], high[Mma::lane_rows * Mma::lane_cols];
                Mma::multiply16(low, high, a[i], b[j], shift_bits);
                UNROLL
                for (int r = 0; r < Mma::lane_rows; r++) {
                    UNROLL
                    for (int c = 0; c < Mma::lane_cols; c++) {
                        const int at = r * Mma::lane_cols + c;
                        const float x = exact(low[at], first[i][r]), y = exact(high[at], second[i][r]);
                        float &group = t.v[i][j][at], &to = acc.v[i][j][at];
                        if (alone) {
                            to = fma32(fma32(x, dx[j][c], 0.0f), first[i][r], to);
                            to = fma32(fma32(y, dx[j][c], 0.0f), second[i][r], to);
                        } else {
                            group = fma32(x + y, dx[j][c], fresh ? 0.0f : group);
                        }
                    }
                }
            }
        }
    }

    // ---- the output --------------------------------------------------------------

    DEVICE void store(const Sums &acc, const TilePlace &place) const {
        if (place.first_row + Tile::rows <= args.rows)
            store<true>(acc, place);
        else
            store<false>(acc, place);
    }
    template <bool all_rows> DEVICE void store(const Sums &acc, const TilePlace &place) const {
        const u32 first_row = place.first_row + wave_row();
        UNROLL
        for (int j = 0; j < Tile::fragments_n; j++) {
            UNROLL
            for (int c = 0; c < Mma::lane_cols; c++) {
                const u32 token = wave_col() + j * Mma::cols + Mma::col(c);
                if (token >= place.tokens) continue;
                float *to = args.out + i64(place.first_out + token) * args.out_stride + first_row;
                UNROLL
                for (int i = 0; i < Tile::fragments_m; i++) {
                    UNROLL
                    for (int r = 0; r < Mma::lane_rows; r++) {
                        const u32 row = i * Mma::rows + Mma::row(r);
                        if (all_rows || first_row + row < args.rows)
                            to[row] = canonical(acc.v[i][j][r * Mma::lane_cols + c]);
                    }
                }
            }
        }
    }
};
