// The automaton of several lexemes at once, made as it is used.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "constraints/expression.hpp"
#include "constraints/interner.hpp"

namespace pumice {

/// Characters that strings of JSON (and of most things) may have as they are; the two that end lines are none of `.` in
/// a pattern.
constexpr bool is_plain_character(char32_t c) {
  return c >= 0x20 && c != '"' && c != '\\' && c != 0x7F && c != 0x2028 && c != 0x2029;
}

/// A state is a set of lexemes that have begun at one place, each with the expression of what may follow of it. One
/// thread at a time; calls may throw OutOfFuel, after which it is not to be used again.
class Lexer {
 public:
  static constexpr uint32_t kDead = 0;
  /// Lexemes after each of which is asked; `expressions` must outlive it.
  Lexer(ExpressionSet& expressions, std::span<const Expression> lexemes);

  size_t n_classes() const { return n_classes_; }
  uint8_t byte_class(uint8_t byte) const { return expressions_.byte_class(byte); }

  /// The state before the first byte of any of `lexemes` (indices, sorted).
  uint32_t start(std::span<const uint32_t> lexemes);
  /// The state behind a byte of that class; kDead if none of the lexemes can go on. Those that cannot are dropped, so
  /// that from any other state some lexeme can be finished.
  uint32_t next(uint32_t state, uint8_t byte_class) {
    const uint32_t known = transitions_[state * n_classes_ + byte_class];
    return known != kUnknown ? known : make_next(state, byte_class);
  }
  /// Calls `use` with each lexeme that may end here.
  template <typename Use>
  void for_accepted(uint32_t state, Use&& use) const {
    const std::span<const uint32_t> words = states_[state];
    for (size_t i = 0; i < words.size(); i += 2) {
      if (expressions_.nullable(Expression{words[i + 1]})) use(words[i]);
    }
  }
  /// Whether any lexeme may go on by a byte.
  bool can_continue(uint32_t state) const;

  /// A number of plain characters (is_plain_character), any of which may always follow, at most `limit`; a lower
  /// bound of the largest. `limit` is the same in each call.
  uint32_t plain_depth(uint32_t state, uint32_t limit);

  size_t memory_bytes() const {
    return states_.memory_bytes() + 4 * transitions_.capacity() + 8 * plain_depths_.capacity();
  }

 private:
  static constexpr uint32_t kUnknown = 0xFFFFFFFF;

  uint32_t make_next(uint32_t state, uint8_t byte_class);
  uint32_t intern(std::span<const uint32_t> words);
  uint32_t plain_run(uint32_t state);
  uint32_t plain_run_of(Expression e);
  bool covers_plain(Expression e);
  bool add_next_plain(uint32_t state, std::vector<uint32_t>& to);

  ExpressionSet& expressions_;
  std::span<const Expression> lexemes_;
  size_t n_classes_;
  WordInterner states_;  // (lexeme, expression)…, by lexeme
  std::vector<uint32_t> transitions_;
  std::vector<uint32_t> plain_depths_;  // by state, or kUnknown
  std::unordered_map<Expression, bool> covers_plain_;
  Expression plain_{};
  struct PlainStep {
    uint8_t byte_class;
    uint8_t utf8;  // state behind it
  };
  std::array<std::vector<PlainStep>, 10> plain_steps_;  // by state within a plain character
};

}  // namespace pumice
