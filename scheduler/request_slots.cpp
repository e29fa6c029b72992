#include "scheduler/request_slots.hpp"

#include <algorithm>

namespace pumice {

uint32_t RequestSlots::take() {
  if (free_.empty()) {
    PUMICE_CHECK(uses_.size() < n_slots_, "no slot is free for a request");
    uses_.push_back(1);
    return static_cast<uint32_t>(uses_.size() - 1);
  }
  const uint32_t slot = free_.back();
  free_.pop_back();
  uses_[slot] = 1;
  return slot;
}

void RequestSlots::add_use(uint32_t slot) {
  PUMICE_CHECK(slot < uses_.size() && uses_[slot] > 0, "a free slot is used");
  ++uses_[slot];
}

void RequestSlots::drop_use(uint32_t slot) {
  PUMICE_CHECK(slot < uses_.size() && uses_[slot] > 0, "a free slot is given back");
  if (--uses_[slot] == 0) free_.push_back(slot);
}

Status RequestSlots::check_integrity(std::vector<uint32_t> uses) const {
  if (uses.size() > uses_.size()) {
    return make_error(ErrorCode::kInternal, "slot {} is used and was never given out",
                      uses.size() - 1);
  }
  uses.resize(uses_.size());
  for (size_t slot = 0; slot < uses_.size(); ++slot) {
    if (uses_[slot] != uses[slot]) {
      return make_error(ErrorCode::kInternal, "slot {} counts {} uses and has {}", slot,
                        uses_[slot], uses[slot]);
    }
    const auto n_free = std::ranges::count(free_, static_cast<uint32_t>(slot));
    if (n_free != (uses_[slot] == 0 ? 1 : 0)) {
      return make_error(ErrorCode::kInternal,
                        "slot {} with {} uses is {} times in the list of free ones", slot,
                        uses_[slot], n_free);
    }
  }
  return {};
}

}  // namespace pumice
