// The little UTF-8 that tokenizers need. Malformed input is described, never rejected.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pumice {

enum class Utf8Kind {
  kComplete,    ///< a well-formed character
  kIncomplete,  ///< all of the text is the beginning of a well-formed character
  kMalformed,   ///< cannot become well-formed, whatever follows
};

struct Utf8Step {
  Utf8Kind kind;
  size_t length;  ///< bytes the character has, or the longest prefix of one ("maximal subpart")
};

/// Looks at the beginning of `text`, which is not empty. Overlong forms, surrogates and values
/// above U+10FFFF are malformed (Unicode 15, table 3-7).
Utf8Step utf8_step(std::string_view text);

/// The character that `text`, all of one well-formed sequence, stands for.
char32_t decode_utf8(std::string_view text);
void append_utf8(char32_t character, std::string& text);

}  // namespace pumice
