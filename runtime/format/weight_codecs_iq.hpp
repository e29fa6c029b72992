// The codecs of the types that select their values from tables: IQ1 to IQ4, MXFP4, and the ternary
// ones; included by weight_type.cpp only. See weight_codecs.hpp.
#pragma once

#include "format/weight_codecs.hpp"
#include "format/weight_grids.hpp"

namespace pumice::codecs {

/// File block: half d, 16 high and 32 low bits of eight scales + 32, 128 bytes of nibbles that
/// select a value of IQ4_NL's table.
struct IQ4_XS {
  static constexpr ResidentLayout kLayout{256, 8, 2};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    std::memcpy(row.words, block, 8);
    std::memcpy(row.units, block + 8, 128);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t low = row.words[1] >> (4 * block) & 15u;
    const uint32_t high = row.words[0] >> (16 + 2 * block) & 3u;
    const float scale =
        low_half(row.words[0]) * static_cast<float>(static_cast<int32_t>(low | high << 4) - 32);
    for (uint32_t i = 0; i < 32; ++i) {
      out[i] = static_cast<float>(IQ4_NL::kTable[nibble(row.units[block], i)]) * scale;
    }
  }
};

/// File block: an exponent, 32 nibbles that select twice a value of OCP's FP4 (E2M1).
struct MXFP4 {
  static constexpr ResidentLayout kLayout{128, 4, 1};
  static constexpr int8_t kTable[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    for (uint32_t b = 0; b < n_cols / 32; ++b) {
      row.words[0] |= byte_at(blocks, 17 * b) << (8 * b);
      std::memcpy(row.units[b], blocks + 17 * b + 1, 16);
    }
  }
  /// 2^(exponent - 128): half of OCP's E8M0, for the doubled values.
  static float half_scale(uint32_t exponent) {
    return std::bit_cast<float>(exponent < 2 ? 0x00200000u << exponent : (exponent - 1) << 23);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float scale = half_scale(row.words[0] >> (8 * block) & 0xFFu);
    for (uint32_t i = 0; i < 32; ++i) {
      out[i] = static_cast<float>(kTable[nibble(row.units[block], i)]) * scale;
    }
  }
};

/// File block: 64 bytes of bit pairs holding value + 1, half d.
struct TQ2_0 {
  static constexpr ResidentLayout kLayout{256, 4, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    pack_all_pairs(block, 0, row);
    row.words[0] = load<uint16_t>(block + 64);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[0]);
    const uint32_t* pairs = pairs_of(row, 0, block);
    for (uint32_t i = 0; i < 32; ++i) {
      const auto value = static_cast<int32_t>(pairs[i / 16] >> pair_shift(i % 16) & 3u) - 1;
      out[i] = static_cast<float>(value) * d;
    }
  }
};

/// File block: 48 bytes of five values each and 4 of four, as fractions in base three; half d. They
/// are unpacked to the pairs of TQ2_0: 2.13 bits a weight instead of 1.69, and no arithmetic in
/// base three.
struct TQ1_0 {
  static constexpr ResidentLayout kLayout = TQ2_0::kLayout;
  /// Digit `n` of a byte: value + 1.
  static uint32_t digit(uint32_t byte, uint32_t n) {
    constexpr uint32_t kPowers[] = {1, 3, 9, 27, 81};
    return (byte * kPowers[n] & 0xFFu) * 3 >> 8;
  }
  static uint32_t value_of(const std::byte* block, uint32_t i) {
    if (i < 160) return digit(byte_at(block, i % 32), i / 32);
    if (i < 240) return digit(byte_at(block, 32 + (i - 160) % 16), (i - 160) / 16);
    return digit(byte_at(block, 48 + (i - 240) % 4), (i - 240) / 4);
  }
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t* pairs = pairs_of(row, 0, i / 32);
      pairs[i % 32 / 16] |= value_of(block, i) << pair_shift(i % 16);
    }
    row.words[0] = load<uint16_t>(block + 52);
  }
  static constexpr auto unpack = TQ2_0::unpack;  // NOLINT(readability-identifier-naming)
};

