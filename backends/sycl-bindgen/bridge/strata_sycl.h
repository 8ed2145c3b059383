/* Flat C interface to the parts of SYCL that Strata uses.
 *
 * The Rust side of every line below is generated from this file by the build
 * script (build/header.rs), which reads a small grammar and refuses anything
 * else: `#define NAME number`, opaque and plain structs, and prototypes. Keep
 * one declaration per statement, and its documentation in the comment before.
 *
 * Rules that hold for every function:
 *  - a function that can fail returns one of the STRATA_SYCL_* codes, and
 *    leaves the text of a failure for strata_sycl_error_text() of that thread;
 *  - no C++ exception ever leaves a function;
 *  - an object made by a *_create, *_build, *_get or *_record function is freed
 *    by the matching *_destroy, which accepts null;
 *  - objects may be used and freed from any thread.
 */
#ifndef STRATA_SYCL_H
#define STRATA_SYCL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The call did what it was asked. */
#define STRATA_SYCL_OK 0
/* An argument is wrong: null, out of range, or not what the object expects. */
#define STRATA_SYCL_INVALID 1
/* The device index is past the last device. */
#define STRATA_SYCL_NO_DEVICE 2
/* Device or host memory is exhausted, or a single allocation is too large. What
 * drivers call OUT_OF_RESOURCES is not that, but RUNTIME: they say it of a
 * launch that failed, too. */
#define STRATA_SYCL_OUT_OF_MEMORY 3
/* Kernel source did not compile; the text carries the compiler's log. */
#define STRATA_SYCL_BUILD 4
/* The runtime or the driver reported a failure. */
#define STRATA_SYCL_RUNTIME 5
/* The device was lost (reset, unplugged, or hung) and needs a new queue. */
#define STRATA_SYCL_DEVICE_LOST 6
/* The device or the runtime has no such feature. */
#define STRATA_SYCL_UNSUPPORTED 7

/* Device kind: a GPU. */
#define STRATA_SYCL_GPU 1
/* Device kind: a CPU. */
#define STRATA_SYCL_CPU 2
/* Device kind: anything else. */
#define STRATA_SYCL_OTHER 3

/* Backend of a device: OpenCL. */
#define STRATA_SYCL_OPENCL 1
/* Backend of a device: Level Zero. */
#define STRATA_SYCL_LEVEL_ZERO 2
/* Backend of a device: CUDA. */
#define STRATA_SYCL_CUDA 3
/* Backend of a device: HIP. */
#define STRATA_SYCL_HIP 4
/* Backend of a device: one that this interface does not know. */
#define STRATA_SYCL_OTHER_BACKEND 5

/* Aspect bit: half precision arithmetic. */
#define STRATA_SYCL_ASPECT_FP16 1
/* Aspect bit: double precision arithmetic. */
#define STRATA_SYCL_ASPECT_FP64 2
/* Aspect bit: device allocations of unified shared memory. */
#define STRATA_SYCL_ASPECT_USM_DEVICE 4
/* Aspect bit: host allocations of unified shared memory. */
#define STRATA_SYCL_ASPECT_USM_HOST 8
/* Aspect bit: the driver reports how much memory is free. */
#define STRATA_SYCL_ASPECT_FREE_MEMORY 16
/* Aspect bit: joint matrices (some combination; ask for int8 apart). */
#define STRATA_SYCL_ASPECT_MATRIX 32
/* Aspect bit: joint matrices of 8 x 32 int8 times 32 x 8 uint8 into int32. */
#define STRATA_SYCL_ASPECT_MATRIX_8 64
/* Aspect bit: kernels can be compiled from SYCL source at run time. */
#define STRATA_SYCL_ASPECT_SOURCE 128
/* Aspect bit: queues measure the time of their commands. */
#define STRATA_SYCL_ASPECT_PROFILING 256
/* Aspect bit: f32 divisions and square roots can be correctly rounded. */
#define STRATA_SYCL_ASPECT_ROUNDED_DIVIDE 512
/* Aspect bit: f32 subnormals are kept. */
#define STRATA_SYCL_ASPECT_SUBNORMALS 1024
/* Aspect bit: f32 fma rounds once. */
#define STRATA_SYCL_ASPECT_FMA 2048
/* Aspect bit: joint matrices of 8 x 32 int8 times 32 x 16 uint8 into int32. */
#define STRATA_SYCL_ASPECT_MATRIX_16 4096

