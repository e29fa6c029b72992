// From the words of a constraint to one that requests can have.
#pragma once

#include <memory>
#include <mutex>
#include <string_view>

#include "base/result.hpp"
#include "constraints/gbnf.hpp"
#include "constraints/matcher.hpp"
#include "text/tokenizer.hpp"

namespace pumice {

enum class ConstraintKind {
  kJsonSchema,  ///< compile_json_schema
  kGbnf,        ///< parse_gbnf
  kRegex,       ///< parse_regex, of the whole text
};

/// Errors: those of the kind's compiler. GBNF only: `find_token`.
Result<Grammar> compile_grammar(ConstraintKind kind, std::string_view text,
                                const FindToken& find_token = {});

/// What the kind's texts are within a larger grammar. Throws OutOfFuel as the builder does (within_fuel).
Result<Symbol> constraint_symbol(GrammarBuilder& grammar, ConstraintKind kind,
                                 std::string_view text, const FindToken& find_token = {});

/// Makes constraints over the vocabulary of one tokenizer, whose trie is made with the first. Any thread.
class ConstraintCompiler {
 public:
  explicit ConstraintCompiler(std::shared_ptr<const Tokenizer> tokenizer)
      : tokenizer_(std::move(tokenizer)) {}

  /// Ready for a first token at once. It keeps the tokenizer. Errors: those of compile_grammar, of VocabularyTrie::create,
  /// of Constraint::create and of Matcher::mask.
  Result<std::shared_ptr<const Constraint>> compile(ConstraintKind kind, std::string_view text);
  Result<std::shared_ptr<const Constraint>> compile(Grammar grammar);

 private:
  Result<std::shared_ptr<const VocabularyTrie>> trie();

  const std::shared_ptr<const Tokenizer> tokenizer_;
  std::mutex mutex_;
  std::shared_ptr<const VocabularyTrie> trie_;
};

}  // namespace pumice
