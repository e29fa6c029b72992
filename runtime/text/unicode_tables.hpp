// What unicode.cpp knows of characters, as sorted tables.
#pragma once

#include <span>
#include <string_view>

namespace pumice {

struct UnicodeRange {
  char32_t first;
  char32_t last;
};

/// Capitals first, first + step, … last; each is `distance` before its small letter.
struct LowerCaseRun {
  char32_t first;
  char32_t last;
  char32_t step;
  int distance;
};

/// Neighbours that decompose into one character each, without marks: first is bases[0] with them.
struct BaseRun {
  char32_t first;
  std::u32string_view bases;
};

/// A character that decomposes into several that are no nonspacing marks.
struct BaseSequence {
  char32_t character;
  std::u32string_view bases;
};

/// Hangul syllables are not in here: they decompose by arithmetic.
struct UnicodeTables {
  std::span<const UnicodeRange> punctuation;
  std::span<const UnicodeRange> nonspacing_marks;
  std::span<const UnicodeRange> controls;  ///< and formats, and characters for private use
  std::span<const LowerCaseRun> lower_case;
  std::span<const BaseRun> bases;
  std::span<const BaseSequence> base_sequences;
};

const UnicodeTables& unicode_tables();

}  // namespace pumice