/* Bytes of a text field, the final zero included. */
#define STRATA_SYCL_TEXT 256
/* Most sub-group sizes listed for a device. */
#define STRATA_SYCL_SIZES 16

/* Kernel argument kind: a pointer to unified shared memory. */
#define STRATA_SYCL_ARG_POINTER 1
/* Kernel argument kind: a value, copied when the kernel is launched. */
#define STRATA_SYCL_ARG_VALUE 2
/* Kernel argument kind: local memory, a sycl::local_accessor<T, 1>. */
#define STRATA_SYCL_ARG_LOCAL 3

/* An in-order queue on one device, with profiling. */
typedef struct strata_sycl_queue strata_sycl_queue;
/* A point in a queue, with its time. */
typedef struct strata_sycl_event strata_sycl_event;
/* Kernels compiled from one source for one device. */
typedef struct strata_sycl_bundle strata_sycl_bundle;
/* One kernel of a bundle. */
typedef struct strata_sycl_kernel strata_sycl_kernel;

/* What a device says of itself. */
typedef struct strata_sycl_device {
  /* Name of the device. */
  char name[STRATA_SYCL_TEXT];
  /* Name of its vendor. */
  char vendor[STRATA_SYCL_TEXT];
  /* Name of its platform. */
  char platform[STRATA_SYCL_TEXT];
  /* Version of its driver. */
  char driver[STRATA_SYCL_TEXT];
  /* STRATA_SYCL_GPU, _CPU or _OTHER. */
  uint32_t kind;
  /* STRATA_SYCL_OPENCL, _LEVEL_ZERO, ... */
  uint32_t backend;
  /* STRATA_SYCL_ASPECT_* bits. */
  uint32_t aspects;
  /* Compute units. */
  uint32_t compute_units;
  /* Most work-items of a work-group. */
  uint64_t max_work_group;
  /* Most work-items of a work-group in each dimension, slowest first. */
  uint64_t max_work_items[3];
  /* Local memory of a work-group, in bytes. */
  uint64_t local_memory;
  /* Memory of the device, in bytes. */
  uint64_t global_memory;
  /* Largest single allocation that the device promises, in bytes. */
  uint64_t max_allocation;
  /* How many of sub_group_sizes are filled. */
  uint32_t sub_group_count;
  /* Sub-group sizes, ascending. */
  uint32_t sub_group_sizes[STRATA_SYCL_SIZES];
} strata_sycl_device;

/* What a kernel may use on the device of its bundle. */
typedef struct strata_sycl_limits {
  /* Most work-items of a work-group. */
  uint64_t max_work_group;
  /* Private memory of a work-item, in bytes; 0 when the driver does not say. */
  uint64_t private_memory;
  /* Largest sub-group of the kernel; 0 when the driver does not say. */
  uint32_t max_sub_group;
} strata_sycl_limits;

/* One argument of a kernel. */
typedef struct strata_sycl_arg {
  /* POINTER: the pointer itself. VALUE: where the value lies. LOCAL: null. */
  const void *data;
  /* VALUE and LOCAL: size in bytes. */
  uint64_t bytes;
  /* STRATA_SYCL_ARG_*. */
  uint32_t kind;
} strata_sycl_arg;

/* Text of this thread's last failure; never null, valid until its next one. */
const char *strata_sycl_error_text(void);

/* Number of devices of all platforms, in the runtime's order. */
int32_t strata_sycl_device_count(uint32_t *count);
/* Describes device `index`. */
int32_t strata_sycl_device_info(uint32_t index, strata_sycl_device *info);
/* Free memory of device `index`, in bytes, where the driver says it;
 * UNSUPPORTED otherwise. */
int32_t strata_sycl_device_free_memory(uint32_t index, uint64_t *bytes);

/* Opens an in-order, profiling queue on device `index`. */
int32_t strata_sycl_queue_create(uint32_t index, strata_sycl_queue **queue);
/* Opens an in-order, profiling queue on the device and context of another. */
int32_t strata_sycl_queue_beside(strata_sycl_queue *other, strata_sycl_queue **queue);
/* Takes over a `sycl::queue` of this libsycl, which is copied: INVALID unless it
 * is in order, NO_DEVICE unless its device is listed; `index` is that device. */
