#include "tests/fuzz/fuzz.hpp"

#include <sanitizer/allocator_interface.h>

#include <algorithm>

namespace pumice::fuzz {
namespace {

struct Heap {
  bool metered = false;
  int64_t bytes = 0;
  int64_t peak_bytes = 0;
};

// Hooks have no context to pass; the fuzzers have one thread.
Heap& heap() {
  static Heap heap;
  return heap;
}

void on_malloc(const volatile void*, size_t size) {
  if (!heap().metered) return;
  heap().bytes += static_cast<int64_t>(size);
  heap().peak_bytes = std::max(heap().peak_bytes, heap().bytes);
}

void on_free(const volatile void* pointer) {
  if (!heap().metered || pointer == nullptr) return;
  heap().bytes -=
      static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(pointer)));
}

}  // namespace

MemoryMeter::MemoryMeter() {
  static const int installed = __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  promise(installed != 0, "allocations can be counted");
  heap() = {.metered = true};
}

MemoryMeter::~MemoryMeter() { heap().metered = false; }

size_t MemoryMeter::peak_bytes() const { return static_cast<size_t>(heap().peak_bytes); }

}  // namespace pumice::fuzz
