// Carrying out what KvCache wants moved between the device, host memory and the prompt cache file.
#pragma once

#include <cstddef>
#include <span>

#include "base/log.hpp"
#include "base/result.hpp"
#include "cache/kv_cache.hpp"
#include "cache/transfers.hpp"

namespace pumice {

/// The bytes of blocks on the device. Calls block until done.
class BlockStore {
 public:
  struct Item {
    BlockId block = kNoBlock;
    std::span<std::byte> bytes;  ///< block_bytes of them
  };

  virtual ~BlockStore() = default;
  virtual Status read(std::span<const Item> items) = 0;
  virtual Status write(std::span<const Item> items) = 0;
};

/// Do a batch's demotions, saves and restores; its copies are the caller's. What fails is logged
/// and named in the result, for KvCache::finish_transfers: a full disk or a damaged file costs time
/// only.
TransferFailures move_bytes(KvCache& cache, const Transfers& transfers, BlockStore& store,
                            const Logger& log = {});

/// Replace the prompt cache file by all that is cached now under no salt, on the device and in the
/// tiers. Errors: kInvalidArgument without such a file, kInternal; the old file then stays.
Status save_prompt_cache(KvCache& cache, BlockStore& store);

}  // namespace pumice
