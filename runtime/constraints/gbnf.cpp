#include "constraints/gbnf.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/printable.hpp"
#include "text/utf8.hpp"

namespace pumice {
namespace {

constexpr uint32_t kMaxNesting = 200;  // inside each other
constexpr uint32_t kMaxTimes = 1'000'000'000;

class GbnfParser {
 public:
  GbnfParser(std::string_view text, const FindToken& find_token, GrammarBuilder& builder)
      : text_(text), find_token_(find_token), builder_(builder) {}

  Result<Symbol> parse() {
    for (skip_blanks(true); !done(); skip_blanks(true)) PUMICE_TRY_STATUS(rule());
    const auto root = rules_.find("root");
    if (root == rules_.end())
      return make_error(ErrorCode::kInvalidArgument, "the grammar has no rule named root");
    for (const auto& [name, rule] : rules_) {
      if (!rule.defined)
        return error_at(fmt::format("the rule {} is used but not defined", printable(name)),
                        rule.first_use);
    }
    return root->second.symbol;
  }

 private:
  struct Rule {
    Symbol symbol;
    size_t first_use;
    bool defined = false;
  };

  Error error(std::string_view what) const { return error_at(what, at_); }
  Error error_at(std::string_view what, size_t where) const {
    const std::string_view before = text_.substr(0, where);
    const auto line = 1 + std::ranges::count(before, '\n');
    const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
    return make_error(ErrorCode::kInvalidArgument, "grammar, line {}, column {}: {}", line,
                      where - line_start + 1, what);
  }

