// The texts of all tokens of a vocabulary as tries that a mask is computed over.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace pumice {

/// Bit id % 32 of word id / 32 allows a token (as sampling has it).
using TokenMask = std::vector<uint32_t>;

inline void set_bit(std::span<uint32_t> mask, TokenId id) { mask[id / 32] |= 1u << id % 32; }
inline bool has_bit(std::span<const uint32_t> mask, TokenId id) {
  return (mask[id / 32] >> id % 32 & 1) != 0;
}

/// Immutable; many constraints and threads share one. `tokenizer` must outlive it.
///
/// A trie is flat, in depth-first order, so that a walk is one loop; a subtree whose byte is refused is skipped in one
/// step. Tokens of plain characters (which strings of JSON and `.` may have as they are: no control characters, no
/// quote, no backslash, no separators of lines) are in slices by their number; who knows that any n such characters may follow takes the
/// slices of up to n whole (llguidance's docs/optimizations.md has the idea).
class VocabularyTrie {
 public:
  struct Node {
    uint64_t token : 24;  ///< that ends here, or kNoToken
    uint64_t skip : 24;   ///< nodes of its subtree, with itself
    uint64_t depth : 8;   ///< bytes to here, from 1
    uint64_t byte : 8;
  };
  static_assert(sizeof(Node) == 8);
  static constexpr uint32_t kNoToken = 0xFFFFFF;
  static constexpr size_t kMaxDepth = 255;

  struct Slice {
    uint32_t max_characters;  ///< of its tokens
    std::vector<Node> nodes;
    TokenMask mask;  ///< its tokens and those of all slices before it
  };
  /// Tokens of one text, of which only the first of all is in a trie; in the order in which to follow them.
  struct Twin {
    TokenId first;
    TokenId second;
  };

  /// Errors: kDoesNotFit for more than 2^24 - 1 tokens or nodes.
  static Result<std::shared_ptr<const VocabularyTrie>> create(const Tokenizer& tokenizer);

  const Tokenizer& tokenizer() const { return tokenizer_; }
  uint32_t n_tokens() const { return static_cast<uint32_t>(starts_.size() - 1); }
  size_t mask_words() const { return (n_tokens() + 31) / 32; }
  /// As the detokenizer yields it; empty for control tokens, which are never text.
  std::string_view text(TokenId id) const {
    return std::string_view(pool_).substr(starts_[id], starts_[id + 1] - starts_[id]);
  }

  std::span<const Node> rest() const { return rest_; }       ///< tokens in no slice
  std::span<const Slice> slices() const { return slices_; }  ///< fewest characters first
  std::span<const Twin> twins() const { return twins_; }
  std::span<const TokenId> long_tokens() const {
    return long_tokens_;
  }  ///< of more than kMaxDepth bytes: in no trie
  std::span<const TokenId> end_tokens() const {
    return end_tokens_;
  }                                                          ///< Vocabulary::ends_generation
  const TokenMask& with_text() const { return with_text_; }  ///< the tokens that have text

 private:
  explicit VocabularyTrie(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  const Tokenizer& tokenizer_;
  std::string pool_;
  std::vector<uint32_t> starts_;
  std::vector<Node> rest_;
  std::vector<Slice> slices_;
  std::vector<Twin> twins_;
  std::vector<TokenId> long_tokens_;
  std::vector<TokenId> end_tokens_;
  TokenMask with_text_;
};

}  // namespace pumice
