// Errors and devices.
#include "guard.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>

// What the generated Rust declarations assume of the structs' layout.
#include "layout.inc"

namespace se = sycl::ext::oneapi::experimental;

namespace strata {
namespace {

thread_local std::string last_error;

// Copies as much of `text` as fits and always ends it.
void put(char (&field)[STRATA_SYCL_TEXT], const std::string &text) {
  size_t n = std::min(text.size(), sizeof(field) - 1);
  std::memcpy(field, text.data(), n);
  field[n] = 0;
}

uint32_t backend_of(const sycl::device &d) {
  switch (d.get_backend()) {
  case sycl::backend::opencl:
    return STRATA_SYCL_OPENCL;
  case sycl::backend::ext_oneapi_level_zero:
    return STRATA_SYCL_LEVEL_ZERO;
  case sycl::backend::ext_oneapi_cuda:
    return STRATA_SYCL_CUDA;
  case sycl::backend::ext_oneapi_hip:
    return STRATA_SYCL_HIP;
  default:
    return STRATA_SYCL_OTHER_BACKEND;
  }
}

// Whether a combination of `columns` columns is there: int8 times uint8 into
// int32, 8 rows, 32 values deep. A size of 0 stands for all up to the largest.
bool has_matrix(const sycl::device &d, size_t columns) {
  using type = se::matrix::matrix_type;
  auto fits = [](size_t size, size_t max, size_t wanted) {
    return size == wanted || (size == 0 && max >= wanted);
  };
  auto shapes = d.get_info<se::info::device::matrix_combinations>();
  return std::any_of(shapes.begin(), shapes.end(), [&](const auto &c) {
    return c.atype == type::sint8 && c.btype == type::uint8 && c.ctype == type::sint32 &&
           c.dtype == type::sint32 && fits(c.msize, c.max_msize, 8) &&
           fits(c.nsize, c.max_nsize, columns) && fits(c.ksize, c.max_ksize, 32);
  });
}

// By value: the query for source compilation is not a const member.
uint32_t aspects_of(sycl::device d) {
  uint32_t bits = 0;
  auto set = [&](bool present, uint32_t bit) { bits |= present ? bit : 0; };
  set(d.has(sycl::aspect::fp16), STRATA_SYCL_ASPECT_FP16);
  set(d.has(sycl::aspect::fp64), STRATA_SYCL_ASPECT_FP64);
  set(d.has(sycl::aspect::usm_device_allocations), STRATA_SYCL_ASPECT_USM_DEVICE);
  set(d.has(sycl::aspect::usm_host_allocations), STRATA_SYCL_ASPECT_USM_HOST);
  set(d.has(sycl::aspect::ext_intel_free_memory), STRATA_SYCL_ASPECT_FREE_MEMORY);
  set(d.has(sycl::aspect::queue_profiling), STRATA_SYCL_ASPECT_PROFILING);
  set(d.ext_oneapi_can_build(se::source_language::sycl), STRATA_SYCL_ASPECT_SOURCE);
  bool matrix = d.has(sycl::aspect::ext_intel_matrix);
  set(matrix, STRATA_SYCL_ASPECT_MATRIX);
  set(matrix && has_matrix(d, 8), STRATA_SYCL_ASPECT_MATRIX_8);
  set(matrix && has_matrix(d, 16), STRATA_SYCL_ASPECT_MATRIX_16);
  for (auto mode : d.get_info<sycl::info::device::single_fp_config>()) {
    set(mode == sycl::info::fp_config::correctly_rounded_divide_sqrt,
        STRATA_SYCL_ASPECT_ROUNDED_DIVIDE);
    set(mode == sycl::info::fp_config::denorm, STRATA_SYCL_ASPECT_SUBNORMALS);
    set(mode == sycl::info::fp_config::fma, STRATA_SYCL_ASPECT_FMA);
  }
  return bits;
}

void describe(const sycl::device &d, strata_sycl_device &info) {
  std::memset(&info, 0, sizeof(info));
  put(info.name, d.get_info<sycl::info::device::name>());
  put(info.vendor, d.get_info<sycl::info::device::vendor>());
  put(info.platform, d.get_platform().get_info<sycl::info::platform::name>());
  put(info.driver, d.get_info<sycl::info::device::driver_version>());
  info.kind = d.is_gpu()   ? STRATA_SYCL_GPU
              : d.is_cpu() ? STRATA_SYCL_CPU
                           : STRATA_SYCL_OTHER;
  info.backend = backend_of(d);
  info.aspects = aspects_of(d);
  info.compute_units = d.get_info<sycl::info::device::max_compute_units>();
  info.max_work_group = d.get_info<sycl::info::device::max_work_group_size>();
  auto items = d.get_info<sycl::info::device::max_work_item_sizes<3>>();
  for (int i = 0; i < 3; ++i)
    info.max_work_items[i] = items[i];
  info.local_memory = d.get_info<sycl::info::device::local_mem_size>();
  info.global_memory = d.get_info<sycl::info::device::global_mem_size>();
  info.max_allocation = d.get_info<sycl::info::device::max_mem_alloc_size>();
  auto sizes = d.get_info<sycl::info::device::sub_group_sizes>();
  std::sort(sizes.begin(), sizes.end());
  for (size_t s : sizes)
    if (info.sub_group_count < STRATA_SYCL_SIZES)
      info.sub_group_sizes[info.sub_group_count++] = static_cast<uint32_t>(s);
}

bool mentions(const char *text, const char *word) {
  return std::strstr(text, word) != nullptr;
}

} // namespace

int32_t fail(int32_t code, const std::string &text) noexcept {
  try {
    last_error = text;
  } catch (...) {
    last_error.clear();
  }
  return code;
}

int32_t code_of(const sycl::exception &e, int32_t otherwise) noexcept {
  const char *text = e.what();
  if (mentions(text, "DEVICE_LOST"))
    return STRATA_SYCL_DEVICE_LOST;
  if (e.code() == sycl::errc::memory_allocation ||
      mentions(text, "OUT_OF_DEVICE_MEMORY") ||
      mentions(text, "OUT_OF_HOST_MEMORY"))
    return STRATA_SYCL_OUT_OF_MEMORY;
  if (e.code() == sycl::errc::build)
    return STRATA_SYCL_BUILD;
  if (e.code() == sycl::errc::invalid)
    return otherwise == STRATA_SYCL_BUILD ? otherwise : STRATA_SYCL_INVALID;
  if (e.code() == sycl::errc::feature_not_supported)
    return STRATA_SYCL_UNSUPPORTED;
  return otherwise;
}

const std::vector<sycl::device> &devices() {
  static const std::vector<sycl::device> list = sycl::device::get_devices();
  return list;
}

const sycl::device &device(uint32_t index) {
  const auto &list = devices();
  if (index >= list.size())
    throw failure{STRATA_SYCL_NO_DEVICE,
                  "there is no SYCL device " + std::to_string(index) + ": " +
                      (list.empty() ? std::string("none was found")
                                    : std::to_string(list.size()) +
                                          " found, numbered from 0")};
  return list[index];
}

} // namespace strata

using namespace strata;

STRATA_EXPORT const char *strata_sycl_error_text(void) {
  return last_error.c_str();
}

STRATA_EXPORT int32_t strata_sycl_device_count(uint32_t *count) {
  return guarded([&] {
    need(count, "count");
    *count = static_cast<uint32_t>(devices().size());
  });
}

STRATA_EXPORT int32_t strata_sycl_device_info(uint32_t index,
                                              strata_sycl_device *info) {
  return guarded([&] {
    need(info, "info");
    describe(device(index), *info);
  });
}

STRATA_EXPORT int32_t strata_sycl_device_free_memory(uint32_t index,
                                                     uint64_t *bytes) {
  return guarded([&] {
    need(bytes, "bytes");
    const sycl::device &d = device(index);
    if (!d.has(sycl::aspect::ext_intel_free_memory))
      throw failure{STRATA_SYCL_UNSUPPORTED,
                    "the driver does not say how much memory is free"};
    *bytes = d.get_info<sycl::ext::intel::info::device::free_memory>();
  });
}
