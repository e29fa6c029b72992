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

}  // namespace pumice
