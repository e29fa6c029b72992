#include "vk/arena_sizes.hpp"

#include <algorithm>

namespace pumice::vk {
namespace {

constexpr uint64_t kMinimumSlabBytes = uint64_t{64} * 1024;

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

}  // namespace

std::optional<uint64_t> place_in_slab(uint64_t slab_bytes, uint64_t used_bytes, uint64_t size_bytes,
                                      uint64_t alignment) {
  const uint64_t offset = align_up(used_bytes, alignment);
  if (offset > slab_bytes || slab_bytes - offset < size_bytes) return std::nullopt;
  return offset;
}

uint64_t next_slab_bytes(uint64_t size_bytes, uint64_t expected_bytes, uint64_t allocated_bytes,
                         uint64_t most_bytes) {
  const uint64_t remaining = expected_bytes - std::min(expected_bytes, allocated_bytes);
  const uint64_t wanted = std::max({size_bytes, remaining, kMinimumSlabBytes});
  return std::min(align_up(wanted, 256), most_bytes);
}

void ArenaSizes::allocate(uint64_t size_bytes, uint64_t alignment) {
  largest_bytes_ = std::max(largest_bytes_, size_bytes);
  std::optional<uint64_t> offset;
  if (allocated_bytes_ > 0) {
    offset = place_in_slab(last_slab_bytes_, used_in_last_, size_bytes, alignment);
  }
  if (!offset) {
    const uint64_t bytes =
        next_slab_bytes(size_bytes, expected_bytes_, allocated_bytes_, most_bytes_);
    last_slab_bytes_ = std::max(bytes, size_bytes);  // of what would be refused, all counts
    allocated_bytes_ += last_slab_bytes_;
    offset = 0;
  }
  used_in_last_ = *offset + size_bytes;
}

}  // namespace pumice::vk
