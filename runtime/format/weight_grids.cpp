#include "format/weight_grids.hpp"

#include <cstddef>

namespace pumice {
namespace {

// Points as codes, value 0 in the lowest bits. Every grid is in rising order of them.

// 8 values of 2 bits: -1, 0, 1.
constexpr uint16_t kIq1SCodes[] = {
#include "format/grids/iq1_s.inc"
};

// 8 magnitudes of 2 bits: 8, 25, 43.
constexpr uint16_t kIq2XXSCodes[] = {
#include "format/grids/iq2_xxs.inc"
};

// 8 magnitudes of 2 bits.
constexpr uint16_t kIq2XSCodes[] = {
#include "format/grids/iq2_xs.inc"
};

// 8 magnitudes of 2 bits.
constexpr uint16_t kIq2SCodes[] = {
#include "format/grids/iq2_s.inc"
};

// 4 magnitudes of 3 bits: 4, 12, 20, 28, 36, 44, 52, 62.
constexpr uint16_t kIq3XXSCodes[] = {
#include "format/grids/iq3_xxs.inc"
};

// 4 magnitudes of 3 bits: 1, 3, 5 … 15.
constexpr uint16_t kIq3SCodes[] = {
#include "format/grids/iq3_s.inc"
};

/// Codes of two bits in the nibbles of a word: value j of 8 in byte j % 4, the first four below.
constexpr uint32_t nibbles_of(uint32_t code) {
  uint32_t word = 0;
  for (uint32_t j = 0; j < 8; ++j) word |= (code >> (2 * j) & 3u) << (8 * (j % 4) + 4 * (j / 4));
  return word;
}

/// The magnitudes of codes of three bits as the bytes of a word.
constexpr uint32_t iq3_xxs_bytes(uint32_t code) {
  uint32_t word = 0;
  for (uint32_t j = 0; j < 4; ++j) {
    const uint32_t level = code >> (3 * j) & 7u;
    word |= (level == 7 ? 62 : 8 * level + 4) << (8 * j);
  }
  return word;
}
constexpr uint32_t iq3_s_bytes(uint32_t code) {
  uint32_t word = 0;
  for (uint32_t j = 0; j < 4; ++j) word |= (2 * (code >> (3 * j) & 7u) + 1) << (8 * j);
  return word;
}

template <size_t n>
constexpr std::array<uint32_t, n> words(const uint16_t (&codes)[n], uint32_t (*word_of)(uint32_t)) {
  std::array<uint32_t, n> all{};
  for (size_t i = 0; i < n; ++i) all[i] = word_of(codes[i]);
  return all;
}

}  // namespace

constexpr std::array<uint32_t, 2048> kIq1SGrid = words(kIq1SCodes, nibbles_of);
constexpr std::array<uint32_t, 256> kIq2XXSGrid = words(kIq2XXSCodes, nibbles_of);
constexpr std::array<uint32_t, 512> kIq2XSGrid = words(kIq2XSCodes, nibbles_of);
constexpr std::array<uint32_t, 1024> kIq2SGrid = words(kIq2SCodes, nibbles_of);
constexpr std::array<uint32_t, 256> kIq3XXSGrid = words(kIq3XXSCodes, iq3_xxs_bytes);
constexpr std::array<uint32_t, 512> kIq3SGrid = words(kIq3SCodes, iq3_s_bytes);

}  // namespace pumice
