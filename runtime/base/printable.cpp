#include "base/printable.hpp"

#include <fmt/core.h>

#include "base/utf8.hpp"

namespace pumice {

std::string printable(std::string_view text, size_t max_bytes) {
  const bool utf8 = is_valid_utf8(text);
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const bool continues = utf8 && (byte & 0xC0) == 0x80;
    if (out.size() >= max_bytes && !continues) return out + "…";
    // U+0080 to U+009F have two bytes; U+009B begins escape sequences as ESC [ does. These, and
    // DEL, JSON may have as they are; escaped as JSON would, they leave it valid.
    const bool is_c1 = utf8 && byte == 0xC2 && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1 || byte == 0x7F) {
      if (is_c1) ++i;
      out += fmt::format("\\u00{:02x}", static_cast<unsigned char>(text[i]));
    } else if (byte < 0x20 || (byte >= 0x80 && !utf8)) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace pumice
