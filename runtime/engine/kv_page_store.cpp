#include "engine/kv_page_store.hpp"

#include <algorithm>

#include "engine/submitter.hpp"
#include "vk/arena_layout.hpp"

namespace pumice {

namespace {

constexpr uint64_t kOwnStagingBytes = uint64_t{64} << 20;  // of `read` and `write`

}  // namespace

// Memory that the host reads fast serves both ways: a device reads it as any other of the host's.
Result<KvPageStore::Staging> KvPageStore::stage(size_t n_items) const {
  const uint64_t page_bytes = kv_->page_bytes();
  const size_t most = std::max<size_t>(1, kOwnStagingBytes / page_bytes);
  Staging staging;
  vk::ArenaLayout layout(vk::MemoryDomain::kReadback, "cache transfers");
  layout.add(std::min(most, n_items), page_bytes, staging.ranges);
  PUMICE_TRY(staging.arena, layout.allocate(device_));
  return staging;
}

Result<KvPageStore::Move> KvPageStore::record_read(std::span<const Item> items,
                                                   std::span<const vk::BufferRange> staging) const {
  Move move{.staging = staging.first(items.size()), .work = {}};
  vk::Recorder recorder(device_);
  for (size_t i = 0; i < items.size(); ++i) {
    recorder.copy(kv_->page(items[i].page), move.staging[i]);
  }
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  move.work = std::make_shared<const vk::RecordedWork>(std::move(work));
  return move;
}

void KvPageStore::take(const Move& move, std::span<const Item> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    std::ranges::copy(move.staging[i].mapped<std::byte>(), items[i].bytes.begin());
  }
}

Result<KvPageStore::Move> KvPageStore::record_write(
    std::span<const Item> items, std::span<const vk::BufferRange> staging) const {
  Move move{.staging = staging.first(items.size()), .work = {}};
  vk::Recorder recorder(device_);
  for (size_t i = 0; i < items.size(); ++i) {
    std::ranges::copy(items[i].bytes, move.staging[i].mapped<std::byte>().begin());
    recorder.copy(move.staging[i], kv_->page(items[i].page));
  }
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  move.work = std::make_shared<const vk::RecordedWork>(std::move(work));
  return move;
}

void KvPageStore::check_order() const {
  PUMICE_DEBUG_CHECK(queue_ == nullptr || queue_->all_submitted(),
                     "pages are read or written now, ahead of work that was queued before");
}

Status KvPageStore::read(std::span<const Item> items) {
  check_order();
  PUMICE_TRY(const Staging staging, stage(items.size()));
  while (!items.empty()) {
    const auto now = items.first(std::min(staging.ranges.size(), items.size()));
    PUMICE_TRY(const Move move, record_read(now, staging.ranges));
    PUMICE_TRY_STATUS(vk::run(*device_, *move.work));
    take(move, now);
    items = items.subspan(now.size());
  }
  return {};
}

Status KvPageStore::write(std::span<const Item> items) {
  check_order();
  PUMICE_TRY(const Staging staging, stage(items.size()));
  while (!items.empty()) {
    const auto now = items.first(std::min(staging.ranges.size(), items.size()));
    PUMICE_TRY(const Move move, record_write(now, staging.ranges));
    PUMICE_TRY_STATUS(vk::run(*device_, *move.work));
    items = items.subspan(now.size());
  }
  return {};
}

Result<std::shared_ptr<const vk::RecordedWork>> KvPageStore::record_moves(
    std::span<const PageMove> moves) const {
  vk::Recorder recorder(device_);
  for (const PageMove& move : moves) {
    recorder.copy(kv_->page(move.source), kv_->page(move.target));
  }
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  return std::make_shared<const vk::RecordedWork>(std::move(work));
}

void KvPageStore::record_copies(vk::Recorder& recorder, std::span<const PageCopy> copies) const {
  for (const PageCopy& copy : copies) {
    recorder.copy(kv_->page(copy.source), kv_->page(copy.target));
  }
}

}  // namespace pumice
