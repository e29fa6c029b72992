#include "text/jinja/lexer.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/printable.hpp"
#include "text/jinja/code_points.hpp"

namespace pumice::jinja {
namespace {

constexpr size_t kMaxNameBytes = 1000;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_character(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

std::string with_plain_newlines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i] == '\r' ? '\n' : source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(source) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) PUMICE_TRY_STATUS(root());
    add(TokenKind::kEnd);
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return source_.substr(at_); }
  bool next_is(std::string_view text) const { return rest().starts_with(text); }

  /// Everything that leaves characters behind counts their lines.
  void skip(size_t n) {
    const std::string_view passed = source_.substr(at_, n);
    line_ += static_cast<int>(std::ranges::count(passed, '\n'));
    if (n > 0) line_starting_ = passed.back() == '\n';
    at_ += n;
  }
  size_t space_bytes() const { return rest().size() - strip_spaces(rest(), Side::kLeft).size(); }
  /// `-`, `+` or 0 where a tag begins.
  char take_sign() {
    const char sign = next_is("-") || next_is("+") ? source_[at_] : '\0';
    if (sign != '\0') skip(1);
    return sign;
  }

  Token& add(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
    return tokens_.back();
  }

  Status root() {
    size_t tag = source_.find('{', at_);
    while (tag != source_.npos &&
           (tag + 1 == source_.size() ||
            std::string_view("{%#").find(source_[tag + 1]) == std::string_view::npos)) {
      tag = source_.find('{', tag + 1);
    }
    if (tag == source_.npos) {
      add(TokenKind::kData, std::string(rest()));
      skip(rest().size());
      return {};
    }
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    data(source_.substr(at_, tag - at_), sign, source_[tag + 1] != '{');
    skip(tag - at_);
    return begin_tag(source_[tag + 1]);
  }

  /// Text before a tag whose sign this is.
  void data(std::string_view text, char sign, bool strips_line) {
    std::string_view kept = text;
    if (sign == '-') {
      kept = strip_spaces(text, Side::kRight);
    } else if (sign != '+' && strips_line) {
      const size_t line = text.rfind('\n') + 1;  // 0 where there is none
      const bool begins_line = line > 0 || line_starting_;
      if (begins_line && strip_spaces(text.substr(line), Side::kLeft).empty())
        kept = text.substr(0, line);
    }
    if (!kept.empty()) add(TokenKind::kData, std::string(kept));
  }

  Status begin_tag(char kind) {
    const int line = line_;
    skip(2);
    take_sign();
    if (kind == '#') return comment(line);
    if (kind == '%' && is_raw_tag("raw")) return raw(line);
    add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin);
    return tag(kind == '{');
  }

  Status comment(int line) {
    const size_t end = source_.find("#}", at_);
    if (end == source_.npos) return bad_template(line, "a comment without its end '#}}'");
    const char sign = end > at_ ? source_[end - 1] : '\0';
    skip(end + 2 - at_);
    end_tag(sign, true);
    return {};
  }

  /// After a tag's end whose sign this was.
  void end_tag(char sign, bool trims) {
    if (sign == '-') {
      skip(space_bytes());
    } else if (sign != '+' && trims && next_is("\n")) {
      skip(1);
    }
  }

  /// Behind "{%": whether this is the whole of a tag `word`.
  bool is_raw_tag(std::string_view word) const {
    std::string_view text = strip_spaces(rest(), Side::kLeft);
    if (!text.starts_with(word)) return false;
    text = strip_spaces(text.substr(word.size()), Side::kLeft);
    return text.starts_with("%}") || text.starts_with("-%}") ||
           (word == "endraw" && text.starts_with("+%}"));
  }

  /// Leaves "word", a sign and "%}" behind.
  char skip_raw_tag(std::string_view word) {
    skip(space_bytes());
    skip(word.size());
    skip(space_bytes());
    const char sign = take_sign();
    skip(2);
    return sign;
  }

  Status raw(int line) {
    end_tag(skip_raw_tag("raw"), false);
    for (size_t end = source_.find("{%", at_); end != source_.npos;
         end = source_.find("{%", end + 2)) {
      const size_t begin = at_;
      const char sign = end + 2 < source_.size() ? source_[end + 2] : '\0';
      const size_t word = end + (sign == '-' || sign == '+' ? 3 : 2);
      at_ = word;
      const bool ends = is_raw_tag("endraw");
      at_ = begin;
      if (!ends) continue;
      data(source_.substr(begin, end - begin), sign, true);
      skip(word - begin);
      end_tag(skip_raw_tag("endraw"), true);
      return {};
    }
    return bad_template(line, "a raw block without endraw");
  }

  /// The inside of {{ }} or {% %}, up to its end.
  Status tag(bool is_variable) {
    const std::string_view end = is_variable ? "}}" : "%}";
    const int line = line_;
    std::string open;  // brackets
    while (true) {
      skip(space_bytes());
      if (at_ == source_.size()) return bad_template(line, "a tag without its end '{}'", end);
      const bool signed_end =
          (next_is("-") || (next_is("+") && !is_variable)) && rest().substr(1).starts_with(end);
      if (open.empty() && (signed_end || next_is(end))) {
        add(is_variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd);
        const char sign = signed_end ? source_[at_] : '\0';
        skip(end.size() + (signed_end ? 1 : 0));
        end_tag(sign, !is_variable);
        return {};
      }
      PUMICE_TRY_STATUS(token(open));
    }
  }

  Status token(std::string& open) {
    const char c = source_[at_];
    if (c == '\'' || c == '"') return string(c);
    if (is_digit(c)) return number();
    if (is_name_character(c)) {
      const std::string_view text = rest();
      const auto end = std::ranges::find_if_not(text, is_name_character);
      const std::string_view name = text.substr(0, static_cast<size_t>(end - text.begin()));
      if (name.size() > kMaxNameBytes) return bad_template(line_, "a name that is too long");
      add(TokenKind::kName, std::string(name));
      skip(name.size());
      return {};
    }
    return operator_token(open);
  }

  Status operator_token(std::string& open) {
    constexpr std::string_view kTwo[] = {"//", "**", "==", "!=", ">=", "<="};
    constexpr std::string_view kOne = "+-/*%~[](){}><=.:|,;";
    const auto* two =
        std::ranges::find_if(kTwo, [&](std::string_view text) { return next_is(text); });
    const std::string_view text = two != std::end(kTwo) ? *two : rest().substr(0, 1);
    if (text.size() == 1 && kOne.find(text[0]) == kOne.npos) {
      return bad_template(line_, "unexpected character '{}'", printable(code_points(rest(), 0, 1)));
    }
    if (text == "(" || text == "[" || text == "{")
      open += text == "(" ? ')' : text == "[" ? ']' : '}';
    if (text == ")" || text == "]" || text == "}") {
      if (!open.ends_with(text[0])) return bad_template(line_, "unexpected '{}'", text);
      open.pop_back();
    }
    add(TokenKind::kOperator, std::string(text));
    skip(text.size());
    return {};
  }

  /// Digits, each perhaps after one "_", appended without that.
  size_t digits(size_t at, std::string& out, bool (*is_one)(char)) const {
    while (at < source_.size()) {
      const bool skips = source_[at] == '_' && !out.empty() && at + 1 < source_.size();
      const size_t digit = at + (skips ? 1 : 0);
      if (!is_one(source_[digit])) break;
      out += source_[digit];
      at = digit + 1;
    }
    return at;
  }

  Status number() {
    const char base = at_ + 1 < source_.size() && source_[at_] == '0'
                          ? static_cast<char>(source_[at_ + 1] | 0x20)
                          : '\0';
    if (base == 'x' || base == 'o' || base == 'b') return based_integer(base);
    std::string text;
    size_t end = digits(at_, text, is_digit);
    const bool after_dot = at_ > 0 && source_[at_ - 1] == '.';
    const size_t whole = end;
    if (!after_dot) end = fraction_and_exponent(end, text);
    if (end == whole) return integer(text, 10, end);
    add(TokenKind::kFloat).number = std::strtod(text.c_str(), nullptr);
    skip(end - at_);
    return {};
  }

  size_t fraction_and_exponent(size_t end, std::string& text) const {
    const auto at = [&](size_t i) { return i < source_.size() ? source_[i] : '\0'; };
    if (at(end) == '.' && is_digit(at(end + 1))) {
      std::string more;
      end = digits(end + 1, more, is_digit);
      text += fmt::format(".{}", more);
    }
    if ((at(end) | 0x20) == 'e') {
      const size_t sign = at(end + 1) == '+' || at(end + 1) == '-' ? 1 : 0;
      if (!is_digit(at(end + 1 + sign))) return end;
      std::string more;
      const size_t exponent = end + 1;
      end = digits(exponent + sign, more, is_digit);
      text += fmt::format("e{}{}", source_.substr(exponent, sign), more);
    }
    return end;
  }

  Status based_integer(char base) {
    const auto is_hex = [](char c) {
      return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f');
    };
    std::string text;
    const size_t start = at_ + 2 + (rest().substr(2).starts_with("_") ? 1 : 0);
    const size_t end = digits(start, text, is_hex);
    return integer(text, base == 'x' ? 16 : base == 'o' ? 8 : 2, end);
  }

  Status integer(const std::string& text, int base, size_t end) {
    int64_t value = 0;
    const auto [last, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error == std::errc::result_out_of_range) {
      return bad_template(line_, "an integer of more than 64 bits");
    }
    const bool leading_zero = base == 10 && text.starts_with('0') && value != 0;
    if (error != std::errc() || last != text.data() + text.size() || leading_zero) {
      return bad_template(line_, "a malformed number");
    }
    add(TokenKind::kInteger).integer = value;
    skip(end - at_);
    return {};
  }

  Status string(char quote) {
    std::string text;
    size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != quote; ++at) {
      if (source_[at] != '\\') {
        text += source_[at];
        continue;
      }
      if (++at == source_.size()) break;
      PUMICE_TRY_STATUS(escape(at, text));
    }
    if (at >= source_.size()) return bad_template(line_, "a string without its end");
    add(TokenKind::kString, std::move(text));
    skip(at + 1 - at_);
    return {};
  }

  /// What follows a backslash, as in Python; `at` stays on its last character.
  Status escape(size_t& at, std::string& text) const {
    constexpr std::string_view kPlain = "\\'\"abfnrtv";
    constexpr std::string_view kMeant = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[at];
    if (const size_t i = kPlain.find(c); i != kPlain.npos) {
      text += kMeant[i];
    } else if (c >= '0' && c <= '7') {
      PUMICE_TRY_STATUS(code_point(at, 0, 3, 8, text));
    } else if (c == 'x' || c == 'u' || c == 'U') {
      PUMICE_TRY_STATUS(code_point(at, 1, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, text));
    } else if (c == 'N') {
      return bad_template(line_, "characters cannot be named (\\N)");
    } else if (c != '\n') {
      text += {'\\', c};
    }
    return {};
  }

  /// Digits from `skipped` characters behind `at` on: up to three octal, or exactly `count` others.
  Status code_point(size_t& at, size_t skipped, size_t count, int base, std::string& text) const {
    const std::string_view digits = source_.substr(at + skipped, count);
    uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    const auto used = static_cast<size_t>(end - digits.data());
    const bool surrogate = value >= 0xD800 && value < 0xE000;
    if (error != std::errc() || (base == 16 && used != count) || surrogate || value > 0x10FFFF) {
      return bad_template(line_, "a malformed escape in a string");
    }
    append_code_point(text, value);
    at += skipped + used - 1;
    return {};
  }

  std::string_view source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  const std::string text = with_plain_newlines(source);
  return Lexer(text).run();
}

}  // namespace pumice::jinja
