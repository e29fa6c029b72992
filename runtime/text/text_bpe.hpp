// Byte-pair tokenizer over characters (tokenizer.ggml.model "gemma4", and some pre-tokenizers of
// "gpt2"): spaces become U+2581, a line is one word, and what is no token is spelled in byte
// tokens. A run of line ends that is a token stays whole.
//
// A line is cut where no merge reaches across before it is merged. O(n log n) for n bytes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/character_pairs.hpp"
#include "text/merge_table.hpp"
#include "text/pair_merger.hpp"
#include "text/tokenizer_model.hpp"

namespace pumice {

class TextBpeModel final : public TokenizerModel {
 public:
  /// Errors are those of MergeTable. `vocabulary` must outlive the model; `data` need not.
  static Result<std::unique_ptr<TokenizerModel>> create(const VocabularyData& data,
                                                        const Vocabulary& vocabulary);

  /// A byte that no token stands for becomes the unknown token, or nothing if there is none.
  void encode(std::string_view text, bool after_special,
              std::vector<TokenId>& tokens) const override;
  void append_bytes(TokenId id, std::string& bytes) const override;

 private:
  TextBpeModel(const Vocabulary& vocabulary, MergeTable merges);
  void merge(std::string_view text, PairMerger<int32_t>& merger,
             std::vector<TokenId>& tokens) const;
  void encode_bytes(std::string_view text, std::vector<TokenId>& tokens) const;

  const Vocabulary& vocabulary_;
  MergeTable merges_;
  CharacterPairs pairs_;
};

}  // namespace pumice
