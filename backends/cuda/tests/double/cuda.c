// A CUDA driver without a card, for this project's tests alone.
//
// The entry points that the backend uses, over host memory. Streams are lazy on
// purpose: nothing in one happens before somebody waits for it or asks often
// enough, so that memory given back too early, or staging bytes written over
// too early, shows. Kernels do nothing but write a line to a log: name, blocks,
// threads, shared memory.
//
// Environment: DOUBLE_CARDS, the architectures ("90,61"); DOUBLE_VERSION, the
// CUDA version; DOUBLE_INIT, what cuInit returns; DOUBLE_NO_EVENT and DOUBLE_NO_RECORD, whether
// events cannot be made or put into streams; DOUBLE_BYTES, memory of each; DOUBLE_SHARED, shared memory
// after asking; DOUBLE_SHARED_GIVEN, what a kernel then gets at most; DOUBLE_LOG,
// the log; DOUBLE_FAULT, a kernel that faults.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 1, NO_MEMORY = 2, NO_DEVICE = 100, BAD_DEVICE = 101, NO_CONTEXT = 201,
       NOT_FOUND = 500, NOT_READY = 600, ILLEGAL_ADDRESS = 700 };

#define PATIENCE 3 // queries of an event before one operation of its stream happens
#define FRESH 0xcd // what memory holds at first
#define GONE 0xdd  // and when it was given back

typedef struct Block { char *at; size_t bytes; int device, pinned; struct Block *next; } Block;
// `sum` is of the bytes at `from` where those are pinned: they must stay until the copy.
typedef struct Op { uint64_t sum; enum { COPY, FILL, POINT, WAIT, LAUNCH } kind; char *to; const char *from; size_t bytes; int byte, owned; uint64_t number; struct Event *event; struct Op *next; } Op;
typedef struct Stream { int device; Op *first, **last; struct Stream *next; } Stream;
typedef struct Event { Stream *stream; uint64_t recorded, passed; int queries; double time; } Event;
typedef struct { int device; } Module;
typedef struct { char name[96]; unsigned shared_limit; } Function;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Block *blocks;
static Stream *streams;
static size_t used[8];
static int contexts[8], sticky[8];
static _Thread_local int current = -1; // a context is its device's number + 1
static double now;
static uint64_t serial;

static const char *set(const char *name) { const char *v = getenv(name); return v && *v ? v : 0; }
static int cards(int *arch) {
    int n = 0;
    char text[256];
    snprintf(text, sizeof text, "%s", set("DOUBLE_CARDS") ? set("DOUBLE_CARDS") : "");
    for (char *word = strtok(text, ","); word && n < 8; word = strtok(0, ",")) arch[n++] = atoi(word);
    return n;
}
static size_t total(void) { const char *v = set("DOUBLE_BYTES"); return v ? strtoull(v, 0, 10) : (size_t)1 << 30; }
static int here(void) {
    if (current < 0 || !contexts[current]) return NO_CONTEXT;
    return sticky[current] ? ILLEGAL_ADDRESS : OK;
}
static Block *inside(const char *at, size_t bytes) {
    for (Block *b = blocks; b; b = b->next)
        if (at >= b->at && at + bytes <= b->at + b->bytes) return b;
    return 0;
}
static int touches(const Block *b, const char *at, size_t bytes) { return at && at < b->at + b->bytes && at + bytes > b->at; }
static uint64_t sum_of(const char *at, size_t n) {
    uint64_t sum = 14695981039346656037u;
    size_t i = 0;
    for (uint64_t word; i + 8 <= n; i += 8) memcpy(&word, at + i, 8), sum = (sum ^ word) * 1099511628211u;
    for (; i < n; i++) sum = (sum ^ (unsigned char)at[i]) * 1099511628211u;
    return sum;
}
static int pinned(const char *at, size_t n) { Block *b = inside(at, n); return b && b->pinned; }
static void die(const char *what) { fprintf(stderr, "cuda double: %s\n", what); abort(); }

// Events are asked about by threads that have a context.
static void need_context(void) { if (current < 0 || !contexts[current]) die("a call without a context"); }

