#include "text/tokenizer.hpp"

#include "base/printable.hpp"

#include "text/pre_tokenizer.hpp"

namespace pumice {
namespace {

MadeTokenizerModel make_model(const VocabularyData& data, const Vocabulary& vocabulary) {
  if (data.model == "llama") return make_spm(data, vocabulary);
  if (data.model == "gpt2" && !PreTokenizer::of_characters(data.pre_tokenizer)) {
    return make_bpe(data, vocabulary);
  }
  if (data.model == "gpt2" || data.model == "gemma4") return make_text_bpe(data, vocabulary);
  if (data.model == "bert") return make_word_piece(data, vocabulary);
  if (data.model == "t5") return make_unigram(data, vocabulary);
  if (data.model.empty()) {
    return make_error(ErrorCode::kBadFile,
                      "tokenizer.ggml.model is missing; the file has no tokenizer");
  }
  return make_error(ErrorCode::kBadFile,
                    "tokenizer model '{}' is not supported yet (tokenizer.ggml.model; supported: "
                    "llama, gpt2, gemma4, bert, t5)",
                    printable(data.model));
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<const Vocabulary> vocabulary, SpecialTokens special,
                     std::unique_ptr<const TokenizerModel> model)
    : vocabulary_(std::move(vocabulary)), special_(std::move(special)), model_(std::move(model)) {}

Result<Tokenizer> Tokenizer::create(const VocabularyData& data) {
  PUMICE_TRY(std::unique_ptr<const Vocabulary> vocabulary, Vocabulary::create(data));
  PUMICE_TRY(std::unique_ptr<TokenizerModel> model, make_model(data, *vocabulary));
  PUMICE_TRY(SpecialTokens special, SpecialTokens::create(*vocabulary));
  return Tokenizer(std::move(vocabulary), std::move(special), std::move(model));
}

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text,
                                               const EncodeOptions& options) const {
  if (text.size() > kMaxTextBytes) {
    return make_error(ErrorCode::kDoesNotFit, "the text has {} bytes, at most {} can be tokenised",
                      text.size(), kMaxTextBytes);
  }
  std::vector<TokenId> tokens;
  if (options.add_special && vocabulary_->add_bos()) tokens.push_back(*vocabulary_->bos());
  bool after_special = true;
  for (const Fragment& fragment : special_.split(text, options.parse_special, options.literal)) {
    if (fragment.token) {
      tokens.push_back(*fragment.token);
    } else {
      model_->encode(fragment.text, after_special, tokens);
    }
    after_special = fragment.token.has_value();
  }
  if (options.add_special && vocabulary_->add_eos()) tokens.push_back(*vocabulary_->eos());
  if (options.add_special && vocabulary_->add_separator()) {
    tokens.push_back(*vocabulary_->separator());
  }
  return tokens;
}

void Tokenizer::append_bytes(TokenId id, bool show_control, std::string& bytes) const {
  if (!vocabulary_->contains(id)) return;
  switch (vocabulary_->type(id)) {
    case TokenType::kNormal:
    case TokenType::kByte:
      model_->append_bytes(id, bytes);
      return;
    case TokenType::kUserDefined:
      bytes += vocabulary_->text(id);
      return;
    case TokenType::kControl:
    case TokenType::kUnknown:
      if (show_control) bytes += vocabulary_->text(id);
      return;
    case TokenType::kUnused:
      return;
  }
}

}  // namespace pumice
