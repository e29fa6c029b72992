// Regular expressions over bytes, with intersection and complement: what lexemes of a grammar are.
//
// An expression is a node of a set in which equal nodes are one (hash-consed), normalised by cheap laws. Its automaton
// is its derivatives (Brzozowski 1964; Owens, Reppy and Turon 2009), made when asked for.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "constraints/fuel.hpp"
#include "constraints/interner.hpp"
#include "constraints/word_map.hpp"

namespace pumice {

/// An expression of the ExpressionSet that made it, valid as long as that.
enum class Expression : uint32_t {};

using ByteSet = std::bitset<256>;
using ByteWords = std::array<uint32_t, 8>;  ///< a ByteSet as an ExpressionSet keeps it

/// Inclusive.
struct CodePointRange {
  char32_t first;
  char32_t last;
};

/// Any number of times.
inline constexpr uint32_t kUnbounded = 0xFFFFFFFF;

/// One thread at a time. Every operation may throw OutOfFuel (see fuel.hpp); the set is as good as before then.
/// Copies are independent, and expressions mean the same in both.
class ExpressionSet {
 public:
  /// Of what a constraint may cost to make; about 100 MB.
  static constexpr uint64_t kDefaultFuel = 20'000'000;
  /// Of an expression, counted in operators inside each other (sequences are not); more is OutOfFuel.
  static constexpr uint32_t kMaxDepth = 500;

  explicit ExpressionSet(uint64_t fuel = kDefaultFuel);

  /// No text at all, and the empty text.
  Expression nothing() const { return kNothing; }
  Expression empty() const { return kEmpty; }
  /// Every sequence of bytes.
  Expression everything() const { return kEverything; }
  /// One byte of `bytes`.
  Expression bytes(const ByteSet& bytes);
  Expression literal(std::string_view bytes);
  /// One character of these, in UTF-8. Surrogates, and what is above U+10FFFF, are left out.
  Expression code_points(std::span<const CodePointRange> ranges);
  /// One character, any; well-formed UTF-8.
  Expression character();

  Expression concat(Expression first, Expression second);
  Expression concat(std::span<const Expression> parts);
  Expression either(Expression a, Expression b);
  Expression any_of(std::span<const Expression> alternatives);
  Expression both(Expression a, Expression b);
  Expression all_of(std::span<const Expression> conditions);
  /// Every sequence of bytes that `e` does not match, UTF-8 or not.
  Expression complement(Expression e);
  /// From `min` to `max` times `e`; one node, whatever the numbers. `min` > `max` gives nothing().
  Expression repeat(Expression e, uint32_t min, uint32_t max = kUnbounded);
  Expression optional(Expression e) { return repeat(e, 0, 1); }

  /// What `e` matches with each byte written another way: `written` gives the ways of one of some bytes, and
  /// `any_written` is every text of them. No way may be the beginning of another, nor stand for two bytes.
  Expression replace_bytes(Expression e, Expression any_written,
                           const std::function<Expression(const ByteSet&)>& written);

  /// Whether it matches the empty text.
  bool nullable(Expression e) const;
  /// What may follow `byte`: the texts t for which `e` matches byte t.
  Expression derivative(Expression e, uint8_t byte);
  bool matches(Expression e, std::string_view text);
  /// Whether it matches no text. Exact; looks for a text through the automaton where the operators leave it open.
  bool is_nothing(Expression e);
  bool disjoint(Expression a, Expression b) { return is_nothing(both(a, b)); }

  /// An expression as a repetition and what follows it; body is kNothing where it does not begin with one.
  struct Head {
    Expression body, rest;
    uint32_t min, max;
  };
  Head head_of(Expression e) const;
  /// What a sequence begins with; anything else itself.
  Expression first_of(Expression e) const {
    return is(e, Kind::kConcat) ? Expression{nodes_[index(e)][1]} : e;
  }
  /// The expressions all of which must match where `e` does: an intersection's operands, or itself.
  std::vector<Expression> conditions_of(Expression e) const;
  /// Of the longest text that `e`, a complement, does not match; an upper bound. Nothing for other expressions, and where
  /// there may be no longest.
  std::optional<uint32_t> longest_excluded(Expression e) const;

  /// The alphabet compressed: bytes of one class lead to the same derivatives of everything in the set. Grows only by
  /// bytes(), literal(), code_points() and character() of what is new.
  uint8_t byte_class(uint8_t byte) const { return classes_[byte]; }
  /// A byte of each class.
  std::span<const uint8_t> representatives() const { return representatives_; }

  Fuel& fuel() { return fuel_; }
  /// What it keeps in memory, in bytes, about.
  size_t memory_bytes() const;

 private:
  enum class Kind : uint32_t { kBytes, kConcat, kRepeat, kAny, kAll, kNot };
  static constexpr Expression kNothing{0};
  static constexpr Expression kEmpty{1};
  static constexpr Expression kEverything{2};

  struct Facts {
    bool nullable;
    bool matches_something;  // by its operators; where false, it may all the same
    uint16_t depth;          // of operators inside each other
    uint32_t max_bytes;      // of its texts, or kUnbounded; an upper bound
    ByteWords first;         // bytes with which its texts begin; others lead to nothing
  };
  Expression make(std::span<const uint32_t> words);
  Facts facts_of(std::span<const uint32_t> words) const;
  Kind kind(Expression e) const { return Kind{nodes_[index(e)][0]}; }
  bool is(Expression e, Kind wanted) const {
    return index(e) > index(kEverything) && kind(e) == wanted;
  }
  Expression bytes(const ByteWords& words);
  ByteSet byte_set(Expression e) const;
  bool may_begin_with(Expression e, uint8_t byte) const {
    return (facts_[index(e)].first[byte / 32] >> byte % 32 & 1) != 0;
  }
  void merge_repetitions(std::vector<Expression>& alternatives);
  Expression join(Kind operation, std::span<const Expression> operands);
  Expression prepend(Expression part, Expression to);
  Expression derive(Expression e, uint8_t byte);
  Expression utf8_range(char32_t first, char32_t last);
  void refine_classes(const ByteWords& words);
  static uint32_t index(Expression e) { return static_cast<uint32_t>(e); }

  Fuel fuel_;
  WordInterner nodes_;                             // [kind, operands…]
  std::vector<Facts> facts_;                       // of each node
  WordMap derivatives_;                            // by node << 8 | class
  std::unordered_map<Expression, bool> nothings_;  // whose operators do not tell
  std::array<uint8_t, 256> classes_{};
  std::vector<uint8_t> representatives_{0};
};

}  // namespace pumice
