#include "engine/prefix_saver.hpp"

namespace pumice {

PrefixSaver::PrefixSaver(PrefixStore* store, KvCache& cache, KvPageStore& pages,
                         Submitter& submitter, std::span<const vk::BufferRange> staging)
    : store_(store), cache_(cache), pages_(pages), submitter_(submitter), staging_(staging) {
  PUMICE_CHECK(store == nullptr || !staging.empty(), "a store without memory to copy to");
  if (store != nullptr) cache.note_new_pages();
}

Status PrefixSaver::go_on() {
  if (store_ == nullptr) return {};
  PUMICE_TRY_STATUS(land());
  return busy() ? Status() : begin();
}

Status PrefixSaver::land() {
  if (!busy()) return {};
  PUMICE_TRY(const bool ended, submitter_.has_ended(ticket_));
  if (!ended) return {};
  std::vector<std::vector<std::byte>> bytes(saved_.size());
  std::vector<PageStore::Item> items;
  for (size_t i = 0; i < saved_.size(); ++i) {
    bytes[i].resize(cache_.options().page_bytes);
    items.push_back({saved_[i].page, bytes[i]});
  }
  KvPageStore::take(*move_, items);
  move_.reset();
  for (size_t i = 0; i < saved_.size(); ++i) {
    (void)store_->write(
        {saved_[i].hash, saved_[i].kind, std::move(saved_[i].tokens), std::move(bytes[i])});
  }
  saved_.clear();
  return {};
}

Status PrefixSaver::begin() {
  if (!cache_.has_new_pages()) return {};
  saved_ = cache_.take_new_pages(staging_.size(), [&](const BlockHash& hash, uint32_t kind) {
    return store_->wants(hash, kind);
  });
  if (saved_.empty()) return {};
  std::vector<PageStore::Item> items;
  for (const KvCache::NewPage& page : saved_) items.push_back({page.page, {}});
  Result<KvPageStore::Move> move = pages_.record_read(items, staging_);
  if (!move.ok()) {
    saved_.clear();
    return move.error();
  }
  move_ = std::move(move).value();
  ticket_ = submitter_.add(move_->work, Submitter::Lesson::kNone);
  return {};
}

void PrefixSaver::abandon() {
  move_.reset();
  saved_.clear();
}

}  // namespace pumice
