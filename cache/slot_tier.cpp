#include "cache/slot_tier.hpp"

#include <algorithm>

namespace pumice {

uint32_t SlotTier::slots_for(uint64_t page_bytes, uint64_t limit_bytes) {
  if (page_bytes == 0) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(limit_bytes / page_bytes, kUnlimitedPages));
}

SlotTier::Placed SlotTier::put(EntryId entry) {
  if (!slots_.can_take(1)) return {};
  const uint32_t slot = slots_.take();
  if (slot >= entries_.size()) entries_.resize(slot + 1, kNoEntry);
  const Placed placed{slot, entries_[slot]};
  if (placed.given_up == kNoEntry) ++n_used_;
  entries_[slot] = entry;
  slots_.set_cached(slot, true);
  slots_.release({&slot, 1});
  return placed;
}

void SlotTier::drop(uint32_t slot) {
  if (entries_[slot] == kNoEntry) return;
  entries_[slot] = kNoEntry;
  --n_used_;
  slots_.set_cached(slot, false);
}

void SlotTier::touch(uint32_t slot) {
  hold(slot);
  let_go(slot);
}

}  // namespace pumice