  bool done() const { return at_ == text_.size(); }
  char next() const { return done() ? '\0' : text_[at_]; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  /// Blanks and comments, and with `lines` the ends of lines too.
  void skip_blanks(bool lines) {
    for (; !done(); ++at_) {
      const char c = next();
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        if (done() || !lines) return;
      } else if (c != ' ' && c != '\t' && !(lines && (c == '\n' || c == '\r'))) {
        return;
      }
    }
  }

  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string_view name() {
    const size_t begin = at_;
    while (!done() && is_name(next())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Rule& rule_named(std::string_view name, size_t where) {
    const auto found = rules_.find(name);
    if (found != rules_.end()) return found->second;
    const Symbol symbol = builder_.declare(std::string(name));
    return rules_.emplace(name, Rule{symbol, where}).first->second;
  }

  Status rule() {
    const size_t begin = at_;
    const std::string_view called = name();
    if (called.empty()) return error("a rule's name was expected");
    skip_blanks(false);
    if (!take("::=")) return error("::= was expected behind the name of a rule");
    skip_blanks(true);
    PUMICE_TRY(const Symbol body, alternatives(0));
    if (!done() && next() != '\n' && next() != '\r')
      return error(next() == ')' ? "a ) that closes nothing" : "not part of a rule");
    Rule& defined = rule_named(called, begin);
    if (defined.defined) return error_at("this rule is defined already", begin);
    defined.defined = true;
    builder_.define(defined.symbol, body);
    return {};
  }

  Result<Symbol> alternatives(uint32_t depth) {
    std::vector<Symbol> all;
    do {
      skip_blanks(true);
      PUMICE_TRY(const Symbol one, sequence(depth));
      all.push_back(one);
    } while (take("|"));
    return all.size() == 1 ? all[0] : builder_.choice(all);
  }

  /// Ends before `|`, `)` and, outside of groups, the end of its line.
  Result<Symbol> sequence(uint32_t depth) {
    std::vector<Symbol> parts;
    for (;; skip_blanks(depth > 0)) {
      const size_t begin = at_;
      const char c = next();
      if (done() || c == '|' || c == ')' || c == '\n' || c == '\r') break;
      PUMICE_TRY(Symbol part, element(depth));
      PUMICE_TRY(part, repeated(part, begin));
      parts.push_back(part);
    }
    return builder_.sequence(parts);
  }

  Result<Symbol> element(uint32_t depth) {
    const size_t begin = at_;
    ExpressionSet& set = builder_.expressions();
    if (take("\"")) return literal(begin);
    if (take("[")) return character_class(begin);
    if (take("(")) {
      if (depth == kMaxNesting) return error_at("groups nest too deep", begin);
      PUMICE_TRY(const Symbol inside, alternatives(depth + 1));
      if (!take(")")) return error_at("a ( that is not closed", begin);
      return inside;
    }
    if (take(".")) return builder_.lexeme(set.character());
    if (take("!<")) return token(true, begin);
    if (take("<")) return token(false, begin);
    const std::string_view called = name();
    if (!called.empty()) return rule_named(called, begin).symbol;
    return error("a name, a literal, a class, a group or a token was expected");
  }

  std::optional<uint32_t> number() {
    const size_t begin = at_;
    uint64_t value = 0;
    for (; next() >= '0' && next() <= '9'; ++at_) {
      value = std::min<uint64_t>(10 * value + static_cast<uint64_t>(next() - '0'), kMaxTimes);
    }
    return at_ == begin ? std::nullopt : std::optional(static_cast<uint32_t>(value));
  }

  Result<Symbol> repeated(Symbol symbol, size_t begin) {
    for (;;) {
      skip_blanks(false);
      if (take("*")) {
        symbol = builder_.repeat(symbol, 0);
      } else if (take("+")) {
        symbol = builder_.repeat(symbol, 1);
      } else if (take("?")) {
        symbol = builder_.optional(symbol);
      } else if (take("{")) {
        skip_blanks(false);
        const std::optional<uint32_t> min = number();
        if (!min) return error("a number was expected behind {");
        std::optional<uint32_t> max = min;
        skip_blanks(false);
        if (take(",")) {
          skip_blanks(false);
          max = number();
          skip_blanks(false);
        }
        if (!take("}")) return error("a { that is not closed");
        if (max && *max < *min)
          return error_at("a repetition whose least number is above its greatest", begin);
        symbol = builder_.repeat(symbol, *min, max.value_or(kUnbounded));
      } else {
        return symbol;
      }
    }
  }

  Result<char32_t> escape(size_t begin) {
    const char name = next();
    at_ += done() ? 0 : 1;
    size_t n_digits = 0;
    switch (name) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(name);
      case 'x':
        n_digits = 2;
        break;
      case 'u':
        n_digits = 4;
        break;
      case 'U':
        n_digits = 8;
        break;
      default:
        return error_at("an escape that is not known", begin);
    }
    uint64_t value = 0;
    for (size_t i = 0; i < n_digits; ++i, ++at_) {
      const size_t digit = std::string_view("0123456789abcdef0123456789ABCDEF").find(next());
      if (done() || digit == std::string_view::npos)
        return error_at("an escape with too few hexadecimal digits", begin);
      value = 16 * value + digit % 16;
    }
    if (value > 0x10FFFF || (value >= 0xD800 && value <= 0xDFFF))
      return error_at("an escape beyond Unicode's characters", begin);
    return static_cast<char32_t>(value);
  }

  /// One character of a literal or class, which began at `begin`.
  Result<char32_t> character(size_t begin, std::string_view unclosed) {
    if (done() || next() == '\n') return error_at(unclosed, begin);
    const size_t here = at_;
    if (take("\\")) return escape(here);
    const Utf8Step step = utf8_step(text_.substr(at_));
    if (step.kind != Utf8Kind::kComplete) return error("the grammar is not UTF-8");
    at_ += step.length;
    return decode_utf8(text_.substr(here, step.length));
  }

  Result<Symbol> literal(size_t begin) {
    std::string text;
    while (!take("\"")) {
      PUMICE_TRY(const char32_t c, character(begin, "a literal that is not closed"));
      append_utf8(c, text);
    }
    return builder_.literal(text);
  }

  Result<Symbol> character_class(size_t begin) {
    constexpr std::string_view kUnclosed = "a [ that is not closed";
    const bool negated = take("^");
    std::vector<CodePointRange> ranges;
    while (!take("]")) {
      const size_t here = at_;
      PUMICE_TRY(const char32_t first, character(begin, kUnclosed));
      char32_t last = first;
      if (next() == '-' && !text_.substr(at_).starts_with("-]")) {
        ++at_;
        PUMICE_TRY(last, character(begin, kUnclosed));
        if (last < first) return error_at("a range of a class that ends before it begins", here);
      }
      ranges.push_back({first, last});
    }
    ExpressionSet& set = builder_.expressions();
    const Expression inside = set.code_points(ranges);
    return builder_.lexeme(negated ? set.both(set.character(), set.complement(inside)) : inside);
  }

  /// Behind `<`, which (or the ! before which) is at `begin`.
  Result<Symbol> token(bool negated, size_t begin) {
    const size_t from = at_ - 1;
    const size_t end = text_.find_first_of(">\n", at_);
    if (end == std::string_view::npos || text_[end] == '\n')
      return error_at("a < that is not closed", begin);
    std::optional<TokenId> id;
    if (take("[")) {
      id = number();
      if (!id || !take("]") || at_ != end)
        return error_at("a token's number was expected, as in <[1000]>", begin);
    } else {
      id = find_token_ ? find_token_(text_.substr(from, end + 1 - from)) : std::nullopt;
      if (!id)
        return error_at(fmt::format("the vocabulary has no token {}",
                                    printable(text_.substr(from, end + 1 - from))),
                        begin);
    }
    at_ = end + 1;
    return builder_.tokens({*id}, negated);
  }

  std::string_view text_;
  const FindToken& find_token_;
  size_t at_ = 0;
  GrammarBuilder& builder_;
  std::map<std::string, Rule, std::less<>> rules_;
};

}  // namespace

Result<Symbol> gbnf_symbol(GrammarBuilder& grammar, std::string_view text,
                           const FindToken& find_token) {
  return GbnfParser(text, find_token, grammar).parse();
}

Result<Grammar> parse_gbnf(std::string_view text, const FindToken& find_token) {
  return within_fuel("the grammar", [&]() -> Result<Grammar> {
    GrammarBuilder builder;
    PUMICE_TRY(const Symbol root, gbnf_symbol(builder, text, find_token));
    return std::move(builder).build(root);
  });
}

}  // namespace pumice
