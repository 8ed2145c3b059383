// A HIP runtime without a card, for this project's tests alone.
//
// The entry points that the backend uses, over host memory; each launch goes to
// an instruction-set emulator in another process (emulator.py), which shares
// the memory at equal addresses. Everything has happened when a call returns:
// the double shows what the backend computes and frees, not what it may forget
// to wait for.
//
// Environment: STRATA_DOUBLE_ARCHS, the devices ("gfx1100,gfx942");
// STRATA_DOUBLE_MEMORY, bytes of each; STRATA_DOUBLE_PYTHON, STRATA_DOUBLE_SERVER
// and STRATA_DOUBLE_LOOP, what to run. PROP_SIZE, PROP_ARCH and the like come
// from the bindings, by -D.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, BAD_IMAGE = 200,
       NOT_FOUND = 500, ILLEGAL_ADDRESS = 700, LAUNCH_FAILURE = 719 };

#define ARENA ((char *)0x600000000000)
#define ARENA_SIZE ((size_t)1 << 36)
#define KERNARG_SIZE ((size_t)1 << 16)
#define ALIGN 256
#define RED_ZONE 256 // bytes before and after every allocation that nobody may write
#define RED 0x5a
#define FRESH 0xff // what memory holds at first: not a number, and no small index
#define FRESH_MOST ((size_t)64 << 20)
#define MAX_DEVICES 8
#define MAX_ARGS 48

typedef struct Block {
    char *at;
    size_t bytes, room;
    int device, used;
    struct Block *next;
} Block;
typedef struct { int device; const unsigned char *elf; size_t bytes; char *memory; long id; } Module; // id: the emulator's, 0 before it is needed
typedef struct { Module *module; char name[128]; unsigned long kd, kernarg, lds, threads; int n; struct { unsigned at, size; } arg[MAX_ARGS]; } Function;
typedef struct { struct timespec time; int recorded; } Event;

static struct { char arch[32]; size_t total, used; } devices[MAX_DEVICES];
static int device_count = -1, server = -1, memory_fd = -1, sticky;
static size_t arena_end = KERNARG_SIZE;
static Block *blocks;
static _Thread_local int current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int fail(const char *what, const char *detail) {
    fprintf(stderr, "hip double: %s: %s\n", what, detail);
    return -1;
}

static int start(void) {
    if (device_count >= 0) return OK;
    device_count = 0;
    const char *archs = getenv("STRATA_DOUBLE_ARCHS"), *memory = getenv("STRATA_DOUBLE_MEMORY");
    size_t total = memory ? strtoull(memory, NULL, 0) : (size_t)1 << 30;
    memory_fd = memfd_create("device memory", 0);
    if (memory_fd < 0 || ftruncate(memory_fd, ARENA_SIZE) ||
        mmap(ARENA, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, memory_fd, 0) != ARENA)
        return fail("device memory", strerror(errno)), NO_DEVICE;
    char *list = strdup(archs ? archs : "");
    for (char *a = strtok(list, ","); a && device_count < MAX_DEVICES; a = strtok(NULL, ",")) {
        snprintf(devices[device_count].arch, sizeof devices[0].arch, "%s", a);
        devices[device_count++].total = total;
    }
    free(list);
    return OK;
}

// One line to the emulator and one line back. The process starts with the
// first request, since many tests need memory and streams only.
static int ask(char *line, size_t size) {
    if (server < 0) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return fail("socketpair", strerror(errno));
        fcntl(pair[0], F_SETFD, FD_CLOEXEC);
        pid_t child = fork();
        if (child < 0) return fail("fork", strerror(errno));
        if (child == 0) {
            char fd[2][16];
            snprintf(fd[0], 16, "%d", pair[1]);
            snprintf(fd[1], 16, "%d", memory_fd);
            char address[32], bytes[32];
            snprintf(address, 32, "%zu", (size_t)ARENA);
            snprintf(bytes, 32, "%zu", ARENA_SIZE);
            const char *python = getenv("STRATA_DOUBLE_PYTHON");
            execlp(python ? python : "python3", "python3", getenv("STRATA_DOUBLE_SERVER"), fd[0], fd[1], address, bytes, getenv("STRATA_DOUBLE_LOOP"), (char *)NULL);
            perror("hip double: python3");
            _exit(127);
        }
        close(pair[1]);
        server = pair[0];
    }
    size_t n = strlen(line), got = 0;
    if (send(server, line, n, MSG_NOSIGNAL) != (ssize_t)n) return fail("emulator", "is gone");
    while (got + 1 < size) {
        ssize_t r = recv(server, line + got, size - 1 - got, 0);
        if (r <= 0) return fail("emulator", "ended");
        got += r;
        if (line[got - 1] == '\n') break;
    }
    line[got] = 0;
    if (strncmp(line, "ok", 2)) return fail("emulator", line);
    return 0;
}

