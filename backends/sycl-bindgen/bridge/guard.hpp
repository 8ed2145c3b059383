// What every bridge file shares: the objects behind the opaque handles, and
// the guard that turns exceptions into codes and texts.
#pragma once

#include "strata_sycl.h"

#include <sycl/sycl.hpp>

#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#define STRATA_EXPORT extern "C" __attribute__((visibility("default")))

struct strata_sycl_queue {
  // Failures that the runtime reports between calls, in order of arrival. It
  // comes before the queue, which may still report while it is destroyed.
  std::mutex mutex;
  std::vector<std::string> failures;
  sycl::queue queue;

  explicit strata_sycl_queue(const sycl::device &device)
      : queue(device,
              [this](sycl::exception_list list) { collect(std::move(list)); },
              sycl::property_list{sycl::property::queue::in_order{},
                                  sycl::property::queue::enable_profiling{}}) {}

  strata_sycl_queue(const sycl::context &context, const sycl::device &device)
      : queue(context, device,
              [this](sycl::exception_list list) { collect(std::move(list)); },
              sycl::property_list{sycl::property::queue::in_order{},
                                  sycl::property::queue::enable_profiling{}}) {}

  // Another's queue, whose failures go to another's handler.
  explicit strata_sycl_queue(const sycl::queue &other) : queue(other) {}

  void collect(sycl::exception_list list) noexcept;
};

struct strata_sycl_event {
  sycl::event event;
};

struct strata_sycl_bundle {
  sycl::kernel_bundle<sycl::bundle_state::executable> bundle;
  sycl::device device;
  std::string log;
};

struct strata_sycl_kernel {
  sycl::kernel kernel;
  sycl::device device;
};

namespace strata {

// A failure that the bridge itself found, with its code.
struct failure {
  int32_t code;
  std::string text;
};

// Keeps `text` as this thread's last failure and returns `code`.
int32_t fail(int32_t code, const std::string &text) noexcept;

// The code that a runtime failure of this text stands for: the runtime has one
// exception type for all of them.
int32_t code_of(const sycl::exception &e, int32_t otherwise) noexcept;

// All devices of all platforms; listed once.
const std::vector<sycl::device> &devices();

// Throws unless `index` names a device.
const sycl::device &device(uint32_t index);

// Throws INVALID naming the argument when a pointer that must be set is null.
inline void need(const void *pointer, const char *argument) {
  if (pointer == nullptr)
    throw failure{STRATA_SYCL_INVALID, std::string(argument) + " is null"};
}

// Runs `body`; every exception becomes a code, `otherwise` where the runtime
// does not say more.
template <typename Body>
int32_t guarded(Body &&body, int32_t otherwise = STRATA_SYCL_RUNTIME) noexcept {
  try {
    body();
    return STRATA_SYCL_OK;
  } catch (const failure &f) {
    return fail(f.code, f.text);
  } catch (const sycl::exception &e) {
    return fail(code_of(e, otherwise), e.what());
  } catch (const std::bad_alloc &) {
    return fail(STRATA_SYCL_OUT_OF_MEMORY, "host memory is exhausted");
  } catch (const std::exception &e) {
    return fail(otherwise, e.what());
  } catch (...) {
    return fail(otherwise, "an exception of an unknown type");
  }
}

// Frees a handle; a destructor that throws must not cross either.
template <typename T> void destroy(T *object) noexcept {
  guarded([&] { delete object; });
}

} // namespace strata
