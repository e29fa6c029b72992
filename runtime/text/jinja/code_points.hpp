// Strings as Python counts them: by code points, with Unicode's spaces and cases. Bytes that are
// not UTF-8 count one each. What takes longer than reading the text once takes the budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/jinja/value.hpp"

namespace pumice::jinja {

/// Bytes of the first code point of `text`, which is not empty.
size_t code_point_bytes(std::string_view text);
size_t count_code_points(std::string_view text);
/// The first code point and, through `length`, its bytes; U+DC80 and up for invalid bytes.
uint32_t decode_code_point(std::string_view text, size_t& length);
template <typename String>
void append_code_point(String& text, uint32_t code_point) {
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
/// The part from code point `first` on, `count` of them.
std::string_view code_points(std::string_view text, size_t first, size_t count);

bool is_space(uint32_t code_point);  ///< str.isspace()
enum class Side { kLeft, kRight, kBoth };
std::string_view strip_spaces(std::string_view text, Side side);
/// str.strip(characters)
std::string_view strip(Budget& budget, std::string_view text, Side side,
                       std::string_view characters);

Text upper(Budget& budget, std::string_view text);
Text lower(Budget& budget, std::string_view text);
/// The first letter of the text.
Text capitalize(Budget& budget, std::string_view text);
/// str.title(): after whatever is no letter.
Text title_words(Budget& budget, std::string_view text);
/// The filter: after spaces, "-" and brackets.
Text title_sentence(Budget& budget, std::string_view text);
/// The first or last place of `needle`, npos if there is none; time linear in both.
size_t find_text(Budget& budget, std::string_view text, std::string_view needle);
size_t rfind_text(Budget& budget, std::string_view text, std::string_view needle);
Text backwards(Budget& budget, std::string_view text);  ///< its bytes

/// What repr() shows as it is, not as an escape.
bool is_printable(Budget& budget, uint32_t code_point);
bool has_only_printable(Budget& budget, std::string_view text);

/// Of str.islower() and str.isupper(); linear in the text.
inline constexpr char kAllLower[] = "(?=.*?\\p{Ll})[^\\p{Lu}\\p{Lt}]*+";
inline constexpr char kAllUpper[] = "(?=.*?\\p{Lu})[^\\p{Ll}\\p{Lt}]*+";
/// Whether all of `text` matches a pattern of PCRE2.
bool matches(Budget& budget, std::string_view pattern, std::string_view text);

}  // namespace pumice::jinja
