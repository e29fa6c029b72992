// Caches to fuzz: every mix of state kinds, small pools.
#pragma once

#include <fmt/core.h>

#include <random>
#include <string>
#include <vector>

#include "cache/kv_cache.hpp"
#include "tests/model_fuzz/naive_cache.hpp"

namespace pumice::model_fuzz {

template <typename Random>
std::vector<PageKind> random_kinds(Random& random) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  constexpr StateForm kForms[] = {StateForm::kFull,   StateForm::kFull,   StateForm::kLatent,
                                  StateForm::kWindow, StateForm::kWindow, StateForm::kRecurrent};
  std::vector<PageKind> kinds;
  for (uint32_t n = 1 + pick(4); n > 0; --n) {
    const StateForm form = kForms[pick(6)];
    kinds.push_back({fmt::format("group {}", n), form,
                     form == StateForm::kWindow ? 1 + pick(pick(2) == 0 ? 6 : 20) : 0});
  }
  return kinds;
}

template <typename Random>
KvCacheOptions random_cache(Random& random) {
  const auto pick = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  constexpr uint32_t kBlockTokens[] = {1, 2, 4, 4, 4, 5, 8};
  constexpr uint32_t kHashBits[] = {128, 8, 8, 1};
  KvCacheOptions options;
  options.block_tokens = kBlockTokens[pick(7)];
  options.hash_bits = kHashBits[pick(4)];
  if (pick(3) > 0) options.kinds = random_kinds(random);
  if (pick(3) == 0) options.rewind_tokens = pick(7);
  const auto n_kinds = static_cast<uint32_t>(options.kinds.size());
  const uint32_t most = 80 / options.block_tokens * (1 + n_kinds / 2);
  options.n_pages = pick(5) == 0 ? kUnlimitedPages : 3 + pick(most);
  return options;
}

inline std::string described(const KvCacheOptions& options) {
  std::string text;
  for (const PageKind& kind : options.kinds) {
    text += fmt::format(" {} {}", state_form_name(kind.form), kind.window_tokens);
  }
  return fmt::format("blocks of {}: {}, hash bits {}, rewind {}, groups{}", options.block_tokens,
                     options.n_pages, options.hash_bits, options.rewind_tokens, text);
}

inline std::vector<NaiveKind> naive_kinds(const std::vector<PageKind>& kinds) {
  if (kinds.empty()) return {NaiveKind{}};
  std::vector<NaiveKind> naive;
  for (const PageKind& kind : kinds) {
    naive.push_back({kind.form == StateForm::kRecurrent, kind.window_tokens});
  }
  return naive;
}

inline NaiveCache naive_cache(const KvCacheOptions& options) {
  return {options.n_pages, options.n_pages == kUnlimitedPages, options.block_tokens,
          naive_kinds(options.kinds), options.rewind_tokens};
}

}  // namespace pumice::model_fuzz
