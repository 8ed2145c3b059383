// The product of quantized weights and q8_1 activations, over all experts.
//
// A block of threads makes one tile of output at a time: `rows` weight rows of one
// expert by up to `tokens` of its activation rows, walking k in chunks of 128
// values. Of a chunk, the weights are decoded once to signed bytes in shared
// memory, the activations are copied as they are, and every wave multiplies its
// part of the tile with matrix fragments.
//
//   product/tile.cuh       tiles, shared memory, the list of tiles
//   product/multiply.cuh   fragments, scales, sums
//   product/rows.cuh       weights: staged and decoded
//   product/turns.cuh      waves that do all of it in turn
//   product/roles.cuh      waves that load and decode, waves that multiply (sm_90a)
//   product/warpgroups.cuh the same for many activation rows, by warpgroup products (sm_90a)
#pragma once
#include "product/turns.cuh"
#if STRATA_ROLES
#include "product/roles.cuh"
#include "product/warpgroups.cuh"
#endif

template <typename T, typename Tile> DEVICE void mmq(const MmqArgs &args) {
    SHARED_DYNAMIC(shared);
    if constexpr (Tile::rows == 0) return; // there is no such tile
#if STRATA_ROLES
    else if constexpr (Tile::warpgroups) return Warpgroups<T, Tile>{{args, shared}}.run();
    else if constexpr (Tile::roles) return Roles<T, Tile>{{args, shared}}.run();
#endif
    else take_turns<T, Tile>(args, shared);
}

// The tiles an image has, widest first: what launching each takes, what it costs
// beside its tokens, whether it takes activations that are 16-aligned alone, how
// many tokens a part has that costs nothing without any, and what a token costs, in
// hundredths of what it costs in the first tiles that this project had.
struct MmqShape {
    u32 rows, tokens, threads, shared_bytes, overhead, aligned, part, price;
};

template <typename T, typename Tile> constexpr MmqShape shape_of(u32 overhead) {
    if constexpr (Tile::rows == 0) return {0, Tile::tokens};
#if STRATA_ROLES
    else if constexpr (Tile::warpgroups)
        return {Tile::rows, Tile::tokens, Tile::threads, WarpgroupShared<T, Tile>::bytes, overhead,
                Tile::needs_aligned, Tile::half_tokens, Tile::price};
#endif
    else
        return {Tile::rows, Tile::tokens, Tile::threads, Shared<T, Tile>::bytes, overhead,
                Tile::needs_aligned, Tile::tokens, 100};
}

#include "tiles.cuh"

#define MMQ_KERNEL(T, name, overhead)                                                                \
    KERNEL(name<T>::threads, name<T>::blocks) strata_mmq_##name(MmqArgs args) { mmq<T, name<T>>(args); }
#define MMQ_SHAPE(T, name, overhead) shape_of<T, name<T>>(overhead),

#define STRATA_MMQ(T)                                                                                \
    MMQ_TILES(MMQ_KERNEL, T)                                                                         \
    EXPORT MmqShape strata_mmq_shapes[] = {MMQ_TILES(MMQ_SHAPE, T)};
