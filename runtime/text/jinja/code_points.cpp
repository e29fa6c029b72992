#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/jinja/code_points.hpp"

#include <pcre2.h>

#include <algorithm>
#include <memory>

#include "base/check.hpp"
#include "base/memory.hpp"
#include "text/utf8.hpp"

namespace pumice::jinja {
namespace {

struct CodeDeleter {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct MatchDeleter {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
using Code = std::unique_ptr<pcre2_code, CodeDeleter>;
using Match = std::unique_ptr<pcre2_match_data, MatchDeleter>;

// What PCRE2 takes, in steps: to compile a pattern, and for a byte of text.
constexpr uint64_t kStepsOfPattern = 100;
constexpr uint64_t kBytesOfStep = 4;
constexpr uint64_t kStepsOfMatch = 10;

void pay_for_match(Budget& budget, std::string_view text) {
  budget.step(kStepsOfPattern + text.size() / kBytesOfStep);
}

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

Code compile(std::string_view pattern, uint32_t more_options = 0) {
  int error = 0;
  PCRE2_SIZE where = 0;
  Code code(pcre2_compile(bytes_of(pattern), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOTALL | more_options, &error, &where,
                          nullptr));
  PUMICE_CHECK(code != nullptr, "a pattern of ours compiles");
  return code;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c & 0x80) == 0; });
}

/// Bytes of the code points that `text` begins with.
size_t valid_bytes(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t length = code_point_bytes(text.substr(at));
    if (length == 1 && static_cast<unsigned char>(text[at]) >= 0x80) break;
    at += length;
  }
  return at;
}

/// The one source of Unicode's cases here: PCRE2 changes them while it substitutes. It gets what is
/// valid, piece by piece: it would look at all of a text with bytes that are not for each match.
Text change_case(Budget& budget, std::string_view text, std::string_view pattern,
                 std::string_view replacement) {
  pay_for_match(budget, text);
  const Code code = compile(pattern);
  Text result(budget);
  while (!text.empty()) {
    const std::string_view valid = text.substr(0, valid_bytes(text));
    if (valid.empty()) {
      result += text[0];
      text.remove_prefix(1);
      continue;
    }
    budget.step(kStepsOfMatch);
    const size_t before = result.size();
    result.resize(before + 2 * valid.size() + 64);
    PCRE2_SIZE length = result.size() - before;
    const int n =
        pcre2_substitute(code.get(), bytes_of(valid), valid.size(), 0,
                         PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_EXTENDED | PCRE2_NO_UTF_CHECK,
                         nullptr, nullptr, bytes_of(replacement), replacement.size(),
                         reinterpret_cast<PCRE2_UCHAR*>(result.data() + before), &length);
    result.resize(before + (n < 0 ? 0 : length));
    if (n < 0) result += valid;
    text.remove_prefix(valid.size());
  }
  result.shrink_to_fit();
  return result;
}

}  // namespace

size_t code_point_bytes(std::string_view text) {
  if (static_cast<unsigned char>(text.front()) < 0x80) return 1;
  const Utf8Step step = utf8_step(text);
  return step.kind == Utf8Kind::kComplete ? step.length : 1;
}

size_t count_code_points(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += code_point_bytes(text.substr(at))) ++count;
  return count;
}

uint32_t decode_code_point(std::string_view text, size_t& length) {
  length = code_point_bytes(text);
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  if (length == 1) return byte(0) < 0x80 ? byte(0) : 0xDC00u + byte(0);
  uint32_t code_point = byte(0) & (0xFFu >> (length + 1));
  for (size_t i = 1; i < length; ++i) code_point = code_point << 6 | (byte(i) & 0x3Fu);
  return code_point;
}

std::string_view code_points(std::string_view text, size_t first, size_t count) {
  const auto skip = [](std::string_view& rest, size_t n) {
    size_t bytes = 0;
    for (; n > 0 && bytes < rest.size(); --n) bytes += code_point_bytes(rest.substr(bytes));
    return bytes;
  };
  text.remove_prefix(skip(text, first));
  return text.substr(0, skip(text, count));
}

