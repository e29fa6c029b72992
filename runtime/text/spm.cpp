#include "text/spm.hpp"

#include "text/spaces.hpp"
#include "text/word_cache.hpp"

namespace pumice {
Result<std::unique_ptr<TokenizerModel>> SpmModel::create(const Vocabulary& vocabulary) {
  if (!vocabulary.has_scores()) {
    return make_error(ErrorCode::kBadFile,
                      "tokenizer.ggml.scores is missing; tokenizer model 'llama' needs it");
  }
  for (uint32_t byte = 0; byte < 256 && !vocabulary.unknown(); ++byte) {
    if (!vocabulary.byte_token(static_cast<uint8_t>(byte))) {
      return make_error(ErrorCode::kBadFile,
                        "tokenizer.ggml.tokens has neither <0x{:02X}> nor an unknown token", byte);
    }
  }
  return std::unique_ptr<TokenizerModel>(new SpmModel(vocabulary));
}

SpmModel::SpmModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    if (is_piece(id)) pairs_.add(vocabulary.text(id));
  }
}

bool SpmModel::is_piece(TokenId id) const {
  switch (vocabulary_.type(id)) {
    case TokenType::kNormal:
    case TokenType::kUserDefined:
    case TokenType::kUnused:
      return true;
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kByte:
      return false;
  }
  return false;
}

std::optional<TokenId> SpmModel::find_piece(std::string_view text) const {
  const auto id = vocabulary_.find(text);
  return id && is_piece(*id) ? id : std::nullopt;
}

void SpmModel::encode_bytes(std::string_view text, std::vector<TokenId>& tokens) const {
  for (char c : text) {
    const auto id = vocabulary_.byte_token(static_cast<uint8_t>(c));
    tokens.push_back(id ? *id : *vocabulary_.unknown());
  }
}

void SpmModel::encode(std::string_view text, bool after_special,
                      std::vector<TokenId>& tokens) const {
  const std::string marked = mark_spaces(text, after_special && vocabulary_.add_space_prefix());
  WordCache cache(marked.size());
  PairMerger<float> merger;
  for (std::string_view rest = marked; !rest.empty();) {
    const std::string_view piece = rest.substr(0, pairs_.piece_bytes(rest));
    cache.append(piece, tokens, [&] { merge(piece, merger, tokens); });
    rest.remove_prefix(piece.size());
  }
}

void SpmModel::merge(std::string_view text, PairMerger<float>& merger,
                     std::vector<TokenId>& tokens) const {
  merger.clear();
  for (size_t begin = 0; begin < text.size();) {
    // Malformed UTF-8 is cut into single bytes. (llama.cpp trusts lead bytes, so that a broken one
    // before a space swallows part of the U+2581 and the space does not come back.)
    const size_t length = character_bytes(text.substr(begin));
    const auto id = find_piece(text.substr(begin, length));
    merger.add(static_cast<uint32_t>(begin), static_cast<uint32_t>(length),
               id.value_or(MergeSymbol::kNoToken));
    begin += length;
  }
  using Merged = PairMerger<float>::Merged;
  merger.merge([&](const MergeSymbol& left, const MergeSymbol& right) -> std::optional<Merged> {
    const auto id = find_piece(text.substr(left.begin, left.length + right.length));
    if (!id) return std::nullopt;
    return Merged{vocabulary_.score(*id), *id};
  });
  merger.for_each([&](const MergeSymbol& symbol) {
    if (symbol.token != MergeSymbol::kNoToken) {
      tokens.push_back(symbol.token);
    } else {
      encode_bytes(text.substr(symbol.begin, symbol.length), tokens);
    }
  });
}

void SpmModel::append_bytes(TokenId id, std::string& bytes) const {
  if (vocabulary_.type(id) == TokenType::kByte) {
    bytes += static_cast<char>(vocabulary_.byte_of(id));
    return;
  }
  append_with_spaces(vocabulary_.text(id), bytes);
}

}  // namespace pumice
