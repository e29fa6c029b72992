#include "tools/toml.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "base/ascii.hpp"
#include "base/printable.hpp"
#include "base/utf8.hpp"

namespace pumice::tools {
namespace {

constexpr size_t kShownBytes = 40;

bool is_of_bare_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_';
}

void append_utf8(std::string& out, uint32_t c) {
  const auto byte = [&](uint32_t bits) { out += static_cast<char>(bits); };
  if (c < 0x80) return byte(c);
  if (c < 0x800) {
    byte(0xC0 | (c >> 6));
  } else if (c < 0x10000) {
    byte(0xE0 | (c >> 12));
    byte(0x80 | ((c >> 6) & 0x3F));
  } else {
    byte(0xF0 | (c >> 18));
    byte(0x80 | ((c >> 12) & 0x3F));
    byte(0x80 | ((c >> 6) & 0x3F));
  }
  byte(0x80 | (c & 0x3F));
}

/// A decimal number without the underscores that may stand between its digits; nothing if it is not
/// one as TOML writes it.
std::optional<std::string> decimal(std::string_view token) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string text;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] != '_') {
      text += token[i];
      continue;
    }
    const bool between =
        i > 0 && i + 1 < token.size() && is_digit(token[i - 1]) && is_digit(token[i + 1]);
    if (!between) return std::nullopt;
  }
  if (text.starts_with('+')) text.erase(0, 1);
  const std::string_view digits = std::string_view(text).substr(text.starts_with('-') ? 1 : 0);
  if (digits.empty() || !is_digit(digits.front()) || digits.back() == '.') return std::nullopt;
  if (digits.size() > 1 && digits[0] == '0' && is_digit(digits[1])) return std::nullopt;
  if (const size_t dot = digits.find('.'); dot != digits.npos && !is_digit(digits[dot + 1])) {
    return std::nullopt;
  }
  return parse_whole<double>(text) ? std::optional(text) : std::nullopt;
}

class TomlParser {
 public:
  explicit TomlParser(std::string_view text) : rest_(text) {}

  Result<TomlFile> parse() {
    std::string table;
    for (;;) {
      PUMICE_TRY_STATUS(skip_lines());
      if (rest_.empty()) return std::move(file_);
      PUMICE_TRY_STATUS(peek() == '[' ? read_table(table) : read_setting(table));
      PUMICE_TRY_STATUS(end_line());
    }
  }

