// What lies in an arena, written once: a plan of memory asks the layout how much the arena will
// take, and the arena's owner allocates by it. So nothing can be in one of the two only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "vk/arena_sizes.hpp"
#include "vk/memory.hpp"
#include "vk/plan.hpp"

namespace pumice::vk {

class ArenaLayout {
 public:
  /// `purpose` is a literal; see MemoryLedger.
  ArenaLayout(MemoryDomain domain, std::string_view purpose) : domain_(domain), purpose_(purpose) {}

  /// The next range, of so many bytes: `allocate` writes it to `place`, which is not moved before.
  void add(uint64_t size_bytes, BufferRange& place);
  /// So many of them.
  void add(size_t n, uint64_t size_bytes, std::vector<BufferRange>& places);

  MemoryDomain domain() const { return domain_; }
  std::string_view purpose() const { return purpose_; }
  /// Of all ranges, each aligned: what an arena should expect.
  uint64_t bytes() const { return bytes_; }
  /// What an arena takes on a device with slabs of so many bytes.
  ArenaSizes sizes(uint64_t slab_bytes) const;
  /// The arena, with all ranges in it. Errors: those of Arena::allocate, with no place written that
  /// is of any use.
  Result<Arena> allocate(std::shared_ptr<Device> device) const;

 private:
  struct Range {
    uint64_t size_bytes = 0;
    BufferRange* place = nullptr;
  };
  MemoryDomain domain_;
  std::string_view purpose_;
  std::vector<Range> ranges_;
  uint64_t bytes_ = 0;
};

}  // namespace pumice::vk
