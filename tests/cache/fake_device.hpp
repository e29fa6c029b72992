// A device that a test of the cache can see into: each position of each block holds a value that
// depends on all tokens up to there, as KV does.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <vector>

#include "cache/kv_cache.hpp"

namespace pumice {

inline std::vector<uint32_t> counting(uint32_t n, uint32_t first = 1) {
  std::vector<uint32_t> tokens(n);
  for (uint32_t i = 0; i < n; ++i) tokens[i] = first + i;
  return tokens;
}

/// Drives a KvCache the way an engine does and checks that every position of a sequence that the
/// cache calls computed really holds its value.
class FakeDevice {
 public:
  static uint64_t block_bytes(uint32_t block_tokens) { return uint64_t{block_tokens} * 8; }

  explicit FakeDevice(KvCache& cache) : cache_(cache) {}

  /// The value at `position` after these tokens under this salt.
  static uint64_t value(std::span<const uint32_t> tokens, std::string_view salt, size_t position) {
    uint64_t value = std::hash<std::string_view>()(salt);
    for (size_t i = 0; i <= position; ++i) {
      value = (value ^ tokens[i]) * 0x9e3779b97f4a7c15u;
      value ^= value >> 29;
    }
    return value;
  }

  /// Carry out what the cache wants moved.
  void move_bytes(const Transfers& transfers) {
    for (const BlockSave& save : transfers.saves) {
      const std::vector<uint64_t>& source = block(save.source);
      std::memcpy(cache_.host_slot(save.host_slot).data(), source.data(), source.size() * 8);
    }
    for (const BlockRestore& restore : transfers.restores) {
      const std::span<const std::byte> bytes = cache_.host_slot(restore.slot);
      std::memcpy(block(restore.target).data(), bytes.data(), bytes.size());
    }
    for (const BlockCopy& copy : transfers.copies) {
      const std::vector<uint64_t> source = block(copy.source);
      std::copy_n(source.begin(), copy.n_tokens, block(copy.target).begin());
    }
  }
  void transfer() {
    const Transfers transfers = cache_.take_transfers();
    move_bytes(transfers);
    EXPECT_TRUE(cache_.finish_transfers(transfers.batch).empty());
  }

  /// Compute positions [computed, end) of a sequence and commit them.
  void compute(SequenceId id, std::span<const uint32_t> tokens, std::string_view salt,
               uint32_t end) {
    for (uint32_t p = cache_.computed_tokens(id); p < end; ++p) {
      write(cache_.blocks(id), p, value(tokens, salt, p));
    }
    cache_.commit(id, end);
  }

  void write(std::span<const BlockId> blocks, uint32_t position, uint64_t value) {
    const uint32_t block_tokens = cache_.options().block_tokens;
    block(blocks[position / block_tokens])[position % block_tokens] = value;
  }

  /// How many of the positions that count as computed hold something else.
  uint32_t wrong_positions(SequenceId id, std::span<const uint32_t> tokens, std::string_view salt) {
    const uint32_t block_tokens = cache_.options().block_tokens;
    uint32_t n_wrong = 0;
    for (uint32_t p = 0; p < cache_.computed_tokens(id); ++p) {
      const BlockId held = cache_.blocks(id)[p / block_tokens];
      if (block(held)[p % block_tokens] != value(tokens, salt, p)) ++n_wrong;
    }
    return n_wrong;
  }

  std::vector<uint64_t>& block(BlockId id) {
    std::vector<uint64_t>& values = blocks_[id];
    values.resize(cache_.options().block_tokens);
    return values;
  }

 private:
  KvCache& cache_;
  std::map<BlockId, std::vector<uint64_t>> blocks_;
};

#define EXPECT_WHOLE(cache)                                     \
  do {                                                          \
    const ::pumice::Status status_ = (cache).check_integrity(); \
    ASSERT_TRUE(status_.ok()) << status_.error().message;       \
  } while (false)

}  // namespace pumice
