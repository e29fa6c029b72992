// GPU memory: slabs, arenas that hand out ranges of them, and the ledger that knows where every
// byte went.
//
// Lifetime: ranges are views into slabs; a slab lives as long as its arena, and an arena keeps its
// device alive. Nothing is freed one range at a time: an arena is one purpose (weights, KV cache,
// activations) with one owner; destroyed, it goes as a whole once the GPU is done with it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "vk/functions.hpp"
#include "vk/host_device.hpp"
#include "vk/plan.hpp"

namespace pumice::vk {

class Device;

/// Bytes allocated on one device, by purpose; those of the heap that device memory comes from are
/// what budgets are about (DevicePlan::is_budgeted). Thread-safe.
class MemoryLedger {
 public:
  struct Entry {
    uint64_t current_bytes = 0;
    uint64_t peak_bytes = 0;
  };

  void add(const std::string& purpose, uint64_t bytes, bool budgeted = true);
  void remove(const std::string& purpose, uint64_t bytes, bool budgeted = true);
  /// The same of one of `entries`, by a reference that holds as long as this. Where destructors
  /// free: more than was added is a bug, which `check_integrity` tells, and leaves nothing.
  void remove(Entry& entry, uint64_t bytes, bool budgeted = true) noexcept;
  Entry& entry(const std::string& purpose);
  /// Errors: kInternal once more was removed than added.
  Status check_integrity() const;
  uint64_t total_bytes() const;
  /// Of those, what counts against a budget of the device's memory.
  uint64_t budgeted_bytes() const;
  std::map<std::string, Entry> entries() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, Entry> entries_;
  uint64_t budgeted_bytes_ = 0;
  uint64_t n_excesses_ = 0;  // removals of more than there was
};

/// A VkBuffer over a VkDeviceMemory, or over a part of one that a host's allocator gave. At most
/// `DevicePlan::slab_bytes`.
struct Slab {
  HostMemory memory;
  VkBuffer buffer = VK_NULL_HANDLE;
  uint64_t size_bytes = 0;
  uint64_t address = 0;         ///< device address of byte 0
  std::byte* mapped = nullptr;  ///< host pointer of byte 0; null in MemoryDomain::kDevice
};

/// A view of bytes in a slab; copyable, does not own. An empty range has no slab.
struct BufferRange {
  const Slab* slab = nullptr;
  uint64_t offset = 0;
  uint64_t size_bytes = 0;

  /// Device address of the first byte; 0 for an empty range.
  uint64_t address() const { return slab != nullptr ? slab->address + offset : 0; }
  bool empty() const { return size_bytes == 0; }

  /// Bytes [first, first + count) of this range.
  BufferRange subrange(uint64_t first, uint64_t count) const;
  BufferRange from(uint64_t first) const { return subrange(first, size_bytes - first); }

  /// Host view; only for ranges of mapped domains.
  template <typename T>
  std::span<T> mapped() const {
    PUMICE_CHECK(slab != nullptr && slab->mapped != nullptr, "range is not host-visible");
    return {reinterpret_cast<T*>(slab->mapped + offset), size_bytes / sizeof(T)};
  }
};

/// Grows slab by slab and frees everything at once. Not thread-safe.
class Arena {
 public:
  /// `expected_bytes`: what will be asked for in all, so that slabs are neither many nor half
  /// empty.
  Arena(std::shared_ptr<Device> device, MemoryDomain domain, std::string purpose,
        uint64_t expected_bytes = 0);
  ~Arena();
  Arena(Arena&&) noexcept = default;
  Arena& operator=(Arena&& other) noexcept;

  /// A range of `size_bytes`, aligned to `alignment` (a power of two, at most 256). Contents are
  /// undefined. Errors: kDoesNotFit when the request exceeds a slab or the device is out of memory;
  /// the arena is then unchanged.
  Result<BufferRange> allocate(uint64_t size_bytes, uint64_t alignment = 256);

  uint64_t allocated_bytes() const { return allocated_bytes_; }
  MemoryDomain domain() const { return domain_; }

  /// Its slabs, whole, in the order in which they were added.
  std::vector<BufferRange> slabs() const;
  /// Another arena with slabs of the same sizes, whose contents are undefined. Errors: kDoesNotFit.
  Result<Arena> same_slabs(MemoryDomain domain, std::string purpose) const;

 private:
  Status add_slab(uint64_t minimum_bytes);
  Status add_slab_of(uint64_t size_bytes);
  void release();

  std::shared_ptr<Device> device_;
  MemoryDomain domain_;
  std::string purpose_;
  uint64_t expected_bytes_;
  uint64_t allocated_bytes_ = 0;
  uint64_t used_in_last_ = 0;
  std::vector<std::unique_ptr<Slab>> slabs_;
};

}  // namespace pumice::vk
