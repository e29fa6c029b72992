// Texts repeat their words: the tokens of a word are copied from where it stood before.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "text/vocabulary.hpp"

namespace pumice {

/// For one text and the tokens that it becomes; of bounded size, a later word takes the place of an
/// earlier one. The text must outlive it, and tokens only be appended.
class WordCache {
 public:
  /// A text of a few words gets no cache and costs nothing.
  explicit WordCache(size_t text_bytes) {
    if (text_bytes >= kMinTextBytes) {
      slots_.resize(std::bit_floor(std::min(text_bytes / 8, kMaxSlots)));
    }
  }

  /// Appends the tokens of `word`, with `encode()`, which appends them, if they are not known.
  template <typename Encode>
  void append(std::string_view word, std::vector<TokenId>& tokens, Encode&& encode) {
    if (slots_.empty() || word.size() > kMaxWordBytes) return encode();
    Slot& slot = slots_[std::hash<std::string_view>{}(word) & (slots_.size() - 1)];
    if (slot.word == word) {
      for (uint32_t i = 0; i < slot.n_tokens; ++i) tokens.push_back(tokens[slot.first + i]);
      return;
    }
    const size_t first = tokens.size();
    encode();
    slot = {word, first, static_cast<uint32_t>(tokens.size() - first)};
  }

 private:
  static constexpr size_t kMinTextBytes = 512;
  static constexpr size_t kMaxSlots = size_t{1} << 14;
  static constexpr size_t kMaxWordBytes = 64;

  struct Slot {
    std::string_view word;
    size_t first = 0;  // of its tokens
    uint32_t n_tokens = 0;
  };
  std::vector<Slot> slots_;
};

}  // namespace pumice
