// Paths are std::filesystem::path inside and UTF-8 at the edges: the C ABI, the command line, JSON,
// messages. Neither path::string() nor a path made of char does that on every system.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace pumice {

/// In UTF-8. Where the system's paths are bytes, these bytes, whether UTF-8 or not: from_utf8 gives
/// the same path again.
inline std::string to_utf8(const std::filesystem::path& path) {
  const std::u8string text = path.u8string();
  return {text.begin(), text.end()};
}

/// The same with slashes between its parts on every system.
inline std::string to_generic_utf8(const std::filesystem::path& path) {
  const std::u8string text = path.generic_u8string();
  return {text.begin(), text.end()};
}

inline std::filesystem::path from_utf8(std::string_view text) {
  return std::u8string(text.begin(), text.end());
}

}  // namespace pumice
