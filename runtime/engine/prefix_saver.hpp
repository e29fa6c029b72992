// Brings pages that become findable to a prefix store: copies of them go to memory of the host
// behind whatever else is submitted, some at a time, and from there to the store's own threads. No
// step waits for it.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "cache/kv_cache.hpp"
#include "cache/prefix_store.hpp"
#include "engine/kv_page_store.hpp"
#include "engine/submitter.hpp"

namespace pumice {

/// Not thread-safe. All that it is made with must outlive it.
class PrefixSaver {
 public:
  /// `store`: null for none; then nothing is ever to be done. `staging`: a range a page.
  PrefixSaver(PrefixStore* store, KvCache& cache, KvPageStore& pages, Submitter& submitter,
              std::span<const vk::BufferRange> staging);

  /// Go on as far as that needs no waiting. What is copied now is there, as what is findable has
  /// landed, and stays until then, as whatever may overwrite it is queued later. Errors: those of
  /// the device.
  Status go_on();
  /// The same of what is under way only.
  Status land();

  /// Copies are under way: `ticket` is theirs, until they have ended.
  bool busy() const { return move_.has_value(); }
  Submitter::Ticket ticket() const { return ticket_; }
  /// `go_on` has something to do, or will have.
  bool has_work() const { return busy() || (store_ != nullptr && cache_.has_new_pages()); }

  /// What is under way is not stored. The device is idle.
  void abandon();

 private:
  Status begin();

  PrefixStore* const store_;
  KvCache& cache_;
  KvPageStore& pages_;
  Submitter& submitter_;
  const std::span<const vk::BufferRange> staging_;
  std::vector<KvCache::NewPage> saved_;  // under way
  std::optional<KvPageStore::Move> move_;
  Submitter::Ticket ticket_ = 0;
};

}  // namespace pumice
