#include "answers/value_reader.hpp"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "base/json.hpp"

namespace pumice {
namespace {

constexpr size_t kMaxWordBytes = 256;
constexpr std::string_view kHexDigits = "0123456789abcdef";

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
         c == '+' || c == '.' || c == '$';
}

size_t n_digits_at(std::string_view text, size_t at) {
  const size_t end = text.find_first_not_of("0123456789", at);
  return std::min(end, text.size()) - at;
}

/// By JSON's grammar, and no larger than a double.
bool is_json_number(std::string_view text) {
  size_t at = text.starts_with('-') ? 1 : 0;
  size_t n = n_digits_at(text, at);
  if (n == 0 || (n > 1 && text[at] == '0')) return false;
  at += n;
  bool is_whole = true;
  if (at < text.size() && text[at] == '.') {
    n = n_digits_at(text, ++at);
    if (n == 0) return false;
    at += n;
    is_whole = false;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    n = n_digits_at(text, at);
    if (n == 0) return false;
    at += n;
    is_whole = false;
  }
  if (at != text.size()) return false;
  if (is_whole) return true;
  double value = 0;
  return std::from_chars(text.data(), text.data() + text.size(), value).ec == std::errc();
}

}  // namespace

void append_escaped(std::string_view text, std::string& out) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c == '\r') {
      out += "\\r";
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHexDigits[byte >> 4];
      out += kHexDigits[byte & 15];
    } else {
      out += c;
    }
  }
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  append_escaped(text, out);
  return out + '"';
}

std::optional<std::string> json_word(std::string_view word) {
  if (word == "true" || word == "True") return "true";
  if (word == "false" || word == "False") return "false";
  if (word == "null" || word == "None") return "null";
  std::string number(word);
  if (is_json_number(number)) return number;
  if (number.starts_with('+')) number.erase(0, 1);
  std::erase(number, '_');
  const size_t sign = number.starts_with('-') ? 1 : 0;
  if (number.substr(sign).starts_with('.')) number.insert(sign, 1, '0');
  if (number.ends_with('.')) number += '0';
  if (is_json_number(number)) return number;
  return std::nullopt;
}

std::optional<std::string> read_value(std::string_view text, const std::string& quote) {
  ValueReader reader(ValueReader::Root::kAny, quote);
  std::string out;
  bool is_done = false;
  for (const char c : text) {
    if (is_done && !is_blank(c)) return std::nullopt;
    if (is_done) continue;
    const ValueReader::Step step = reader.feed(c, out);
    if (step == ValueReader::Step::kBad) return std::nullopt;
    if (step == ValueReader::Step::kDoneBefore && !is_blank(c)) return std::nullopt;
    is_done = step != ValueReader::Step::kMore;
  }
  // A number or name ends with the text, whatever else ends by itself.
  if (!is_done && reader.feed(' ', out) != ValueReader::Step::kDoneBefore) return std::nullopt;
  return out;
}

ValueReader::Step ValueReader::feed(char c, std::string& out) {
  ended_member_ = false;
  switch (state_) {
    case State::kValue:
    case State::kFirst:
      return read_value(c, out);
    case State::kKey:
    case State::kColon:
      return read_key(c, out);
    case State::kNext:
      return read_next(c, out);
    case State::kString:
      return delimiter_ == 0 ? read_long_string(c, out) : read_string(c, out);
    case State::kEscape:
      return read_escape(c, out);
    case State::kHex:
      return read_hex(c, out);
    case State::kQuote:
      if (c != quote_[n_quote_]) return Step::kBad;
      if (++n_quote_ == quote_.size()) {
        n_quote_ = 0;
        delimiter_ = 0;
        state_ = State::kString;
        put("\"", out);
      }
      return Step::kMore;
    case State::kWord:
      return read_word(c, out);
    case State::kDone:
      break;
  }
  return Step::kBad;
}

ValueReader::Step ValueReader::read_value(char c, std::string& out) {
  if (is_blank(c)) {
    put_blank(c, out);
    return Step::kMore;
  }
  const bool is_root = closers_.empty();
  if (is_root && root_ != Root::kAny && c != '{') return Step::kBad;
  const bool may_close = state_ == State::kFirst || !comma_.empty();
  if (may_close && !is_root && c == closers_.back()) return close_one(out);
  if (c == '{') return open('}', out);
  if (c == '[') return open(']', out);
  if (c == '(') return open(')', out);
  is_key_ = false;
  if (begin_string(c, out)) return Step::kMore;
  if (!is_word(c)) return Step::kBad;
  before_token(out);
  word_ = c;
  state_ = State::kWord;
  return Step::kMore;
}

