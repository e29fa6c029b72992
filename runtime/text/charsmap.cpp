#include "text/charsmap.hpp"

#include <algorithm>

namespace pumice {
namespace {

uint32_t little_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} | uint32_t{bytes[1]} << 8 | uint32_t{bytes[2]} << 16 |
         uint32_t{bytes[3]} << 24;
}

uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }
// A leaf's top bit is set, so that it is no byte's node.
uint32_t label_of(uint32_t unit) { return unit & (1u << 31 | 0xFF); }
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }

}  // namespace

Result<Charsmap> Charsmap::create(const std::vector<uint8_t>& data) {
  Charsmap map;
  if (data.empty()) return map;
  const size_t n_table = data.size() < 4 ? 0 : little_endian(data.data());
  if (data.size() < 4 || n_table % 4 != 0 || n_table > data.size() - 4) {
    return make_error(ErrorCode::kBadFile,
                      "tokenizer.ggml.precompiled_charsmap has {} bytes, which hold no table",
                      data.size());
  }
  map.units_.resize(n_table / 4);
  for (size_t i = 0; i < map.units_.size(); ++i) {
    map.units_[i] = little_endian(data.data() + 4 + 4 * i);
  }
  map.replacements_.assign(data.begin() + 4 + static_cast<std::ptrdiff_t>(n_table), data.end());
  size_t begin = 0;
  for (size_t end; begin < map.replacements_.size(); begin = end + 1) {
    end = map.replacements_.find('\0', begin);
    if (end == std::string::npos || end - begin > kMaxBytes) {
      return make_error(ErrorCode::kBadFile,
                        "tokenizer.ggml.precompiled_charsmap: the replacement at {} does not end "
                        "within {} bytes",
                        begin, kMaxBytes);
    }
  }
  return map;
}

std::optional<Charsmap::Replacement> Charsmap::find(std::string_view text) const {
  if (units_.empty()) return std::nullopt;
  std::optional<Replacement> longest;
  uint32_t node = offset_of(units_[0]);
  for (size_t i = 0; i < std::min(text.size(), kMaxBytes) && text[i] != '\0'; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    const size_t begin = node < units_.size() ? value_of(units_[node]) : std::string::npos;
    if (begin >= replacements_.size()) break;
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    longest = {rest.substr(0, rest.find('\0')), i + 1};
  }
  return longest;
}

}  // namespace pumice
