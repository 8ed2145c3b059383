// The product of quantized weights and q8_1 activations, over all experts.
//
// A block of threads makes one tile of output at a time: `tile_rows` weight
// rows of one expert by up to `tile_tokens` of its activation rows, walking k
// in chunks of 128 values. Of a chunk, the weights are decoded once to signed
// bytes in shared memory, the activations are copied as they are, and every
// wave multiplies its part of the tile with matrix fragments.
//
// Exactness. Integer sums start at the bits of 1.5 * 2^23 instead of 0, so that
// they are floats of that size and a subtraction (or, with a sub-scale, one
// fused multiply-add whose result is an integer below 2^24) makes them the
// exact float of the sum. From there on every element has one accumulator and
// the order of docs/numerics.md.
//
// The pipeline. While chunk c is multiplied, the activations and raw weights of
// chunk c + 1 arrive, and are then decoded. With two buffers of raw weights
// they arrive a chunk earlier, so that some waves can decode while others
// multiply. One barrier a chunk separates the turns. Blocks of two chunks are
// staged whole, every other time.
#pragma once
#include "mma.cuh"
#include "weights.cuh"

struct MmqArgs {
    const u8 *weights, *activations;
    const u32 *src;     // activation row of each output row; null: the same row
    const u32x4 *tiles; // null for one expert; else tiles[0].x counts those that follow:
                        // expert, first output row, rows
    float *out;
    i64 row_stride, expert_stride; // bytes
    i64 act_rows;                  // rows of the activations
    i64 out_stride;                // floats
    u32 rows, cols;                // of each expert's weights
    u32 out_rows;                  // of one expert without a list
    u32 aligned;                   // activations are 16-aligned
};

// waves_m x waves_n waves, each of fragments_m x fragments_n fragments.
// Waves of a tile with two raw buffers take turns: half of them decode while
// the others multiply. With one, blocks beside it on the multiprocessor do that.
template <int waves_m_, int waves_n_, int fragments_m_, int fragments_n_, int blocks_, int raw_buffers_ = 1> struct Tile {
    static constexpr int waves_m = waves_m_, waves_n = waves_n_;
    static constexpr int fragments_m = fragments_m_, fragments_n = fragments_n_;
    static constexpr int threads = waves_m * waves_n * wave_size;
    static constexpr int rows = waves_m * fragments_m * Mma::rows;
    static constexpr int tokens = waves_n * fragments_n * Mma::cols;
    static constexpr int blocks = blocks_; // that should fit a multiprocessor
    static constexpr int raw_buffers = raw_buffers_;
    // Sub-blocks whose instructions are mixed: fewer where there are few registers.
    static constexpr int wanted = blocks * threads >= 512 ? 2 : 4;
    static constexpr int unroll = wanted < unrolled_steps ? wanted : unrolled_steps;
};


// Where things lie in a block's shared memory, in bytes.
template <typename T, typename Tile> struct Shared {
    static constexpr int panel = T::block > chunk_values ? T::block : chunk_values; // values staged at once
    static constexpr int panel_bytes = panel / T::block * T::bytes;
    // Whole 16-byte pieces around bytes of any alignment.
    static constexpr int pieces = (panel_bytes + 15 + 15) / 16;
    static constexpr int raw_stride = (pieces | 1) * 16;
    static constexpr int raw_buffers = Tile::raw_buffers < T::raw_buffers ? Tile::raw_buffers : T::raw_buffers;
    // Minimums are added where a group ends, which may be a chunk later.
    static constexpr int ring = T::minimums && T::group > chunk_values ? 3 : 2;
    static constexpr int sums = T::minimums ? chunk_values / T::minimums : 0;
    static constexpr int column_scales = chunk_values / 32 + sums;

    // Floats from one scale of the rows to the next: threads of a row store them at once.
    static constexpr int scale_stride = Tile::rows + 8;

    static constexpr int codes = 0;
    static constexpr int acts = codes + 2 * Tile::rows * fragment_stride;
    static constexpr int row_scales = acts + 2 * Tile::tokens * fragment_stride;
    static constexpr int col_scales = row_scales + ring * Scales<T>::count * scale_stride * 4;
    static constexpr int raw = col_scales + ring * column_scales * Tile::tokens * 4;
    static constexpr int bytes = raw + (stage_weights ? raw_buffers * Tile::rows * raw_stride : 0);
};

// One tile's place in the problem.
struct TilePlace {
    const u8 *weights; // of the expert
    u32 first_row;     // weight row
    u32 first_out;     // output row
    u32 tokens;        // output rows
};