 private:
  template <typename... Args>
  Error wrong(fmt::format_string<Args...> format, Args&&... args) const {
    return make_error(ErrorCode::kInvalidArgument, "line {}: {}", line_,
                      fmt::format(format, std::forward<Args>(args)...));
  }

  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }
  void skip_blanks() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t"), rest_.size()));
  }
  /// The rest of the line, to be shown.
  std::string here() const {
    return printable(rest_.substr(0, rest_.find_first_of("\r\n")), kShownBytes);
  }

  Status skip_comment() {
    skip_blanks();
    if (peek() != '#') return {};
    const size_t end = std::min(rest_.find('\n'), rest_.size());
    rest_.remove_prefix(end);
    return {};
  }

  /// Blanks, comments and ends of lines.
  Status skip_lines() {
    for (;;) {
      PUMICE_TRY_STATUS(skip_comment());
      if (!take("\n") && !take("\r\n")) return {};
      ++line_;
    }
  }

  Status end_line() {
    PUMICE_TRY_STATUS(skip_comment());
    if (rest_.empty() || peek() == '\n' || rest_.starts_with("\r\n")) return {};
    return wrong("unexpected '{}' at the end of the line", here());
  }

  Result<std::string> read_name() {
    skip_blanks();
    if (peek() == '"' || peek() == '\'') return read_text();
    const auto end = std::ranges::find_if_not(rest_, is_of_bare_name);
    const std::string name(rest_.begin(), end);
    if (name.empty()) {
      return wrong("'{}' is not a setting; one looks like predict = 100", here());
    }
    rest_.remove_prefix(name.size());
    return name;
  }

  Status read_table(std::string& table) {
    const std::string shown = here();
    take("[");
    skip_blanks();
    if (peek() != '"' && peek() != '\'' && !is_of_bare_name(peek())) {
      return wrong("'{}' is not a table; one looks like [run]", shown);
    }
    PUMICE_TRY(table, read_name());
    skip_blanks();
    if (!take("]")) return wrong("'{}' is not a table; one looks like [run]", shown);
    if (std::ranges::find(file_.tables, table, &std::pair<std::string, size_t>::first) !=
        file_.tables.end()) {
      return wrong("the table [{}] appears twice", printable(table, kShownBytes));
    }
    file_.tables.emplace_back(table, line_);
    return {};
  }

  Status read_setting(const std::string& table) {
    TomlSetting setting{.line = line_, .table = table, .name = {}, .values = {}};
    PUMICE_TRY(setting.name, read_name());
    skip_blanks();
    if (table.empty() && take(".")) {
      setting.table = std::exchange(setting.name, {});
      PUMICE_TRY(setting.name, read_name());
      skip_blanks();
    }
    const std::string shown = printable(setting.name, kShownBytes);
    if (peek() == '.') return wrong("'{}.': the name of a setting has no dots", shown);
    if (!take("=")) return wrong("'{}' has no value; one looks like predict = 100", shown);
    skip_blanks();
    const auto same = [&](const TomlSetting& other) {
      return other.table == setting.table && other.name == setting.name;
    };
    if (std::ranges::any_of(file_.settings, same)) return wrong("'{}' is set twice", shown);
    if (take("[")) {
      PUMICE_TRY_STATUS(read_list(setting));
    } else {
      PUMICE_TRY(std::string value, read_value(shown));
      setting.values.push_back(std::move(value));
    }
    file_.settings.push_back(std::move(setting));
    return {};
  }

  Status read_list(TomlSetting& setting) {
    const std::string shown = printable(setting.name, kShownBytes);
    for (;;) {
      PUMICE_TRY_STATUS(skip_lines());
      if (take("]")) return {};
      if (rest_.empty()) return wrong("the list of '{}' has no end", shown);
      PUMICE_TRY(std::string value, read_value(shown));
      setting.values.push_back(std::move(value));
      PUMICE_TRY_STATUS(skip_lines());
      if (!take(",") && peek() != ']') {
        return wrong("the list of '{}' has no comma or end before '{}'", shown, here());
      }
    }
  }

  Result<std::string> read_value(const std::string& name) {
    if (peek() == '"' || peek() == '\'') return read_text();
    const std::string_view token =
        rest_.substr(0, std::min(rest_.find_first_of(" \t\r\n,#]"), rest_.size()));
    const bool is_boolean = token == "true" || token == "false";
    const std::optional<std::string> number = decimal(token);
    if (!is_boolean && !number) {
      return wrong(
          "'{}' takes a string in quotes, a decimal number, true, false or a list of these, not "
          "'{}'",
          name, here());
    }
    rest_.remove_prefix(token.size());
    return is_boolean ? std::string(token) : *number;
  }

  /// In single quotes as it stands, in double quotes with escapes.
  Result<std::string> read_text() {
    if (rest_.starts_with("\"\"\"") || rest_.starts_with("'''")) {
      return wrong("strings of several lines are not supported; write \\n in double quotes");
    }
    const char quote = peek();
    rest_.remove_prefix(1);
    std::string text;
    while (!rest_.empty() && peek() != '\n' && peek() != '\r') {
      const char c = peek();
      if (quote == '"' && c == '\\') {
        PUMICE_TRY_STATUS(read_escape(text));
        continue;
      }
      rest_.remove_prefix(1);
      if (c == quote) return text;
      text += c;
    }
    return wrong("a string does not end: {} is missing", quote);
  }

  Status read_escape(std::string& text) {
    constexpr std::string_view kLetters = "btnfr\"\\";
    constexpr std::string_view kMeanings = "\b\t\n\f\r\"\\";
    const std::string shown = printable(rest_.substr(0, 2));
    const char letter = rest_.size() > 1 ? rest_[1] : '\0';
    if (const size_t at = kLetters.find(letter); at != kLetters.npos) {
      text += kMeanings[at];
      rest_.remove_prefix(2);
      return {};
    }
    const size_t n_digits = letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
    uint32_t code = 0;
    if (n_digits > 0 && rest_.size() >= 2 + n_digits) {
      const char* const digits = rest_.data() + 2;
      const bool read =
          std::from_chars(digits, digits + n_digits, code, 16).ptr == digits + n_digits;
      if (read && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF)) {
        append_utf8(text, code);
        rest_.remove_prefix(2 + n_digits);
        return {};
      }
    }
    return wrong("'{}' is not an escape; a backslash is \\\\, or stands in single quotes", shown);
  }

  std::string_view rest_;
  size_t line_ = 1;
  TomlFile file_;
};

}  // namespace

Result<TomlFile> parse_toml(std::string_view text) {
  text = without_byte_order_mark(text);
  size_t line = 1;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n' && c != '\r' && c != '\t') || byte == 0x7F) {
      return make_error(ErrorCode::kInvalidArgument, "line {}: the control character \\x{:02x}",
                        line, byte);
    }
    if (c == '\n') ++line;
  }
  if (!is_valid_utf8(text)) {
    for (size_t start = 0, number = 1; start < text.size(); ++number) {
      const size_t end = std::min(text.find('\n', start), text.size());
      if (!is_valid_utf8(text.substr(start, end - start))) {
        return make_error(ErrorCode::kInvalidArgument, "line {}: not UTF-8", number);
      }
      start = end + 1;
    }
  }
  return TomlParser(text).parse();
}

}  // namespace pumice::tools
