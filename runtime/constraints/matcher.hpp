// A constraint and how one sequence stands in it: which tokens may follow.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "constraints/grammar.hpp"
#include "constraints/vocabulary_trie.hpp"

namespace pumice {

class ConstraintAutomaton;

/// What one mask or one accepted token may cost, and what the automaton of a constraint may keep; beyond the latter it
/// begins anew, which only costs time.
struct ConstraintLimits {
  uint64_t fuel = 20'000'000;
  size_t memory_bytes = size_t{256} << 20;
};

/// A grammar over a vocabulary; one handle for as many sequences as like. All of it may be used from any thread at once:
/// what it finds out as it goes is kept behind a lock, which a mask holds while it is computed.
class Constraint {
 public:
  /// Errors: kInvalidArgument for a grammar that no text satisfies or that names tokens that are not there;
  /// kDoesNotFit if the beginning alone runs out of fuel.
  static Result<std::shared_ptr<const Constraint>> create(
      Grammar grammar, std::shared_ptr<const VocabularyTrie> vocabulary,
      const ConstraintLimits& limits = {});
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  const VocabularyTrie& vocabulary() const { return *vocabulary_; }

 private:
  friend class Matcher;
  Constraint(std::shared_ptr<const VocabularyTrie> vocabulary,
             std::unique_ptr<ConstraintAutomaton> automaton);

  std::shared_ptr<const VocabularyTrie> vocabulary_;
  std::unique_ptr<ConstraintAutomaton> automaton_;
};

/// Where one sequence stands: plain data (the tokens so far and their states), to be copied freely. One thread at a
/// time; matchers of one constraint are independent of each other. A call that fails changes nothing.
class Matcher {
 public:
  explicit Matcher(std::shared_ptr<const Constraint> constraint);

  /// The tokens that may follow: those after which a text of the grammar is still possible, by a sequence of bytes or
  /// of tokens that the grammar names. Tokens that end generation are in it exactly when can_end() (or where the
  /// grammar names them). `mask` has at least mask_words() words; bits that are no tokens are 0. After an end token no
  /// token may follow. Errors: kDoesNotFit when it runs out of fuel.
  Status mask(std::span<uint32_t> mask);

  /// The next token. Errors: kInvalidArgument if it may not follow; kDoesNotFit when it runs out of fuel.
  Status accept(TokenId token);

  /// The token that may be taken without asking the model: the only one in the mask, or the first of the tokenizer's
  /// encoding of the only text that may follow, where what comes behind cannot change that token.
  Result<std::optional<TokenId>> forced();

  /// Takes the last `n` tokens back; n at most n_tokens().
  void rollback(size_t n);

  size_t n_tokens() const { return tokens_.size(); }
  std::span<const TokenId> tokens() const { return tokens_; }
  /// Whether the text so far is one of the grammar's.
  Result<bool> can_end();
  /// can_end(), and nothing but an end token may follow.
  Result<bool> is_complete();

  const Constraint& constraint() const { return *constraint_; }

 private:
  template <typename Work>
  auto with_automaton(Work&& work) -> decltype(work(std::declval<ConstraintAutomaton&>()));
  void replay(ConstraintAutomaton& automaton);

  std::shared_ptr<const Constraint> constraint_;
  std::vector<TokenId> tokens_;
  std::vector<uint32_t> states_;  // of the automaton: after none of the tokens, after one, …
  uint64_t generation_ = 0;       // of the automaton that states_ are of
};

}  // namespace pumice
