// What only sm_90a has: barriers that copies arrive at, bulk copies, registers
// that move between warpgroups.
#pragma once
#include "../vendor.cuh"

// A barrier of a block, 8 bytes of shared memory. Its phases complete one after
// the other; phase number p is waited for by its number.
struct Barrier {
    u32 address;

    DEVICE explicit Barrier(const void *shared) : address(shared_address(shared)) {}

    // How many arrivals complete a phase.
    DEVICE void init(u32 arrivals) const {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address), "r"(arrivals) : "memory");
    }
    // Makes new barriers known to copies; a block_sync makes them known to threads.
    static DEVICE void publish() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

    DEVICE void arrive() const {
        asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address) : "memory");
    }
    // Arrives once this thread's asynchronous copies are there.
    DEVICE void arrive_after_copies() const {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(address) : "memory");
    }
    // Arrives, and lets the phase wait for bytes of copies.
    DEVICE void expect(u32 bytes) const {
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address), "r"(bytes) : "memory");
    }
    // Copies bytes that are expected, all of it in sixteens.
    DEVICE void copy_part(void *shared, const void *global, u32 bytes) const {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(shared)),
                     "l"(global), "r"(bytes), "r"(address)
                     : "memory");
    }
    // Copies bytes and arrives with them.
    DEVICE void copy(void *shared, const void *global, u32 bytes) const {
        expect(bytes);
        copy_part(shared, global, bytes);
    }
    DEVICE void wait(u32 phase) const {
        asm volatile("{\n"
                     ".reg .pred p;\n"
                     "again:\n"
                     "mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
                     "@!p bra again;\n"
                     "}" ::"r"(address),
                     "r"(phase & 1)
                     : "memory");
    }
};

// Waits until at most `pending` of this thread's last copy_commits are not there.
template <int pending> DEVICE void copy_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory"); }

// A barrier of the block, by number from 1 on, for `threads` of its threads.
template <int number, int threads> DEVICE void named_sync() {
    asm volatile("bar.sync %0, %1;" ::"n"(number), "n"(threads) : "memory");
}

// Registers of each thread of a warpgroup, from here on.
template <int registers> DEVICE void grow_registers() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers> DEVICE void shrink_registers() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
