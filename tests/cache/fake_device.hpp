// A device that a test of the cache can see into: each position of each block holds a value that
// depends on all tokens up to there, as KV does; a recurrent kind's page begins with that of the
// last position.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <vector>

#include "cache/kv_cache.hpp"
#include "cache/move_bytes.hpp"

namespace pumice {

inline std::vector<uint32_t> counting(uint32_t n, uint32_t first = 1) {
  std::vector<uint32_t> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = first + i;
  return tokens;
}

inline std::vector<uint32_t> joined(std::vector<uint32_t> first,
                                    const std::vector<uint32_t>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// Drives a KvCache the way an engine does and checks that every position of a sequence that the
/// cache calls computed really holds its value.
class FakeDevice : public PageStore {
 public:
  static uint64_t page_bytes(uint32_t block_tokens) { return uint64_t{block_tokens} * 8; }

  explicit FakeDevice(KvCache& cache) : cache_(cache) {}

  /// The value at `position` after these tokens under this salt.
  static uint64_t value(std::span<const uint32_t> tokens, std::string_view salt, size_t position,
                        uint32_t kind = 0) {
    uint64_t value = std::hash<std::string_view>()(salt) + kind;
    for (size_t i = 0; i <= position; ++i) {
      value = (value ^ tokens[i]) * 0x9e3779b97f4a7c15u;
      value ^= value >> 29;
    }
    return value;
  }

  Status read(std::span<const Item> items) override {
    if (broken) return make_error(ErrorCode::kInternal, "the fake device is broken");
    for (const Item& item : items) {
      std::memcpy(item.bytes.data(), block(item.page).data(), item.bytes.size());
    }
    return {};
  }
  Status write(std::span<const Item> items) override {
    if (broken) return make_error(ErrorCode::kInternal, "the fake device is broken");
    for (const Item& item : items) {
      std::memcpy(block(item.page).data(), item.bytes.data(), item.bytes.size());
    }
    return {};
  }

  /// Carry out what the cache wants moved. Gives the sequences that lost their content.
  std::vector<SequenceId> transfer() {
    const Transfers transfers = cache_.take_transfers();
    const TransferFailures failures = move_bytes(cache_, transfers, *this);
    for (const PageCopy& copy : transfers.copies) {
      const std::vector<uint64_t> source = block(copy.source);
      std::copy_n(source.begin(), copy.n_tokens, block(copy.target).begin());
    }
    return cache_.finish_transfers(transfers.batch, failures);
  }

  /// Have `n_pages` blocks, as an engine would. False: more are in use. Of `most` moves at a time
  /// each batch asks `moved` whether its copies were made.
  bool resize(uint32_t n_pages, size_t most, const std::function<bool()>& moved) {
    EXPECT_TRUE(transfer().empty());
    if (!cache_.give_up(n_pages)) return false;
    EXPECT_TRUE(transfer().empty());
    while (true) {
      const std::vector<PageMove> moves = cache_.take_moves(n_pages, most);
      if (moves.empty()) break;
      for (const PageMove& move : moves) block(move.target) = block(move.source);
      cache_.finish_moves(moved());
    }
    EXPECT_TRUE(cache_.resize(n_pages));
    blocks_.erase(blocks_.lower_bound(n_pages), blocks_.end());
    return true;
  }

  /// Compute positions [computed, end) of a sequence and commit them.
  void compute(SequenceId id, std::span<const uint32_t> tokens, std::string_view salt,
               uint32_t end) {
    const uint32_t first = cache_.computed_tokens(id);
    if (end > first) cache_.plan(id, end);
    for (uint32_t g = 0; g < cache_.kinds().size(); ++g) {
      if (!cache_.kinds().is_recurrent(g)) {
        for (uint32_t p = first; p < end; ++p)
          write(cache_.blocks(id, g), p, value(tokens, salt, p, g));
      } else if (end > first) {
        EXPECT_NE(cache_.state(id, g, first), cache_.state(id, g, end));
        block(cache_.state(id, g, end))[0] = value(tokens, salt, end - 1, g);
      }
    }
    cache_.commit(id, end);
  }

  void write(std::span<const PageId> blocks, uint32_t position, uint64_t value) {
    const uint32_t block_tokens = cache_.options().block_tokens;
    block(blocks[position / block_tokens])[position % block_tokens] = value;
  }

  /// How many of the positions that count as computed, and that the next one sees, hold something
  /// else; states that are wrong count too.
  uint32_t wrong_positions(SequenceId id, std::span<const uint32_t> tokens, std::string_view salt) {
    const uint32_t block_tokens = cache_.options().block_tokens;
    uint32_t n_wrong = 0;
    const uint32_t computed = cache_.computed_tokens(id);
    for (uint32_t g = 0; g < cache_.kinds().size(); ++g) {
      if (cache_.kinds().is_recurrent(g)) {
        const PageId state = cache_.state(id, g, computed);
        if (computed > 0 && block(state)[0] != value(tokens, salt, computed - 1, g)) ++n_wrong;
        continue;
      }
      const uint32_t window = cache_.kinds()[g].window_tokens;
      for (uint32_t p = 0; p < computed; ++p) {
        if (window > 0 && p + window <= computed) continue;  // out of sight
        const PageId held = cache_.blocks(id, g)[p / block_tokens];
        if (held == kNoPage || block(held)[p % block_tokens] != value(tokens, salt, p, g))
          ++n_wrong;
      }
    }
    return n_wrong;
  }

  bool broken = false;

  /// Its memory is another.
  void lose() { blocks_.clear(); }

  std::vector<uint64_t>& block(PageId id) {
    std::vector<uint64_t>& values = blocks_[id];
    values.resize(cache_.options().block_tokens);
    return values;
  }

 private:
  KvCache& cache_;
  std::map<PageId, std::vector<uint64_t>> blocks_;
};

#define EXPECT_WHOLE(cache)                                     \
  do {                                                          \
    const ::pumice::Status status_ = (cache).check_integrity(); \
    ASSERT_TRUE(status_.ok()) << status_.error().message;       \
  } while (false)

/// A cache with such a device.
struct CacheRig {
  KvCache cache;
  FakeDevice device{cache};

  explicit CacheRig(const KvCacheOptions& options) : cache(options) {}

  SequenceId begin(const std::vector<uint32_t>& tokens) {
    HashedPrompt prompt = cache.hash_prompt(tokens);
    return *cache.begin(prompt, prompt.n_tokens);
  }
  /// It is computed, and stays findable.
  CacheReport run(const std::vector<uint32_t>& tokens, std::string_view salt = {}) {
    HashedPrompt prompt = cache.hash_prompt(tokens, salt);
    SequenceId id = *cache.begin(prompt, prompt.n_tokens);
    while (!device.transfer().empty()) {  // what is damaged is not found a second time
      prompt = cache.suspend(id);
      id = *cache.begin(prompt, prompt.n_tokens);
    }
    const CacheReport report = cache.report(id);
    EXPECT_TRUE(cache.reserve(id, static_cast<uint32_t>(tokens.size())).ok());
    device.compute(id, tokens, salt, static_cast<uint32_t>(tokens.size()));
    EXPECT_EQ(device.wrong_positions(id, tokens, salt), 0u);
    cache.release(id);
    const Status whole = cache.check_integrity();
    EXPECT_TRUE(whole.ok()) << whole.error().message;
    return report;
  }
  CacheReport look_up(const std::vector<uint32_t>& tokens, std::string_view salt = {}) const {
    return cache.look_up(cache.hash_prompt(tokens, salt));
  }
  uint32_t cached(const std::vector<uint32_t>& tokens, std::string_view salt = {}) const {
    return look_up(tokens, salt).cached_tokens;
  }
};

}  // namespace pumice