static int behind(const Event *e, uint64_t number) { return e->passed < number && e->stream && e->stream->first; }
// One operation of a stream happens.
static void step(Stream *s) {
    Op *op = s->first;
    s->first = op->next;
    if (!s->first) s->last = &s->first;
    now += 0.25;
    if (op->kind == COPY) {
        if (!inside(op->to, op->bytes) && !inside(op->from, op->bytes)) die("a copy between no memory of ours");
        if (pinned(op->from, op->bytes) && sum_of(op->from, op->bytes) != op->sum) die("staging bytes written over before they were copied");
        memcpy(op->to, op->from, op->bytes);
        if (op->owned) free((void *)op->from);
    } else if (op->kind == FILL) {
        if (!inside(op->to, op->bytes)) die("a fill of memory that was given back");
        memset(op->to, op->byte, op->bytes);
    } else if (op->kind == WAIT) {
        while (behind(op->event, op->number)) step(op->event->stream);
    } else if (op->kind == POINT && op->event->recorded == op->number) {
        op->event->passed = op->number, op->event->time = now;
    } else if (op->kind == LAUNCH) {
        sticky[s->device] = 1;
    }
    free(op);
}
static Op *put(Stream *s, int kind) {
    Op *op = calloc(1, sizeof *op);
    op->kind = kind;
    *s->last = op;
    s->last = &op->next;
    return op;
}
static void drain(Stream *s) { while (s->first) step(s); }

#define LOCKED(...) do { pthread_mutex_lock(&lock); int r = OK; do { __VA_ARGS__ } while (0); pthread_mutex_unlock(&lock); return r; } while (0)
#define NEED(x) if ((r = (x)) != OK) break

int cuInit(unsigned flags) { int a[8]; return flags ? INVALID : set("DOUBLE_INIT") ? atoi(set("DOUBLE_INIT")) : cards(a) ? OK : NO_DEVICE; }
int cuDriverGetVersion(int *v) { *v = set("DOUBLE_VERSION") ? atoi(set("DOUBLE_VERSION")) : 13000; return OK; }
int cuGetErrorName(int e, const char **s) {
    *s = e == NO_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : e == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : e == INVALID ? "CUDA_ERROR_INVALID_VALUE" : "CUDA_ERROR_OTHER";
    return OK;
}
int cuGetErrorString(int e, const char **s) { (void)e; *s = "words of the double"; return OK; }
int cuDeviceGetCount(int *n) { int a[8]; *n = cards(a); return OK; }
int cuDeviceGet(int *d, int i) { int a[8]; *d = i; return i >= 0 && i < cards(a) ? OK : BAD_DEVICE; }
int cuDeviceGetName(char *to, int n, int d) { snprintf(to, n, "Double %d", d); return OK; }
int cuDeviceGetAttribute(int *to, int what, int d) {
    int a[8];
    cards(a);
    switch (what) {
    case 75: *to = a[d] / 10; return OK;
    case 76: *to = a[d] % 10; return OK;
    case 16: *to = 4; return OK;
    case 10: *to = 32; return OK;
    case 8: *to = 49152; return OK;
    case 97: *to = set("DOUBLE_SHARED") ? atoi(set("DOUBLE_SHARED")) : 232448; return OK;
    }
    return INVALID;
}
int cuDevicePrimaryCtxRetain(void **c, int d) { LOCKED(contexts[d]++; *c = (void *)(intptr_t)(d + 1);); }
int cuDevicePrimaryCtxRelease_v2(int d) {
    LOCKED(
        if (--contexts[d]) break;
        sticky[d] = 0;
        // A sound program has given all of it back.
        for (Block *b = blocks; b; b = b->next)
            if (b->device == d && set("DOUBLE_STRICT")) die("memory outlives its context");
    );
}
int cuCtxSetCurrent(void *c) { current = (int)(intptr_t)c - 1; return current >= 0 && contexts[current] ? OK : NO_CONTEXT; }
int cuMemGetInfo_v2(size_t *f, size_t *t) { LOCKED(NEED(here()); *t = total(); *f = *t - used[current];); }

static int take(char **to, size_t bytes, int pinned) {
    LOCKED(
        NEED(here());
        if (!pinned && used[current] + bytes > total()) { r = NO_MEMORY; break; }
        Block *b = calloc(1, sizeof *b);
        b->at = aligned_alloc(512, (bytes + 511) / 512 * 512), b->bytes = bytes, b->device = current, b->pinned = pinned;
        memset(b->at, FRESH, bytes);
        b->next = blocks, blocks = b;
        if (!pinned) used[current] += bytes;
        *to = b->at;
    );
}
static int give(char *at, int pinned) {
    LOCKED(
        Block **p = &blocks;
        while (*p && ((*p)->at != at || (*p)->pinned != pinned)) p = &(*p)->next;
        if (!*p) die("freed what was not allocated");
        Block *b = *p;
        for (Stream *s = streams; s; s = s->next)
            for (Op *op = s->first; op; op = op->next)
                if (touches(b, op->to, op->bytes) || touches(b, op->from, op->bytes)) die("memory given back that a stream needs");
        *p = b->next;
        if (!pinned) used[b->device] -= b->bytes;
        memset(b->at, GONE, b->bytes);
        free(b->at), free(b);
    );
}
int cuMemAlloc_v2(uint64_t *to, size_t n) { char *p = 0; int r = take(&p, n, 0); *to = (uint64_t)p; return r; }
int cuMemFree_v2(uint64_t at) { return give((char *)at, 0); }
int cuMemHostAlloc(void **to, size_t n, unsigned f) { (void)f; return take((char **)to, n, 1); }
int cuMemFreeHost(void *at) { return give(at, 1); }

