#include "engine/kv_block_store.hpp"

#include <algorithm>

namespace pumice {

template <typename Move>
Status KvBlockStore::in_batches(std::span<const Item> items, vk::MemoryDomain domain,
                                const Move& move) {
  const uint64_t block_bytes = kv_->block_bytes();
  const size_t batch = std::max<size_t>(1, kStagingBytes / block_bytes);
  vk::Arena arena(device_, domain, "cache transfers", std::min(batch, items.size()) * block_bytes);
  std::vector<vk::BufferRange> staging;
  while (!items.empty()) {
    const auto now = items.first(std::min(batch, items.size()));
    while (staging.size() < now.size()) {
      PUMICE_TRY(const vk::BufferRange range, arena.allocate(block_bytes));
      staging.push_back(range);
    }
    PUMICE_TRY_STATUS(move(now, staging));
    items = items.subspan(now.size());
  }
  return {};
}

Status KvBlockStore::read(std::span<const Item> items) {
  return in_batches(
      items, vk::MemoryDomain::kReadback, [&](auto now, const auto& staging) -> Status {
        vk::Recorder recorder(device_);
        for (size_t i = 0; i < now.size(); ++i) recorder.copy(kv_->block(now[i].block), staging[i]);
        PUMICE_TRY(const vk::RecordedWork work, recorder.finish());
        PUMICE_TRY_STATUS(vk::run(*device_, work));
        for (size_t i = 0; i < now.size(); ++i) {
          std::ranges::copy(staging[i].template mapped<std::byte>(), now[i].bytes.begin());
        }
        return {};
      });
}

Status KvBlockStore::write(std::span<const Item> items) {
  return in_batches(items, vk::MemoryDomain::kUpload, [&](auto now, const auto& staging) -> Status {
    vk::Recorder recorder(device_);
    for (size_t i = 0; i < now.size(); ++i) {
      std::ranges::copy(now[i].bytes, staging[i].template mapped<std::byte>().begin());
      recorder.copy(staging[i], kv_->block(now[i].block));
    }
    PUMICE_TRY(const vk::RecordedWork work, recorder.finish());
    return vk::run(*device_, work);
  });
}

Result<vk::RecordedWork> KvBlockStore::record_copies(std::span<const BlockCopy> copies) const {
  vk::Recorder recorder(device_);
  for (const BlockCopy& copy : copies) {
    recorder.copy(kv_->block(copy.source), kv_->block(copy.target));
  }
  return recorder.finish();
}

}  // namespace pumice
