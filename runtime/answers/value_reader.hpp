// One value that a model writes, as it comes, into JSON: what is JSON passes through, and so does
// what models write instead of it.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace pumice {

/// A control token that the machine knows is one of these bytes, which UTF-8 never has; text, which
/// is UTF-8, has none.
constexpr bool is_mark(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte >= 0xF5 || byte == 0xC0 || byte == 0xC1;
}
constexpr bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

inline std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_blank(text.back())) text.remove_suffix(1);
  return text;
}

/// Appends `text` as what stands between the quotes of a JSON string. Pieces may be cut anywhere.
void append_escaped(std::string_view text, std::string& out);
std::string json_quoted(std::string_view text);
/// The JSON of a number or name that stands without quotes: JSON's own, Python's True, False and
/// None, and numbers as Python has them (+1, 1_000, .5). Nothing: it is neither.
std::optional<std::string> json_word(std::string_view word);

/// Reads JSON, Python literals (single quotes, tuples, its escapes) and Gemma's objects (bare names,
/// strings between long quotes) alike: what one means no other means differently. Control characters
/// within strings become escapes, lone surrogates U+FFFD, a comma before a closer goes. What was
/// given out is, at any time, the beginning of a JSON value. Time O(1) a byte, memory of the depth,
/// which is bounded, and of one number. One thread.
class ValueReader {
 public:
  enum class Root {
    kAny,
    kObject,  ///< anything else is bad
    /// An object of which only the values of its members are given out, one after the other.
    kMembers,
  };
  enum class Step {
    kMore,
    kDone,        ///< the value ends with this byte
    kDoneBefore,  ///< the value, a number or name, ended before this byte, which is not read
    /// The byte does not belong to a value; what follows may only be `close`. What ended before the
    /// byte is given out all the same, and `close` counts on it.
    kBad,
  };

  /// `quote`: what also quotes a string, in which there are no escapes; empty: nothing.
  explicit ValueReader(Root root, std::string quote = {}) : root_(root), quote_(std::move(quote)) {}

  Step feed(char c, std::string& out);
  /// Completes what was given out: a string ends, a name without a value has null. Nothing where no
  /// value began.
  void close(std::string& out);

  bool has_begun() const { return state_ != State::kValue || !closers_.empty(); }
  /// kMembers: the name of the member whose value comes, or came last.
  const std::string& member() const { return member_; }
  /// kMembers: whether the byte fed last ended a member's value.
  bool ended_member() const { return ended_member_; }

 private:
  enum class State {
    kValue,
    kFirst,
    kKey,
    kColon,
    kNext,
    kString,
    kEscape,
    kHex,
    kQuote,
    kWord,
    kDone
  };

  Step read_value(char c, std::string& out);
  Step read_key(char c, std::string& out);
  Step read_next(char c, std::string& out);
  Step read_string(char c, std::string& out);
  Step read_long_string(char c, std::string& out);
  Step read_escape(char c, std::string& out);
  Step read_hex(char c, std::string& out);
  Step read_word(char c, std::string& out);
  Step open(char closer, std::string& out);
  Step close_one(std::string& out);
  Step end_value();
  Step end_string(std::string& out);
  bool begin_string(char c, std::string& out);
  void end_hex(std::string& out);
  void put(std::string_view text, std::string& out);
  void put_escaped(std::string_view text, std::string& out);
  void put_blank(char c, std::string& out);
  void before_token(std::string& out);
  void end_surrogate(std::string& out);
  bool in_object() const { return !closers_.empty() && closers_.back() == '}'; }

  Root root_;
  std::string quote_;
  State state_ = State::kValue;
  std::string closers_;    // of what is open, the innermost last
  bool is_key_ = false;    // the string or word under way is a member's name
  char delimiter_ = 0;     // of the string under way; 0: the long quote
  std::string word_;       // under way; or the digits of an escape
  size_t n_digits_ = 0;    // that the escape under way has
  std::string surrogate_;  // the digits of the first half of a pair
  std::string comma_;      // not yet given out, with the blanks behind it
  size_t n_quote_ = 0;     // bytes of a long quote under way
  std::string member_;
  bool in_member_ = false;
  bool ended_member_ = false;
};

/// A whole text as one value, blanks around it aside. Nothing: it is not one.
std::optional<std::string> read_value(std::string_view text, const std::string& quote = {});

}  // namespace pumice
