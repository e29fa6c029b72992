// Text to token ids. The way back is detokenizer.hpp.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "text/special_tokens.hpp"
#include "text/tokenizer_model.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

struct EncodeOptions {
  bool add_special = true;     ///< BOS and EOS or a separator where the vocabulary asks for it
  bool parse_special = false;  ///< "</s>" in the text is the control token, not four characters
  /// Where in the text, sorted, it is four characters all the same. Must outlive the call.
  std::span<const size_t> literal = {};
};

/// Move-only and immutable: encode and decode from any thread at once.
class Tokenizer {
 public:
  static constexpr size_t kMaxTextBytes = size_t{64} << 20;

  /// Fails with kBadFile, naming the field, on malformed data and on tokenizer models that Pumice
  /// does not know. `data` is copied.
  static Result<Tokenizer> create(const VocabularyData& data);

  /// Any bytes are accepted, valid UTF-8 or not. Fails with kDoesNotFit above kMaxTextBytes.
  /// Time O(n log n), memory at most a hundred bytes per byte of text.
  Result<std::vector<TokenId>> encode(std::string_view text,
                                      const EncodeOptions& options = {}) const;

  /// Appends the bytes of one token, which need not be whole characters. Control and unknown tokens
  /// have none unless `show_control`; unused ids and ids outside the vocabulary (models may have
  /// more rows than tokens) never have any.
  void append_bytes(TokenId id, bool show_control, std::string& bytes) const;

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  const SpecialTokens& special_tokens() const { return special_; }

 private:
  Tokenizer(std::unique_ptr<const Vocabulary> vocabulary, SpecialTokens special,
            std::unique_ptr<const TokenizerModel> model);

  std::unique_ptr<const Vocabulary> vocabulary_;  // the other two point into it
  SpecialTokens special_;
  std::unique_ptr<const TokenizerModel> model_;
};

}  // namespace pumice
