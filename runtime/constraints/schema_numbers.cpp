#include "constraints/schema_numbers.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace pumice::schema {
namespace {

/// Expressions over the texts of numbers without exponents.
class NumberTexts {
 public:
  NumberTexts(ExpressionSet& set, const NumberShape& shape) : set_(set), shape_(shape) {
    for (const auto& bound : {shape.low, shape.high}) {
      if (!bound) continue;
      n_digits_ =
          std::max(n_digits_, static_cast<uint32_t>(bound->value.integer_part().size()) + 1);
      n_places_ =
          std::max(n_places_, static_cast<uint32_t>(bound->value.fraction_part().size()) + 1);
    }
  }

  /// All that the shape says but for `multiples`, which `unbounded` leaves room for.
  Expression all(bool unbounded) {
    if (unbounded) n_digits_ = n_places_ = kUnbounded;
    Expression texts = set_.both(with_sign(integer()), kinds());
    if (shape_.low) texts = set_.both(texts, from(*shape_.low));
    if (shape_.high) texts = set_.both(texts, to(*shape_.high));
    for (const Decimal& value : shape_.excluded)
      texts = set_.both(texts, set_.complement(equal(value)));
    return texts;
  }
  /// Multiples of 10^-places.
  Expression rounded(int64_t places) {
    const Expression zeros = set_.repeat(digit('0', '0'), 0);
    const Expression kept = set_.repeat(digits(), 0, static_cast<uint32_t>(places));
    return with_sign(set_.concat(set_.repeat(digits(), 1),
                                 set_.optional(set_.concat(std::array{dot(), kept, zeros}))));
  }
  /// An exponent behind any number: within a double's range.
  Expression with_exponent(Expression texts) {
    const auto sign = [&](const char* text) { return set_.optional(set_.literal(text)); };
    const Expression up = set_.concat(sign("+"), set_.repeat(digits(), 1, 2));
    const Expression down = set_.concat(set_.literal("-"), set_.repeat(digits(), 1, 3));
    const Expression e = set_.either(set_.literal("e"), set_.literal("E"));
    return set_.concat(texts, set_.optional(set_.concat(e, set_.either(up, down))));
  }

 private:
  Expression digit(char first, char last) {
    ByteSet set;
    for (char c = first; c <= last; ++c) set.set(static_cast<unsigned char>(c));
    return set_.bytes(set);
  }
  Expression digits() { return digit('0', '9'); }
  Expression any_digits() { return set_.repeat(digits(), 0); }
  Expression dot() { return set_.literal("."); }
  /// At least one digit behind the point.
  Expression fraction() { return set_.concat(dot(), set_.repeat(digits(), 1, n_places_)); }
  Expression optional_fraction() { return set_.optional(fraction()); }
  /// Digits behind the point, not all zero.
  Expression above_zero() {
    return set_.concat(std::array{any_digits(), digit('1', '9'), any_digits()});
  }

  Expression integer() {
    const uint32_t more = n_digits_ == kUnbounded ? kUnbounded : n_digits_ - 1;
    const Expression number = set_.concat(digit('1', '9'), set_.repeat(digits(), 0, more));
    return set_.concat(set_.either(set_.literal("0"), number), optional_fraction());
  }
  Expression with_sign(Expression magnitude) {
    return set_.concat(set_.optional(set_.literal("-")), magnitude);
  }

  Expression kinds() {
    const Expression whole =
        set_.concat(set_.optional(set_.literal("-")), set_.repeat(digits(), 1));
    if (!shape_.fractional) return set_.both(whole, set_.complement(set_.literal("-0")));
    const Expression broken = set_.concat(std::array{whole, dot(), above_zero()});
    return shape_.whole ? set_.everything() : broken;
  }

  /// Magnitudes at least `value`, or above it.
  Expression at_least(const Decimal& value, bool exclusive) {
    const std::string whole = value.integer_part(), fraction = value.fraction_part();
    std::vector<Expression> ways;
    const auto n_whole = static_cast<uint32_t>(whole.size());
    ways.push_back(set_.concat(
        std::array{digit('1', '9'), set_.repeat(digits(), n_whole), optional_fraction()}));
    for (size_t i = 0; i < whole.size(); ++i) {
      if (whole[i] == '9') continue;
      const auto n_more = static_cast<uint32_t>(whole.size() - i - 1);
      ways.push_back(set_.concat(
          std::array{set_.literal(whole.substr(0, i)), digit(static_cast<char>(whole[i] + 1), '9'),
                     set_.repeat(digits(), n_more, n_more), optional_fraction()}));
    }
    const Expression same = set_.literal(whole);
    for (size_t i = 0; i < fraction.size(); ++i) {
      if (fraction[i] == '9') continue;
      ways.push_back(
          set_.concat(std::array{same, dot(), set_.literal(fraction.substr(0, i)),
                                 digit(static_cast<char>(fraction[i] + 1), '9'), any_digits()}));
    }
    const Expression beyond =
        set_.concat(std::array{same, dot(), set_.literal(fraction), above_zero()});
    ways.push_back(exclusive ? beyond : set_.either(beyond, equal(value.magnitude())));
    return set_.any_of(ways);
  }
  Expression at_most(const Decimal& value, bool exclusive) {
    return set_.complement(at_least(value.magnitude(), !exclusive));
  }
  Expression negative(Expression magnitude) { return set_.concat(set_.literal("-"), magnitude); }
  Expression not_negative() { return set_.complement(negative(set_.everything())); }

