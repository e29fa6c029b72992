// Numbers for what an engine keeps one of for each running request: a row of the device's block
// tables, a sampling state. A slot is used by the request that runs in it and by every open step
// with a chunk of that request, since the device may read and write the slot
// until the step has ended. A slot without uses is free.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.hpp"

namespace pumice {

class RequestSlots {
 public:
  /// Slots are numbers below `n_slots`; memory is taken for those that ever were in use.
  explicit RequestSlots(uint32_t n_slots) : n_slots_(n_slots) {}

  uint32_t n_slots() const { return n_slots_; }

  /// A free slot, with one use. There must be one.
  uint32_t take();
  /// One more use of a slot that is in use.
  void add_use(uint32_t slot);
  /// One use less; without any the slot is free at once.
  void drop_use(uint32_t slot);

  /// Slots have these uses, those that are not named none, and are free without. Errors: kInternal
  /// naming the slot.
  Status check_integrity(std::vector<uint32_t> uses) const;

 private:
  uint32_t n_slots_;
  std::vector<uint32_t> uses_;  // by slot that ever was in use
  std::vector<uint32_t> free_;  // of those; the last goes first
};

}  // namespace pumice
