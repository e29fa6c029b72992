// Moving whole KV pages: between the device and host memory for the cache's tiers, and on the
// device from page to page.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/move_bytes.hpp"
#include "engine/kv_memory.hpp"
#include "vk/recorder.hpp"

namespace pumice {

class Submitter;

class KvPageStore final : public PageStore {
 public:
  /// `staging`: what pages pass through where that is not said otherwise, a range each. All must
  /// outlive the store.
  KvPageStore(std::shared_ptr<vk::Device> device, const KvMemory& kv,
              std::span<const vk::BufferRange> staging)
      : device_(std::move(device)), kv_(&kv), staging_(staging) {}

  /// Work for these pages is queued there, from now on; null: nowhere. It is to outlive this, or
  /// to be unset first.
  void follow(const Submitter* queue) { queue_ = queue; }

  /// After all submitted work, through memory of their own; they wait for the device. Nothing of
  /// the queue is held back (Submitter::submit_all), or it would come behind these: builds for
  /// development check that. Errors: kDoesNotFit, kDeviceLost.
  Status read(std::span<const Item> items) override;
  Status write(std::span<const Item> items) override;

  /// A move of at most max_items() pages, through the store's staging: one at a time.
  struct Move {
    std::span<const vk::BufferRange> staging;  ///< by item
    std::shared_ptr<const vk::RecordedWork> work;
  };
  size_t max_items() const { return std::max<size_t>(1, staging_.size()); }
  /// Pages to the host: `take` brings the bytes once the work has run.
  Result<Move> record_read(std::span<const Item> items) const {
    return record_read(items, staging_);
  }
  /// The same through staging of the caller's, which may be under way beside another.
  Result<Move> record_read(std::span<const Item> items,
                           std::span<const vk::BufferRange> staging) const;
  static void take(const Move& move, std::span<const Item> items);
  /// The bytes, as they are now, to pages.
  Result<Move> record_write(std::span<const Item> items) const {
    return record_write(items, staging_);
  }

  /// Copies of whole pages, none of which is in two.
  Result<std::shared_ptr<const vk::RecordedWork>> record_moves(
      std::span<const PageMove> moves) const;
  /// Copies from page to page, in their order.
  void record_copies(vk::Recorder& recorder, std::span<const PageCopy> copies) const;

 private:
  struct Staging {
    std::optional<vk::Arena> arena;
    std::vector<vk::BufferRange> ranges;
  };
  void check_order() const;
  Result<Staging> stage(size_t n_items) const;
  Result<Move> record_write(std::span<const Item> items,
                            std::span<const vk::BufferRange> staging) const;

  std::shared_ptr<vk::Device> device_;
  const KvMemory* kv_;
  const Submitter* queue_ = nullptr;
  std::span<const vk::BufferRange> staging_;
};

}  // namespace pumice
