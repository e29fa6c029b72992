#include "cache/token_cache.hpp"

#include <xxhash.h>

namespace pumice {

size_t TokenCache::KeyHash::operator()(const Key& key) const {
  return XXH3_64bits_withSeed(key.text.data(), key.text.size(),
                              XXH3_64bits(key.model.data(), key.model.size()));
}

uint64_t TokenCache::bytes_of(const Entry& entry) {
  constexpr uint64_t kOverheadBytes = 192;  // list and table nodes, estimated
  return entry.model.size() + entry.text.size() + entry.tokens.size() * 4 + kOverheadBytes;
}

const std::vector<uint32_t>* TokenCache::find(std::string_view model, std::string_view text) {
  const auto found = by_key_.find({model, text});
  if (found == by_key_.end()) {
    ++stats_.misses;
    return nullptr;
  }
  ++stats_.hits;
  entries_.splice(entries_.begin(), entries_, found->second);
  return &found->second->tokens;
}

void TokenCache::put(std::string_view model, std::string_view text,
                     std::span<const uint32_t> tokens) {
  if (by_key_.contains({model, text})) return;
  Entry entry{std::string(model), std::string(text), {tokens.begin(), tokens.end()}};
  const uint64_t bytes = bytes_of(entry);
  if (bytes > limit_bytes_) return;
  while (stats_.bytes + bytes > limit_bytes_) {
    const Entry& oldest = entries_.back();
    stats_.bytes -= bytes_of(oldest);
    by_key_.erase({oldest.model, oldest.text});
    entries_.pop_back();
    ++stats_.evicted;
  }
  entries_.push_front(std::move(entry));
  by_key_.emplace(Key{entries_.front().model, entries_.front().text}, entries_.begin());
  stats_.bytes += bytes;
  stats_.entries = entries_.size();
}

}  // namespace pumice
