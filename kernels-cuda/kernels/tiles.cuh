// The tiles of products, widest first, each with what it costs beside its tokens,
// in tokens: what loading and decoding the weights takes. Hosts choose by that and
// the rows that experts have; the last is for little shared memory.
#pragma once

#if defined(STRATA_HIP)

// A fragment has 16 columns (8 where a wave of 32 lanes multiplies by dot products),
// and a block 64 KiB of shared memory: less than the tiles below would take.
// Where a wave has 64 lanes the widest has 256 threads, since 512 would halve the
// registers of each; and on gfx906, which has no others to spill to, 96 tokens.
#if defined(__gfx906__)
template <typename T> using tile128 = Tile<2, 2, 2, 3, 1>;
#else
constexpr bool wide_wave = wave_size == 64;
template <typename T> using tile128 = Tile<2, wide_wave ? 2 : 4, 2, wide_wave ? 4 : 2, 1>; // 64 rows x 128 tokens, 64 by dot products of 32 lanes
#endif
template <typename T> using tile64 = Tile<2, 2, 2, 2, 1>;
template <typename T> using tile32 = Tile<4, 2, 1, 1, 1>;
template <typename T> using tile16 = Tile<4, 1, 1, 1, 1>;
template <typename T> using tile_small = Tile<1, 1, 1, 1, 1>;

#define MMQ_TILES(F, T) F(T, tile128, 8) F(T, tile64, 13) F(T, tile32, 28) F(T, tile16, 28) F(T, tile_small, 28)

#else

#if STRATA_ROLES
// By warpgroup products, where they are faster: minimums are as much work there as here,
// and two products in the place of one pay only where the other tiles need as many.
template <typename T>
constexpr bool by_warpgroups = T::minimums == 0 && T::group >= 32 && !(T::past_f16 && T::sub == 32);
template <typename T> using tile256 = Either<by_warpgroups<T>, WarpgroupTile<48>, NoTile<256>>; // 48 rows x 256 tokens
template <typename T> using tile128 = RoleTile<4, 2, 2, 8>; // 128 rows x 128 tokens
template <typename T> using tile96 = RoleTile<4, 2, 2, 6>;
// Types with a scale for every 32 values decode fast enough between products.
template <typename T> using tile64 = Either<T::group == 32, Tile<4, 2, 2, 4, 2>, RoleTile<4, 2, 2, 4>>;
#else
template <typename T> using tile256 = NoTile<256>;
template <typename T> using tile128 = Tile<4, 2, 2, 8, 1, 2>;
template <typename T> using tile96 = Tile<4, 3, 2, 4, 1>;
template <typename T> using tile64 = Tile<4, 2, 2, 4, 2>;
#endif
template <typename T> using tile32 = Tile<4, 2, 2, 2, 2>;
template <typename T> using tile16 = Tile<4, 1, 1, 2, 4>;     // 64 rows x 16 tokens
template <typename T> using tile_small = Tile<1, 1, 1, 2, 4>; // 16 rows x 16 tokens

// Measured on an H200; others are taken to be like its tiles without roles.
#if STRATA_ROLES
#define MMQ_TILES(F, T)                                                                              \
    F(T, tile256, 72)                                                                                \
    F(T, tile128, 8) F(T, tile96, 14) F(T, tile64, 25) F(T, tile32, 40) F(T, tile16, 40) F(T, tile_small, 40)
#else
#define MMQ_TILES(F, T)                                                                              \
    F(T, tile256, 0)                                                                                 \
    F(T, tile128, 8) F(T, tile96, 13) F(T, tile64, 13) F(T, tile32, 28) F(T, tile16, 28) F(T, tile_small, 28)
#endif

#endif
