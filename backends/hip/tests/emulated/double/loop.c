// The emulator's inner loop: runs one wave from instruction to instruction
// until it waits, ends, or meets one that is not compiled yet. In Python this
// loop takes ten times as long as the instructions.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    void (*run)(uint64_t, uint64_t, uint64_t, uint64_t, uint64_t, uint64_t);
    uint8_t count, barrier, buffer[6], skip, native;
} Slot;

enum { DONE, BARRIER, UNKNOWN, OUTSIDE, ENDLESS, PARTIAL, FAULT };
enum { EXEC_LO = 126, EXEC_HI = 127, PC_LO = 256, PC_HI = 257 };
enum { SGPR = 0, VGPR = 1, ACC = 5 };
// Instructions that are done here instead of by the emulator.
enum { CACHE = 1, GET_PC, MFMA_16, MFMA_32, DIVIDE };

// D = A B + C on 16 x 16 signed bytes with k values of k, from the instruction's two words: the emulator's own form
// does not compile. Lane l holds k / 4 values of row l % 16, from k / 4 * (l / 16); of C and D column l % 16 of the
// rows 4 (l / 16) + i. The matrix unit ignores the execution bits; kernels must come here with all of them set.
static int mfma(const uint32_t *word, int k, const uint64_t *buffers) {
    const uint32_t *sgpr = (const uint32_t *)buffers[SGPR];
    if (sgpr[EXEC_LO] != ~0u || sgpr[EXEC_HI] != ~0u) return PARTIAL;
    uint32_t *file[2] = {(uint32_t *)buffers[VGPR], (uint32_t *)buffers[ACC]};
    const int acc_cd = word[0] >> 15 & 1;
    uint32_t *d = file[acc_cd] + 64 * (word[0] & 255);
    const uint32_t *a = file[word[1] >> 27 & 1] + 64 * (word[1] & 255);
    const uint32_t *b = file[word[1] >> 28 & 1] + 64 * (word[1] >> 9 & 255);
    const uint32_t c = word[1] >> 18 & 511;
    const int share = k / 4;
    int32_t out[4][64];
    for (int lane = 0; lane < 64; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = 4 * (lane / 16) + i;
            int32_t sum = c < 256 ? sgpr[c] : file[acc_cd][64 * (c - 256 + i) + lane];
            for (int g = 0; g < 4; g++)
                for (int n = 0; n < share; n++)
                    sum += (int8_t)(a[64 * (n / 4) + 16 * g + row] >> 8 * (n % 4)) * (int8_t)(b[64 * (n / 4) + 16 * g + lane % 16] >> 8 * (n % 4));
            out[i][lane] = sum;
        }
    for (int i = 0; i < 4; i++)
        for (int lane = 0; lane < 64; lane++) d[64 * i + lane] = out[i][lane];
    return DONE;
}

// The last instruction of a division, from its encoding: quotient, denominator, numerator. Hardware's sequence of
// scale, reciprocal, fused steps and fix-up is a correctly rounded division where subnormals are kept; the emulator's
// scale step follows hardware that flushes them, so the quotient is made here.
static void divide(const uint32_t *word, uint32_t lanes, const uint64_t *buffers) {
    const uint32_t *sgpr = (const uint32_t *)buffers[SGPR];
    uint32_t *vgpr = (uint32_t *)buffers[VGPR];
    const uint64_t exec = sgpr[EXEC_LO] | (uint64_t)(lanes == 64 ? sgpr[EXEC_HI] : 0) << 32;
    for (uint32_t lane = 0; lane < lanes; lane++) {
        if (!(exec >> lane & 1)) continue;
        float x[3];
        for (int i = 1; i < 3; i++) {
            const uint32_t source = word[1] >> 9 * i & 511;
            uint32_t bits = source == 255 ? word[2] : source < 256 ? sgpr[source] : vgpr[lanes * (source - 256) + lane];
            if (word[0] >> (8 + i) & 1) bits &= 0x7fffffff;
            if (word[1] >> (29 + i) & 1) bits ^= 0x80000000;
            memcpy(&x[i], &bits, 4);
        }
        const float quotient = x[2] / x[1];
        memcpy(&vgpr[lanes * (word[0] & 255) + lane], &quotient, 4);
    }
}

// An instruction that reads or writes where no memory is comes back here.
static sigjmp_buf out;
uint64_t fault_address;
static void fault(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    fault_address = (uint64_t)info->si_addr;
    siglongjmp(out, 1);
}

static int run(const Slot *slots, uint64_t base, uint64_t bytes, uint32_t *sgpr, const uint64_t *buffers, uint64_t *executed, uint64_t most, uint32_t lanes) {
    for (;;) {
        uint64_t pc = sgpr[PC_LO] | (uint64_t)sgpr[PC_HI] << 32;
        if (pc == ~(uint64_t)0) return DONE;
        if (pc < base || pc - base >= bytes || pc % 4) return OUTSIDE;
        const Slot *slot = &slots[(pc - base) / 4];
        if (!slot->run && !slot->native) return UNKNOWN;
        if (slot->native) {
            const uint32_t *word = (const uint32_t *)pc;
            const int k = slot->native == MFMA_16 ? 16 : slot->native == MFMA_32 ? 32 : 0;
            if (k && mfma(word, k, buffers)) return PARTIAL;
            if (slot->native == DIVIDE) divide(word, lanes, buffers);
            pc += slot->skip;
            if (slot->native == GET_PC) memcpy(&sgpr[word[0] >> 16 & 127], &pc, 8);
            sgpr[PC_LO] = pc, sgpr[PC_HI] = pc >> 32;
            ++*executed;
            continue;
        }
        uint64_t a[6] = {0};
        for (int i = 0; i < slot->count; i++) a[i] = buffers[slot->buffer[i]];
        // More arguments than it takes do no harm in the calling conventions in use.
        slot->run(a[0], a[1], a[2], a[3], a[4], a[5]);
        if (++*executed > most) return ENDLESS;
        if (slot->barrier) return BARRIER;
    }
}

int run_wave(const Slot *slots, uint64_t base, uint64_t bytes, uint32_t *sgpr, const uint64_t *buffers, uint64_t *executed, uint64_t most, uint32_t lanes) {
    struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO}, before[2];
    sigaction(SIGSEGV, &action, &before[0]);
    sigaction(SIGBUS, &action, &before[1]);
    const int result = sigsetjmp(out, 1) ? FAULT : run(slots, base, bytes, sgpr, buffers, executed, most, lanes);
    sigaction(SIGSEGV, &before[0], 0);
    sigaction(SIGBUS, &before[1], 0);
    return result;
}
