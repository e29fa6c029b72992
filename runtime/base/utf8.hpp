// UTF-8 validation (RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF), and the
// byte order mark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pumice {

/// How many bytes at the start are whole characters; all of them if the text is UTF-8.
inline size_t valid_utf8_bytes(std::string_view text) {
  const auto* const start = reinterpret_cast<const unsigned char*>(text.data());
  const auto* const end = start + text.size();
  const auto* whole = start;
  const auto n_whole = [&] { return static_cast<size_t>(whole - start); };
  for (const auto* at = start; at != end; whole = at) {
    const uint32_t lead = *at++;
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return n_whole();
    const int n_more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    if (end - at < n_more) return n_whole();
    // The second byte alone excludes overlong forms, surrogates and what lies above U+10FFFF.
    const uint32_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    const uint32_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    if (*at < low || *at > high) return n_whole();
    for (int i = 1; i < n_more; ++i) {
      if ((at[i] & 0xC0) != 0x80) return n_whole();
    }
    at += n_more;
  }
  return text.size();
}

inline bool is_valid_utf8(std::string_view text) { return valid_utf8_bytes(text) == text.size(); }

/// What follows the mark that some editors put in front of UTF-8.
inline std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xEF\xBB\xBF";
  if (text.starts_with(kMark)) text.remove_prefix(kMark.size());
  return text;
}

}  // namespace pumice