int32_t strata_sycl_queue_adopt(const void *native, strata_sycl_queue **queue, uint32_t *index);
/* The `sycl::queue` of a queue, valid as long as that. */
int32_t strata_sycl_queue_native(strata_sycl_queue *queue, void **native);
/* Whether two queues have one context, as 0 or 1. */
int32_t strata_sycl_queue_same_context(strata_sycl_queue *a, strata_sycl_queue *b, uint32_t *same);
/* Whether a pointer is to unified shared memory of the queue's context, as 0 or 1. */
int32_t strata_sycl_queue_knows(strata_sycl_queue *queue, const void *pointer, uint32_t *known);
/* Waits for the queue, then frees it. */
void strata_sycl_queue_destroy(strata_sycl_queue *queue);
/* Waits until everything submitted has run, and reports what failed meanwhile. */
int32_t strata_sycl_queue_wait(strata_sycl_queue *queue);

/* Allocates device memory, aligned to 256 bytes; 0 bytes give null. */
int32_t strata_sycl_malloc_device(strata_sycl_queue *queue, uint64_t bytes, void **pointer);
/* Allocates host memory that the device can read and write. */
int32_t strata_sycl_malloc_host(strata_sycl_queue *queue, uint64_t bytes, void **pointer);
/* Waits for what was submitted to the queue, then frees memory of either kind. */
int32_t strata_sycl_free(strata_sycl_queue *queue, void *pointer);

/* Copies between any two of host and device memory, after what was submitted
 * before; both must stay valid until the queue has been waited for. */
int32_t strata_sycl_copy(strata_sycl_queue *queue, void *to, const void *from, uint64_t bytes);
/* Sets `bytes` bytes to `value`, after what was submitted before. */
int32_t strata_sycl_fill(strata_sycl_queue *queue, void *to, uint8_t value, uint64_t bytes);

/* Marks the point after everything submitted so far. */
int32_t strata_sycl_event_record(strata_sycl_queue *queue, strata_sycl_event **event);
/* Orders what is submitted to a queue from now on behind an event of any queue of its device. */
int32_t strata_sycl_queue_wait_event(strata_sycl_queue *queue, strata_sycl_event *event);
/* Waits for an event. */
int32_t strata_sycl_event_wait(strata_sycl_event *event);
/* Whether an event has passed, as 0 or 1; does not wait. */
int32_t strata_sycl_event_passed(strata_sycl_event *event, uint32_t *passed);
/* Nanoseconds between the ends of two events; waits for both. */
int32_t strata_sycl_event_elapsed(strata_sycl_event *from, strata_sycl_event *to, uint64_t *nanoseconds);
/* Frees an event. */
void strata_sycl_event_destroy(strata_sycl_event *event);

/* Compiles SYCL source for the queue's device. `header_names[i]` is what the
 * source includes and `header_texts[i]` its text; `options` go to the compiler.
 * On success `log` (may be null) receives what the compiler had to say, valid
 * until the bundle is freed. */
int32_t strata_sycl_bundle_build(strata_sycl_queue *queue, const char *source, const char *const *header_names, const char *const *header_texts, uint32_t headers, const char *const *options, uint32_t option_count, strata_sycl_bundle **bundle, const char **log);
/* Frees a bundle; its kernels stay valid. */
void strata_sycl_bundle_destroy(strata_sycl_bundle *bundle);

/* Looks up a kernel by the name of its `extern "C"` function. */
int32_t strata_sycl_kernel_get(strata_sycl_bundle *bundle, const char *name, strata_sycl_kernel **kernel);
/* Says what a kernel may use. */
int32_t strata_sycl_kernel_limits(strata_sycl_kernel *kernel, strata_sycl_limits *limits);
/* Frees a kernel; launches already submitted still run. */
void strata_sycl_kernel_destroy(strata_sycl_kernel *kernel);

/* Submits a kernel over `dims` (1 to 3) dimensions, slowest first. Each entry
 * of `global` is a multiple of the same entry of `local`; an empty range is no
 * launch. `event` may be null. */
int32_t strata_sycl_launch(strata_sycl_queue *queue, strata_sycl_kernel *kernel, const strata_sycl_arg *args, uint32_t arg_count, uint32_t dims, const uint64_t *global, const uint64_t *local, strata_sycl_event **event);

#ifdef __cplusplus
}
#endif

#endif