int cuStreamCreate(void **to, unsigned f) {
    LOCKED(
        NEED(f == 1 ? here() : INVALID);
        Stream *s = calloc(1, sizeof *s);
        s->device = current, s->last = &s->first, s->next = streams, streams = s;
        *to = s;
    );
}
static int drained(Stream *s) { drain(s); return sticky[s->device] ? ILLEGAL_ADDRESS : OK; }
int cuStreamGetCtx(void *s, void **c) { LOCKED(*c = (void *)(intptr_t)(((Stream *)s)->device + 1);); }
int cuStreamSynchronize(void *s) { LOCKED(r = drained(s);); }
int cuStreamDestroy_v2(void *stream) {
    LOCKED(
        Stream **p = &streams;
        while (*p && *p != stream) p = &(*p)->next;
        if (!*p) die("a stream destroyed twice");
        if ((*p)->first) die("a stream destroyed with work in it");
        *p = (*p)->next;
    );
}
static int queue(Stream *s, char *to, const char *from, size_t n, int device_side_is_to) {
    LOCKED(
        NEED(here());
        if (s->device != current) { r = INVALID; break; }
        Block *own = inside(device_side_is_to ? to : from, n);
        if (!own || own->pinned) { r = INVALID; break; }
        Op *op = put(s, COPY);
        op->to = to, op->from = from, op->bytes = n;
        if (pinned(from, n)) op->sum = sum_of(from, n);
        if (device_side_is_to && !inside(from, n)) { // pageable: read at once
            char *copy = malloc(n);
            memcpy(copy, from, n);
            op->from = copy, op->owned = 1;
        }
    );
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t n, void *s) { return queue(s, (char *)to, from, n, 1); }
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t n, void *s) { return queue(s, to, (char *)from, n, 0); }
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void *stream) {
    LOCKED(
        NEED(here());
        Stream *s = stream;
        Block *a = inside((char *)to, n), *b = inside((char *)from, n);
        if (s->device != current || !a || a->pinned || !b || b->pinned) { r = INVALID; break; }
        Op *op = put(s, COPY);
        op->to = (char *)to, op->from = (char *)from, op->bytes = n;
    );
}
int cuMemcpyDtoH_v2(void *to, uint64_t from, size_t n) { memcpy(to, (char *)from, n); return OK; }
int cuMemsetD8Async(uint64_t to, unsigned char byte, size_t n, void *s) {
    LOCKED(NEED(here()); NEED(inside((char *)to, n) ? OK : INVALID); Op *op = put(s, FILL); op->to = (char *)to, op->bytes = n, op->byte = byte;);
}

int cuEventCreate(void **to, unsigned f) { (void)f; LOCKED(NEED(here()); NEED(set("DOUBLE_NO_EVENT") ? INVALID : OK); *to = calloc(1, sizeof(Event));); }
int cuEventDestroy_v2(void *event) {
    LOCKED(
        need_context();
        Event *e = event;
        // Its points may still stand in streams: those that are waited for are reached, all are forgotten.
        uint64_t waited = 0;
        for (Stream *s = streams; s; s = s->next)
            for (Op *op = s->first; op; op = op->next)
                if (op->event == e && op->kind == WAIT && op->number > waited) waited = op->number;
        while (behind(e, waited)) step(e->stream);
        for (Stream *s = streams; s; s = s->next)
            for (Op *op = s->first; op; op = op->next)
                if (op->event == e) op->kind = FILL, op->event = 0, op->bytes = 0, op->to = blocks ? blocks->at : 0;
        free(e);
    );
}
int cuEventRecord(void *event, void *s) {
    LOCKED(NEED(here()); NEED(set("DOUBLE_NO_RECORD") ? INVALID : OK); Event *e = event; e->stream = s; e->recorded = ++serial; e->queries = 0; Op *op = put(s, POINT); op->event = e; op->number = e->recorded;);
}
int cuStreamWaitEvent(void *s, void *event, unsigned f) {
    LOCKED(NEED(f ? INVALID : here()); Event *e = event; Op *op = put(s, WAIT); op->event = e; op->number = e->recorded;);
}
int cuEventQuery(void *event) {
    LOCKED(
        need_context();
        Event *e = event;
        if (e->passed != e->recorded && e->queries++ >= PATIENCE && e->stream->first) step(e->stream);
        r = e->passed == e->recorded ? OK : NOT_READY;
    );
}
int cuEventSynchronize(void *event) {
    LOCKED(
        need_context();
        Event *e = event;
        while (e->passed != e->recorded && e->stream->first) step(e->stream);
        r = e->stream && sticky[e->stream->device] ? ILLEGAL_ADDRESS : OK;
    );
}
int cuEventElapsedTime_v2(float *ms, void *a, void *b) {
    LOCKED(Event *x = a; Event *y = b; if (x->passed != x->recorded || y->passed != y->recorded) { r = NOT_READY; break; } *ms = (float)(y->time - x->time););
}

