#include "base/printable.hpp"

#include <fmt/core.h>

#include "base/utf8.hpp"

namespace pumice {

std::string printable(std::string_view text, size_t max_bytes) {
  const bool utf8 = is_valid_utf8(text);
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool continues = utf8 && (byte & 0xC0) == 0x80;
    if (out.size() >= max_bytes && !continues) return out + "…";
    if (byte < 0x20 || byte == 0x7F || (byte >= 0x80 && !utf8)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace pumice
