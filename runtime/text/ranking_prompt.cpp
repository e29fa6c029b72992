#include "text/ranking_prompt.hpp"

#include <array>
#include <numeric>
#include <optional>

namespace pumice {
namespace {

Result<std::vector<TokenId>> filled_in(const Tokenizer& tokenizer, std::string_view form,
                                       std::string_view query, std::string_view text) {
  struct Blank {
    std::string_view name, value;
  };
  const std::array<Blank, 2> blanks{{{"{query}", query}, {"{document}", text}}};
  std::string prompt;
  std::vector<size_t> literal;  // bytes of the two, at which no control token begins
  while (!form.empty()) {
    const Blank* first = nullptr;
    size_t at = form.size();
    for (const Blank& blank : blanks) {
      const size_t found = form.find(blank.name);
      if (found >= at) continue;
      at = found;
      first = &blank;
    }
    prompt += form.substr(0, at);
    form.remove_prefix(at);
    if (first == nullptr) break;
    const size_t begin = literal.size();
    literal.resize(begin + first->value.size());
    std::iota(literal.begin() + static_cast<std::ptrdiff_t>(begin), literal.end(), prompt.size());
    prompt += first->value;
    form.remove_prefix(first->name.size());
  }
  return tokenizer.encode(prompt, {.parse_special = true, .literal = literal});
}

/// What stands behind a segment.
std::optional<TokenId> closing_token(const Vocabulary& vocabulary) {
  if (vocabulary.add_eos()) return vocabulary.eos();
  return vocabulary.add_separator() ? vocabulary.separator() : std::nullopt;
}

}  // namespace

Result<std::vector<TokenId>> RankingPrompt::encode(const Tokenizer& tokenizer,
                                                   std::string_view query,
                                                   std::string_view text) const {
  if (!form_.empty()) return filled_in(tokenizer, form_, query, text);
  const Vocabulary& vocabulary = tokenizer.vocabulary();
  PUMICE_TRY(std::vector<TokenId> tokens, tokenizer.encode(query, {.add_special = false}));
  PUMICE_TRY(const std::vector<TokenId> second, tokenizer.encode(text, {.add_special = false}));
  if (vocabulary.add_bos()) tokens.insert(tokens.begin(), *vocabulary.bos());
  const std::optional<TokenId> closing = closing_token(vocabulary);
  if (closing) tokens.push_back(*closing);
  if (vocabulary.opens_second_text()) tokens.push_back(*vocabulary.separator());
  tokens.insert(tokens.end(), second.begin(), second.end());
  if (closing) tokens.push_back(*closing);
  return tokens;
}

}  // namespace pumice