int cuModuleLoadData(void **to, const void *image) { (void)image; LOCKED(NEED(here()); Module *m = calloc(1, sizeof *m); m->device = current; *to = m;); }
int cuModuleUnload(void *m) { free(m); return OK; }
int cuModuleGetFunction(void **to, void *m, const char *name) {
    (void)m;
    Function *f = calloc(1, sizeof *f);
    snprintf(f->name, sizeof f->name, "%s", name);
    f->shared_limit = 49152;
    *to = f;
    return OK;
}
int cuModuleGetGlobal_v2(uint64_t *to, size_t *n, void *m, const char *name) {
    static const uint32_t two[] = {256, 8}, scores[] = {256, 128, 64}, top_k[] = {128, 4}, one[] = {256}, map[] = {256, 32, 8, 4096}, scatter[] = {512, 4160, 144, 6};
    static const uint32_t mmq[] = {
        0, 256, 0, 0, 0, 0, 0, 0, // no tile by warpgroups
        128, 128, 512, 90000, 8, 1, 128, 100, 128, 96, 384, 75000, 13, 0, 96, 100,
        128, 64, 256, 60000, 13, 0, 64, 100, 128, 32, 256, 45000, 28, 0, 32, 100,
        128, 16, 256, 40000, 28, 0, 16, 100, 16, 16, 32, 12000, 28, 0, 16, 100};
    (void)m;
#define GIVE(x) return *to = (uint64_t)(x), *n = sizeof(x), OK
    if (strstr(name, "scatter_shape")) GIVE(scatter);
    if (strstr(name, "quantize_shape") || strstr(name, "swiglu_shape")) GIVE(two);
    if (strstr(name, "scores_shape")) GIVE(scores);
    if (strstr(name, "top_k_shape")) GIVE(top_k);
    if (strstr(name, "combine_shape")) GIVE(one);
    if (strstr(name, "map_shape")) GIVE(map);
    if (strstr(name, "mmq_shapes")) GIVE(mmq);
    return NOT_FOUND;
}
int cuFuncSetAttribute(void *f, int what, int value) {
    int most;
    cuDeviceGetAttribute(&most, 97, current);
    if (set("DOUBLE_SHARED_GIVEN")) most = atoi(set("DOUBLE_SHARED_GIVEN"));
    if (what != 8 || value > most) return INVALID;
    return ((Function *)f)->shared_limit = value, OK;
}
int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *n, void *f, int threads, size_t shared) { (void)f, (void)shared; *n = 2048 / threads; return OK; }
int cuLaunchKernel(void *function, unsigned x, unsigned y, unsigned z, unsigned tx, unsigned ty, unsigned tz, unsigned shared, void *s, void **params, void **extra) {
    (void)extra;
    LOCKED(
        NEED(here());
        Function *f = function;
        if (!x || y != 1 || z != 1 || !tx || tx > 1024 || ty != 1 || tz != 1 || shared > f->shared_limit || !params || !params[0] || ((Stream *)s)->device != current) { r = INVALID; break; }
        if (set("DOUBLE_LOG")) {
            FILE *log = fopen(set("DOUBLE_LOG"), "a");
            fprintf(log, "%s %u %u %u\n", f->name, x, tx, shared);
            fclose(log);
        }
        if (set("DOUBLE_FAULT") && strstr(f->name, set("DOUBLE_FAULT"))) put(s, LAUNCH);
    );
}
