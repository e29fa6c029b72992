// The merges of a byte-pair tokenizer: which two tokens become which third, and in what order.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "text/pair_merger.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

/// Immutable; safe to use from any thread.
class MergeTable {
 public:
  using Merged = PairMerger<int32_t>::Merged;  ///< its priority is the merge's rank, negated

  /// `merges`: "left right", best first (tokenizer.ggml.merges). Fails with kBadFile when they are
  /// missing or malformed. Merges of or into something that is not a token, or into a control
  /// token, are ignored.
  static Result<MergeTable> create(const Vocabulary& vocabulary,
                                   const std::vector<std::string_view>& merges);

  /// None if the two are not merged.
  std::optional<Merged> find(TokenId left, TokenId right) const {
    const auto found = merges_.find(uint64_t{left} << 32 | right);
    if (found == merges_.end()) return std::nullopt;
    return found->second;
  }

  /// Calls `visit(merged)` with each token that is the result of a merge.
  template <typename Visit>
  void for_each_result(Visit&& visit) const {
    for (const auto& [pair, merge] : merges_) visit(merge.token);
  }

 private:
  std::unordered_map<uint64_t, Merged> merges_;  // by left << 32 | right
};

}  // namespace pumice
