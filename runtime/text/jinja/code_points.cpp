#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/jinja/code_points.hpp"

#include <pcre2.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/check.hpp"
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

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

// Bytes that are no UTF-8 match nothing and are copied.
Code compile(std::string_view pattern) {
  int error = 0;
  PCRE2_SIZE where = 0;
  Code code(pcre2_compile(bytes_of(pattern), pattern.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_DOTALL | PCRE2_MATCH_INVALID_UTF, &error,
                          &where, nullptr));
  PUMICE_CHECK(code != nullptr, "a pattern of ours compiles");
  return code;
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

/// The one source of Unicode's cases here: PCRE2 changes them while it substitutes.
std::string change_case(std::string_view text, std::string_view pattern,
                        std::string_view replacement) {
  std::string valid(text);
  std::string result(2 * text.size() + 64, '\0');
  PCRE2_SIZE length = result.size();
  const int n = pcre2_substitute(compile(pattern).get(), bytes_of(valid), valid.size(), 0,
                                 PCRE2_SUBSTITUTE_GLOBAL | PCRE2_SUBSTITUTE_EXTENDED, nullptr,
                                 nullptr, bytes_of(replacement), replacement.size(),
                                 reinterpret_cast<PCRE2_UCHAR*>(result.data()), &length);
  if (n < 0) return valid;
  result.resize(length);
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

void append_code_point(std::string& text, uint32_t code_point) {
  const auto add = [&](uint32_t byte) { text += static_cast<char>(byte); };
  if (code_point < 0x80) return add(code_point);
  if (code_point < 0x800) {
    add(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      add(0xE0 | code_point >> 12);
    } else {
      add(0xF0 | code_point >> 18);
      add(0x80 | (code_point >> 12 & 0x3F));
    }
    add(0x80 | (code_point >> 6 & 0x3F));
  }
  add(0x80 | (code_point & 0x3F));
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

std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters) {
  const auto goes = [&](std::string_view character) {
    size_t length = 0;
    if (!characters) return is_space(decode_code_point(character, length));
    // Found where a character begins: UTF-8 has no character inside another.
    return characters->find(character) != std::string_view::npos;
  };
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

std::string upper(std::string_view text) {
  if (!is_ascii(text)) return change_case(text, ".+", "\\U$0");
  std::string result(text);
  for (char& c : result) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 0x20) : c;
  return result;
}

std::string lower(std::string_view text) {
  if (!is_ascii(text)) return change_case(text, ".+", "\\L$0");
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 0x20) : c;
  return result;
}

std::string capitalize(std::string_view text) {
  return change_case(text, "\\A(.)(.*)", "\\U$1\\E\\L$2");
}

std::string title_words(std::string_view text) {
  return change_case(text, "(\\p{L})(\\p{L}*)", "\\U$1\\E\\L$2");
}

std::string title_sentence(std::string_view text) {
  return change_case(text, "([^-\\s({\\[<])([^-\\s({\\[<]*)", "\\U$1\\E\\L$2");
}

size_t find_text(std::string_view text, std::string_view needle) {
  if (needle.empty()) return 0;
  const void* found = ::memmem(text.data(), text.size(), needle.data(), needle.size());
  return found == nullptr ? text.npos
                          : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view needle) {
  const std::string backwards(text.rbegin(), text.rend());
  const size_t at = find_text(backwards, std::string(needle.rbegin(), needle.rend()));
  return at == text.npos ? at : text.size() - at - needle.size();
}

bool is_printable(uint32_t c) {
  if (c < 0x7F) return c >= 0x20;
  if (c >= 0xD800 && c < 0xE000) return false;  // a byte that is no UTF-8
  std::string text;
  append_code_point(text, c);
  return has_only_printable(text);
}

bool has_only_printable(std::string_view text) {
  static const Code kOther = compile("[^ \\P{C}]|[^ \\P{Z}]");  // never changes
  const Match match(pcre2_match_data_create_from_pattern(kOther.get(), nullptr));
  return pcre2_match(kOther.get(), bytes_of(text), text.size(), 0, 0, match.get(), nullptr) < 0;
}

bool matches(std::string_view pattern, std::string_view text) {
  const Code code = compile(pattern);
  const Match match(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  return pcre2_match(code.get(), bytes_of(text), text.size(), 0, PCRE2_ANCHORED | PCRE2_ENDANCHORED,
                     match.get(), nullptr) > 0;
}

}  // namespace pumice::jinja
