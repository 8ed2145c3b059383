// Queues, memory, copies and events.
#include "guard.hpp"

#include <algorithm>

using namespace strata;

void strata_sycl_queue::collect(sycl::exception_list list) noexcept {
  for (const std::exception_ptr &each : list) {
    try {
      std::string text = "an exception of an unknown type";
      try {
        std::rethrow_exception(each);
      } catch (const std::exception &e) {
        text = e.what();
      } catch (...) {
      }
      std::lock_guard<std::mutex> lock(mutex);
      failures.push_back(std::move(text));
    } catch (...) {
      // No memory to keep the text: the wait that follows still fails by
      // itself when the device is in trouble.
    }
  }
}

namespace {

// Waits for the queue and throws what was reported since the last wait.
void drain(strata_sycl_queue &q) {
  q.queue.wait_and_throw();
  std::vector<std::string> failures;
  {
    std::lock_guard<std::mutex> lock(q.mutex);
    failures.swap(q.failures);
  }
  if (failures.empty())
    return;
  std::string text = failures.front();
  for (size_t i = 1; i < failures.size(); ++i)
    text += "; then: " + failures[i];
  bool lost = text.find("DEVICE_LOST") != std::string::npos;
  throw failure{lost ? STRATA_SYCL_DEVICE_LOST : STRATA_SYCL_RUNTIME, text};
}

int32_t allocate(strata_sycl_queue *queue, uint64_t bytes, void **pointer,
                 sycl::usm::alloc kind) {
  return guarded([&] {
    need(queue, "queue");
    need(pointer, "pointer");
    *pointer = nullptr;
    if (bytes == 0)
      return;
    sycl::device d = queue->queue.get_device();
    sycl::aspect wanted = kind == sycl::usm::alloc::device
                              ? sycl::aspect::usm_device_allocations
                              : sycl::aspect::usm_host_allocations;
    if (!d.has(wanted))
      throw failure{STRATA_SYCL_UNSUPPORTED,
                    "the device has no unified shared memory of this kind"};
    uint64_t total = d.get_info<sycl::info::device::global_mem_size>();
    std::string asked = std::to_string(bytes) + " bytes";
    if (kind == sycl::usm::alloc::device && bytes > total)
      throw failure{STRATA_SYCL_OUT_OF_MEMORY,
                    asked + " asked of a device that has " +
                        std::to_string(total)};
    // What core promises its callers, and enough for any vector.
    *pointer = sycl::aligned_alloc(256, bytes, queue->queue, kind);
    if (*pointer == nullptr)
      throw failure{STRATA_SYCL_OUT_OF_MEMORY,
                    asked + " could not be allocated (the device has " +
                        std::to_string(total) + " in all, " +
                        std::to_string(
                            d.get_info<sycl::info::device::max_mem_alloc_size>()) +
                        " at most in one piece)"};
  });
}

} // namespace

STRATA_EXPORT int32_t strata_sycl_queue_create(uint32_t index,
                                               strata_sycl_queue **queue) {
  return guarded([&] {
    need(queue, "queue");
    *queue = nullptr;
    *queue = new strata_sycl_queue(device(index));
  });
}

STRATA_EXPORT int32_t strata_sycl_queue_beside(strata_sycl_queue *other,
                                               strata_sycl_queue **queue) {
  return guarded([&] {
    need(other, "other");
    need(queue, "queue");
    *queue = nullptr;
    *queue = new strata_sycl_queue(other->queue.get_context(),
                                   other->queue.get_device());
  });
}

STRATA_EXPORT int32_t strata_sycl_queue_adopt(const void *native,
                                              strata_sycl_queue **queue,
                                              uint32_t *index) {
  return guarded([&] {
    need(native, "native");
    need(queue, "queue");
    need(index, "index");
    *queue = nullptr;
    const auto &other = *static_cast<const sycl::queue *>(native);
    if (!other.is_in_order())
      throw failure{STRATA_SYCL_INVALID,
                    "the queue is out of order: make it with "
                    "sycl::property::queue::in_order"};
    const auto &all = devices();
    const auto found = std::find(all.begin(), all.end(), other.get_device());
    if (found == all.end())
      throw failure{STRATA_SYCL_NO_DEVICE,
                    "the queue's device is none of those listed (a "
                    "sub-device, say)"};
    *index = static_cast<uint32_t>(found - all.begin());
    *queue = new strata_sycl_queue(other);
  });
}

STRATA_EXPORT int32_t strata_sycl_queue_native(strata_sycl_queue *queue,
                                               void **native) {
  return guarded([&] {
    need(queue, "queue");
    need(native, "native");
    *native = &queue->queue;
  });
}

