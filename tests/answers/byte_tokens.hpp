// A tokenizer for tests of answers.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.hpp"

namespace pumice {

/// A vocabulary of bytes, and of marks as control tokens.
class ByteTokens {
 public:
  explicit ByteTokens(const std::vector<std::string>& control) {
    std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
    std::vector<int32_t> types = {2, 3, 3};
    for (int byte = 0; byte < 256; ++byte) {
      tokens.push_back(fmt::format("<0x{:02X}>", byte));
      types.push_back(6);
    }
    for (const std::string& text : control) {
      tokens.push_back(text);
      types.push_back(3);
    }
    VocabularyData data;
    data.model = "llama";
    data.tokens.assign(tokens.begin(), tokens.end());
    data.scores.assign(tokens.size(), 0.0f);
    data.types = types;
    data.unknown_id = 0;
    data.bos_id = 1;
    data.eos_id = 2;
    tokenizer_ = std::make_shared<const Tokenizer>(Tokenizer::create(data).value());
  }
  /// As text, a control token by its spelling.
  std::string spelled(TokenId id) const {
    if (id < kFirstControl) return {static_cast<char>(id - 3)};
    return std::string(tokenizer_->vocabulary().text(id));
  }
  std::shared_ptr<const Tokenizer> tokenizer() const { return tokenizer_; }
  static constexpr TokenId kFirstControl = 3 + 256;
  static TokenId byte(char c) { return 3 + static_cast<unsigned char>(c); }

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace pumice
