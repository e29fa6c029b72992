// The pool of KV blocks: which are free, which are in use, and by how many owners. Knows nothing of
// memory or devices; the engine maps a block number to bytes.
//
// Not thread-safe: the pool belongs to one scheduler.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/result.hpp"

namespace pumice {

using BlockId = uint32_t;

class BlockPool {
 public:
  explicit BlockPool(uint32_t n_blocks);

  uint32_t n_blocks() const { return static_cast<uint32_t>(reference_counts_.size()); }
  uint32_t n_free() const { return static_cast<uint32_t>(free_.size()); }

  /// Append `count` blocks with one reference each to `blocks`. Errors: kDoesNotFit, with nothing
  /// taken.
  Status acquire(uint32_t count, std::vector<BlockId>& blocks);

  /// Add a reference to a block in use.
  void share(BlockId block);

  /// Drop one reference of each, last block first, so that a sequence's tail is reused first.
  void release(std::span<const BlockId> blocks);

  /// Every block is free or referenced, never both. Errors: kInternal naming the first bad block.
  Status check_integrity() const;

 private:
  std::vector<uint32_t> reference_counts_;
  std::vector<BlockId> free_;  // taken from the back
};

}  // namespace pumice
