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
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/character_pairs.hpp"
#include "text/pair_merger.hpp"
#include "text/tokenizer_model.hpp"

namespace pumice {

class SpmModel final : public TokenizerModel {
 public:
  /// Fails with kBadFile when there are no scores, or when some byte could not be tokenised: no
  /// byte token for it and no unknown token. `vocabulary` must outlive the model.
  static Result<std::unique_ptr<TokenizerModel>> create(const Vocabulary& vocabulary);

  void encode(std::string_view text, bool after_special,
              std::vector<TokenId>& tokens) const override;
  void append_bytes(TokenId id, std::string& bytes) const override;

 private:
  explicit SpmModel(const Vocabulary& vocabulary);
  bool is_piece(TokenId id) const;
  std::optional<TokenId> find_piece(std::string_view text) const;
  void merge(std::string_view text, PairMerger<float>& merger, std::vector<TokenId>& tokens) const;
  void encode_bytes(std::string_view text, std::vector<TokenId>& tokens) const;

  const Vocabulary& vocabulary_;
  CharacterPairs pairs_;
};

}  // namespace pumice