/// The seven signs of eight values and the one that makes their number even.
inline uint32_t even_signs(uint32_t seven) {
  return seven | (static_cast<uint32_t>(std::popcount(seven)) & 1u) << 7;
}
/// Value `i` of a point whose words are said in weight_grids.hpp; negative where its bit is set.
inline float signed_value(uint32_t magnitude, uint32_t signs, uint32_t i) {
  const auto value = static_cast<float>(magnitude);
  return (signs >> i & 1u) != 0 ? -value : value;
}
/// Eight weights of IQ2: magnitudes 8, 25, 43.
inline void put_iq2(uint32_t point, uint32_t signs, float scale, float* out) {
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t code = point >> (8 * (i % 4) + 4 * (i / 4)) & 15u;
    out[i] = signed_value(8 + 17 * code + code / 2, signs, i) * scale;
  }
}
/// Eight weights of IQ3: two points.
inline void put_iq3(uint32_t first, uint32_t second, uint32_t signs, float scale, float* out) {
  for (uint32_t i = 0; i < 8; ++i) {
    const uint32_t point = i < 4 ? first : second;
    out[i] = signed_value(point >> (8 * (i % 4)) & 0xFFu, signs, i) * scale;
  }
}
/// Eight weights of IQ1: -1, 0, 1 and an eighth more or less.
inline void put_iq1(uint32_t point, bool less, float scale, float* out) {
  for (uint32_t i = 0; i < 8; ++i) {
    const auto code = static_cast<int32_t>(point >> (8 * (i % 4) + 4 * (i / 4)) & 15u);
    out[i] = static_cast<float>(8 * code - 8 + (less ? -1 : 1)) * (scale * 0.125f);
  }
}
/// A scale of IQ2 and IQ3_XXS of four bits: d times 0.5 to 15.5.
inline float half_steps(float d, uint32_t bits) { return d * (static_cast<float>(bits) + 0.5f); }

/// File block: half d; of each sub-block four numbers of points (bytes), then four times seven
/// signs and a scale of four bits.
struct IQ2_XXS {
  static constexpr ResidentLayout kLayout{256, 4, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.words[0] = load<uint16_t>(block);
    std::memcpy(row.units, block + 2, 64);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t* words = pairs_of(row, 0, block);
    const float scale = half_steps(low_half(row.words[0]), words[1] >> 28) * 0.25f;
    for (uint32_t g = 0; g < 4; ++g) {
      put_iq2(kIq2XXSGrid[words[0] >> (8 * g) & 0xFFu], even_signs(words[1] >> (7 * g) & 127u),
              scale, out + 8 * g);
    }
  }
};

/// File block: half d; 32 words of 16 bits: number of a point, seven signs; 16 scales of four bits.
struct IQ2_XS {
  static constexpr ResidentLayout kLayout{256, 4, 3};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.words[0] = load<uint16_t>(block);
    std::memcpy(row.units, block + 2, 64);
    std::memcpy(row.words + 1, block + 66, 8);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t* words = pairs_of(row, 0, block);
    const uint32_t scales = row.words[1 + block / 4] >> (8 * (block % 4));
    for (uint32_t g = 0; g < 4; ++g) {
      const uint32_t bits = words[g / 2] >> (16 * (g % 2)) & 0xFFFFu;
      const uint32_t s = scales >> (4 * (g / 2)) & 15u;
      put_iq2(kIq2XSGrid[bits & 511u], even_signs(bits >> 9),
              half_steps(low_half(row.words[0]), s) * 0.25f, out + 8 * g);
    }
  }
};

/// File block: half d, 32 low bytes of numbers of points, 32 bytes of signs, 64 high bits in pairs,
/// 16 scales of four bits.
struct IQ2_S {
  static constexpr ResidentLayout kLayout{256, 5, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.words[0] = load<uint16_t>(block);
    std::memcpy(row.units, block + 2, 80);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t low = row.units[block / 4][block % 4];
    const uint32_t signs = row.units[2 + block / 4][block % 4];
    const uint32_t high = row.units[4][block / 4] >> (8 * (block % 4));
    const uint32_t scales = row.units[4][2 + block / 4] >> (8 * (block % 4));
    for (uint32_t g = 0; g < 4; ++g) {
      const uint32_t number = (low >> (8 * g) & 0xFFu) | (high >> (2 * g) & 3u) << 8;
      const uint32_t s = scales >> (4 * (g / 2)) & 15u;
      put_iq2(kIq2SGrid[number], signs >> (8 * g), half_steps(low_half(row.words[0]), s) * 0.25f,
              out + 8 * g);
    }
  }
};

