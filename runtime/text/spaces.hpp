// U+2581, which stands for a space in the tokens of SentencePiece and its kin.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace pumice {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";

/// `text` with marks for its spaces, and one before it if `prefix`.
inline std::string mark_spaces(std::string_view text, bool prefix) {
  const auto n_spaces = static_cast<size_t>(std::ranges::count(text, ' '));
  std::string marked;
  marked.reserve(text.size() + kSpaceMark.size() * (n_spaces + 1));
  if (prefix) marked += kSpaceMark;
  for (char c : text) {
    if (c == ' ') {
      marked += kSpaceMark;
    } else {
      marked += c;
    }
  }
  return marked;
}

/// Appends `marked` with spaces for its marks.
inline void append_with_spaces(std::string_view marked, std::string& bytes) {
  for (size_t at = marked.find(kSpaceMark); at != marked.npos; at = marked.find(kSpaceMark)) {
    bytes += marked.substr(0, at);
    bytes += ' ';
    marked.remove_prefix(at + kSpaceMark.size());
  }
  bytes += marked;
}

}  // namespace pumice
