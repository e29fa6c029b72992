#include "constraints/constraint_compiler.hpp"

#include <utility>

#include "constraints/fuel.hpp"
#include "constraints/json_schema.hpp"
#include "constraints/regex.hpp"

namespace pumice {
namespace {

Result<Symbol> regex_symbol(GrammarBuilder& grammar, std::string_view pattern) {
  PUMICE_TRY(const Expression expression, parse_regex(grammar.expressions(), pattern));
  return grammar.lexeme(expression);
}

Result<Grammar> regex_grammar(std::string_view pattern) {
  return within_fuel("the regular expression", [&]() -> Result<Grammar> {
    GrammarBuilder grammar;
    PUMICE_TRY(const Symbol start, regex_symbol(grammar, pattern));
    return std::move(grammar).build(start);
  });
}

}  // namespace

Result<Symbol> constraint_symbol(GrammarBuilder& grammar, ConstraintKind kind,
                                 std::string_view text, const FindToken& find_token) {
  switch (kind) {
    case ConstraintKind::kJsonSchema:
      return json_schema_symbol(grammar, text);
    case ConstraintKind::kGbnf:
      return gbnf_symbol(grammar, text, find_token);
    case ConstraintKind::kRegex:
      return regex_symbol(grammar, text);
  }
  return make_error(ErrorCode::kInvalidArgument, "no such kind of constraint");
}

Result<Grammar> compile_grammar(ConstraintKind kind, std::string_view text,
                                const FindToken& find_token) {
  switch (kind) {
    case ConstraintKind::kJsonSchema:
      return compile_json_schema(text);
    case ConstraintKind::kGbnf:
      return parse_gbnf(text, find_token);
    case ConstraintKind::kRegex:
      return regex_grammar(text);
  }
  return make_error(ErrorCode::kInvalidArgument, "no such kind of constraint");
}

Result<std::shared_ptr<const VocabularyTrie>> ConstraintCompiler::trie() {
  const std::lock_guard lock(mutex_);
  if (trie_ != nullptr) return trie_;
  struct Kept {
    std::shared_ptr<const Tokenizer> tokenizer;
    std::shared_ptr<const VocabularyTrie> trie;
  };
  PUMICE_TRY(std::shared_ptr<const VocabularyTrie> made, VocabularyTrie::create(*tokenizer_));
  const auto kept = std::make_shared<const Kept>(Kept{tokenizer_, std::move(made)});
  trie_ = std::shared_ptr<const VocabularyTrie>(kept, kept->trie.get());
  return trie_;
}

Result<std::shared_ptr<const Constraint>> ConstraintCompiler::compile(Grammar grammar) {
  PUMICE_TRY(std::shared_ptr<const VocabularyTrie> vocabulary, trie());
  const size_t n_words = vocabulary->mask_words();
  PUMICE_TRY(std::shared_ptr<const Constraint> constraint,
             Constraint::create(std::move(grammar), std::move(vocabulary)));
  // The constraint remembers the mask.
  TokenMask first(n_words);
  PUMICE_TRY_STATUS(Matcher(constraint).mask(first));
  return constraint;
}

Result<std::shared_ptr<const Constraint>> ConstraintCompiler::compile(ConstraintKind kind,
                                                                      std::string_view text) {
  const auto find_token = [this](std::string_view spelling) {
    return tokenizer_->vocabulary().find(spelling);
  };
  PUMICE_TRY(Grammar grammar, compile_grammar(kind, text, find_token));
  return compile(std::move(grammar));
}

}  // namespace pumice