bool is_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
         c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

namespace {

template <typename Goes>
std::string_view strip_where(std::string_view text, Side side, Goes goes) {
  while (side != Side::kRight && !text.empty()) {
    const size_t length = code_point_bytes(text);
    if (!goes(text.substr(0, length))) break;
    text.remove_prefix(length);
  }
  while (side != Side::kLeft && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
    if (code_point_bytes(text.substr(begin)) != text.size() - begin) begin = text.size() - 1;
    if (!goes(text.substr(begin))) break;
    text.remove_suffix(text.size() - begin);
  }
  return text;
}

}  // namespace

std::string_view strip_spaces(std::string_view text, Side side) {
  return strip_where(text, side, [](std::string_view character) {
    size_t length = 0;
    return is_space(decode_code_point(character, length));
  });
}

std::string_view strip(Budget& budget, std::string_view text, Side side,
                       std::string_view characters) {
  // Found where a character begins: UTF-8 has no character inside another.
  return strip_where(text, side, [&](std::string_view character) {
    return find_text(budget, characters, character) != characters.npos;
  });
}

Text upper(Budget& budget, std::string_view text) {
  if (!is_ascii(text)) return change_case(budget, text, ".+", "\\U$0");
  Text result(text, budget);
  for (char& c : result) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 0x20) : c;
  return result;
}

Text lower(Budget& budget, std::string_view text) {
  if (!is_ascii(text)) return change_case(budget, text, ".+", "\\L$0");
  Text result(text, budget);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 0x20) : c;
  return result;
}

Text capitalize(Budget& budget, std::string_view text) {
  return change_case(budget, text, "\\A(.)(.*)", "\\U$1\\E\\L$2");
}

Text title_words(Budget& budget, std::string_view text) {
  return change_case(budget, text, "(\\p{L})(\\p{L}*)", "\\U$1\\E\\L$2");
}

Text title_sentence(Budget& budget, std::string_view text) {
  return change_case(budget, text, "([^-\\s({\\[<])([^-\\s({\\[<]*)", "\\U$1\\E\\L$2");
}

size_t find_text(Budget& budget, std::string_view text, std::string_view needle) {
  if (needle.empty()) return 0;
  const size_t at = find_bytes(text, needle);
  budget.scan(needle.size() + std::min(at, text.size()));
  return at;
}

Text backwards(Budget& budget, std::string_view text) {
  return Text(text.rbegin(), text.rend(), budget);
}

size_t rfind_text(Budget& budget, std::string_view text, std::string_view needle) {
  const size_t at = find_text(budget, backwards(budget, text), backwards(budget, needle));
  return at == text.npos ? at : text.size() - at - needle.size();
}

bool is_printable(Budget& budget, uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c >= 0xD800 && c < 0xE000) return false;  // a byte that is no UTF-8
  Text text(budget);
  append_code_point(text, c);
  return has_only_printable(budget, text);
}

bool has_only_printable(Budget& budget, std::string_view text) {
  static const Code kOther =
      compile("[^ \\P{C}]|[^ \\P{Z}]", PCRE2_MATCH_INVALID_UTF);  // never changes
  budget.step(1 + text.size() / kBytesOfStep);
  const Match match(pcre2_match_data_create_from_pattern(kOther.get(), nullptr));
  return pcre2_match(kOther.get(), bytes_of(text), text.size(), 0, 0, match.get(), nullptr) < 0;
}

bool matches(Budget& budget, std::string_view pattern, std::string_view text) {
  pay_for_match(budget, text);
  const Code code = compile(pattern, PCRE2_MATCH_INVALID_UTF);  // such bytes match nothing
  const Match match(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  return pcre2_match(code.get(), bytes_of(text), text.size(), 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED,
                     match.get(), nullptr) > 0;
}

}  // namespace pumice::jinja
