// The regular expressions by which models cut text into words (tokenizer.ggml.pre names them), as
// their tokenizer.json have them, in PCRE2's syntax. Where a model's own expression and the one
// that llama.cpp makes do with differ, it is the model's.
#pragma once

#include <span>
#include <string_view>

namespace pumice {

/// Cuts out the matches of an expression; what lies between two of them is a word too. Without
/// backtracking that grows with the text: splitting must stay linear.
struct PreTokenizerStep {
  const char* expression;
  /// A match is cut again, into groups of three characters counted from its end.
  bool in_thirds = false;
};

/// Steps cut one after the other, each what the one before has left in one piece.
struct PreTokenizerRecipe {
  std::string_view name;
  std::span<const PreTokenizerStep> steps;
  bool whole_words = false;  ///< a word that is a token stays whole, whatever the merges say
  bool adds_bos = false;     ///< unless the vocabulary says otherwise
  /// Words are merged from characters, with U+2581 for spaces, and not from bytes (text_bpe.cpp).
  bool of_characters = false;
};

/// Every recipe that Pumice knows; names are unique.
std::span<const PreTokenizerRecipe> pre_tokenizer_recipes();

}  // namespace pumice
