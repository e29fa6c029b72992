#include "text/sentence_stream.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "text/utf8.hpp"

namespace pumice {
namespace {

template <size_t N>
bool is_one_of(char32_t character, const std::array<char32_t, N>& characters) {
  return std::ranges::find(characters, character) != characters.end();
}

bool is_white_space(char32_t c) {
  return c == U' ' || c == U'\t' || c == U'\r' || c == 0x3000 || (c >= 0x2000 && c <= 0x200A);
}

/// Chinese and Japanese, half width, Devanagari, Arabic, Urdu, Armenian, Ethiopic, Burmese, Khmer.
bool is_certain_end(char32_t c) {
  constexpr std::array<char32_t, 12> kEnds = {0x3002, 0xFF01, 0xFF1F, 0xFF61, 0x0964, 0x0965,
                                              0x061F, 0x06D4, 0x0589, 0x1362, 0x104B, 0x17D4};
  return is_one_of(c, kEnds);
}

bool is_mark(char32_t c) { return c == U'!' || c == U'?' || c == 0x2026; }

/// Quotes that close in German and open in Chinese.
bool may_close(char32_t c) { return c == 0x201C || c == 0x2018; }
/// Quotes, brackets and emphasis; no-break spaces, which stand before them in French; and what
/// comes before some line breaks.
bool closes(char32_t c) {
  constexpr std::array<char32_t, 23> kClosers = {U'"',   U'\'',  U')',   U']',   U'}',   U'*',
                                                 U'_',   U'\r',  0x2019, 0x201D, 0x00BB, 0x203A,
                                                 0x300D, 0x300F, 0xFF09, 0x3011, 0x300B, 0x3009,
                                                 0xFF3D, 0xFF5D, 0xFF63, 0x00A0, 0x202F};
  return is_one_of(c, kClosers);
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
/// Every byte of a letter that is not ASCII counts as one, and so do a few signs.
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (static_cast<unsigned char>(c) & 0x80) != 0;
}

/// No abbreviation has as many bytes.
constexpr size_t kLongestWord = 32;

/// Words that are rarely the last of a sentence, or whose full stop rarely ends one.
bool is_abbreviation(std::string_view word) {
  constexpr std::array<std::string_view, 41> kWords = {
      "Mr",  "Mrs", "Ms",   "Dr",  "Prof",   "St",  "Sr",  "Jr", "Sgt", "Lt",  "Capt",
      "Col", "Gen", "Rev",  "Hon", "Gov",    "vs",  "etc", "Nr", "Fig", "fig", "Vol",
      "vol", "pp",  "cf",   "ca",  "approx", "Inc", "Ltd", "Co", "Hr",  "Fr",  "bzw",
      "usw", "Mme", "Mlle", "Sra", "Srta",   "Ud",  "Uds", "Dra"};
  return std::ranges::find(kWords, word) != kWords.end();
}

}  // namespace

std::string SentenceStream::feed(std::string_view text) {
  const size_t first = held_.size();
  held_ += text;
  for (size_t at = first; at < held_.size();) {
    const std::string_view rest = std::string_view(held_).substr(at);
    const Utf8Step step = utf8_step(rest);
    const char32_t character = step.kind == Utf8Kind::kComplete
                                   ? decode_utf8(rest.substr(0, step.length))
                                   : char32_t{0xFFFD};
    take(character, at, at + step.length);
    at += step.length;
  }
  std::string given = held_.substr(0, end_);
  held_.erase(0, end_);
  begin_ = 0;
  may_end_ -= std::min(may_end_, end_);
  end_ = 0;
  return given;
}

std::string SentenceStream::flush() {
  std::string rest = std::exchange(held_, {});
  *this = {};
  return rest;
}

void SentenceStream::take(char32_t character, size_t begin, size_t end) {
  const auto cut = [&](size_t at) {
    end_ = begin_ = at;
    speaks_ = false;
    at_ = At::kInside;
  };
  if (at_ != At::kInside && (closes(character) || (at_ != At::kEnd && may_close(character)))) {
    may_end_ = end;
    return;
  }
  const bool is_break = character == U'\n';
  const bool is_end = is_certain_end(character);
  const bool goes_on = character == U'.' || is_mark(character) || is_end;
  if (at_ == At::kEnd && !goes_on && !is_break) cut(may_end_);
  if ((at_ == At::kStop || at_ == At::kMark) && is_white_space(character)) cut(may_end_);
  if (is_break) {
    if (speaks_) cut(end);
    return;
  }
  speaks_ = speaks_ || !is_white_space(character);
  if (!goes_on) {
    at_ = At::kInside;
    return;
  }
  may_end_ = end;
  if (is_end || at_ == At::kEnd) {
    at_ = At::kEnd;
  } else if (is_mark(character) || at_ != At::kInside) {
    at_ = At::kMark;  // of several full stops too
  } else if (ends_at(begin)) {
    at_ = At::kStop;
  }
}

/// Whether a full stop there may end the sentence, by the word before it.
bool SentenceStream::ends_at(size_t stop) const {
  size_t begin = stop;
  bool has_stop = false;
  bool is_number = stop > begin_;
  while (begin > begin_ && stop - begin < kLongestWord) {
    const char c = held_[begin - 1];
    if (!is_letter(c) && !is_digit(c) && c != '.') break;
    has_stop = has_stop || c == '.';
    is_number = is_number && is_digit(c);
    --begin;
  }
  const std::string_view word = std::string_view(held_).substr(begin, stop - begin);
  if (word.empty()) return true;
  const auto before = std::string_view(held_).substr(begin_, begin - begin_);
  if (is_number && before.find_first_not_of(" \t\r\n") == std::string_view::npos) return false;
  const bool has_letter = std::ranges::any_of(word, is_letter);
  if (has_stop && has_letter) return false;
  if (word.size() == 1 && word[0] >= 'A' && word[0] <= 'Z') return false;
  return !is_abbreviation(word);
}

}  // namespace pumice