STRATA_EXPORT int32_t strata_sycl_queue_same_context(strata_sycl_queue *a,
                                                     strata_sycl_queue *b,
                                                     uint32_t *same) {
  return guarded([&] {
    need(a, "a");
    need(b, "b");
    need(same, "same");
    *same = a->queue.get_context() == b->queue.get_context();
  });
}

STRATA_EXPORT int32_t strata_sycl_queue_knows(strata_sycl_queue *queue,
                                              const void *pointer,
                                              uint32_t *known) {
  return guarded([&] {
    need(queue, "queue");
    need(known, "known");
    *known = pointer != nullptr &&
             sycl::get_pointer_type(pointer, queue->queue.get_context()) !=
                 sycl::usm::alloc::unknown;
  });
}

STRATA_EXPORT void strata_sycl_queue_destroy(strata_sycl_queue *queue) {
  if (queue == nullptr)
    return;
  guarded([&] { queue->queue.wait(); });
  destroy(queue);
}

STRATA_EXPORT int32_t strata_sycl_queue_wait(strata_sycl_queue *queue) {
  return guarded([&] {
    need(queue, "queue");
    drain(*queue);
  });
}

STRATA_EXPORT int32_t strata_sycl_malloc_device(strata_sycl_queue *queue,
                                                uint64_t bytes,
                                                void **pointer) {
  return allocate(queue, bytes, pointer, sycl::usm::alloc::device);
}

STRATA_EXPORT int32_t strata_sycl_malloc_host(strata_sycl_queue *queue,
                                              uint64_t bytes, void **pointer) {
  return allocate(queue, bytes, pointer, sycl::usm::alloc::host);
}

STRATA_EXPORT int32_t strata_sycl_free(strata_sycl_queue *queue,
                                       void *pointer) {
  return guarded([&] {
    need(queue, "queue");
    if (pointer == nullptr)
      return;
    // Not `drain`: what failed is for the next wait to report.
    queue->queue.wait();
    sycl::free(pointer, queue->queue);
  });
}

STRATA_EXPORT int32_t strata_sycl_copy(strata_sycl_queue *queue, void *to,
                                       const void *from, uint64_t bytes) {
  return guarded([&] {
    need(queue, "queue");
    if (bytes == 0)
      return;
    need(to, "to");
    need(from, "from");
    queue->queue.memcpy(to, from, bytes);
  });
}

STRATA_EXPORT int32_t strata_sycl_fill(strata_sycl_queue *queue, void *to,
                                       uint8_t value, uint64_t bytes) {
  return guarded([&] {
    need(queue, "queue");
    if (bytes == 0)
      return;
    need(to, "to");
    queue->queue.memset(to, value, bytes);
  });
}

STRATA_EXPORT int32_t strata_sycl_event_record(strata_sycl_queue *queue,
                                               strata_sycl_event **event) {
  return guarded([&] {
    need(queue, "queue");
    need(event, "event");
    *event = nullptr;
    *event = new strata_sycl_event{queue->queue.ext_oneapi_submit_barrier()};
  });
}

STRATA_EXPORT int32_t strata_sycl_queue_wait_event(strata_sycl_queue *queue,
                                                   strata_sycl_event *event) {
  return guarded([&] {
    need(queue, "queue");
    need(event, "event");
    queue->queue.ext_oneapi_submit_barrier({event->event});
  });
}

STRATA_EXPORT int32_t strata_sycl_event_wait(strata_sycl_event *event) {
  return guarded([&] {
    need(event, "event");
    event->event.wait();
  });
}

STRATA_EXPORT int32_t strata_sycl_event_passed(strata_sycl_event *event,
                                               uint32_t *passed) {
  return guarded([&] {
    need(event, "event");
    need(passed, "passed");
    using status = sycl::info::event::command_execution_status;
    *passed = event->event.get_info<status>() ==
              sycl::info::event_command_status::complete;
  });
}

STRATA_EXPORT int32_t strata_sycl_event_elapsed(strata_sycl_event *from,
                                                strata_sycl_event *to,
                                                uint64_t *nanoseconds) {
  return guarded([&] {
    need(from, "from");
    need(to, "to");
    need(nanoseconds, "nanoseconds");
    from->event.wait();
    to->event.wait();
    using end = sycl::info::event_profiling::command_end;
    uint64_t a = from->event.get_profiling_info<end>();
    uint64_t b = to->event.get_profiling_info<end>();
    if (b < a)
      throw failure{STRATA_SYCL_INVALID,
                    "the first event ended after the second"};
    *nanoseconds = b - a;
  });
}

STRATA_EXPORT void strata_sycl_event_destroy(strata_sycl_event *event) {
  destroy(event);
}
