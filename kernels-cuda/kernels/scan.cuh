// Prefix sums, and which run of a list something lies in.
#pragma once
#include "vendor.cuh"

// This lane's value and those of the lanes below it.
DEVICE u32 sum_up_to_lane(u32 x) {
    UNROLL
    for (int delta = 1; delta < wave_size; delta *= 2) {
        const u32 other = shuffle_up(x, delta);
        x += int(lane_index()) >= delta ? other : 0;
    }
    return x;
}

// Runs of something, one a thread: where each ends in a list of all of them.
// In shared memory.
template <int threads> struct Runs {
    static constexpr int waves = threads / wave_size;
    u32 ends[threads];
    u32 sums[waves];

    // All threads of the block come here, each with the length of its run. What
    // they wrote to shared memory before is seen by all of them after it.
    DEVICE void set(u32 length) {
        const u32 wave = thread_index() / wave_size;
        const u32 upto = sum_up_to_lane(length);
        if (lane_index() == wave_size - 1) sums[wave] = upto;
        block_sync();
        u32 before = 0;
        for (u32 w = 0; w < wave; w++) before += sums[w];
        ends[thread_index()] = before + upto;
        block_sync();
    }
    DEVICE u32 length() const { return ends[threads - 1]; }
    // The run that entry i of the list is in, and where that run begins.
    DEVICE u32 of(u32 i) const {
        u32 at = 0;
        UNROLL
        for (u32 half = threads / 2; half > 0; half /= 2)
            if (ends[at + half - 1] <= i) at += half;
        return at;
    }
    DEVICE u32 begin(u32 run) const { return run ? ends[run - 1] : 0; }
};
