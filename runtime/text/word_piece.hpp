// WordPiece (tokenizer.ggml.model "bert"): a text is cleaned and cut into words as BERT does it,
// and each word into the longest tokens that fit, from its beginning on. Tokens that begin a word
// begin with U+2581 in GGUF files; a word that does not come out, or of more than 100 characters,
// is the unknown token.
//
// Cleaning drops controls and malformed UTF-8, accents (but for cased models) and case. Blanks
// separate words; punctuation and Chinese characters are words each.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/token_trie.hpp"
#include "text/tokenizer_model.hpp"

namespace pumice {

class WordPieceModel final : public TokenizerModel {
 public:
  /// Fails with kBadFile when there is no unknown token. `vocabulary` must outlive the model;
  /// `data` need not.
  static Result<std::unique_ptr<TokenizerModel>> create(const VocabularyData& data,
                                                        const Vocabulary& vocabulary);

  /// Linear in the text.
  void encode(std::string_view text, bool after_special,
              std::vector<TokenId>& tokens) const override;
  /// Words begin with a space; what cleaning took does not come back.
  void append_bytes(TokenId id, std::string& bytes) const override;

 private:
  WordPieceModel(const Vocabulary& vocabulary, TokenTrie trie, bool lower_case, bool strip_accents);
  void normalize(char32_t c, std::u32string& characters) const;
  void encode_word(const std::u32string& word, std::string& marked,
                   std::vector<TokenId>& tokens) const;

  const Vocabulary& vocabulary_;
  TokenTrie trie_;
  bool lower_case_;
  bool strip_accents_;
};

}  // namespace pumice
