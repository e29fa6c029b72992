#include "cache/slot_tier.hpp"

#include <algorithm>

namespace pumice {

uint32_t SlotTier::slots_for(uint64_t block_bytes, uint64_t limit_bytes) {
  if (block_bytes == 0) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(limit_bytes / block_bytes, kUnlimitedBlocks));
}

SlotTier::Placed SlotTier::put(PageId page) {
  if (!slots_.can_take(1)) return {};
  const uint32_t slot = slots_.take();
  if (slot >= pages_.size()) pages_.resize(slot + 1, kNoPage);
  const Placed placed{slot, pages_[slot]};
  if (placed.given_up == kNoPage) ++n_used_;
  pages_[slot] = page;
  slots_.set_cached(slot, true);
  slots_.release({&slot, 1});
  return placed;
}

void SlotTier::drop(uint32_t slot) {
  if (pages_[slot] == kNoPage) return;
  pages_[slot] = kNoPage;
  --n_used_;
  slots_.set_cached(slot, false);
}

void SlotTier::touch(uint32_t slot) {
  hold(slot);
  let_go(slot);
}

}  // namespace pumice