/// File block: half d, 64 numbers of points (bytes); of each sub-block four times seven signs and a
/// scale of four bits.
struct IQ3_XXS {
  static constexpr ResidentLayout kLayout{256, 6, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.words[0] = load<uint16_t>(block);
    std::memcpy(row.units, block + 2, 96);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t* numbers = pairs_of(row, 0, block);
    const uint32_t bits = row.units[4 + block / 4][block % 4];
    const float scale = half_steps(low_half(row.words[0]), bits >> 28) * 0.5f;
    for (uint32_t g = 0; g < 4; ++g) {
      const uint32_t two = numbers[g / 2] >> (16 * (g % 2));
      put_iq3(kIq3XXSGrid[two & 0xFFu], kIq3XXSGrid[two >> 8 & 0xFFu],
              even_signs(bits >> (7 * g) & 127u), scale, out + 8 * g);
    }
  }
};

/// File block: half d, 64 low bytes of numbers of points, 64 high bits, 32 bytes of signs, eight
/// scales of four bits. d goes behind the scales.
struct IQ3_S {
  static constexpr ResidentLayout kLayout{256, 7, 0};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    std::memcpy(row.units, block + 2, 64);
    std::memcpy(row.units[4], block + 74, 32);
    std::memcpy(row.units[6], block + 66, 8);
    row.units[6][2] = load<uint32_t>(block + 106);
    row.units[6][3] = load<uint16_t>(block);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t* low = pairs_of(row, 0, block);
    const uint32_t signs = row.units[4 + block / 4][block % 4];
    const uint32_t high = row.units[6][block / 4] >> (8 * (block % 4));
    const uint32_t s = row.units[6][2] >> (4 * block) & 15u;
    const float scale = low_half(row.units[6][3]) * static_cast<float>(2 * s + 1);
    const auto point = [&](uint32_t i) {
      return kIq3SGrid[(low[i / 4] >> (8 * (i % 4)) & 0xFFu) | (high >> i & 1u) << 8];
    };
    for (uint32_t g = 0; g < 4; ++g) {
      put_iq3(point(2 * g), point(2 * g + 1), signs >> (8 * g), scale, out + 8 * g);
    }
  }
};

/// File block: half d, 32 low bytes of numbers of points; of each sub-block 16 bits: four times
/// three high ones, a scale of three, whether an eighth is taken off instead of added.
struct IQ1_S {
  static constexpr ResidentLayout kLayout{256, 3, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.words[0] = load<uint16_t>(block);
    std::memcpy(row.units, block + 2, 48);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t low = row.units[block / 4][block % 4];
    const uint32_t high = row.units[2][block / 2] >> (16 * (block % 2));
    const float scale = low_half(row.words[0]) * static_cast<float>(2 * (high >> 12 & 7u) + 1);
    for (uint32_t g = 0; g < 4; ++g) {
      const uint32_t number = (low >> (8 * g) & 0xFFu) | (high >> (3 * g) & 7u) << 8;
      put_iq1(kIq1SGrid[number], (high >> 15 & 1u) != 0, scale, out + 8 * g);
    }
  }
};

/// File block: 32 low bytes of numbers of points; of each point four bits: three high ones, whether
/// an eighth is taken off; four words of 16 bits: four scales of three, and four bits of half d on
/// top.
struct IQ1_M {
  static constexpr ResidentLayout kLayout{256, 3, 2};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    std::memcpy(row.units, block, 48);
    std::memcpy(row.words, block + 48, 8);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t low = row.units[block / 4][block % 4];
    const uint32_t high = row.units[2][block / 2] >> (16 * (block % 2));
    const uint32_t* words = row.words;
    const float d = low_half((words[0] >> 12 & 0xFu) | (words[0] >> 24 & 0xF0u) |
                             (words[1] >> 4 & 0xF00u) | (words[1] >> 16 & 0xF000u));
    const uint32_t scales = words[block / 4] >> (16 * (block / 2 % 2) + 6 * (block % 2));
    for (uint32_t g = 0; g < 4; ++g) {
      const uint32_t number = (low >> (8 * g) & 0xFFu) | (high >> (4 * g) & 7u) << 8;
      const uint32_t s = scales >> (3 * (g / 2)) & 7u;
      put_iq1(kIq1SGrid[number], (high >> (4 * g + 3) & 1u) != 0, d * static_cast<float>(2 * s + 1),
              out + 8 * g);
    }
  }
};

}  // namespace pumice::codecs
