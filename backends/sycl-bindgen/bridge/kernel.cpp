// Bundles built from source, kernels, and launches.
#include "guard.hpp"

namespace se = sycl::ext::oneapi::experimental;

using namespace strata;

namespace {

sycl::nd_range<1> range1(const uint64_t *g, const uint64_t *l) {
  return {sycl::range<1>(g[0]), sycl::range<1>(l[0])};
}

sycl::nd_range<2> range2(const uint64_t *g, const uint64_t *l) {
  return {sycl::range<2>(g[0], g[1]), sycl::range<2>(l[0], l[1])};
}

sycl::nd_range<3> range3(const uint64_t *g, const uint64_t *l) {
  return {sycl::range<3>(g[0], g[1], g[2]), sycl::range<3>(l[0], l[1], l[2])};
}

// Whether there is anything to run; throws when the ranges do not fit.
bool check_range(const uint64_t *global, const uint64_t *local, uint32_t dims) {
  if (dims < 1 || dims > 3)
    throw failure{STRATA_SYCL_INVALID, "a launch has 1 to 3 dimensions, not " +
                                           std::to_string(dims)};
  bool any = true;
  for (uint32_t i = 0; i < dims; ++i) {
    if (local[i] == 0 || global[i] % local[i] != 0)
      throw failure{STRATA_SYCL_INVALID,
                    "dimension " + std::to_string(i) + " has " +
                        std::to_string(global[i]) +
                        " work-items, no multiple of its work-group of " +
                        std::to_string(local[i])};
    any = any && global[i] != 0;
  }
  return any;
}

void set_arg(sycl::handler &h, int index, const strata_sycl_arg &arg) {
  switch (arg.kind) {
  case STRATA_SYCL_ARG_POINTER:
    h.set_arg(index, const_cast<void *>(arg.data));
    return;
  case STRATA_SYCL_ARG_VALUE:
    h.set_arg(index, se::raw_kernel_arg(arg.data, arg.bytes));
    return;
  default:
    // The element type does not travel: the kernel's own accessor type reads
    // the bytes, and a one-dimensional accessor needs no range to index.
    h.set_arg(index, sycl::local_accessor<uint8_t, 1>(arg.bytes, h));
  }
}

// Throws for arguments that the runtime would take wrongly: it keeps those of
// an earlier launch where a list is too short.
void check_args(const sycl::kernel &kernel, const strata_sycl_arg *args,
                uint32_t count) {
  uint32_t given = 0;
  for (uint32_t i = 0; i < count; ++i) {
    const strata_sycl_arg &a = args[i];
    bool known = a.kind >= STRATA_SYCL_ARG_POINTER && a.kind <= STRATA_SYCL_ARG_LOCAL;
    bool empty = a.kind != STRATA_SYCL_ARG_POINTER && a.bytes == 0;
    bool absent = a.kind == STRATA_SYCL_ARG_VALUE && a.data == nullptr;
    if (!known || empty || absent)
      throw failure{STRATA_SYCL_INVALID,
                    "kernel argument " + std::to_string(i) + " of kind " +
                        std::to_string(a.kind) + " with " +
                        std::to_string(a.bytes) + " bytes is not usable"};
    // A local accessor is four: its pointer, two ranges and an offset.
    given += a.kind == STRATA_SYCL_ARG_LOCAL ? 4 : 1;
  }
  uint32_t wanted = kernel.get_info<sycl::info::kernel::num_args>();
  if (given < wanted)
    throw failure{STRATA_SYCL_INVALID,
                  std::to_string(count) + " arguments were given, " +
                      std::to_string(given) + " counted as the kernel counts "
                      "them (4 for local memory); it takes " +
                      std::to_string(wanted)};
}

} // namespace

