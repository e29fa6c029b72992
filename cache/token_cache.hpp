// Token ids of formatted prompts, so that a repeated prompt skips the tokenizer: an LRU of bounded
// bytes in front of it. The full text is compared: a hash decides nothing.
//
// Not thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace pumice {

class TokenCache {
 public:
  struct Stats {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evicted = 0;
    uint64_t entries = 0;
    uint64_t bytes = 0;  ///< never more than the limit
  };

  /// 0 bytes: caches nothing.
  explicit TokenCache(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  /// The tokens of `text` for the model (tokenizer) `model`; nullptr, counted as a miss, if
  /// unknown. Valid until the next `put`.
  const std::vector<uint32_t>* find(std::string_view model, std::string_view text);

  /// Remember. An entry larger than the limit is not kept; one known already is used, not replaced.
  void put(std::string_view model, std::string_view text, std::span<const uint32_t> tokens);

  const Stats& stats() const { return stats_; }

 private:
  struct Key {
    std::string_view model;  // of the entry
    std::string_view text;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& key) const;
  };
  struct Entry {
    std::string model;
    std::string text;
    std::vector<uint32_t> tokens;
  };

  static uint64_t bytes_of(const Entry& entry);

  uint64_t limit_bytes_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_map<Key, std::list<Entry>::iterator, KeyHash> by_key_;
  Stats stats_;
};

}  // namespace pumice