// ------------------------------------------------------------------- memory

static int take(size_t bytes, int device, char **out) {
    size_t room = (bytes + ALIGN - 1) / ALIGN * ALIGN + 2 * RED_ZONE;
    Block *b;
    for (b = blocks; b; b = b->next)
        if (!b->used && b->room == room) break;
    if (!b) {
        if (arena_end + room > ARENA_SIZE) return NO_MEMORY;
        b = calloc(1, sizeof *b);
        b->at = ARENA + arena_end;
        b->room = room;
        arena_end += room;
        b->next = blocks;
        blocks = b;
    }
    b->bytes = bytes;
    b->device = device;
    b->used = 1;
    *out = b->at + RED_ZONE;
    memset(b->at, RED, RED_ZONE);
    memset(*out + bytes, RED, room - RED_ZONE - bytes);
    // Of the largest, the beginning only: the rest would be pages that no test looks at.
    memset(*out, FRESH, bytes < FRESH_MOST ? bytes : FRESH_MOST);
    return OK;
}

static Block *block_of(const void *p) {
    for (Block *b = blocks; b; b = b->next)
        if (b->used && (const char *)p >= b->at + RED_ZONE && (const char *)p < b->at + RED_ZONE + (b->bytes ? b->bytes : 1)) return b;
    return NULL;
}

static int intact_from(const Block *b, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if ((unsigned char)b->at[i] != RED) {
            fprintf(stderr, "hip double: byte %ld of an allocation of %zu was written\n", (long)i - RED_ZONE, b->bytes);
            return 0;
        }
    return 1;
}

static int intact(const Block *b) { return intact_from(b, 0, RED_ZONE) && intact_from(b, RED_ZONE + b->bytes, b->room); }

static int all_intact(void) {
    for (Block *b = blocks; b; b = b->next)
        if (b->used && !intact(b)) return sticky = ILLEGAL_ADDRESS;
    return sticky;
}

// Whether the bytes lie in one allocation, or outside the device's memory altogether.
static int inside(const void *p, size_t bytes) {
    if ((const char *)p < ARENA || (const char *)p >= ARENA + ARENA_SIZE) return 1;
    Block *b = block_of(p);
    return b && (const char *)p + bytes <= b->at + RED_ZONE + b->bytes;
}

int hipMalloc(void **out, size_t bytes) {
    pthread_mutex_lock(&lock);
    int e = start(), d = current;
    if (!e && d >= device_count) e = NO_DEVICE;
    if (!e && bytes > devices[d].total - devices[d].used) e = NO_MEMORY;
    if (!e) e = take(bytes, d, (char **)out);
    if (!e) devices[d].used += bytes;
    pthread_mutex_unlock(&lock);
    return e;
}

