// Finds special and user-defined tokens in a text before the rest is tokenised.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

/// A piece of a text: either one token, or text in which none was found.
struct Fragment {
  std::string_view text;
  std::optional<TokenId> token;
};

/// Immutable; safe to use from any thread. Holds views into the vocabulary, which must outlive it.
class SpecialTokens {
 public:
  /// Longer ones are a kBadFile error: they bound the work per byte of text.
  static constexpr size_t kMaxSpecialBytes = 1024;

  static Result<SpecialTokens> create(const Vocabulary& vocabulary);

  /// The fragments of `text` in order; none is empty. Together they are the text, but for blanks
  /// that a token takes along (Vocabulary::takes_blanks_before). User-defined tokens are always
  /// found, control and unknown tokens only with `parse_special`. Where occurrences overlap the
  /// longer wins, then the lower id, then the one further left (llama.cpp looks for the tokens one
  /// after the other, longest first; this is the same in one pass). `text` has less than 2^32
  /// bytes.
  /// `literal`, sorted: where in the text no control or unknown token begins all the same.
  std::vector<Fragment> split(std::string_view text, bool parse_special,
                              std::span<const size_t> literal = {}) const;

  /// Whether `text` begins with the spelling of a control or unknown token.
  bool control_at(std::string_view text) const { return control_.longest_prefix(text) != nullptr; }
  /// Whether a spelling of such a token begins with this byte.
  bool control_begins_with(char c) const {
    const auto byte = static_cast<uint8_t>(c);
    return control_.first[byte] != control_.first[byte + 1];
  }

 private:
  struct Entry {
    std::string_view text;
    TokenId id;
    bool takes_before;
    bool takes_behind;
    bool user_defined;
    uint32_t rank = 0;  // among all by length, the longest first, then by id
  };
  using Entries = std::vector<Entry>;  // sorted by text
  struct Index {
    Entries entries;
    std::array<uint32_t, 257> first = {};  // entries[first[b] .. first[b + 1]) begin with byte b
    std::vector<uint32_t> by_rank;         // indices of entries
    void build();
    const Entry& at_rank(uint32_t rank) const { return entries[by_rank[rank]]; }
    const Entry* longest_prefix(std::string_view text, bool only_user_defined = false) const;
  };

  /// `accepted`: begin << 32 | rank of each token found, in order.
  static std::vector<Fragment> fragments_of(std::string_view text, const Index& index,
                                            std::span<const uint64_t> accepted);

  Index all_;           // user-defined, control and unknown tokens
  Index user_defined_;  // user-defined only
  Index control_;       // the others
};

}  // namespace pumice
