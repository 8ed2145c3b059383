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
#pragma once
#include "product/turns.cuh"
#if STRATA_ROLES
#include "product/roles.cuh"
#endif

template <typename T, typename Tile> DEVICE void mmq(const MmqArgs &args) {
    SHARED_DYNAMIC(shared);
#if STRATA_ROLES
    if constexpr (Tile::roles) return Roles<T, Tile>{{args, shared}}.run();
#endif
    if constexpr (!Tile::roles) take_turns<T, Tile>(args, shared);
}

// The tiles an image has, widest first: what launching each takes, what it costs
// beside its tokens, and whether it takes activations that are 16-aligned alone.
struct MmqShape {
    u32 rows, tokens, threads, shared_bytes, overhead, aligned;
};

#include "tiles.cuh"

#define MMQ_KERNEL(T, name, overhead)                                                                \
    KERNEL(name<T>::threads, name<T>::blocks) strata_mmq_##name(MmqArgs args) { mmq<T, name<T>>(args); }
#define MMQ_SHAPE(T, name, overhead)                                                                 \
    {name<T>::rows, name<T>::tokens, name<T>::threads, Shared<T, name<T>>::bytes,                    \
     overhead,      name<T>::needs_aligned},

#define STRATA_MMQ(T)                                                                                \
    MMQ_TILES(MMQ_KERNEL, T)                                                                         \
    EXPORT MmqShape strata_mmq_shapes[] = {MMQ_TILES(MMQ_SHAPE, T)};
