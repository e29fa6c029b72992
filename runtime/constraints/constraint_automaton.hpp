// What the matchers of one constraint share: the parser's automaton over a vocabulary. Every member is used with the
// lock held.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/matcher.hpp"
#include "constraints/parser.hpp"

namespace pumice {

class ConstraintAutomaton {
 public:
  using State = Parser::State;
  /// The text has ended: an end token came.
  static constexpr State kEnded = 0xFFFFFFFF;

  ConstraintAutomaton(Grammar grammar, const VocabularyTrie& vocabulary,
                      const ConstraintLimits& limits);

  std::mutex& lock() { return lock_; }
  const Grammar& grammar() const { return grammar_; }
  /// States are of a generation; a new one begins where the old one had become too large, or had run out of fuel.
  uint64_t generation() const { return generation_; }
  /// Before each operation: fuel for it, and a new generation if there must be one.
  void prepare();
  void refill() { parser_->fuel().refill(limits_.fuel); }
  /// After OutOfFuel.
  void begin_anew();
  /// After another exception: what is kept may be half made.
  void spoil() { spoiled_ = true; }

  State start() const { return parser_->start(); }
  /// Parser::kDead if `token` may not follow.
  State next(State state, TokenId token);
  /// Of mask_words() words; valid until the next call.
  const TokenMask& mask(State state);
  bool can_end(State state) const { return state == kEnded || parser_->accepts(state); }
  bool can_continue(State state);
  /// The bytes that must follow, as far as they are sure, up to some dozens.
  std::string forced_text(State state);

 private:
  struct Cached {
    State state;
    TokenMask mask;
  };

  State feed(State state, std::string_view text);
  void walk(std::span<const VocabularyTrie::Node> nodes, State state, std::span<uint32_t> mask);
  void fill(State state, std::span<uint32_t> mask);

  std::mutex lock_;
  const Grammar grammar_;
  const VocabularyTrie& vocabulary_;
  const ConstraintLimits limits_;
  std::unique_ptr<Parser> parser_;
  uint64_t generation_ = 0;
  bool spoiled_ = false;
  std::vector<Cached> cache_;  // masks of states met lately, overwritten in turn
  size_t next_cached_ = 0;
  std::vector<State> path_;  // of a walk
};

}  // namespace pumice
