// Bytes that the engine moves for the cache, around steps.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/block_pool.hpp"

namespace pumice {

using SequenceId = uint32_t;
using TransferBatch = uint64_t;

/// Where a block's bytes can be outside the device.
enum class Tier : uint8_t { kHost, kFile };

/// The bytes of `source` go to a slot of host memory.
struct BlockSave {
  BlockId source = kNoBlock;
  uint32_t host_slot = 0;
};
/// The bytes in a tier go to `target`.
struct BlockRestore {
  SequenceId sequence = 0;
  Tier tier = Tier::kHost;
  uint32_t slot = 0;  ///< of host memory, or record of the file
  BlockId target = kNoBlock;
};
/// The first `n_tokens` positions of `source` go to `target` (copying all of it is as good).
struct BlockCopy {
  SequenceId sequence = 0;
  BlockId source = kNoBlock;
  BlockId target = kNoBlock;
  uint32_t n_tokens = 0;
};

/// What must happen between the step planned before and the step being planned: all saves, then all
/// restores, then all copies, each in their order.
struct Transfers {
  TransferBatch batch = 0;
  std::vector<BlockSave> saves;
  std::vector<BlockRestore> restores;
  std::vector<BlockCopy> copies;

  bool empty() const { return saves.empty() && restores.empty() && copies.empty(); }
};

}  // namespace pumice
