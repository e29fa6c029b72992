// Texts of ASCII: letters and numbers, whatever the locale, and parts between separators.
#pragma once

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace pumice {

inline std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

inline std::string upper_case(std::string_view text) {
  std::string upper(text);
  for (char& c : upper) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return upper;
}

/// All of `text` as a number, in base 10 unless an integer's `base` is given; none if it is not one
/// or not in T's range.
template <typename T, typename... Base>
std::optional<T> parse_whole(std::string_view text, Base... base) {
  T number{};
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, base...);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Up to the next separator, which goes with it.
inline std::string_view take_part(std::string_view& rest, char separator) {
  const size_t end = std::min(rest.find(separator), rest.size());
  const std::string_view part = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  return part;
}

}  // namespace pumice
