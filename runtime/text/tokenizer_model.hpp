// What differs between kinds of tokenizer; `Tokenizer` does the rest.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.hpp"

namespace pumice {

/// Immutable; safe to use from any thread.
class TokenizerModel {
 public:
  virtual ~TokenizerModel() = default;

  /// Appends the tokens of `text`, which holds no special token. `after_special`: it begins the
  /// whole text or follows a special token.
  virtual void encode(std::string_view text, bool after_special,
                      std::vector<TokenId>& tokens) const = 0;

  /// Appends the bytes that a token of type normal or byte stands for.
  virtual void append_bytes(TokenId id, std::string& bytes) const = 0;
};

}  // namespace pumice
