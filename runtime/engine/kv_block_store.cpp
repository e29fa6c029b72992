#include "engine/kv_block_store.hpp"

#include <algorithm>

namespace pumice {

size_t KvBlockStore::max_items() const {
  return std::max<size_t>(1, kStagingBytes / kv_->block_bytes());
}

Result<KvBlockStore::Move> KvBlockStore::stage(vk::MemoryDomain domain, size_t n_items) const {
  const uint64_t block_bytes = kv_->block_bytes();
  Move move{.staging_arena = vk::Arena(device_, domain, "cache transfers", n_items * block_bytes),
            .staging = {},
            .work = {}};
  for (size_t i = 0; i < n_items; ++i) {
    PUMICE_TRY(const vk::BufferRange range, move.staging_arena.allocate(block_bytes));
    move.staging.push_back(range);
  }
  return move;
}

Result<KvBlockStore::Move> KvBlockStore::record_read(std::span<const Item> items) const {
  PUMICE_TRY(Move move, stage(vk::MemoryDomain::kReadback, items.size()));
  vk::Recorder recorder(device_);
  for (size_t i = 0; i < items.size(); ++i) {
    recorder.copy(kv_->block(items[i].block), move.staging[i]);
  }
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  move.work = std::make_shared<const vk::RecordedWork>(std::move(work));
  return move;
}

void KvBlockStore::take(const Move& move, std::span<const Item> items) {
  for (size_t i = 0; i < items.size(); ++i) {
    std::ranges::copy(move.staging[i].mapped<std::byte>(), items[i].bytes.begin());
  }
}

Result<KvBlockStore::Move> KvBlockStore::record_write(std::span<const Item> items) const {
  PUMICE_TRY(Move move, stage(vk::MemoryDomain::kUpload, items.size()));
  vk::Recorder recorder(device_);
  for (size_t i = 0; i < items.size(); ++i) {
    std::ranges::copy(items[i].bytes, move.staging[i].mapped<std::byte>().begin());
    recorder.copy(move.staging[i], kv_->block(items[i].block));
  }
  PUMICE_TRY(vk::RecordedWork work, recorder.finish());
  move.work = std::make_shared<const vk::RecordedWork>(std::move(work));
  return move;
}

Status KvBlockStore::read(std::span<const Item> items) {
  while (!items.empty()) {
    const auto now = items.first(std::min(max_items(), items.size()));
    PUMICE_TRY(const Move move, record_read(now));
    PUMICE_TRY_STATUS(vk::run(*device_, *move.work));
    take(move, now);
    items = items.subspan(now.size());
  }
  return {};
}

Status KvBlockStore::write(std::span<const Item> items) {
  while (!items.empty()) {
    const auto now = items.first(std::min(max_items(), items.size()));
    PUMICE_TRY(const Move move, record_write(now));
    PUMICE_TRY_STATUS(vk::run(*device_, *move.work));
    items = items.subspan(now.size());
  }
  return {};
}

void KvBlockStore::record_copies(vk::Recorder& recorder, std::span<const BlockCopy> copies) const {
  for (const BlockCopy& copy : copies) {
    recorder.copy(kv_->block(copy.source), kv_->block(copy.target));
  }
}

}  // namespace pumice
