// What differs between kinds of tokenizer; `Tokenizer` does the rest. Each kind is in the file of its
// name (bpe.cpp), with what it does.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/spaces.hpp"
#include "text/vocabulary.hpp"

namespace pumice {

/// Whether tokens of SentencePiece's kinds may spell a text: not those that are control, unknown or
/// byte tokens.
inline bool is_piece(TokenType type) {
  return type == TokenType::kNormal || type == TokenType::kUserDefined ||
         type == TokenType::kUnused;
}

/// Immutable; safe to use from any thread.
class TokenizerModel {
 public:
  explicit TokenizerModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  virtual ~TokenizerModel() = default;

  /// Appends the tokens of `text`, which holds no special token. `after_special`: it begins the
  /// whole text or follows a special token.
  virtual void encode(std::string_view text, bool after_special,
                      std::vector<TokenId>& tokens) const = 0;

  /// Appends the bytes that a token of type normal or byte stands for; U+2581 stands for a space.
  virtual void append_bytes(TokenId id, std::string& bytes) const {
    if (vocabulary_.type(id) == TokenType::kByte) {
      bytes += static_cast<char>(vocabulary_.byte_of(id));
    } else {
      append_with_spaces(vocabulary_.text(id), bytes);
    }
  }

 protected:
  /// The byte tokens of `text`: a byte that has none becomes the unknown token, or nothing if there
  /// is none.
  void encode_bytes(std::string_view text, std::vector<TokenId>& tokens) const {
    for (char c : text) {
      auto id = vocabulary_.byte_token(static_cast<uint8_t>(c));
      if (!id) id = vocabulary_.unknown();
      if (id) tokens.push_back(*id);
    }
  }

  const Vocabulary& vocabulary_;
};

// Errors are kBadFile: a kind's `vocabulary`, which must outlive the model, or its `data`, which need
// not, lacks what the kind needs or has it malformed.
using MadeTokenizerModel = Result<std::unique_ptr<TokenizerModel>>;
MadeTokenizerModel make_bpe(const VocabularyData& data, const Vocabulary& vocabulary);
MadeTokenizerModel make_text_bpe(const VocabularyData& data, const Vocabulary& vocabulary);
MadeTokenizerModel make_spm(const VocabularyData& data, const Vocabulary& vocabulary);
MadeTokenizerModel make_unigram(const VocabularyData& data, const Vocabulary& vocabulary);
MadeTokenizerModel make_word_piece(const VocabularyData& data, const Vocabulary& vocabulary);

}  // namespace pumice
