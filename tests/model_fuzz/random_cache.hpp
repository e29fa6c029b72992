// Caches to fuzz: every mix of state groups, small pools.
#pragma once

#include <fmt/core.h>

#include <random>
#include <string>
#include <vector>

#include "cache/kv_cache.hpp"
#include "tests/model_fuzz/naive_cache.hpp"

namespace pumice::model_fuzz {

template <typename Random>
std::vector<CacheGroup> random_groups(Random& random) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  constexpr GroupKind kKinds[] = {GroupKind::kFull,   GroupKind::kFull,   GroupKind::kLatent,
                                  GroupKind::kWindow, GroupKind::kWindow, GroupKind::kRecurrent};
  std::vector<CacheGroup> groups;
  for (uint32_t n = 1 + pick(4); n > 0; --n) {
    const GroupKind kind = kKinds[pick(6)];
    groups.push_back({fmt::format("group {}", n), kind,
                      kind == GroupKind::kWindow ? 1 + pick(pick(2) == 0 ? 6 : 20) : 0});
  }
  return groups;
}

template <typename Random>
KvCacheOptions random_cache(Random& random) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  constexpr uint32_t kBlockTokens[] = {1, 2, 4, 4, 4, 5, 8};
  constexpr uint32_t kHashBits[] = {128, 8, 8, 1};
  KvCacheOptions options;
  options.block_tokens = kBlockTokens[pick(7)];
  options.hash_bits = kHashBits[pick(4)];
  if (pick(3) > 0) options.groups = random_groups(random);
  if (pick(3) == 0) options.rewind_tokens = pick(7);
  const auto n_groups = static_cast<uint32_t>(options.groups.size());
  const uint32_t most = 80 / options.block_tokens * (1 + n_groups / 2);
  options.n_blocks = pick(5) == 0 ? kUnlimitedBlocks : 3 + pick(most);
  return options;
}

inline std::string described(const KvCacheOptions& options) {
  std::string text;
  for (const CacheGroup& group : options.groups) {
    text += fmt::format(" {} {}", group_kind_name(group.kind), group.window_tokens);
  }
  return fmt::format("blocks of {}: {}, hash bits {}, rewind {}, groups{}", options.block_tokens,
                     options.n_blocks, options.hash_bits, options.rewind_tokens, text);
}

inline std::vector<NaiveGroup> naive_groups(const std::vector<CacheGroup>& groups) {
  if (groups.empty()) return {NaiveGroup{}};
  std::vector<NaiveGroup> naive;
  for (const CacheGroup& group : groups) {
    naive.push_back({group.kind == GroupKind::kRecurrent, group.window_tokens});
  }
  return naive;
}

inline NaiveCache naive_cache(const KvCacheOptions& options) {
  return {options.n_blocks, options.n_blocks == kUnlimitedBlocks, options.block_tokens,
          naive_groups(options.groups), options.rewind_tokens};
}

}  // namespace pumice::model_fuzz
