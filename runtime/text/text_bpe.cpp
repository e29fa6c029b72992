// Byte-pair tokenizer over characters (tokenizer.ggml.model "gemma4", and some pre-tokenizers of
// "gpt2"): spaces become U+2581, a line is one word, and what is no token is spelled in byte
// tokens. A run of line ends that is a token stays whole.
//
// A line is cut where no merge reaches across before it is merged. O(n log n) for n bytes.
#include <utility>

#include "text/character_pairs.hpp"
#include "text/merge_table.hpp"
#include "text/tokenizer_model.hpp"
#include "text/word_cache.hpp"

namespace pumice {
namespace {

class TextBpeModel final : public TokenizerModel {
 public:
  TextBpeModel(const Vocabulary& vocabulary, MergeTable merges)
      : TokenizerModel(vocabulary), merges_(std::move(merges)) {
    merges_.for_each_result([this](TokenId merged) { pairs_.add(vocabulary_.text(merged)); });
  }

  void encode(std::string_view text, bool /*after_special*/,
              std::vector<TokenId>& tokens) const override {
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

 private:
  void merge(std::string_view text, PairMerger<int32_t>& merger,
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
    merger.merge([this](const MergeSymbol& left, const MergeSymbol& right) {
      return merges_.find(left.token, right.token);
    });
    merger.for_each([&](const MergeSymbol& symbol) {
      if (symbol.token != MergeSymbol::kNoToken) {
        tokens.push_back(symbol.token);
      } else {
        encode_bytes(text.substr(symbol.begin, symbol.length), tokens);
      }
    });
  }

  MergeTable merges_;
  CharacterPairs pairs_;
};

}  // namespace

MadeTokenizerModel make_text_bpe(const VocabularyData& data, const Vocabulary& vocabulary) {
  PUMICE_TRY(MergeTable merges, MergeTable::create(vocabulary, data.merges));
  return std::unique_ptr<TokenizerModel>(new TextBpeModel(vocabulary, std::move(merges)));
}

}  // namespace pumice
