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
typedef Tile<2, 2, 2, 3, 1> tile128;
#else
constexpr bool wide_wave = wave_size == 64;
typedef Tile<2, wide_wave ? 2 : 4, 2, wide_wave ? 4 : 2, 1> tile128; // 64 rows x 128 tokens
#endif
typedef Tile<2, 2, 2, 2, 1> tile64;
typedef Tile<4, 2, 1, 1, 1> tile32;
typedef Tile<4, 1, 1, 1, 1> tile16;
typedef Tile<1, 1, 1, 1, 1> tile_small;

#define MMQ_TILES(F, T) F(T, tile128, 8) F(T, tile64, 13) F(T, tile32, 28) F(T, tile16, 28) F(T, tile_small, 28)

#else

#if STRATA_ROLES
typedef RoleTile<4, 2, 2, 8> tile128; // 128 rows x 128 tokens
typedef RoleTile<4, 2, 2, 6> tile96;
typedef RoleTile<4, 2, 2, 4> tile64;
#else
typedef Tile<4, 2, 2, 8, 1, 2> tile128;
typedef Tile<4, 3, 2, 4, 1> tile96;
typedef Tile<4, 2, 2, 4, 2> tile64;
#endif
typedef Tile<4, 2, 2, 2, 2> tile32;
typedef Tile<4, 1, 1, 2, 4> tile16;     // 64 rows x 16 tokens
typedef Tile<1, 1, 1, 2, 4> tile_small; // 16 rows x 16 tokens

// Measured on an H200; others are taken to be like its tiles without roles.
#if STRATA_ROLES
#define MMQ_TILES(F, T)                                                                              \
    F(T, tile128, 8) F(T, tile96, 14) F(T, tile64, 25) F(T, tile32, 40) F(T, tile16, 40) F(T, tile_small, 40)
#else
#define MMQ_TILES(F, T)                                                                              \
    F(T, tile128, 8) F(T, tile96, 13) F(T, tile64, 13) F(T, tile32, 28) F(T, tile16, 28) F(T, tile_small, 28)
#endif

#endif
