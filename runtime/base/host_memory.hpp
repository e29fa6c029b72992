// Large host memory: from operator new, or from functions of the host application.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace pumice {

struct HostAllocator {
  void* user = nullptr;
  /// `bytes`, aligned to `alignment`, a power of two; null when out of memory. Without a function
  /// it is operator new's.
  void* (*allocate)(void* user, size_t bytes, size_t alignment) = nullptr;
  void (*free)(void* user, void* memory, size_t bytes) = nullptr;
};

/// Gives memory back to where it came from.
struct HostMemoryDeleter {
  HostAllocator allocator = {};
  size_t bytes = 0;

  void operator()(std::byte* memory) const {
    if (allocator.free != nullptr) {
      allocator.free(allocator.user, memory, bytes);
    } else {
      delete[] memory;
    }
  }
};

using HostMemory = std::unique_ptr<std::byte[], HostMemoryDeleter>;

/// Empty where there is no memory.
inline HostMemory allocate_host_memory(const HostAllocator& allocator, size_t bytes) {
  constexpr size_t kAlignment = 64;  // of a cache line
  void* const memory = allocator.allocate != nullptr
                           ? allocator.allocate(allocator.user, bytes, kAlignment)
                           : new (std::nothrow) std::byte[bytes];
  return {static_cast<std::byte*>(memory), {allocator, bytes}};
}

}  // namespace pumice
