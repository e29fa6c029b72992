// A query and a text as the one sequence that rerankers were trained on.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

/// Immutable; any thread.
class RankingPrompt {
 public:
  /// Of a file that says how to ask its model.
  static constexpr std::string_view kTemplateKey = "tokenizer.chat_template.rerank";

  /// `form`: a text in which {query} and {document} stand for the two, as llama.cpp's files have it.
  /// Empty: they are two segments, as BERT's and RoBERTa's pairs are, [CLS] query [SEP] text [SEP]
  /// or <s> query </s></s> text </s>, by what the vocabulary says of single texts.
  explicit RankingPrompt(std::string form = "") : form_(std::move(form)) {}

  /// Neither of the two can hold control tokens. Errors: Tokenizer::encode's.
  Result<std::vector<TokenId>> encode(const Tokenizer& tokenizer, std::string_view query,
                                      std::string_view text) const;

 private:
  std::string form_;
};

}  // namespace pumice
