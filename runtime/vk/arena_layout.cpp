#include "vk/arena_layout.hpp"

#include <string>
#include <utility>

namespace pumice::vk {

void ArenaLayout::add(uint64_t size_bytes, BufferRange& place) {
  constexpr uint64_t kAlignment = 256;  // Arena::allocate's
  ranges_.push_back({size_bytes, &place});
  bytes_ += (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void ArenaLayout::add(size_t n, uint64_t size_bytes, std::vector<BufferRange>& places) {
  places.resize(n);
  for (BufferRange& place : places) add(size_bytes, place);
}

ArenaSizes ArenaLayout::sizes(uint64_t slab_bytes) const {
  ArenaSizes sizes(slab_bytes, bytes_);
  for (const Range& range : ranges_) sizes.allocate(range.size_bytes);
  return sizes;
}

Result<Arena> ArenaLayout::allocate(std::shared_ptr<Device> device) const {
  Arena arena(std::move(device), domain_, std::string(purpose_), bytes_);
  for (const Range& range : ranges_) {
    PUMICE_TRY(*range.place, arena.allocate(range.size_bytes));
  }
  return arena;
}

}  // namespace pumice::vk
