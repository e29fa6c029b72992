#include "text/unicode.hpp"

#include <algorithm>
#include <span>

#include "text/unicode_tables.hpp"

namespace pumice {
namespace {

// The last row that begins at `c` or before it, or null.
template <typename Row, typename First>
const Row* row_of(std::span<const Row> rows, char32_t c, First first) {
  const auto next = std::partition_point(rows.begin(), rows.end(),
                                         [&](const Row& row) { return row.*first <= c; });
  return next == rows.begin() ? nullptr : &*std::prev(next);
}

bool contains(std::span<const UnicodeRange> ranges, char32_t c) {
  const UnicodeRange* range = row_of(ranges, c, &UnicodeRange::first);
  return range != nullptr && c <= range->last;
}

// Unicode, section 3.12: initial consonant, vowel and perhaps a final consonant.
void append_hangul(char32_t syllable, std::u32string& bases) {
  const char32_t index = syllable - 0xAC00;
  bases += 0x1100 + index / (21 * 28);
  bases += 0x1161 + index / 28 % 21;
  if (index % 28 != 0) bases += 0x11A7 + index % 28;
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_punctuation(char32_t c) { return contains(unicode_tables().punctuation, c); }

bool is_nonspacing_mark(char32_t c) { return contains(unicode_tables().nonspacing_marks, c); }

bool is_control(char32_t c) { return contains(unicode_tables().controls, c); }

char32_t to_lower(char32_t c) {
  const LowerCaseRun* run = row_of(unicode_tables().lower_case, c, &LowerCaseRun::first);
  if (run == nullptr || c > run->last || (c - run->first) % run->step != 0) return c;
  return static_cast<char32_t>(static_cast<int>(c) + run->distance);
}

void append_base(char32_t c, std::u32string& bases) {
  if (c >= 0xAC00 && c <= 0xD7A3) return append_hangul(c, bases);
  if (is_nonspacing_mark(c)) return;
  const UnicodeTables& tables = unicode_tables();
  const BaseRun* run = row_of(tables.bases, c, &BaseRun::first);
  const BaseSequence* sequence = row_of(tables.base_sequences, c, &BaseSequence::character);
  if (run != nullptr && c - run->first < run->bases.size()) {
    bases += run->bases[c - run->first];
  } else if (sequence != nullptr && sequence->character == c) {
    bases += sequence->bases;
  } else {
    bases += c;
  }
}

}  // namespace pumice
