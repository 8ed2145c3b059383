// The routing map: a stable counting sort of the routes by expert.
//
// Routes are cut into chunks of consecutive (token, choice) pairs. The passes
// count each chunk's routes per expert, sum the counts of an expert over the
// chunks before, sum the experts, and then rank each chunk's routes in order.
// A chunk is ranked by one wave, so nothing depends on when anything runs:
// the only atomics count. Experts are taken in ranges that fit shared memory.
#include "scan.cuh"

struct MapArgs {
    const i32 *ids;
    u32 *slot, *src, *bounds;
    u32 *counts; // experts x chunks: routes of a chunk, then rows before it inside the expert
    u32 routes;  // tokens * k
    u32 k, experts;
    u32 chunks, chunk_routes;
    u32 id_bits; // bits in which ids can differ
};

constexpr int map_threads = 256;
constexpr u32 map_range = 4096; // experts whose counters fit shared memory at once

// Grid: one block a chunk.
KERNEL(map_threads, 4) strata_map_count(MapArgs args) {
    SHARED u32 count[map_range];
    const u32 chunk = block_index();
    const u32 begin = chunk * args.chunk_routes;
    const u32 left = args.routes - begin;
    const u32 end = begin + (left < args.chunk_routes ? left : args.chunk_routes);
    for (u32 first = 0; first < args.experts; first += map_range) {
        const u32 here = args.experts - first < map_range ? args.experts - first : map_range;
        for (u32 e = thread_index(); e < here; e += map_threads) count[e] = 0;
        block_sync();
        for (u32 i = begin + thread_index(); i < end; i += map_threads) {
            const u32 e = u32(args.ids[i]) - first;
            if (e < here) atomic_add(&count[e], 1);
        }
        block_sync();
        for (u32 e = thread_index(); e < here; e += map_threads)
            args.counts[u64(first + e) * args.chunks + chunk] = count[e];
        block_sync();
    }
}

// Grid: a wave an expert. Counts become rows before; bounds[e + 1] the expert's rows.
KERNEL(map_threads, 4) strata_map_chunks(MapArgs args) {
    constexpr int waves = map_threads / wave_size;
    const u32 lane = lane_index();
    const u64 step = u64(grid_blocks()) * waves;
    for (u64 e = u64(block_index()) * waves + thread_index() / wave_size; e < args.experts; e += step) {
        u32 *counts = args.counts + e * args.chunks;
        u32 before = 0;
        for (u64 c0 = 0; c0 < args.chunks; c0 += wave_size) {
            const u64 c = c0 + lane;
            const u32 count = c < args.chunks ? counts[c] : 0;
            const u32 upto = sum_up_to_lane(count);
            if (c < args.chunks) counts[c] = before + upto - count;
            before += shuffle(upto, wave_size - 1);
        }
        if (lane == 0) args.bounds[e + 1] = before;
    }
}

// One block: the experts' rows to the bounds between them.
KERNEL(map_threads, 1) strata_map_bounds(MapArgs args) {
    constexpr int waves = map_threads / wave_size;
    SHARED u32 sums[waves];
    const u32 lane = lane_index(), wave = thread_index() / wave_size;
    u32 before = 0;
    for (u64 e0 = 0; e0 < args.experts; e0 += map_threads) {
        const u64 e = e0 + thread_index();
        const u32 rows = e < args.experts ? args.bounds[e + 1] : 0;
        const u32 upto = sum_up_to_lane(rows);
        block_sync();
        if (lane == wave_size - 1) sums[wave] = upto;
        block_sync();
        u32 offset = before;
        for (u32 w = 0; w < waves; w++) {
            if (w < wave) offset += sums[w];
            before += sums[w];
        }
        if (e < args.experts) args.bounds[e + 1] = offset + upto;
    }
    if (thread_index() == 0) args.bounds[0] = 0;
}

// Grid: one block of one wave a chunk.
KERNEL(wave_size, 8) strata_map_rank(MapArgs args) {
    SHARED u32 next[map_range];
    constexpr int batch = 8; // ids in flight a lane
    const u32 lane = lane_index(), chunk = block_index();
    const u32 begin = chunk * args.chunk_routes;
    const u32 left = args.routes - begin;
    const u32 end = begin + (left < args.chunk_routes ? left : args.chunk_routes);
    for (u32 first = 0; first < args.experts; first += map_range) {
        const u32 here = args.experts - first < map_range ? args.experts - first : map_range;
        wave_sync();
        for (u32 e = lane; e < here; e += wave_size)
            next[e] = args.bounds[first + e] + args.counts[u64(first + e) * args.chunks + chunk];
        for (u32 i0 = begin; i0 < end; i0 += batch * wave_size) {
            u32 ids[batch];
            UNROLL
            for (int b = 0; b < batch; b++) {
                const u64 i = u64(i0) + b * wave_size + lane;
                ids[b] = i < end ? u32(args.ids[i]) - first : ~0u;
            }
            UNROLL
            for (int b = 0; b < batch; b++) {
                const u32 id = ids[b];
                const bool mine = id < here;
                // The lanes that hold the same expert.
                u64 same = wave_ballot(mine);
                for (u32 bit = 0; bit < args.id_bits; bit++) {
                    const bool set = id >> bit & 1;
                    const u64 lanes = wave_ballot(set);
                    same &= set ? lanes : ~lanes;
                }
                const u64 below = same & ((u64(1) << lane) - 1);
                const u32 rank = u32(popcount(u32(below)) + popcount(u32(below >> 32)));
                wave_sync();
                const u32 row = mine ? next[id] + rank : 0;
                wave_sync();
                // The last of them counts all.
                if (mine && (same >> lane) == 1) next[id] = row + 1;
                const u32 i = i0 + b * wave_size + lane;
                if (mine) {
                    args.slot[i] = row;
                    args.src[row] = i / args.k;
                }
            }
        }
    }
}

// Threads of the first three passes and of the last, experts of a range.
EXPORT u32 strata_map_shape[4] = {map_threads, wave_size, map_threads / wave_size, map_range};

// ---- tiles of a product -----------------------------------------------------

struct TilesArgs {
    const u32 *bounds;
    u32x4 *tiles; // [0].x: how many follow; each: expert, first row, rows
    u32 experts, tile_tokens;
};

// One block: the rows of every expert cut into tiles, none of them empty.
KERNEL(map_threads, 1) strata_map_tiles(TilesArgs args) {
    SHARED Runs<map_threads> runs; // tiles of the experts of this turn
    const u32 tid = thread_index();
    u32 total = 0;
    for (u64 e0 = 0; e0 < args.experts; e0 += map_threads) {
        const u64 e = e0 + tid;
        const u32 rows = e < args.experts ? args.bounds[e + 1] - args.bounds[e] : 0;
        runs.set((rows + args.tile_tokens - 1) / args.tile_tokens);
        for (u32 i = tid; i < runs.length(); i += map_threads) {
            const u32 run = runs.of(i);
            const u32 first = args.bounds[e0 + run] + (i - runs.begin(run)) * args.tile_tokens;
            const u32 left = args.bounds[e0 + run + 1] - first;
            args.tiles[1 + total + i] = {u32(e0 + run), first, left < args.tile_tokens ? left : args.tile_tokens, 0};
        }
        total += runs.length();
        block_sync();
    }
    if (tid == 0) args.tiles[0] = {total, 0, 0, 0};
}
