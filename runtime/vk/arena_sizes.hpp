// How an arena's slabs follow from what is asked of it. Arena allocates by these functions, and a
// plan of memory counts by them before anything is allocated. No device is needed.
#pragma once

#include <cstdint>
#include <optional>

namespace pumice::vk {

/// Where `size_bytes` begin in a slab of which the first `used_bytes` are taken; nothing if the
/// rest of it is too small. `alignment` is a power of two.
std::optional<uint64_t> place_in_slab(uint64_t slab_bytes, uint64_t used_bytes, uint64_t size_bytes,
                                      uint64_t alignment);

/// Bytes of the slab to add for `size_bytes`, at most `most_bytes`: what is still expected of an
/// arena that has allocated some, or more.
uint64_t next_slab_bytes(uint64_t size_bytes, uint64_t expected_bytes, uint64_t allocated_bytes,
                         uint64_t most_bytes);

/// An arena without memory: how much the same calls of Arena::allocate would take.
class ArenaSizes {
 public:
  /// `slab_bytes`: DevicePlan::slab_bytes. `expected_bytes` as Arena takes it.
  explicit ArenaSizes(uint64_t slab_bytes, uint64_t expected_bytes = 0)
      : most_bytes_(slab_bytes), expected_bytes_(expected_bytes) {}

  void allocate(uint64_t size_bytes, uint64_t alignment = 256);

  uint64_t allocated_bytes() const { return allocated_bytes_; }
  /// The largest of the calls. Above the slab's size, Arena::allocate would have refused it.
  uint64_t largest_bytes() const { return largest_bytes_; }

 private:
  uint64_t most_bytes_;
  uint64_t expected_bytes_;
  uint64_t allocated_bytes_ = 0;
  uint64_t largest_bytes_ = 0;
  uint64_t last_slab_bytes_ = 0;
  uint64_t used_in_last_ = 0;
};

}  // namespace pumice::vk
