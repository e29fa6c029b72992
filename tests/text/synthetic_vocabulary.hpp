// Small SentencePiece-style vocabularies for tests.
#pragma once

#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.hpp"

namespace pumice::test {

/// "<unk>" 0, "<s>" 1, "</s>" 2, the bytes at 3 to 258, then whatever is added.
struct SyntheticVocabulary {
  struct Token {
    std::string text;
    float score;
    TokenType type;
  };
  static constexpr TokenId kFirstByte = 3;
  static constexpr TokenId kFirstPiece = kFirstByte + 256;

  SyntheticVocabulary() {
    add("<unk>", 0, TokenType::kUnknown);
    add("<s>", 0, TokenType::kControl);
    add("</s>", 0, TokenType::kControl);
    for (int byte = 0; byte < 256; ++byte)
      add(fmt::format("<0x{:02X}>", byte), 0, TokenType::kByte);
  }

  TokenId add(std::string text, float score = 0, TokenType type = TokenType::kNormal) {
    tokens.push_back({std::move(text), score, type});
    return static_cast<TokenId>(tokens.size() - 1);
  }

  /// Views into `tokens`: keep this alive while the data is used.
  VocabularyData data() const {
    VocabularyData result;
    result.model = "llama";
    for (const Token& token : tokens) {
      result.tokens.push_back(token.text);
      result.scores.push_back(token.score);
      result.types.push_back(static_cast<int32_t>(token.type));
    }
    return result;
  }

  Tokenizer tokenizer() const { return Tokenizer::create(data()).value(); }

  std::vector<Token> tokens;
};

constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};
constexpr EncodeOptions kParsed = {.add_special = false, .parse_special = true};

inline std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                                   const EncodeOptions& options = kPlain) {
  return tokenizer.encode(text, options).value();
}

/// The spelling of each token, which reads better in a failure than ids.
inline std::vector<std::string> pieces(const Tokenizer& tokenizer, std::string_view text,
                                       const EncodeOptions& options = kPlain) {
  std::vector<std::string> result;
  for (TokenId id : encode(tokenizer, text, options)) {
    result.emplace_back(tokenizer.vocabulary().text(id));
  }
  return result;
}

/// Processor time, which a busy machine does not stretch.
inline double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }
/// Far above what linear work takes, sanitizers included; far below what quadratic work does.
constexpr double kSlowSeconds = 20;

using Pieces = std::vector<std::string>;

}  // namespace pumice::test
