// The engine of SentencePiece-style and byte-pair tokenizers: merge the best adjacent pair of
// symbols, the leftmost of equals, until no pair can be merged.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace pumice {

/// A run of the text: a character at first, then what it was merged into.
struct MergeSymbol {
  uint32_t begin;     ///< byte offset in the text
  uint32_t length;    ///< bytes; 0 once it has become part of its left neighbour
  uint32_t token;     ///< its token id, or kNoToken
  uint32_t previous;  ///< neighbours by index, or kNone; set by PairMerger
  uint32_t next;

  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kNoToken = kNone;
};

/// Keeps its memory from one text to the next. O(n log n) for n symbols.
template <typename Priority>
class PairMerger {
 public:
  struct Merged {
    Priority priority;  ///< the largest is merged first
    uint32_t token;
  };

  void clear() { symbols_.clear(); }
  /// Symbols are added in the order of the text, without gaps.
  void add(uint32_t begin, uint32_t length, uint32_t token) {
    symbols_.push_back({begin, length, token, 0, 0});
  }

  /// `find(left, right)` gives what two adjacent symbols merge into, as std::optional<Merged>.
  template <typename Find>
  void merge(Find&& find) {
    const auto count = static_cast<uint32_t>(symbols_.size());
    for (uint32_t i = 0; i < count; ++i) {
      symbols_[i].previous = i == 0 ? MergeSymbol::kNone : i - 1;
      symbols_[i].next = i + 1 == count ? MergeSymbol::kNone : i + 1;
    }
    queue_.clear();
    for (uint32_t i = 1; i < count; ++i) add_candidate(i - 1, i, find);
    std::make_heap(queue_.begin(), queue_.end());
    while (!queue_.empty()) {
      std::pop_heap(queue_.begin(), queue_.end());
      const Candidate best = queue_.back();
      queue_.pop_back();
      MergeSymbol& left = symbols_[best.left];
      MergeSymbol& right = symbols_[best.right];
      // Symbols only grow to the right or vanish, so equal lengths mean that neither has changed.
      if (left.length == 0 || right.length == 0 || left.length + right.length != best.length) {
        continue;
      }
      left.length = best.length;
      left.token = best.token;
      left.next = right.next;
      right.length = 0;
      if (right.next != MergeSymbol::kNone) symbols_[right.next].previous = best.left;
      consider(left.previous, best.left, find);
      consider(best.left, left.next, find);
    }
  }

  /// Calls `visit(symbol)` for what is left, in order.
  template <typename Visit>
  void for_each(Visit&& visit) const {
    for (const MergeSymbol& symbol : symbols_) {
      if (symbol.length > 0) visit(symbol);
    }
  }

 private:
  struct Candidate {
    Priority priority;
    uint32_t left;
    uint32_t right;
    uint32_t length;  // of both
    uint32_t token;

    bool operator<(const Candidate& other) const {
      return priority != other.priority ? priority < other.priority : left > other.left;
    }
  };

  template <typename Find>
  bool add_candidate(uint32_t left, uint32_t right, Find&& find) {
    if (left == MergeSymbol::kNone || right == MergeSymbol::kNone) return false;
    const std::optional<Merged> merged = find(symbols_[left], symbols_[right]);
    if (!merged) return false;
    queue_.push_back({merged->priority, left, right, symbols_[left].length + symbols_[right].length,
                      merged->token});
    return true;
  }

  template <typename Find>
  void consider(uint32_t left, uint32_t right, Find&& find) {
    if (add_candidate(left, right, find)) std::push_heap(queue_.begin(), queue_.end());
  }

  std::vector<MergeSymbol> symbols_;
  std::vector<Candidate> queue_;
};

}  // namespace pumice
