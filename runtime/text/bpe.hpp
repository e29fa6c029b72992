// Byte-level byte-pair tokenizer (tokenizer.ggml.model "gpt2"): a pre-tokenizer cuts words, bytes
// are written as the 256 printable characters that GPT-2 chose for them, and in each word the
// adjacent pair that comes first in the list of merges is merged, the leftmost of equals, until
// none remains.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/merge_table.hpp"
#include "text/pre_tokenizer.hpp"
#include "text/tokenizer_model.hpp"

namespace pumice {

class BpeModel final : public TokenizerModel {
 public:
  /// Fails with kBadFile when the pre-tokenizer is unknown, and as MergeTable does. `vocabulary`
  /// must outlive the model; `data` need not.
  static Result<std::unique_ptr<TokenizerModel>> create(const VocabularyData& data,
                                                        const Vocabulary& vocabulary);

  /// A byte that no token stands for becomes the unknown token, or nothing if there is none.
  void encode(std::string_view text, bool after_special,
              std::vector<TokenId>& tokens) const override;
  void append_bytes(TokenId id, std::string& bytes) const override;

 private:
  BpeModel(const Vocabulary& vocabulary, PreTokenizer pre_tokenizer, MergeTable merges);

  const Vocabulary& vocabulary_;
  PreTokenizer pre_tokenizer_;
  std::array<std::string, 256> byte_text_;            // the character that stands for a byte
  std::unordered_map<std::string_view, char> bytes_;  // and back
  std::array<std::optional<TokenId>, 256> byte_token_;
  MergeTable merges_;
};

}  // namespace pumice
