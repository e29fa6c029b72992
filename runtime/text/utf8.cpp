#include "text/utf8.hpp"

#include <algorithm>
#include <cstdint>

namespace pumice {

Utf8Step utf8_step(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (lead < 0x80) return {Utf8Kind::kComplete, 1};
  if (lead < 0xC2 || lead > 0xF4) return {Utf8Kind::kMalformed, 1};

  // Only the second byte's range depends on the lead.
  uint8_t lowest = 0x80;
  uint8_t highest = 0xBF;
  if (lead == 0xE0) lowest = 0xA0;
  if (lead == 0xED) highest = 0x9F;
  if (lead == 0xF0) lowest = 0x90;
  if (lead == 0xF4) highest = 0x8F;
  const size_t length = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < std::min(length, text.size()); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte < lowest || byte > highest) return {Utf8Kind::kMalformed, i};
    lowest = 0x80;
    highest = 0xBF;
  }
  if (text.size() < length) return {Utf8Kind::kIncomplete, text.size()};
  return {Utf8Kind::kComplete, length};
}

char32_t decode_utf8(std::string_view text) {
  const auto lead = static_cast<uint8_t>(text[0]);
  if (text.size() == 1) return lead;
  char32_t character = lead & (0x7Fu >> text.size());
  for (char c : text.substr(1)) character = character << 6 | (static_cast<uint8_t>(c) & 0x3F);
  return character;
}

void append_utf8(char32_t character, std::string& text) {
  if (character < 0x80) {
    text += static_cast<char>(character);
    return;
  }
  const int n_more = character < 0x800 ? 1 : character < 0x10000 ? 2 : 3;
  const uint32_t lead = 0xFF00u >> (n_more + 1) & 0xFF;
  text += static_cast<char>(lead | character >> 6 * n_more);
  for (int i = n_more - 1; i >= 0; --i) {
    text += static_cast<char>(0x80 | (character >> 6 * i & 0x3F));
  }
}

}  // namespace pumice
