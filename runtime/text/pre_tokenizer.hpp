// Cuts text into words before byte-pair merging, with the regular expressions that a model was
// trained with (tokenizer.ggml.pre names them).
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace pumice {

/// Move-only and immutable; split from any thread at once.
class PreTokenizer {
 public:
  /// kBadFile, naming it, for a name that Pumice does not know. Without a name it is "default",
  /// which older files of any model mean.
  static Result<PreTokenizer> create(std::string_view name);

  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  /// Whether a word that is a token stays whole, whatever the merges say (Llama 3, Tekken).
  bool whole_words() const;
  /// Whether BOS is added unless the vocabulary says otherwise.
  static bool adds_bos(std::string_view name);
  /// Whether its words are merged from characters, with U+2581 for spaces, and not from bytes.
  static bool of_characters(std::string_view name);

  /// The words of `text` in order, none empty; together they are the text. Malformed UTF-8 is in
  /// words of its own. Linear in the text for the expressions used here.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct State;
  explicit PreTokenizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pumice
