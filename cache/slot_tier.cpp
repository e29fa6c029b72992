#include "cache/slot_tier.hpp"

#include <algorithm>

namespace pumice {

uint32_t SlotTier::slots_for(uint64_t block_bytes, uint64_t limit_bytes) {
  if (block_bytes == 0) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(limit_bytes / block_bytes, kUnlimitedBlocks));
}

SlotTier::Placed SlotTier::put(NodeId node) {
  if (!slots_.can_take(1)) return {};
  const uint32_t slot = slots_.take();
  if (slot >= nodes_.size()) nodes_.resize(slot + 1, kNoNode);
  const Placed placed{slot, nodes_[slot]};
  if (placed.given_up == kNoNode) ++n_used_;
  nodes_[slot] = node;
  slots_.set_cached(slot, true);
  slots_.release({&slot, 1});
  return placed;
}

void SlotTier::drop(uint32_t slot) {
  if (nodes_[slot] == kNoNode) return;
  nodes_[slot] = kNoNode;
  --n_used_;
  slots_.set_cached(slot, false);
}

void SlotTier::touch(uint32_t slot) {
  hold(slot);
  let_go(slot);
}

}  // namespace pumice