template <typename T, typename Tile> struct Mmq {
    typedef Shared<T, Tile> At;
    static constexpr int groups_per_chunk = T::group < chunk_values ? chunk_values / T::group : 1;
    static constexpr int chunks_per_group = T::group > chunk_values ? T::group / chunk_values : 1;
    static constexpr float shift = 12582912.0f; // 1.5 * 2^23
    static constexpr i32 shift_bits = 0x4b400000;

    // Threads that share a weight row, and its four units of a chunk.
    static constexpr int most_threads = Tile::threads / Tile::rows;
    static constexpr int row_threads = most_threads >= 4 ? 4 : most_threads >= 2 ? 2 : 1;
    static_assert(most_threads >= 1, "every row has a thread");
    // 16-byte pieces of activations that a thread copies.
    static constexpr int act_pieces = (Tile::tokens * 8 + Tile::threads - 1) / Tile::threads;
    static_assert(Tile::threads % 8 == 0, "a thread's pieces stand at one place of their rows");

    const MmqArgs &args;
    u8 *shared;
    TilePlace place;
    u32 chunks;
    const u8 *weight_row;     // the row this thread decodes
    u32 act_row[act_pieces];  // the rows it copies
    u32 header_row;           // the row whose headers it reads

    struct Sums {
        float v[Tile::fragments_m][Tile::fragments_n][Mma::lane_rows * Mma::lane_cols];
    };

    DEVICE float *row_scales(int slot) const {
        return reinterpret_cast<float *>(shared + At::row_scales) + slot * Scales<T>::count * At::scale_stride;
    }
    DEVICE float *col_scales(int slot) const {
        return reinterpret_cast<float *>(shared + At::col_scales) + slot * At::column_scales * Tile::tokens;
    }

    // Past the last row or token of the tile stands the last one again, so that
    // all reads stay inside; what comes of it is not stored.
    DEVICE void find_rows() {
        const u32 row = thread_index() / row_threads, left = args.rows - 1 - place.first_row;
        weight_row = place.weights + i64(place.first_row + (row < left ? row : left)) * args.row_stride;
        UNROLL
        for (int i = 0; i < act_pieces; i++) act_row[i] = act_row_of((thread_index() + i * Tile::threads) / 8);
        header_row = act_row_of(thread_index());
    }
    DEVICE u32 act_row_of(u32 token) const {
        const u32 row = place.first_out + (token < place.tokens ? token : place.tokens - 1);
        return args.src ? args.src[row] : row;
    }

    // ---- weights ------------------------------------------------------------

    // A row in a panel of raw weights, where rows begin at 16 bytes.
    DEVICE u8 *raw_row(u32 panel, u32 row) const {
        return shared + At::raw + (panel % At::raw_buffers * Tile::rows + row) * At::raw_stride;
    }

    // Starts the copy of one panel of raw weights. A wave copies the rows that it
    // decodes, consecutive lanes consecutive pieces.
    DEVICE void stage(u32 panel) const {
        if (!stage_weights) return;
        constexpr u32 wave_rows = wave_size / row_threads, pieces = wave_rows * At::pieces;
        const u32 first = thread_index() / wave_size * wave_rows;
        if (first >= Tile::rows) return;
        const u32 left = args.cols - panel * At::panel, rows_left = args.rows - 1 - place.first_row;
        const u32 bytes = (left < At::panel ? left : At::panel) / T::block * T::bytes;
        const u8 *panel_from = place.weights + i64(place.first_row) * args.row_stride + i64(panel) * At::panel_bytes;
        UNROLL
        for (u32 i = 0; i < pieces; i += wave_size) {
            const u32 at = i + lane_index();
            const u32 row = first + at / At::pieces, piece = at % At::pieces;
            const u8 *from = panel_from + i64(row < rows_left ? row : rows_left) * args.row_stride;
            const u32 skip = u32(u64(from)) & 15;
            if (at < pieces && 16 * piece < skip + bytes)
                copy16_async(raw_row(panel, row) + 16 * piece, from - skip + 16 * piece);
        }
    }

    // Whether a chunk begins a panel.
    static DEVICE bool begins_panel(u32 chunk) { return chunk % (At::panel / chunk_values) == 0; }
    static DEVICE u32 panel_of(u32 chunk) { return chunk / (At::panel / chunk_values); }

    // The weights of a chunk, from raw to codes and scales.
    DEVICE void decode(u32 chunk, int slot) const {
        if (thread_index() >= row_threads * Tile::rows) return;
        const u32 row = thread_index() / row_threads;
        const u32 panel = panel_of(chunk);
        const int part = At::panel > chunk_values ? chunk % 2 : 0;
        const u8 *from = weight_row + i64(panel) * At::panel_bytes;
        const u8 *block = stage_weights ? raw_row(panel, row) + (u32(u64(from)) & 15) : from;
        u8 *codes = shared + At::codes + (chunk % 2 * Tile::rows + row) * fragment_stride;
        const ScaleSink<T> scales = {row_scales(slot) + row, At::scale_stride};
        const u32 values = args.cols - chunk * chunk_values;
        UNROLL
        for (int i = 0; i < 4; i += row_threads) {
            const u32 unit = i + thread_index() % row_threads;
            // The last chunk of a row may be short.
            if (T::block < chunk_values && 32 * unit >= values) break;
            T::decode(block, part, unit, reinterpret_cast<u32 *>(codes));
            T::scales(block, part, unit, scales);
        }
    }

    // ---- activations --------------------------------------------------------

    DEVICE const u8 *act_block(u32 row, u32 chunk) const {
        return args.activations + i64(chunk) * args.act_rows * block_bytes + u64(row) * block_bytes;
    }

    DEVICE void copy_acts(u32 chunk) const {
        u8 *to = shared + At::acts + chunk % 2 * Tile::tokens * fragment_stride;
        UNROLL
        for (int i = 0; i < act_pieces; i++) {
            const u32 token = (thread_index() + i * Tile::threads) / 8, at = thread_index() % 8 * 16;
            if (Tile::tokens * 8 % Tile::threads != 0 && token >= Tile::tokens) break;
            const u8 *from = act_block(act_row[i], chunk) + 16 + at;
            u8 *here = to + token * fragment_stride + at;
            if (args.aligned) {
                copy16_async(here, from);
            } else {
                u32 w[4];
                read_words(w, from);
                *reinterpret_cast<u32x4 *>(here) = {w[0], w[1], w[2], w[3]};
            }
        }
    }

    // A token's header, on its way from memory to the scales of the columns.
    struct Header {
        u32 words[4];
        i32 last[2]; // sums of the codes of values 96..112 and 112..128
    };
    static_assert(Tile::tokens <= Tile::threads, "a thread per token reads the headers");

    DEVICE void read16(u32 (&w)[4], const u8 *from) const {
        if (args.aligned) {
            const u32x4 all = *reinterpret_cast<const u32x4 *>(from);
            w[0] = all.x, w[1] = all.y, w[2] = all.z, w[3] = all.w;
        } else {
            read_words(w, from);
        }
    }

    DEVICE void load_header(Header &header, u32 chunk) const {
        if (thread_index() >= Tile::tokens) return;
        const u8 *from = act_block(header_row, chunk);
        read16(header.words, from);
        if constexpr (T::layout == D2S6) sum_last_codes(header, from);
    }

    DEVICE void sum_last_codes(Header &header, const u8 *from) const {
        UNROLL
        for (int i = 0; i < 2; i++) {
            u32 codes[4];
            read16(codes, from + 16 + 96 + 16 * i);
            header.last[i] = 0;
            UNROLL
            for (int w = 0; w < 4; w++) header.last[i] = dot4(codes[w], 0x01010101, header.last[i]);
        }
    }

    static DEVICE float half_of(u32 word, int upper) { return f16_to_f32(u16(upper ? word >> 16 : word)); }

    DEVICE void store_header(const Header &header, int slot) const {
        if (thread_index() >= Tile::tokens) return;
        float *to = col_scales(slot) + thread_index();
        UNROLL
        for (int s = 0; s < 4; s++) {
            const float d = T::layout == D4    ? bits_f32(header.words[s])
                            : T::layout == DS4 ? half_of(header.words[s], 0)
                                               : half_of(header.words[0], s / 2);
            to[s * Tile::tokens] = d;
        }
        if constexpr (T::minimums != 0) store_sums(header, to);
    }

    static DEVICE void store_sums(const Header &header, float *to) {
        UNROLL
        for (int s = 0; s < At::sums; s++) {
            float sum;
            if (T::layout == DS4)
                sum = half_of(header.words[s % 4], 1);
            else if (s < 6)
                sum = half_of(header.words[1 + s / 2], s % 2);
            else
                sum = float(header.last[s % 2]) * half_of(header.words[0], 1);
            // A minimum that is 1 multiplies nothing: its u is the sum added to +0.
            to[(4 + s) * Tile::tokens] = T::minimum_is_one ? sum + 0.0f : sum;
        }
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

    DEVICE void add_minimums(Sums &acc, Sums &u, u32 chunk, int slot) const {
        // Groups of several chunks: the sums of the chunk before are still in the ring.
        constexpr int per_chunk = At::sums;
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

    // Chunk `chunk` of the tile: `acc` is the output, `t` the sum of a group.
    DEVICE void multiply(Sums &acc, Sums &t, u32 chunk, int slot) const {
        const u8 *codes = shared + At::codes + (chunk % 2 * Tile::rows + wave_row()) * fragment_stride;
        const u8 *acts = shared + At::acts + (chunk % 2 * Tile::tokens + wave_col()) * fragment_stride;
        const u32 values = args.cols - chunk * chunk_values;
        if (T::group >= chunk_values && chunk % chunks_per_group == 0)
            each([&](int i, int j, int r, int c) { t.v[i][j][r * Mma::lane_cols + c] = 0.0f; });
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
            if (T::minimums) add_minimums(acc, t, chunk, slot);
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

    // ---- a tile -------------------------------------------------------------

    DEVICE void run() {
        find_rows();
        Header header;
        stage(0);
        if (At::raw_buffers == 2 && begins_panel(1) && chunks > 1) stage(1);
        copy_acts(0);
        load_header(header, 0);
        copy_commit();
        copy_wait_all();
        block_sync();
        decode(0, 0);
        store_header(header, 0);
        block_sync();

        Sums acc, t;
        each([&](int i, int j, int r, int c) { acc.v[i][j][r * Mma::lane_cols + c] = 0.0f; });
        int slot = 0;
        for (u32 chunk = 0; chunk < chunks; chunk++) {
            const bool more = chunk + 1 < chunks;
            const int next = slot + 1 == At::ring ? 0 : slot + 1;
            constexpr u32 ahead = At::raw_buffers;
            if (chunk + ahead < chunks && begins_panel(chunk + ahead)) stage(panel_of(chunk + ahead));
            if (more) {
                copy_acts(chunk + 1);
                load_header(header, chunk + 1);
            }
            copy_commit();
            if (At::raw_buffers == 2) {
                const bool early = thread_index() / wave_size / 4 % 2;
                if (early && more) decode(chunk + 1, next);
                multiply(acc, t, chunk, slot);
                if (!early && more) decode(chunk + 1, next);
            } else {
                multiply(acc, t, chunk, slot);
                // A wave decodes what it copied itself.
                copy_wait_all();
                wave_sync();
                if (more) decode(chunk + 1, next);
            }
            if (more) store_header(header, next);
            copy_wait_all();
            block_sync();
            slot = next;
        }

        if (place.first_row + Tile::rows <= args.rows)
            store<true>(acc);
        else
            store<false>(acc);
    }

    template <bool all_rows> DEVICE void store(const Sums &acc) const {
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

// All tiles, each block every grid_blocks()-th: the row tiles of the same rows follow each other.
template <typename T, typename Tile> DEVICE void mmq(const MmqArgs &args) {
    SHARED_DYNAMIC(shared);
    const u32 row_tiles = (args.rows + Tile::rows - 1) / Tile::rows;
    const u64 count = args.tiles ? args.tiles[0].x : (u64(args.out_rows) + Tile::tokens - 1) / Tile::tokens;
    const u64 work = count * row_tiles;
    for (u64 w = block_index(); w < work; w += grid_blocks()) {
        const u32 tile = u32(w / row_tiles);
        u32x4 of;
        if (args.tiles) {
            of = args.tiles[1 + tile];
        } else {
            const u32 left = args.out_rows - tile * Tile::tokens;
            of = {0, tile * Tile::tokens, left < Tile::tokens ? left : Tile::tokens, 0};
        }
        const TilePlace place = {args.weights + i64(of.x) * args.expert_stride, u32(w % row_tiles) * Tile::rows, of.y,
                                 of.z};
        Mmq<T, Tile>{args, shared, place, (args.cols + chunk_values - 1) / chunk_values, nullptr, {}, 0}.run();
        block_sync();
    }
}

// The tiles an image has, widest first, with what launching each takes.
struct MmqShape {
    u32 rows, tokens, threads, shared_bytes;
};

#include "tiles.cuh"

#define MMQ_KERNEL(T, name)                                                                          \
    KERNEL(name::threads, name::blocks) strata_mmq_##name(MmqArgs args) { mmq<T, name>(args); }
#define MMQ_SHAPE(T, name) {name::rows, name::tokens, name::threads, Shared<T, name>::bytes},

#define STRATA_MMQ(T)                                                                                \
    MMQ_TILES(MMQ_KERNEL, T)                                                                         \
    EXPORT MmqShape strata_mmq_shapes[] = {MMQ_TILES(MMQ_SHAPE, T)};
