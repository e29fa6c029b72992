#define PCRE2_CODE_UNIT_WIDTH 8
#include "constraints/unicode_property.hpp"

#include <pcre2.h>

#include <algorithm>
#include <memory>
#include <string>

#include "text/utf8.hpp"

namespace pumice {
namespace {

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};

/// All characters in order.
std::string every_character() {
  std::string text;
  for (char32_t c = 0; c <= 0x10FFFF; ++c) {
    if (c < 0xD800 || c > 0xDFFF) append_utf8(c, text);
  }
  return text;
}

bool is_name(std::string_view name) {
  return !name.empty() && name.size() < 64 && std::ranges::all_of(name, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           c == '=';
  });
}

}  // namespace

std::optional<std::vector<CodePointRange>> unicode_property(std::string_view name) {
  if (!is_name(name)) return std::nullopt;
  const std::string pattern = "\\p{" + std::string(name) + "}++";
  int error = 0;
  PCRE2_SIZE where = 0;
  const std::unique_ptr<pcre2_code, FreeCode> code(
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF, &error,
                    &where, nullptr));
  if (code == nullptr) return std::nullopt;
  const std::unique_ptr<pcre2_match_data, FreeMatch> match(
      pcre2_match_data_create_from_pattern(code.get(), nullptr));
  if (match == nullptr) return std::nullopt;

  const std::string text = every_character();
  const auto character_at = [&](size_t at) {
    return decode_utf8(
        std::string_view(text).substr(at, utf8_step(std::string_view(text).substr(at, 4)).length));
  };
  std::vector<CodePointRange> ranges;
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(match.get());
  for (size_t at = 0; pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()),
                                  text.size(), at, PCRE2_NO_UTF_CHECK, match.get(), nullptr) > 0;
       at = found[1]) {
    size_t last = found[1] - 1;
    while ((static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    ranges.push_back({character_at(found[0]), character_at(last)});
  }
  return ranges;
}

}  // namespace pumice
