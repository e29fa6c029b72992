// Which two characters can stand next to each other within a token. Where two others meet, a text
// can be cut before its pieces are merged to tokens: no merge reaches across.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "text/utf8.hpp"

namespace pumice {

/// Bytes of the character that `text` begins with; a byte of malformed UTF-8 counts as one. `text`
/// is not empty.
inline size_t character_bytes(std::string_view text) {
  const Utf8Step step = utf8_step(text);
  return step.kind == Utf8Kind::kComplete ? step.length : 1;
}

/// A Bloom filter: some pairs that are in no token count as if they were, which costs time only.
class CharacterPairs {
 public:
  CharacterPairs() : bits_(kBits / 64) {}

  /// Every pair of neighbours in `token`.
  void add(std::string_view token) {
    size_t left = 0;
    while (left < token.size()) {
      const size_t right = left + character_bytes(token.substr(left));
      if (right >= token.size()) return;
      const uint64_t hash = hash_of(token.substr(left, right - left),
                                    token.substr(right, character_bytes(token.substr(right))));
      set(hash % kBits);
      set((hash >> 32) % kBits);
      left = right;
    }
  }

  /// The longest beginning of `text`, which is not empty, that ends where a token can.
  size_t piece_bytes(std::string_view text) const {
    size_t left = 0;
    size_t right = character_bytes(text);
    while (right < text.size()) {
      const size_t end = right + character_bytes(text.substr(right));
      const uint64_t hash =
          hash_of(text.substr(left, right - left), text.substr(right, end - right));
      if (!has(hash % kBits) || !has((hash >> 32) % kBits)) break;
      left = right;
      right = end;
    }
    return right;
  }

 private:
  static constexpr uint64_t kBits = uint64_t{1} << 20;

  static uint64_t hash_of(std::string_view left, std::string_view right) {
    uint64_t key = 0;  // at most four bytes each, and no character begins another
    for (char c : left) key = key << 8 | static_cast<uint8_t>(c);
    for (char c : right) key = key << 8 | static_cast<uint8_t>(c);
    key *= 0x9E3779B97F4A7C15u;
    key ^= key >> 29;
    key *= 0xBF58476D1CE4E5B9u;
    return key ^ key >> 32;
  }
  void set(uint64_t bit) { bits_[bit / 64] |= uint64_t{1} << bit % 64; }
  bool has(uint64_t bit) const { return bits_[bit / 64] >> bit % 64 & 1; }

  std::vector<uint64_t> bits_;
};

}  // namespace pumice
