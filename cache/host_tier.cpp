#include "cache/host_tier.hpp"

#include <algorithm>

namespace pumice {
namespace {

uint32_t slots_for(uint64_t block_bytes, uint64_t limit_bytes) {
  if (block_bytes == 0) return 0;
  return static_cast<uint32_t>(std::min<uint64_t>(limit_bytes / block_bytes, kNowhere - 1));
}

}  // namespace

HostTier::HostTier(uint64_t block_bytes, uint64_t limit_bytes)
    : block_bytes_(block_bytes),
      limit_bytes_(limit_bytes),
      slots_(slots_for(block_bytes, limit_bytes)),
      nodes_(slots_.n_blocks(), kNoNode),
      memory_(slots_.n_blocks()) {}

HostTier::Placed HostTier::put(NodeId node) {
  if (!slots_.can_take(1)) return {};
  const uint32_t slot = slots_.take();
  const Placed placed{slot, nodes_[slot]};
  nodes_[slot] = node;
  slots_.set_cached(slot, true);
  slots_.release({&slot, 1});
  return placed;
}

void HostTier::drop(uint32_t slot) {
  nodes_[slot] = kNoNode;
  slots_.set_cached(slot, false);
}

void HostTier::touch(uint32_t slot) {
  hold(slot);
  let_go(slot);
}

std::span<std::byte> HostTier::bytes(uint32_t slot) {
  if (!memory_[slot]) {
    memory_[slot] = std::make_unique_for_overwrite<std::byte[]>(block_bytes_);
    used_bytes_ += block_bytes_;
  }
  return {memory_[slot].get(), block_bytes_};
}

}  // namespace pumice
