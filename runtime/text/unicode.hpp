// What WordPiece asks about characters (Unicode 14; unicode_tables.hpp has the data).
#pragma once

#include <string>

namespace pumice {

/// Unicode's White_Space.
bool is_white_space(char32_t c);
/// Any of the categories P*.
bool is_punctuation(char32_t c);
/// Category Mn: accents and what else is drawn over, under or through the character before it.
bool is_nonspacing_mark(char32_t c);
/// Categories Cc, Cf and Co: controls, formats and characters for private use.
bool is_control(char32_t c);
/// The small letter, where that is one character.
char32_t to_lower(char32_t c);
/// Appends the canonical decomposition of `c` without nonspacing marks: e for é, nothing for the
/// mark alone, its letters for a Hangul syllable.
void append_base(char32_t c, std::u32string& bases);

}  // namespace pumice
