// Host memory for blocks evicted from the device: equal slots, the least recently used given up
// first, except while a restore reads one.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "cache/block_pool.hpp"
#include "cache/prefix_index.hpp"

namespace pumice {

class HostTier {
 public:
  /// As many slots of `block_bytes` as fit into `limit_bytes`; none if either is 0. Memory is taken
  /// from the system as slots come into use.
  HostTier(uint64_t block_bytes, uint64_t limit_bytes);

  uint32_t n_slots() const { return slots_.n_blocks(); }
  uint64_t used_bytes() const { return used_bytes_; }
  uint64_t limit_bytes() const { return limit_bytes_; }

  struct Placed {
    uint32_t slot = kNowhere;   ///< kNowhere: all slots are being read, or there are none
    NodeId given_up = kNoNode;  ///< whose bytes were there
  };
  /// A slot for a node's bytes.
  Placed put(NodeId node);
  /// The slot's bytes are worth nothing any more.
  void drop(uint32_t slot);
  /// The slot was useful: give it up last.
  void touch(uint32_t slot);
  /// While held, a slot keeps its bytes.
  void hold(uint32_t slot) { slots_.share(slot); }
  void let_go(uint32_t slot) { slots_.release({&slot, 1}); }

  NodeId node(uint32_t slot) const { return nodes_[slot]; }
  std::span<std::byte> bytes(uint32_t slot);
  uint32_t holds(uint32_t slot) const { return slots_.references(slot); }

  /// Errors: kInternal.
  Status check_integrity() const { return slots_.check_integrity(); }

 private:
  uint64_t block_bytes_;
  uint64_t limit_bytes_;
  uint64_t used_bytes_ = 0;
  BlockPool slots_;
  std::vector<NodeId> nodes_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

}  // namespace pumice
