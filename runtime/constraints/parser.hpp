// Earley's parser over lexemes as an automaton: what it knows at a place is a state, and equal states are one.
//
// A *row* (Earley's set) is made where a lexeme may end: its items, each with the row at which its rule began. Rows do
// not change once they are made, and rows of equal items are one row, wherever in the text they came about, so that a
// list's row behind its third element is the row behind its second. A *thread* is a row with a state of the lexer: the
// lexemes that began at that row and are under way. A *state* is the set of threads behind a text. Since rows, states of
// the lexer and states are all numbered, the step from state to state by a byte is remembered, and all but the first
// visit of a state is a look into a table.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "constraints/grammar.hpp"
#include "constraints/interner.hpp"
#include "constraints/lexer.hpp"

namespace pumice {

/// One thread at a time; calls may throw OutOfFuel, after which it is not to be used again.
class Parser {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;

  /// `grammar` is copied where it changes (its expressions) and must outlive the parser otherwise.
  Parser(const Grammar& grammar, uint64_t fuel);
  Parser(const Parser&) = delete;
  Parser& operator=(const Parser&) = delete;

  /// The steps that are known, for loops over many bytes; until the next call of anything else.
  class Steps {
   public:
    static constexpr State kUnknown = 0xFFFFFFFF;
    State next(State state, uint8_t byte) const {
      return transitions_[state * n_classes_ + classes_[byte]];
    }

   private:
    friend Parser;
    Steps(const State* transitions, const uint8_t* classes, size_t n_classes)
        : transitions_(transitions), classes_(classes), n_classes_(n_classes) {}

    const State* transitions_;
    const uint8_t* classes_;
    size_t n_classes_;
  };

  State start() const { return start_; }
  State next(State state, uint8_t byte) {
    const State known = steps().next(state, byte);
    return known != Steps::kUnknown ? known : make_next(state, classes_[byte]);
  }
  Steps steps() const { return {transitions_.data(), classes_.data(), n_classes_}; }
  /// Behind a token as the grammar's own terminal, which `allows` (below) names.
  State next_token(State state, TokenId token, bool has_text);
  /// The state that is in both.
  State merge(State a, State b);

  /// Whether the text so far is in the language.
  bool accepts(State state) const;
  /// Calls `use` with each TokenTerminal that may come next.
  template <typename Use>
  void for_tokens(State state, Use&& use) const {
    const std::span<const uint32_t> threads = states_[state];
    for (size_t i = 0; i < threads.size(); i += 2) {
      if (threads[i + 1] != kFresh) continue;
      for (const Waiting& waiting : rows_[threads[i]].waiting) {
        if (waiting.term.kind == Grammar::Kind::kTokens) use(grammar_.tokens[waiting.term.index]);
      }
    }
  }
  static bool allows(const TokenTerminal& terminal, TokenId token, bool has_text);
  /// As Lexer::plain_depth.
  uint32_t plain_depth(State state, uint32_t limit);
  /// The only byte that may follow, or nothing where there are several, or a token or the end may follow as well.
  std::optional<uint8_t> only_byte(State state);

  Fuel& fuel() { return expressions_.fuel(); }
  size_t memory_bytes() const;

 private:
  using Term = Grammar::Term;
  static constexpr uint32_t kFresh = 0xFFFFFFFF;  // of a thread: no byte since its row
  static constexpr uint32_t kSelf = 0xFFFFFFFF;   // of an item: the row that it is in
  static constexpr uint32_t kStartRow = 0;

  /// A rule with a dot in it: `dot` is an index of dots_; or a repetition (n_dots + its index) with how often so far.
  struct Item {
    uint32_t dot;
    uint32_t count;
    uint32_t origin;
  };
  struct Waiting {
    Term term;
    Item item;
  };
  struct Row {
    std::vector<Waiting> waiting;  // by term
    uint32_t start = Lexer::kDead;
    bool accepted = false;
  };
  /// Of dots_: what comes behind the dot, or the end of `rule`.
  struct Dot {
    bool at_end;
    Term term;
    uint32_t rule;
  };

  State make_next(State state, uint8_t byte_class);
  State intern_state(std::vector<uint32_t> threads);
  void add(const Item& item);
  void advance(const Waiting& waiting, uint32_t row);
  void complete(Term term, uint32_t row);
  void predict(Term term);
  void visit(const Item& item);
  bool nullable(Term term) const;
  std::optional<uint32_t> close_row();

  const Grammar& grammar_;
  ExpressionSet expressions_;
  Lexer lexer_;
  std::array<uint8_t, 256> classes_;
  size_t n_classes_;
  std::vector<Dot> dots_;
  std::vector<std::vector<uint32_t>> rule_dots_;  // first dots of each rule's productions
  WordInterner row_keys_;
  std::vector<Row> rows_;
  size_t row_items_ = 0;  // of all rows
  WordInterner states_;   // (row, state of the lexer or kFresh)…
  std::vector<uint32_t> transitions_;
  State start_ = kDead;
  // The row that is being made: its items, each once, in order of discovery.
  WordInterner items_;
  bool accepted_ = false;
};

}  // namespace pumice