STRATA_EXPORT int32_t strata_sycl_bundle_build(
    strata_sycl_queue *queue, const char *source,
    const char *const *header_names, const char *const *header_texts,
    uint32_t headers, const char *const *options, uint32_t option_count,
    strata_sycl_bundle **bundle, const char **log) {
  return guarded(
      [&] {
        need(queue, "queue");
        need(source, "source");
        need(bundle, "bundle");
        *bundle = nullptr;
        sycl::device device = queue->queue.get_device();
        if (!device.ext_oneapi_can_build(se::source_language::sycl))
          throw failure{STRATA_SYCL_UNSUPPORTED,
                        "the runtime cannot compile SYCL source for this device"};
        se::include_files includes;
        for (uint32_t i = 0; i < headers; ++i)
          includes.add(header_names[i], header_texts[i]);
        std::vector<std::string> flags(options, options + option_count);
        std::string text;
        auto from = se::create_kernel_bundle_from_source(
            queue->queue.get_context(), se::source_language::sycl, source,
            se::properties{includes});
        auto built = se::build(from, {device},
                               se::properties{se::build_options{flags},
                                              se::save_log{&text}});
        *bundle = new strata_sycl_bundle{std::move(built), device, std::move(text)};
        if (log != nullptr)
          *log = (*bundle)->log.c_str();
      },
      STRATA_SYCL_BUILD);
}

STRATA_EXPORT void strata_sycl_bundle_destroy(strata_sycl_bundle *bundle) {
  destroy(bundle);
}

STRATA_EXPORT int32_t strata_sycl_kernel_get(strata_sycl_bundle *bundle,
                                             const char *name,
                                             strata_sycl_kernel **kernel) {
  return guarded([&] {
    need(bundle, "bundle");
    need(name, "name");
    need(kernel, "kernel");
    *kernel = nullptr;
    if (!bundle->bundle.ext_oneapi_has_kernel(name))
      throw failure{STRATA_SYCL_INVALID,
                    std::string("the bundle has no kernel named ") + name};
    *kernel = new strata_sycl_kernel{bundle->bundle.ext_oneapi_get_kernel(name),
                                     bundle->device};
  });
}

STRATA_EXPORT int32_t strata_sycl_kernel_limits(strata_sycl_kernel *kernel,
                                                strata_sycl_limits *limits) {
  return guarded([&] {
    need(kernel, "kernel");
    need(limits, "limits");
    namespace query = sycl::info::kernel_device_specific;
    *limits = {};
    limits->max_work_group =
        kernel->kernel.get_info<query::work_group_size>(kernel->device);
    // Drivers may decline either of these; neither is needed to launch.
    auto optional = [](auto &&ask) -> uint64_t {
      try {
        return ask();
      } catch (const sycl::exception &) {
        return 0;
      }
    };
    limits->private_memory = optional([&] {
      return kernel->kernel.get_info<query::private_mem_size>(kernel->device);
    });
    limits->max_sub_group = static_cast<uint32_t>(optional([&] {
      return kernel->kernel.get_info<query::max_sub_group_size>(kernel->device);
    }));
  });
}

STRATA_EXPORT void strata_sycl_kernel_destroy(strata_sycl_kernel *kernel) {
  destroy(kernel);
}

STRATA_EXPORT int32_t strata_sycl_launch(strata_sycl_queue *queue,
                                         strata_sycl_kernel *kernel,
                                         const strata_sycl_arg *args,
                                         uint32_t arg_count, uint32_t dims,
                                         const uint64_t *global,
                                         const uint64_t *local,
                                         strata_sycl_event **event) {
  return guarded([&] {
    need(queue, "queue");
    need(kernel, "kernel");
    need(global, "global");
    need(local, "local");
    if (arg_count != 0)
      need(args, "args");
    if (event != nullptr)
      *event = nullptr;
    check_args(kernel->kernel, args, arg_count);
    if (!check_range(global, local, dims)) {
      if (event != nullptr)
        *event = new strata_sycl_event{queue->queue.ext_oneapi_submit_barrier()};
      return;
    }
    sycl::event done = queue->queue.submit([&](sycl::handler &h) {
      for (uint32_t i = 0; i < arg_count; ++i)
        set_arg(h, static_cast<int>(i), args[i]);
      if (dims == 1)
        h.parallel_for(range1(global, local), kernel->kernel);
      else if (dims == 2)
        h.parallel_for(range2(global, local), kernel->kernel);
      else
        h.parallel_for(range3(global, local), kernel->kernel);
    });
    if (event != nullptr)
      *event = new strata_sycl_event{std::move(done)};
  });
}