/// A name, what closes the object instead, or the colon behind a name.
ValueReader::Step ValueReader::read_key(char c, std::string& out) {
  if (is_blank(c)) {
    put_blank(c, out);
    return Step::kMore;
  }
  if (state_ == State::kColon) {
    if (c != ':') return Step::kBad;
    put(":", out);
    in_member_ = in_member_ || closers_.size() == 1;
    state_ = State::kValue;
    return Step::kMore;
  }
  if (c == '}') return close_one(out);
  is_key_ = true;
  if (closers_.size() == 1) member_.clear();
  if (begin_string(c, out)) return Step::kMore;
  if (!is_word(c)) return Step::kBad;
  before_token(out);
  word_ = c;
  state_ = State::kWord;
  return Step::kMore;
}

ValueReader::Step ValueReader::read_next(char c, std::string& out) {
  if (is_blank(c)) {
    put_blank(c, out);
    return Step::kMore;
  }
  if (c == closers_.back()) return close_one(out);
  if (c != ',') return Step::kBad;
  comma_ = c;
  state_ = in_object() ? State::kKey : State::kValue;
  return Step::kMore;
}

ValueReader::Step ValueReader::open(char closer, std::string& out) {
  if (closers_.size() == kMaxJsonDepth) return Step::kBad;
  before_token(out);
  put(closer == '}' ? "{" : "[", out);
  closers_ += closer;
  state_ = closer == '}' ? State::kKey : State::kFirst;
  return Step::kMore;
}

/// A comma before the closer goes, the blanks behind the comma stay.
ValueReader::Step ValueReader::close_one(std::string& out) {
  if (!comma_.empty()) put(std::string_view(comma_).substr(1), out);
  comma_.clear();
  const char closer = closers_.back();
  closers_.pop_back();
  put(closer == '}' ? "}" : "]", out);
  return end_value();
}

ValueReader::Step ValueReader::end_value() {
  if (closers_.size() == 1) {
    ended_member_ = in_member_;
    in_member_ = false;
  }
  state_ = closers_.empty() ? State::kDone : State::kNext;
  return closers_.empty() ? Step::kDone : Step::kMore;
}

bool ValueReader::begin_string(char c, std::string& out) {
  if (c == '"' || c == '\'') {
    before_token(out);
    put("\"", out);
    delimiter_ = c;
    state_ = State::kString;
    return true;
  }
  if (quote_.empty() || c != quote_.front()) return false;
  before_token(out);
  n_quote_ = 0;
  state_ = State::kQuote;
  feed(c, out);
  return true;
}

ValueReader::Step ValueReader::end_string(std::string& out) {
  end_surrogate(out);
  put("\"", out);
  if (!is_key_) return end_value();
  state_ = State::kColon;
  return Step::kMore;
}

ValueReader::Step ValueReader::read_string(char c, std::string& out) {
  if (c == '\\') {
    state_ = State::kEscape;
    return Step::kMore;
  }
  if (is_mark(c)) return Step::kBad;
  if (c == delimiter_) return end_string(out);
  end_surrogate(out);
  put_escaped({&c, 1}, out);
  return Step::kMore;
}

ValueReader::Step ValueReader::read_long_string(char c, std::string& out) {
  // The first byte of the quote is nowhere else in it.
  if (n_quote_ > 0 && c != quote_[n_quote_]) {
    put_escaped(std::string_view(quote_).substr(0, n_quote_), out);
    n_quote_ = 0;
  }
  if (c == quote_[n_quote_]) {
    if (++n_quote_ < quote_.size()) return Step::kMore;
    n_quote_ = 0;
    return end_string(out);
  }
  if (is_mark(c)) return Step::kBad;
  put_escaped({&c, 1}, out);
  return Step::kMore;
}

ValueReader::Step ValueReader::read_escape(char c, std::string& out) {
  if (is_mark(c)) return Step::kBad;
  state_ = State::kString;
  if (c == 'u' || c == 'x') {
    state_ = State::kHex;
    n_digits_ = c == 'u' ? 4 : 2;
    word_.clear();
    return Step::kMore;
  }
  end_surrogate(out);
  if (c == '\n') return Step::kMore;  // Python's line that goes on
  if (c == '\'') {
    put("'", out);
  } else if (std::string_view("\"\\/bfnrt").find(c) != std::string_view::npos) {
    const char escape[] = {'\\', c};
    put({escape, 2}, out);
  } else {  // no escape: "\d" of a regular expression
    put("\\\\", out);
    put_escaped({&c, 1}, out);
  }
  return Step::kMore;
}

