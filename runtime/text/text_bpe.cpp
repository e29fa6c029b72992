#include "text/text_bpe.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "text/spaces.hpp"
#include "text/word_cache.hpp"

namespace pumice {

TextBpeModel::TextBpeModel(const Vocabulary& vocabulary, MergeTable merges)
    : vocabulary_(vocabulary), merges_(std::move(merges)) {
  merges_.for_each_result([this](TokenId merged) { pairs_.add(vocabulary_.text(merged)); });
}

Result<std::unique_ptr<TokenizerModel>> TextBpeModel::create(const VocabularyData& data,
                                                             const Vocabulary& vocabulary) {
  PUMICE_TRY(MergeTable merges, MergeTable::create(vocabulary, data.merges));
  return std::unique_ptr<TokenizerModel>(new TextBpeModel(vocabulary, std::move(merges)));
}

void TextBpeModel::encode(std::string_view text, bool /*after_special*/,
                          std::vector<TokenId>& tokens) const {
  const std::string marked = mark_spaces(text, false);
  WordCache cache(marked.size());
  PairMerger<int32_t> merger;
  for (std::string_view rest = marked; !rest.empty();) {
    const bool is_line_end = rest[0] == '\n';
    std::string_view word =
        rest.substr(0, is_line_end ? rest.find_first_not_of('\n') : rest.find('\n'));
    rest.remove_prefix(word.size());
    const auto whole = is_line_end ? vocabulary_.find(word) : std::nullopt;
    if (whole && vocabulary_.type(*whole) != TokenType::kControl) {
      tokens.push_back(*whole);
      continue;
    }
    while (!word.empty()) {
      const std::string_view piece = word.substr(0, pairs_.piece_bytes(word));
      cache.append(piece, tokens, [&] { merge(piece, merger, tokens); });
      word.remove_prefix(piece.size());
    }
  }
}

void TextBpeModel::merge(std::string_view text, PairMerger<int32_t>& merger,
                         std::vector<TokenId>& tokens) const {
  merger.clear();
  for (size_t begin = 0; begin < text.size();) {
    const size_t length = character_bytes(text.substr(begin));
    const auto id = vocabulary_.find(text.substr(begin, length));
    const bool is_token = id && vocabulary_.type(*id) != TokenType::kControl;
    merger.add(static_cast<uint32_t>(begin), static_cast<uint32_t>(length),
               is_token ? *id : MergeSymbol::kNoToken);
    begin += length;
  }
  using Merged = PairMerger<int32_t>::Merged;
  merger.merge([&](const MergeSymbol& left, const MergeSymbol& right) -> std::optional<Merged> {
    const MergeTable::Merge* merge = merges_.find(left.token, right.token);
    if (merge == nullptr) return std::nullopt;
    return Merged{-merge->rank, merge->merged};
  });
  merger.for_each([&](const MergeSymbol& symbol) {
    if (symbol.token != MergeSymbol::kNoToken) {
      tokens.push_back(symbol.token);
    } else {
      encode_bytes(text.substr(symbol.begin, symbol.length), tokens);
    }
  });
}

void TextBpeModel::encode_bytes(std::string_view text, std::vector<TokenId>& tokens) const {
  for (char c : text) {
    auto id = vocabulary_.byte_token(static_cast<uint8_t>(c));
    if (!id) id = vocabulary_.unknown();
    if (id) tokens.push_back(*id);
  }
}

void TextBpeModel::append_bytes(TokenId id, std::string& bytes) const {
  if (vocabulary_.type(id) == TokenType::kByte) {
    bytes += static_cast<char>(vocabulary_.byte_of(id));
  } else {
    append_with_spaces(vocabulary_.text(id), bytes);
  }
}

}  // namespace pumice