int hipFree(void *p) {
    if (!p) return OK;
    pthread_mutex_lock(&lock);
    Block *b = block_of(p);
    int e = b && p == b->at + RED_ZONE ? OK : INVALID;
    if (!e && !intact(b)) e = sticky = ILLEGAL_ADDRESS;
    if (b && p == b->at + RED_ZONE) {
        b->used = 0;
        devices[b->device].used -= b->bytes;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

int hipMemGetInfo(size_t *free_bytes, size_t *total) {
    pthread_mutex_lock(&lock);
    *total = devices[current].total;
    *free_bytes = *total - devices[current].used;
    pthread_mutex_unlock(&lock);
    return OK;
}

int hipHostMalloc(void **out, size_t bytes, unsigned flags) {
    (void)flags;
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *out ? OK : NO_MEMORY;
}

int hipHostFree(void *p) {
    free(p);
    return OK;
}

int hipMemcpyAsync(void *to, const void *from, size_t bytes, int kind, void *stream) {
    (void)kind, (void)stream;
    pthread_mutex_lock(&lock);
    int e = !inside(to, bytes) || !inside(from, bytes) ? INVALID : sticky;
    if (!e) memmove(to, from, bytes);
    pthread_mutex_unlock(&lock);
    return e;
}

int hipMemcpyDtoH(void *to, const void *from, size_t bytes) { return hipMemcpyAsync(to, from, bytes, 0, NULL); }

int hipMemsetAsync(void *to, int byte, size_t bytes, void *stream) {
    (void)stream;
    pthread_mutex_lock(&lock);
    int e = !inside(to, bytes) ? INVALID : sticky;
    if (!e) memset(to, byte, bytes);
    pthread_mutex_unlock(&lock);
    return e;
}

// ------------------------------------------------------------------ devices

int hipInit(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&lock);
    int e = start();
    pthread_mutex_unlock(&lock);
    return e ? e : device_count ? OK : NO_DEVICE;
}

int hipRuntimeGetVersion(int *version) {
    *version = 70000000;
    return OK;
}

int hipGetDeviceCount(int *count) {
    int e = hipInit(0);
    *count = device_count;
    return e;
}

int hipSetDevice(int device) {
    if (hipInit(0) || device < 0 || device >= device_count) return BAD_DEVICE;
    current = device;
    return OK;
}

int hipGetDevicePropertiesR0600(char *p, int device) {
    if (hipInit(0) || device < 0 || device >= device_count) return BAD_DEVICE;
    const char *arch = devices[device].arch;
    int gfx9 = !strncmp(arch, "gfx9", 4) && strlen(arch) == 6;
    memset(p, 0, PROP_SIZE);
    snprintf(p + PROP_NAME, 256, "emulated %s", arch);
    snprintf(p + PROP_ARCH, 256, "%s%s", arch, gfx9 ? ":sramecc+:xnack-" : "");
    memcpy(p + PROP_MEMORY, &devices[device].total, sizeof(size_t));
    memcpy(p + PROP_LDS, &(size_t){65536}, sizeof(size_t));
    memcpy(p + PROP_WAVE, &(int){gfx9 ? 64 : 32}, sizeof(int));
    memcpy(p + PROP_UNITS, &(int){2}, sizeof(int));
    return OK;
}

// ------------------------------------------------------- streams and events

int hipStreamCreateWithFlags(void **stream, unsigned flags) {
    (void)flags;
    *stream = malloc(1);
    return OK;
}

int hipStreamDestroy(void *stream) {
    free(stream);
    return OK;
}

int hipStreamSynchronize(void *stream) {
    (void)stream;
    pthread_mutex_lock(&lock);
    int e = all_intact();
    pthread_mutex_unlock(&lock);
    return e;
}

// Streams are not of a device here: the one that asks has it.
int hipStreamGetDevice(void *stream, int *device) {
    (void)stream;
    *device = current;
    return OK;
}

int hipStreamWaitEvent(void *stream, Event *event, unsigned flags) {
    (void)stream, (void)flags;
    return event->recorded ? OK : INVALID;
}

int hipEventCreateWithFlags(Event **event, unsigned flags) {
    (void)flags;
    *event = calloc(1, sizeof **event);
    return OK;
}

int hipEventDestroy(Event *event) {
    free(event);
    return OK;
}

int hipEventRecord(Event *event, void *stream) {
    (void)stream;
    event->recorded = 1;
    return clock_gettime(CLOCK_MONOTONIC, &event->time) ? INVALID : OK;
}

int hipEventQuery(Event *event) {
    (void)event;
    return OK;
}

int hipEventSynchronize(Event *event) {
    (void)event;
    return hipStreamSynchronize(NULL);
}

int hipEventElapsedTime(float *ms, Event *from, Event *to) {
    if (!from->recorded || !to->recorded) return INVALID;
    *ms = (to->time.tv_sec - from->time.tv_sec) * 1e3f + (to->time.tv_nsec - from->time.tv_nsec) * 1e-6f;
    return OK;
}

// ------------------------------------------------------------------ modules

// A code object, whose length its own section table gives: it is the last thing in the file.
int hipModuleLoadData(Module **out, const unsigned char *elf) {
    if (memcmp(elf, "\177ELF", 4)) return BAD_IMAGE;
    uint64_t sections;
    uint16_t size, count;
    memcpy(&sections, elf + 40, 8);
    memcpy(&size, elf + 58, 2);
    memcpy(&count, elf + 60, 2);
    *out = calloc(1, sizeof **out);
    **out = (Module){current, elf, sections + (size_t)size * count, NULL, 0};
    return OK;
}

// Loads it where a kernel or a variable is asked for: an emulator is needed only then.
static int loaded(Module *m) {
    if (m->id) return OK;
    // Segments begin on pages of their own: more room than the file takes.
    size_t room = 2 * m->bytes + 65536;
    char *image = NULL, line[256];
    int e = start();
    if (!e) e = take(m->bytes, m->device, &image);
    if (!e) e = take(room, m->device, &m->memory);
    if (e) return e;
    memcpy(image, m->elf, m->bytes);
    snprintf(line, sizeof line, "load %zu %zu %s %zu %zu\n", (size_t)image, m->bytes, devices[m->device].arch, (size_t)m->memory, room);
    if (ask(line, sizeof line)) return BAD_IMAGE;
    block_of(image)->used = 0;
    m->id = atol(line + 3);
    return OK;
}

int hipModuleUnload(Module *module) {
    char line[64];
    int e = OK;
    pthread_mutex_lock(&lock);
    if (module->id) {
        snprintf(line, sizeof line, "unload %ld\n", module->id);
        e = ask(line, sizeof line) ? INVALID : OK;
        block_of(module->memory)->used = 0;
    }
    free(module);
    pthread_mutex_unlock(&lock);
    return e;
}

int hipModuleGetFunction(Function **out, Module *module, const char *name) {
    char line[4096];
    pthread_mutex_lock(&lock);
    int e = loaded(module);
    snprintf(line, sizeof line, "function %ld %s\n", module->id, name);
    if (!e && ask(line, sizeof line)) e = NOT_FOUND;
    if (!e) {
        Function *f = *out = calloc(1, sizeof *f);
        f->module = module;
        snprintf(f->name, sizeof f->name, "%s", name);
        char *at = line + 3;
        f->kd = strtoul(at, &at, 10);
        f->kernarg = strtoul(at, &at, 10);
        f->lds = strtoul(at, &at, 10);
        f->threads = strtoul(at, &at, 10);
        for (f->n = 0; *at && *at != '\n' && f->n < MAX_ARGS; f->n++) {
            f->arg[f->n].at = strtoul(at, &at, 10);
            f->arg[f->n].size = strtoul(at, &at, 10);
        }
    }
    pthread_mutex_unlock(&lock);
    return e;
}

int hipModuleGetGlobal(void **out, size_t *bytes, Module *module, const char *name) {
    char line[1024];
    pthread_mutex_lock(&lock);
    int e = loaded(module);
    snprintf(line, sizeof line, "symbol %ld %s\n", module->id, name);
    if (!e && ask(line, sizeof line)) e = NOT_FOUND;
    if (!e) {
        char *at = line + 3;
        *out = (void *)strtoul(at, &at, 10);
        *bytes = strtoul(at, &at, 10);
    }
    pthread_mutex_unlock(&lock);
    return e;
}

int hipModuleLaunchKernel(Function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned dynamic_lds, void *stream, void **args, void **extra) {
    (void)stream;
    if (!gx || !gy || !gz || !bx || !by || !bz || gy > 65535 || gz > 65535 || extra) return INVALID;
    if ((unsigned long)bx * by * bz > f->threads || f->lds + dynamic_lds > 65536) return INVALID;
    char line[1024];
    pthread_mutex_lock(&lock);
    int e = f->module->device == current ? sticky : INVALID;
    if (!e) {
        memset(ARENA, 0, KERNARG_SIZE);
        for (int i = 0; i < f->n; i++) memcpy(ARENA + f->arg[i].at, args[i], f->arg[i].size);
        snprintf(line, sizeof line, "launch %ld %s %u %u %u %u %u %u %u %zu\n", f->module->id, f->name, gx, gy, gz, bx, by, bz, dynamic_lds, (size_t)ARENA);
        if (ask(line, sizeof line)) e = sticky = LAUNCH_FAILURE;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

int hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function *f, int threads, size_t dynamic_lds) {
    if (threads < 1 || (unsigned long)threads > f->threads) return INVALID;
    *blocks = f->lds + dynamic_lds > 65536 ? 0 : 2048 / threads;
    return OK;
}

const char *hipGetErrorName(int e) {
    switch (e) {
    case OK: return "hipSuccess";
    case INVALID: return "hipErrorInvalidValue";
    case NO_MEMORY: return "hipErrorOutOfMemory";
    case NO_DEVICE: return "hipErrorNoDevice";
    case BAD_DEVICE: return "hipErrorInvalidDevice";
    case BAD_IMAGE: return "hipErrorInvalidImage";
    case NOT_FOUND: return "hipErrorNotFound";
    case ILLEGAL_ADDRESS: return "hipErrorIllegalAddress";
    case LAUNCH_FAILURE: return "hipErrorLaunchFailure";
    default: return "hipErrorUnknown";
    }
}

const char *hipGetErrorString(int e) { return hipGetErrorName(e); }
