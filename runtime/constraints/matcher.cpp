#include "constraints/matcher.hpp"

#include <algorithm>
#include <bit>
#include <mutex>
#include <string>

#include "base/check.hpp"
#include "base/printable.hpp"
#include "constraints/constraint_automaton.hpp"

namespace pumice {

Constraint::Constraint(std::shared_ptr<const VocabularyTrie> vocabulary,
                       std::unique_ptr<ConstraintAutomaton> automaton)
    : vocabulary_(std::move(vocabulary)), automaton_(std::move(automaton)) {}

Constraint::~Constraint() = default;

Result<std::shared_ptr<const Constraint>> Constraint::create(
    Grammar grammar, std::shared_ptr<const VocabularyTrie> vocabulary,
    const ConstraintLimits& limits) {
  for (const TokenTerminal& terminal : grammar.tokens) {
    if (terminal.ids.empty() || terminal.ids.back() < vocabulary->n_tokens()) continue;
    return make_error(ErrorCode::kInvalidArgument,
                      "the grammar names token {}, and the vocabulary has {} tokens",
                      terminal.ids.back(), vocabulary->n_tokens());
  }
  return within_fuel("the grammar", [&]() -> Result<std::shared_ptr<const Constraint>> {
    auto automaton = std::make_unique<ConstraintAutomaton>(std::move(grammar), *vocabulary, limits);
    if (automaton->start() == Parser::kDead) {
      return make_error(ErrorCode::kInvalidArgument, "no text satisfies the grammar");
    }
    return std::shared_ptr<const Constraint>(
        new Constraint(std::move(vocabulary), std::move(automaton)));
  });
}

Matcher::Matcher(std::shared_ptr<const Constraint> constraint)
    : constraint_(std::move(constraint)) {}

/// Does `work` with the automaton locked and states_ of its generation.
template <typename Work>
auto Matcher::with_automaton(Work&& work) -> decltype(work(std::declval<ConstraintAutomaton&>())) {
  ConstraintAutomaton& automaton = *constraint_->automaton_;
  const std::lock_guard lock(automaton.lock());
  return within_fuel("the grammar", [&] {
    try {
      automaton.prepare();
      if (generation_ != automaton.generation()) replay(automaton);
      return work(automaton);
    } catch (const OutOfFuel&) {
      automaton.begin_anew();
      throw;
    } catch (...) {  // no memory
      automaton.spoil();
      throw;
    }
  });
}

/// What was found out is lost; tokens that were accepted once are accepted again.
void Matcher::replay(ConstraintAutomaton& automaton) {
  std::vector<uint32_t> states{automaton.start()};
  for (const TokenId token : tokens_) {
    automaton.refill();
    states.push_back(automaton.next(states.back(), token));
  }
  automaton.refill();
  states_ = std::move(states);
  generation_ = automaton.generation();
}

Status Matcher::mask(std::span<uint32_t> mask) {
  PUMICE_CHECK(mask.size() >= constraint_->vocabulary().mask_words(),
               "the mask is shorter than the vocabulary");
  return with_automaton([&](ConstraintAutomaton& automaton) -> Status {
    const TokenMask& made = automaton.mask(states_.back());
    std::ranges::fill(std::ranges::copy(made, mask.begin()).out, mask.end(), 0);
    return {};
  });
}

Status Matcher::accept(TokenId token) {
  return with_automaton([&](ConstraintAutomaton& automaton) -> Status {
    const uint32_t next = automaton.next(states_.back(), token);
    if (next == Parser::kDead) {
      const bool is_token = token < constraint_->vocabulary().n_tokens();
      return make_error(
          ErrorCode::kInvalidArgument, "the grammar does not allow token {} (\"{}\") here", token,
          printable(is_token ? constraint_->vocabulary().text(token) : "no such token"));
    }
    if (tokens_.size() == tokens_.capacity()) tokens_.reserve(2 * tokens_.size() + 8);
    states_.push_back(next);
    tokens_.push_back(token);
    return {};
  });
}

namespace {

/// The first token of a text that goes on another, if it is not the only one.
std::optional<TokenId> first_token(const VocabularyTrie& vocabulary, std::string_view text) {
  // A tokenizer that puts a space before a text puts it before the line end.
  for (const std::string_view before : {"", "\n"}) {
    const auto tokens =
        vocabulary.tokenizer().encode(std::string(before).append(text), {.add_special = false});
    if (!tokens.ok()) return std::nullopt;
    std::string all;
    for (const TokenId token : *tokens) all += vocabulary.text(token);
    if (!all.ends_with(text) || (before.empty() && all != text)) continue;
    size_t at = 0;
    for (size_t i = 0; i + 1 < tokens->size(); at += vocabulary.text((*tokens)[i++]).size()) {
      const TokenId token = (*tokens)[i];
      if (at == all.size() - text.size() && !vocabulary.text(token).empty()) return token;
    }
    return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace

Result<std::optional<TokenId>> Matcher::forced() {
  using Forced = std::optional<TokenId>;
  return with_automaton([&](ConstraintAutomaton& automaton) -> Result<Forced> {
    const VocabularyTrie& vocabulary = constraint_->vocabulary();
    std::string text = automaton.forced_text(states_.back());
    if (text.size() > 1) {
      // The encoding's first token, if it is the same without the last byte: then it hangs on nothing behind either.
      const Forced token = first_token(vocabulary, text);
      text.pop_back();
      if (token && token == first_token(vocabulary, text)) return token;
    }
    Forced only;
    size_t n = 0;
    const TokenMask& mask = automaton.mask(states_.back());
    for (size_t i = 0; i < mask.size() && n < 2; ++i) {
      if (mask[i] == 0) continue;
      n += static_cast<size_t>(std::popcount(mask[i]));
      only = static_cast<TokenId>(32 * i + static_cast<size_t>(std::countr_zero(mask[i])));
    }
    return n == 1 ? only : std::nullopt;
  });
}

void Matcher::rollback(size_t n) {
  PUMICE_CHECK(n <= tokens_.size(), "more tokens taken back than there are");
  tokens_.resize(tokens_.size() - n);
  // Without states yet (no call so far), or of an old generation, replay() makes them.
  if (!states_.empty()) states_.resize(tokens_.size() + 1);
}

Result<bool> Matcher::can_end() {
  return with_automaton([&](ConstraintAutomaton& automaton) -> Result<bool> {
    return automaton.can_end(states_.back());
  });
}

Result<bool> Matcher::is_complete() {
  return with_automaton([&](ConstraintAutomaton& automaton) -> Result<bool> {
    return automaton.can_end(states_.back()) && !automaton.can_continue(states_.back());
  });
}

}  // namespace pumice
