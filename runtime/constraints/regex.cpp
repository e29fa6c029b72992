#include "constraints/regex.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "base/printable.hpp"
#include "constraints/unicode_property.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

constexpr char32_t kLastCharacter = 0x10FFFF;
constexpr uint32_t kMaxGroups = 200;  // inside each other
constexpr uint32_t kMaxCount = 1'000'000'000;

using Ranges = std::vector<CodePointRange>;

/// Sorted, apart, and without what is not in [0, U+10FFFF].
Ranges inverted(Ranges ranges) {
  std::ranges::sort(ranges, {}, &CodePointRange::first);
  Ranges others;
  char32_t next = 0;
  for (const CodePointRange& range : ranges) {
    if (range.first > next) others.push_back({next, range.first - 1});
    next = std::max<char32_t>(next, range.last + 1);
  }
  if (next <= kLastCharacter) others.push_back({next, kLastCharacter});
  return others;
}

Ranges digits() { return {{'0', '9'}}; }
Ranges word_characters() { return {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}; }
Ranges line_ends() { return {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}; }
Ranges spaces() {
  return {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680}, {0x2000, 0x200A},
          {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F}, {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
}

/// What a piece of a pattern matches, by whether it stands at the beginning of the text and at its end. `^` is the empty
/// text at the beginning and nothing elsewhere; more is matched at an edge than elsewhere, never less.
struct Piece {
  bool anchored = false;
  std::array<Expression, 4> by_edges{};

  Expression at(bool begin, bool end) const {
    return by_edges[(begin ? 2u : 0u) + (end ? 1u : 0u)];
  }
  Expression anywhere() const { return by_edges[0]; }
};

class RegexParser {
 public:
  RegexParser(ExpressionSet& set, std::string_view pattern) : set_(set), pattern_(pattern) {}

  Result<Expression> parse(RegexAnchors anchors) {
    PUMICE_TRY(const Piece whole, alternatives(0));
    if (at_ < pattern_.size()) return error("a ) that closes nothing");
    if (anchors == RegexAnchors::kWhole) return whole.at(true, true);
    const Expression text = set_.repeat(set_.character(), 0);
    return set_.any_of({{set_.concat({{text, whole.at(false, false), text}}),
                         set_.concat(whole.at(true, false), text),
                         set_.concat(text, whole.at(false, true)), whole.at(true, true)}});
  }

 private:
  Error error(std::string_view what) const { return error_at(what, at_); }
  Error error_at(std::string_view what, size_t where) const {
    return make_error(ErrorCode::kInvalidArgument, "regular expression \"{}\": {} (at byte {})",
                      printable(pattern_), what, where);
  }

  bool done() const { return at_ == pattern_.size(); }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool take(std::string_view text) {
    if (!next_is(text)) return false;
    at_ += text.size();
    return true;
  }
  char32_t take_character() {
    const Utf8Step step = utf8_step(pattern_.substr(at_));
    const char32_t character = decode_utf8(pattern_.substr(at_, step.length));
    at_ += step.length;
    return character;
  }

  static Piece plain(Expression expression) {
    return {false, {expression, expression, expression, expression}};
  }

  template <typename Make>
  Piece by_edges(bool anchored, Make&& make) {
    if (!anchored) return plain(make(false, false));
    return {true, {make(false, false), make(false, true), make(true, false), make(true, true)}};
  }

  Piece either(const Piece& a, const Piece& b) {
    return by_edges(a.anchored || b.anchored, [&](bool begin, bool end) {
      return set_.either(a.at(begin, end), b.at(begin, end));
    });
  }

  /// Both have text, or one of them is empty and the other at more edges, or both are empty.
  Piece concat(const Piece& a, const Piece& b) {
    if (!a.anchored && !b.anchored) return plain(set_.concat(a.anywhere(), b.anywhere()));
    return by_edges(true, [&](bool begin, bool end) {
      std::vector<Expression> cases{set_.concat(a.at(begin, false), b.at(false, end))};
      if (set_.nullable(b.at(false, end))) cases.push_back(a.at(begin, end));
      if (set_.nullable(a.at(begin, false))) cases.push_back(b.at(begin, end));
      if (set_.nullable(a.at(begin, end)) && set_.nullable(b.at(begin, end)))
        cases.push_back(set_.empty());
      return set_.any_of(cases);
    });
  }

  Result<Piece> alternatives(uint32_t depth) {
    std::optional<Piece> all;
    do {
      PUMICE_TRY(const Piece one, sequence(depth));
      all = all ? either(*all, one) : one;
    } while (take("|"));
    return *all;
  }

  Result<Piece> sequence(uint32_t depth) {
    std::vector<Piece> parts;
    while (!done() && !next_is("|") && !next_is(")")) {
      const size_t begin = at_;
      PUMICE_TRY(Piece part, term(depth));
      PUMICE_TRY(part, quantified(part, begin));
      parts.push_back(part);
    }
    Piece made = plain(set_.empty());
    for (size_t i = parts.size(); i-- > 0;) made = concat(parts[i], made);
    return made;
  }

  Result<Piece> term(uint32_t depth) {
    const size_t begin = at_;
    if (take("^")) return Piece{true, {set_.nothing(), set_.nothing(), set_.empty(), set_.empty()}};
    if (take("$")) return Piece{true, {set_.nothing(), set_.empty(), set_.nothing(), set_.empty()}};
    if (take(".")) return plain(set_.code_points(inverted(line_ends())));
    if (take("(")) return group(depth, begin);
    if (next_is("*") || next_is("+") || next_is("?")) return error("a quantifier of nothing");
    Ranges ranges;
    if (take("[")) {
      PUMICE_TRY_STATUS(character_class(ranges, begin));
    } else if (take("\\")) {
      PUMICE_TRY_STATUS(escape(ranges, begin, false));
    } else {
      const char32_t character = take_character();
      ranges.push_back({character, character});
    }
    return plain(set_.code_points(ranges));
  }

  Result<Piece> group(uint32_t depth, size_t begin) {
    if (depth == kMaxGroups) return error_at("groups nest too deep", begin);
    if (take("?")) {
      if (take("=") || take("!"))
        return error_at("look-ahead is not regular and not supported", begin);
      if (take("<=") || take("<!"))
        return error_at("look-behind is not regular and not supported", begin);
      if (take(">")) return error_at("atomic groups are not supported", begin);
      if (take("<")) {  // a name, which nothing can refer to
        const size_t end = pattern_.find('>', at_);
        if (end == std::string_view::npos || end == at_)
          return error_at("a group's name is not closed by >", begin);
        at_ = end + 1;
      } else if (!take(":")) {
        return error_at("flags and other (?…) are not supported", begin);
      }
    }
    PUMICE_TRY(const Piece inside, alternatives(depth + 1));
    if (!take(")")) return error_at("a ( that is not closed", begin);
    return inside;
  }

  std::optional<uint32_t> number() {
    const size_t begin = at_;
    uint64_t value = 0;
    while (!done() && pattern_[at_] >= '0' && pattern_[at_] <= '9') {
      value =
          std::min<uint64_t>(10 * value + static_cast<uint64_t>(pattern_[at_++] - '0'), kMaxCount);
    }
    return at_ == begin ? std::nullopt : std::optional(static_cast<uint32_t>(value));
  }

  /// {n}, {n,} and {n,m}. Other braces are characters, as in every dialect but u's.
  std::optional<std::pair<uint32_t, uint32_t>> braces() {
    const size_t begin = at_;
    if (take("{")) {
      if (const std::optional<uint32_t> min = number()) {
        if (take("}")) return {{*min, *min}};
        if (take(",")) {
          const std::optional<uint32_t> max = number();
          if (take("}")) return {{*min, max.value_or(kUnbounded)}};
        }
      }
    }
    at_ = begin;
    return std::nullopt;
  }

  Result<Piece> quantified(const Piece& piece, size_t begin) {
    std::optional<std::pair<uint32_t, uint32_t>> times;
    if (take("*")) {
      times = {0, kUnbounded};
    } else if (take("+")) {
      times = {1, kUnbounded};
    } else if (take("?")) {
      times = {0, 1};
    } else {
      times = braces();
    }
    if (!times) return piece;
    const uint32_t min = times->first, max = times->second;
    if (min > max) return error_at("a repetition whose least number is above its greatest", begin);
    if (next_is("+")) return error("possessive quantifiers are not supported");
    take("?");
    if (next_is("*") || next_is("+") || next_is("?") || braces())
      return error("a quantifier of a quantifier");
    if (piece.anchored && max > 1) return error_at("^ and $ cannot be repeated", begin);
    return by_edges(piece.anchored, [&](bool first, bool last) {
      return set_.repeat(piece.at(first, last), min, max);
    });
  }

  Status character_class(Ranges& ranges, size_t begin) {
    const bool negated = take("^");
    if (next_is("]")) return error_at("an empty class", begin);
    while (!take("]")) {
      if (done()) return error_at("a [ that is not closed", begin);
      if (next_is("[:")) return error("POSIX classes such as [:alpha:] are not supported");
      Ranges first;
      PUMICE_TRY_STATUS(class_member(first));
      const bool dash = next_is("-") && !next_is("-]") && at_ + 1 < pattern_.size();
      if (dash && is_character(first)) {
        const size_t before = at_++;
        Ranges last;
        PUMICE_TRY_STATUS(class_member(last));
        if (is_character(last)) {
          if (last[0].first < first[0].first)
            return error_at("a range of a class that ends before it begins", before);
          first[0].last = last[0].first;
        } else {
          at_ = before;  // as in [a-\d]: the dash is itself
        }
      }
      ranges.insert(ranges.end(), first.begin(), first.end());
    }
    if (negated) ranges = inverted(std::move(ranges));
    return {};
  }

  static bool is_character(const Ranges& ranges) {
    return ranges.size() == 1 && ranges[0].first == ranges[0].last;
  }

  Status class_member(Ranges& ranges) {
    const size_t begin = at_;
    if (take("\\")) return escape(ranges, begin, true);
    const char32_t character = take_character();
    ranges.push_back({character, character});
    return {};
  }

  /// Behind the backslash, which is at `begin`.
  Status escape(Ranges& ranges, size_t begin, bool in_class) {
    if (done()) return error_at("a \\ at the end", begin);
    const auto add = [&](const Ranges& more) {
      ranges.insert(ranges.end(), more.begin(), more.end());
      return Status();
    };
    const auto character = [&](char32_t c) { return add({{c, c}}); };
    const char32_t name = take_character();
    switch (name) {
      case 'd':
        return add(digits());
      case 'D':
        return add(inverted(digits()));
      case 'w':
        return add(word_characters());
      case 'W':
        return add(inverted(word_characters()));
      case 's':
        return add(spaces());
      case 'S':
        return add(inverted(spaces()));
      case 'n':
        return character('\n');
      case 'r':
        return character('\r');
      case 't':
        return character('\t');
      case 'f':
        return character('\f');
      case 'v':
        return character('\v');
      case '0':
        if (!done() && pattern_[at_] >= '0' && pattern_[at_] <= '9')
          return error_at("octal escapes are not supported", begin);
        return character(0);
      case 'c': {
        const char letter = done() ? '\0' : pattern_[at_++];
        const bool is_letter = (letter >= 'A' && letter <= 'Z') || (letter >= 'a' && letter <= 'z');
        return is_letter ? character(static_cast<char32_t>(letter) % 32)
                         : Status(error_at("\\c without a letter", begin));
      }
      case 'x':
      case 'u':
        return hexadecimal(name, begin, ranges);
      case 'p':
      case 'P':
        return property(name == 'P', begin, ranges);
      case 'b':
        if (in_class) return character('\b');
        return error_at("the word boundary \\b is not supported", begin);
      case 'B':
        return error_at("\\B is not supported", begin);
      case 'k':
        return error_at("back-references are not regular and not supported", begin);
      default:
        break;
    }
    if (name >= '1' && name <= '9')
      return error_at("back-references are not regular and not supported", begin);
    const bool is_letter = (name >= 'A' && name <= 'Z') || (name >= 'a' && name <= 'z');
    if (is_letter) return error_at("an escape that is not known", begin);
    return character(name);
  }

  std::optional<char32_t> hex_digits(size_t fewest, size_t most) {
    char32_t value = 0;
    size_t n = 0;
    for (; n < most && !done(); ++n, ++at_) {
      const char c = pattern_[at_];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) break;
      value = 16 * value + static_cast<char32_t>(digit);
    }
    return n < fewest ? std::nullopt : std::optional(value);
  }

  Status hexadecimal(char32_t name, size_t begin, Ranges& ranges) {
    const bool braced = name == 'u' && take("{");
    const size_t n = name == 'x' ? 2 : 4;
    std::optional<char32_t> value = braced ? hex_digits(1, 6) : hex_digits(n, n);
    if (!value || (braced && !take("}")))
      return error_at("an escape with too few hexadecimal digits", begin);
    if (*value >= 0xD800 && *value <= 0xDBFF &&
        take("\\u")) {  // UTF-16's two halves of one character
      const std::optional<char32_t> low = hex_digits(4, 4);
      if (low && *low >= 0xDC00 && *low <= 0xDFFF)
        value = 0x10000 + ((*value - 0xD800) << 10) + (*low - 0xDC00);
    }
    if (*value > kLastCharacter || (*value >= 0xD800 && *value <= 0xDFFF)) {
      return error_at("an escape beyond Unicode's characters", begin);
    }
    ranges.push_back({*value, *value});
    return {};
  }

  Status property(bool negated, size_t begin, Ranges& ranges) {
    if (!take("{")) return error_at("\\p without {a property}", begin);
    const size_t end = pattern_.find('}', at_);
    if (end == std::string_view::npos) return error_at("\\p{ is not closed", begin);
    const std::string_view name = pattern_.substr(at_, end - at_);
    at_ = end + 1;
    set_.fuel().spend(kUnicodePropertyFuel);
    std::optional<Ranges> found = unicode_property(name);
    if (!found) return error_at("a Unicode property that is not known", begin);
    if (negated) found = inverted(std::move(*found));
    ranges.insert(ranges.end(), found->begin(), found->end());
    return {};
  }

  ExpressionSet& set_;
  std::string_view pattern_;
  size_t at_ = 0;
};

}  // namespace

Result<Expression> parse_regex(ExpressionSet& set, std::string_view pattern, RegexAnchors anchors) {
  for (std::string_view rest = pattern; !rest.empty();) {
    const Utf8Step step = utf8_step(rest);
    if (step.kind != Utf8Kind::kComplete) {
      return make_error(ErrorCode::kInvalidArgument,
                        "regular expression: it is not UTF-8 (at byte {})",
                        pattern.size() - rest.size());
    }
    rest.remove_prefix(step.length);
  }
  return within_fuel("the regular expression",
                     [&] { return RegexParser(set, pattern).parse(anchors); });
}

}  // namespace pumice
