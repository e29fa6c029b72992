// std::vector for arrays of many megabytes that are read at random.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

#include "base/memory.hpp"

namespace pumice {

/// Aligns to cache lines, and large arrays to huge pages, which it asks the system for: a look-up
/// in an index of 10^6 blocks otherwise waits for page tables as long as for data.
template <typename T>
struct BigArrayAllocator {
  using value_type = T;

  BigArrayAllocator() = default;
  template <typename U>
  BigArrayAllocator(const BigArrayAllocator<U>&) {}  // NOLINT: implicit by convention

  T* allocate(size_t n) {
    void* memory = ::operator new(n * sizeof(T), alignment(n));
    if (n * sizeof(T) >= kHugePageBytes) use_huge_pages(memory, n * sizeof(T));
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t n) { ::operator delete(memory, alignment(n)); }
  bool operator==(const BigArrayAllocator&) const { return true; }

 private:
  static std::align_val_t alignment(size_t n) {
    return std::align_val_t{n * sizeof(T) >= kHugePageBytes ? kHugePageBytes : 64};
  }
};

template <typename T>
using BigArray = std::vector<T, BigArrayAllocator<T>>;

}  // namespace pumice
