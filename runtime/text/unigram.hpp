// SentencePiece's unigram tokenizer (tokenizer.ggml.model "t5"): a text is normalised, and of all
// ways to spell it in tokens the one whose scores have the largest sum is taken (Viterbi; Kudo,
// Subword Regularization, 2018). A character that is no token counts as ten less than the lowest
// score, and becomes byte tokens where the vocabulary has all of them, else the unknown token, once
// for neighbours.
//
// A text is cut where no token reaches across, mostly between words. Linear in the text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/character_pairs.hpp"
#include "text/charsmap.hpp"
#include "text/token_trie.hpp"
#include "text/tokenizer_model.hpp"

namespace pumice {

class UnigramModel final : public TokenizerModel {
 public:
  /// Longer tokens are a kBadFile error: they bound the work per byte of text.
  static constexpr size_t kMaxTokenBytes = 1024;

  /// Fails with kBadFile when there are no scores or no unknown token, and as Charsmap does.
  /// `vocabulary` must outlive the model; `data` need not.
  static Result<std::unique_ptr<TokenizerModel>> create(const VocabularyData& data,
                                                        const Vocabulary& vocabulary);

  void encode(std::string_view text, bool after_special,
              std::vector<TokenId>& tokens) const override;
  /// What normalisation took does not come back.
  void append_bytes(TokenId id, std::string& bytes) const override;

 private:
  struct Step {
    double score;    // the best sum up to here
    uint32_t begin;  // of the last token
    TokenId token;
  };

  UnigramModel(const Vocabulary& vocabulary, Charsmap charsmap, TokenTrie trie, bool merge_spaces);
  std::string normalize(std::string_view text) const;
  void spell(std::string_view text, std::vector<Step>& steps, std::vector<TokenId>& tokens) const;
  void find_tokens(std::string_view text, std::vector<Step>& steps) const;
  void append_unknown(std::string_view text, std::vector<TokenId>& tokens) const;

  const Vocabulary& vocabulary_;
  Charsmap charsmap_;
  TokenTrie trie_;
  CharacterPairs pairs_;
  double unknown_score_ = 0;
  bool merge_spaces_;
  bool has_bytes_ = true;
};

}  // namespace pumice
