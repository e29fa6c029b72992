// SentencePiece-style tokenizer (tokenizer.ggml.model "llama"), with llama.cpp's semantics: spaces
// become U+2581, a space goes before text that begins the input or follows a special token (unless
// add_space_prefix is off), then the adjacent pair whose union is the token of highest score is
// merged, the leftmost of equals, until no pair is a token; what is left and no token is spelled in
// byte tokens, or is the unknown token where a byte has none.
//
// Control, unknown and byte tokens are never the result of a merge (as in SentencePiece itself; in
// llama.cpp they can be, so that there a text may spell "</s>" against the caller's will).
//
// A text is cut where no token reaches across, mostly between words, before it is merged.
//
// O(n log n) for n bytes, in time and a few words per byte in memory.
#include <optional>

#include "text/character_pairs.hpp"
#include "text/pair_merger.hpp"
#include "text/tokenizer_model.hpp"
#include "text/word_cache.hpp"

namespace pumice {
namespace {

class SpmModel final : public TokenizerModel {
 public:
  explicit SpmModel(const Vocabulary& vocabulary) : TokenizerModel(vocabulary) {
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      if (is_piece(vocabulary.type(id))) pairs_.add(vocabulary.text(id));
    }
  }

  void encode(std::string_view text, bool after_special,
              std::vector<TokenId>& tokens) const override {
    const std::string marked = mark_spaces(text, after_special && vocabulary_.add_space_prefix());
    WordCache cache(marked.size());
    PairMerger<float> merger;
    for (std::string_view rest = marked; !rest.empty();) {
      const std::string_view piece = rest.substr(0, pairs_.piece_bytes(rest));
      cache.append(piece, tokens, [&] { merge(piece, merger, tokens); });
      rest.remove_prefix(piece.size());
    }
  }

 private:
  std::optional<TokenId> find_piece(std::string_view text) const {
    const auto id = vocabulary_.find(text);
    return id && is_piece(vocabulary_.type(*id)) ? id : std::nullopt;
  }

  void merge(std::string_view text, PairMerger<float>& merger, std::vector<TokenId>& tokens) const {
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

  CharacterPairs pairs_;
};

}  // namespace

MadeTokenizerModel make_spm(const VocabularyData& /*data*/, const Vocabulary& vocabulary) {
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

}  // namespace pumice
