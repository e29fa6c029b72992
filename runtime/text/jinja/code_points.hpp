// Strings as Python counts them: by code points, with Unicode's spaces and cases. Bytes that are
// not UTF-8 count one each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pumice::jinja {

/// Bytes of the first code point of `text`, which is not empty.
size_t code_point_bytes(std::string_view text);
size_t count_code_points(std::string_view text);
/// The first code point and, through `length`, its bytes; U+DC80 and up for bytes that are none.
uint32_t decode_code_point(std::string_view text, size_t& length);
void append_code_point(std::string& text, uint32_t code_point);
/// The part from code point `first` on, `count` of them.
std::string_view code_points(std::string_view text, size_t first, size_t count);

bool is_space(uint32_t code_point);  ///< str.isspace()
enum class Side { kLeft, kRight, kBoth };
/// str.strip(characters), without which spaces go.
std::string_view strip(std::string_view text, Side side,
                       std::optional<std::string_view> characters = std::nullopt);

std::string upper(std::string_view text);
std::string lower(std::string_view text);
std::string capitalize(std::string_view text);      ///< the first letter of the text
std::string title_words(std::string_view text);     ///< str.title(): after whatever is no letter
std::string title_sentence(std::string_view text);  ///< the filter: after spaces, "-" and brackets
/// The first or last place of `needle`, npos if there is none; time linear in both.
size_t find_text(std::string_view text, std::string_view needle);
size_t rfind_text(std::string_view text, std::string_view needle);

/// What repr() shows as it is, not as an escape.
bool is_printable(uint32_t code_point);
bool has_only_printable(std::string_view text);

/// What the functions of cases and patterns cost beyond their text: as much as so many bytes.
constexpr size_t kPatternBytes = 1024;
/// Of str.islower() and str.isupper(); linear in the text.
inline constexpr char kAllLower[] = "(?=.*?\\p{Ll})[^\\p{Lu}\\p{Lt}]*+";
inline constexpr char kAllUpper[] = "(?=.*?\\p{Lu})[^\\p{Ll}\\p{Lt}]*+";
/// Whether all of `text` matches a pattern of PCRE2.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace pumice::jinja
