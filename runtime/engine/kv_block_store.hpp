// Moving whole KV blocks: between the device and host memory for the cache's tiers, and on the
// device from block to block.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cache/move_bytes.hpp"
#include "engine/kv_memory.hpp"
#include "vk/recorder.hpp"

namespace pumice {

class KvBlockStore final : public BlockStore {
 public:
  /// Both must outlive the store.
  KvBlockStore(std::shared_ptr<vk::Device> device, const KvMemory& kv)
      : device_(std::move(device)), kv_(&kv) {}

  /// After all submitted work, through staging of at most kStagingBytes; they wait for the device.
  /// Errors: kDoesNotFit, kDeviceLost.
  Status read(std::span<const Item> items) override;
  Status write(std::span<const Item> items) override;

  /// A move of at most max_items() blocks, through memory of its own.
  struct Move {
    vk::Arena staging_arena;
    std::vector<vk::BufferRange> staging;  ///< by item
    std::shared_ptr<const vk::RecordedWork> work;
  };
  size_t max_items() const;
  /// Bytes of such memory at most.
  static uint64_t max_staging_bytes(uint64_t block_bytes) {
    return std::max(kStagingBytes, block_bytes);
  }
  /// Blocks to the host: `take` brings the bytes once the work has run.
  Result<Move> record_read(std::span<const Item> items) const;
  static void take(const Move& move, std::span<const Item> items);
  /// The bytes, as they are now, to blocks.
  Result<Move> record_write(std::span<const Item> items) const;

  /// Copies from block to block, in their order.
  void record_copies(vk::Recorder& recorder, std::span<const BlockCopy> copies) const;

 private:
  static constexpr uint64_t kStagingBytes = uint64_t{64} << 20;

  Result<Move> stage(vk::MemoryDomain domain, size_t n_items) const;

  std::shared_ptr<vk::Device> device_;
  const KvMemory* kv_;
};

}  // namespace pumice
