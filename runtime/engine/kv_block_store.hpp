// Moving whole KV blocks: between the device and host memory for the cache's tiers, and on the
// device from block to block.
#pragma once

#include <memory>

#include "cache/move_bytes.hpp"
#include "engine/kv_memory.hpp"
#include "vk/recorder.hpp"

namespace pumice {

class KvBlockStore final : public BlockStore {
 public:
  /// Both must outlive the store.
  KvBlockStore(std::shared_ptr<vk::Device> device, const KvMemory& kv)
      : device_(std::move(device)), kv_(&kv) {}

  /// After all submitted work, through staging of at most kStagingBytes. Errors: kDoesNotFit,
  /// kDeviceLost.
  Status read(std::span<const Item> items) override;
  Status write(std::span<const Item> items) override;

  /// Copies for a step to come, in their order.
  Result<vk::RecordedWork> record_copies(std::span<const BlockCopy> copies) const;

 private:
  static constexpr uint64_t kStagingBytes = uint64_t{64} << 20;

  /// Calls `move(items, staging)` for as many items at a time as staging holds.
  template <typename Move>
  Status in_batches(std::span<const Item> items, vk::MemoryDomain domain, const Move& move);

  std::shared_ptr<vk::Device> device_;
  const KvMemory* kv_;
};

}  // namespace pumice