  Expression from(const NumberShape::Bound& low) {
    if (!low.value.negative) return at_least(low.value, low.exclusive);
    return set_.either(not_negative(), negative(at_most(low.value, low.exclusive)));
  }
  Expression to(const NumberShape::Bound& high) {
    if (high.value.negative) return negative(at_least(high.value.magnitude(), high.exclusive));
    const Expression below =
        set_.either(set_.both(not_negative(), at_most(high.value, high.exclusive)),
                    negative(set_.everything()));
    // "-0" is not below 0.
    return high.exclusive && high.value.is_zero()
               ? set_.both(below, set_.complement(equal(high.value)))
               : below;
  }
  /// All ways to write the value.
  Expression equal(const Decimal& value) {
    const std::string fraction = value.fraction_part();
    const Expression zeros = set_.repeat(digit('0', '0'), 0);
    const Expression behind = set_.concat(std::array{dot(), set_.literal(fraction), zeros});
    const Expression text = set_.concat(set_.literal(value.integer_part()),
                                        fraction.empty() ? set_.optional(behind) : behind);
    return value.is_zero() ? with_sign(text) : value.negative ? negative(text) : text;
  }

  ExpressionSet& set_;
  const NumberShape& shape_;
  uint32_t n_digits_ = kMaxDigits;
  uint32_t n_places_ = kMaxDigits;
};

/// The texts of `texts` that are multiples of `unit` / 10^`places`, as rules: a state is what may still come, the
/// remainder of the digits so far, and how many of them stood behind the point.
class MultipleGrammar {
 public:
  MultipleGrammar(GrammarBuilder& grammar, uint64_t unit, int64_t places)
      : grammar_(grammar), set_(grammar.expressions()), unit_(unit), places_(places) {}

  Symbol make(Expression texts) {
    const Symbol start = symbol({texts, 0, -1});
    while (!open_.empty()) {
      const auto [state, symbol] = open_.back();
      open_.pop_back();
      grammar_.define(symbol, body(state));
    }
    return start;
  }

 private:
  struct State {
    Expression texts;
    uint64_t remainder;
    int64_t n_behind;  // -1 before the point
    auto operator<=>(const State&) const = default;
  };

  Symbol symbol(const State& state) {
    const auto [at, is_new] = symbols_.try_emplace(state, Symbol{});
    if (is_new) {
      set_.fuel().spend(100);
      at->second = grammar_.declare("a multiple");
      open_.emplace_back(state, at->second);
    }
    return at->second;
  }

  Symbol body(const State& state) {
    std::map<State, ByteSet> next;
    for (const char c : std::string_view("-.0123456789")) {
      const Expression rest = set_.derivative(state.texts, static_cast<uint8_t>(c));
      State to{rest, state.remainder, state.n_behind};
      if (c == '.') {
        to.n_behind = 0;
      } else if (c != '-') {
        const auto value = static_cast<uint64_t>(c - '0');
        if (state.n_behind == places_ && value != 0) continue;
        if (state.n_behind < places_) to.remainder = (state.remainder * 10 + value) % unit_;
        if (state.n_behind >= 0 && state.n_behind < places_) ++to.n_behind;
      }
      if (rest != set_.nothing()) next[to].set(static_cast<unsigned char>(c));
    }
    uint64_t left = state.remainder;
    for (int64_t i = std::max<int64_t>(state.n_behind, 0); i < places_; ++i)
      left = left * 10 % unit_;
    std::vector<Symbol> ways;
    if (set_.nullable(state.texts) && left == 0) ways.push_back(grammar_.empty());
    for (const auto& [to, bytes] : next)
      ways.push_back(grammar_.sequence({grammar_.lexeme(set_.bytes(bytes)), symbol(to)}));
    return grammar_.choice(ways);
  }

  GrammarBuilder& grammar_;
  ExpressionSet& set_;
  uint64_t unit_;
  int64_t places_;
  std::map<State, Symbol> symbols_;
  std::vector<std::pair<State, Symbol>> open_;
};

}  // namespace

std::optional<Symbol> number_symbol(GrammarBuilder& grammar, const NumberShape& shape) {
  ExpressionSet& set = grammar.expressions();
  NumberTexts texts(set, shape);
  // Units that are not powers of ten, as whole numbers of the last place of all.
  std::vector<Decimal> units;
  int64_t places = 0;
  std::optional<int64_t> most_places;
  for (const NumberShape::Multiple& multiple : shape.multiples) {
    if (multiple.denied) return std::nullopt;
    const Decimal& unit = multiple.unit;
    const int64_t last = static_cast<int64_t>(unit.digits.size()) - unit.point;
    if (unit.digits == "1" && last >= 0) {
      most_places = std::min(most_places.value_or(last), last);
    } else {
      units.push_back(unit);
      places = std::max(places, last);
    }
  }
  uint64_t common = 1;
  for (const Decimal& unit : units) {
    const std::optional<uint64_t> whole = scaled(unit, places);
    if (!whole) return std::nullopt;
    common = std::lcm(common, *whole);
    if (common > UINT32_MAX) return std::nullopt;
  }
  Expression all = texts.all(/*unbounded=*/!units.empty());
  if (most_places) all = set.both(all, texts.rounded(*most_places));
  if (set.is_nothing(all)) return std::nullopt;
  if (!units.empty()) return MultipleGrammar(grammar, common, places).make(all);
  const bool is_free = shape.whole && shape.fractional && !shape.low && !shape.high &&
                       shape.multiples.empty() && shape.excluded.empty();
  return grammar.lexeme(is_free ? texts.with_exponent(all) : all);
}

}  // namespace pumice::schema