ValueReader::Step ValueReader::read_hex(char c, std::string& out) {
  if (!is_hex(c)) {
    end_hex(out);
    state_ = State::kString;
    return read_string(c, out);
  }
  word_ += c;
  if (word_.size() < n_digits_) return Step::kMore;
  end_hex(out);
  state_ = State::kString;
  return Step::kMore;
}

/// Halves of pairs count only together.
void ValueReader::end_hex(std::string& out) {
  std::string digits = std::exchange(word_, {});
  if (digits.size() < n_digits_) {  // no escape
    end_surrogate(out);
    put(n_digits_ == 4 ? "\\\\u" : "\\\\x", out);
    put(digits, out);
    return;
  }
  digits.insert(0, 4 - n_digits_, '0');
  unsigned code = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  const bool is_second = code >= 0xDC00 && code < 0xE000;
  if (is_second && !surrogate_.empty()) {
    put("\\u" + std::exchange(surrogate_, {}) + "\\u" + digits, out);
    return;
  }
  end_surrogate(out);
  if (code >= 0xD800 && code < 0xDC00) {
    surrogate_ = digits;
  } else {
    put(is_second ? "\\ufffd" : "\\u" + digits, out);
  }
}

void ValueReader::end_surrogate(std::string& out) {
  if (!std::exchange(surrogate_, {}).empty()) put("\\ufffd", out);
}

ValueReader::Step ValueReader::read_word(char c, std::string& out) {
  if (is_word(c)) {
    if (word_.size() == kMaxWordBytes) return Step::kBad;
    word_ += c;
    return Step::kMore;
  }
  if (is_key_) {
    put("\"", out);
    put(std::exchange(word_, {}), out);
    put("\"", out);
    state_ = State::kColon;
    return read_key(c, out);
  }
  const std::optional<std::string> word = json_word(word_);
  if (!word) return Step::kBad;
  word_.clear();
  put(*word, out);
  if (end_value() == Step::kDone) return Step::kDoneBefore;
  const bool ended = ended_member_;
  const Step step = read_next(c, out);
  ended_member_ = ended_member_ || ended;
  return step;
}

void ValueReader::close(std::string& out) {
  const bool in_text =
      state_ == State::kString || state_ == State::kEscape || state_ == State::kHex;
  if (in_text) {
    if (delimiter_ == 0) put_escaped(std::string_view(quote_).substr(0, n_quote_), out);
    end_surrogate(out);
    put("\"", out);
    if (is_key_) put(": null", out);
  } else if (state_ == State::kWord && is_key_) {
    put(json_quoted(word_) + ": null", out);
  } else if (state_ == State::kWord) {
    put(json_word(word_).value_or("null"), out);
  } else if (state_ == State::kColon) {
    put(": null", out);
  } else if (state_ == State::kQuote) {
    put(is_key_ ? "\"\": null" : "null", out);
  } else if (state_ == State::kValue && in_object()) {
    put("null", out);
  }
  while (!closers_.empty()) {
    const char closer = closers_.back();
    closers_.pop_back();
    if (closers_.empty() && root_ == Root::kMembers) break;
    put(closer == '}' ? "}" : "]", out);
  }
  state_ = State::kDone;
}

/// What kMembers does not give out is the outermost object itself.
void ValueReader::put(std::string_view text, std::string& out) {
  if (root_ != Root::kMembers || in_member_) {
    out += text;
  } else if (is_key_ && text != "\"" && (state_ == State::kString || state_ == State::kWord)) {
    member_ += text;
  }
}

void ValueReader::put_escaped(std::string_view text, std::string& out) {
  std::string escaped;
  append_escaped(text, escaped);
  put(escaped, out);
}

void ValueReader::put_blank(char c, std::string& out) {
  if (!comma_.empty()) {
    comma_ += c;
  } else if (closers_.size() > (root_ == Root::kMembers ? 1 : 0)) {
    put({&c, 1}, out);
  }
}

void ValueReader::before_token(std::string& out) { put(std::exchange(comma_, {}), out); }

}  // namespace pumice
