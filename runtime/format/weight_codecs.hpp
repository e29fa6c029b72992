// The codecs of the types that models may use; included by weight_type.cpp only. What the packed
// fields are is said in resident_layout.hpp; `unpack` is mirrored by shaders/common/weights.glsl.
//
// Products such as scale × quant are exact in fp32 (11 + 6 + 5 bits at most), so a type's one
// rounding is where ggml has it, whatever the order of the multiplications before it.
#pragma once

#include <bit>
#include <cstring>

#include "base/float16.hpp"
#include "format/weight_type.hpp"

namespace pumice::codecs {

static_assert(std::endian::native == std::endian::little, "file blocks are read in place");

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
inline uint32_t byte_at(const std::byte* from, size_t index) {
  return std::to_integer<uint32_t>(from[index]);
}
inline float low_half(uint32_t word) { return half_to_float(static_cast<uint16_t>(word)); }
inline float high_half(uint32_t word) { return half_to_float(static_cast<uint16_t>(word >> 16)); }
/// Byte `index` of a word as a signed number.
inline float signed_byte(uint32_t word, uint32_t index) {
  return static_cast<float>(static_cast<int8_t>(word >> (8 * index)));
}
/// Value `index` of a unit that holds 32 nibbles.
inline uint32_t nibble(const uint32_t (&unit)[4], uint32_t index) {
  return unit[index % 16 / 4] >> (8 * (index % 4) + 4 * (index / 16)) & 15u;
}
/// Write 32 nibbles to a unit.
inline void pack_nibbles(const uint8_t* values, uint32_t (&unit)[4]) {
  for (uint32_t i = 0; i < 32; ++i) {
    unit[i % 16 / 4] |= (values[i] & 15u) << (8 * (i % 4) + 4 * (i / 16));
  }
}

struct F32 {
  static constexpr ResidentLayout kLayout{32, 8, 0};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    std::memcpy(row.units, blocks, n_cols * 4);
  }
  static void unpack(const TileRow& row, uint32_t, float* out) { std::memcpy(out, row.units, 128); }
};

struct F16 {
  static constexpr ResidentLayout kLayout{32, 4, 0};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    std::memcpy(row.units, blocks, n_cols * 2);
  }
  static void unpack(const TileRow& row, uint32_t, float* out) {
    for (uint32_t i = 0; i < 32; i += 2) {
      out[i] = low_half(row.units[i / 8][i % 8 / 2]);
      out[i + 1] = high_half(row.units[i / 8][i % 8 / 2]);
    }
  }
};

struct BF16 {
  static constexpr ResidentLayout kLayout = F16::kLayout;
  static constexpr auto pack = F16::pack;
  static void unpack(const TileRow& row, uint32_t, float* out) {
    for (uint32_t i = 0; i < 32; i += 2) {
      const uint32_t word = row.units[i / 8][i % 8 / 2];
      out[i] = std::bit_cast<float>(word << 16);
      out[i + 1] = std::bit_cast<float>(word & 0xFFFF0000u);
    }
  }
};

/// File block: half d, 32 int8.
struct Q8_0 {
  static constexpr ResidentLayout kLayout{64, 4, 1};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    for (uint32_t b = 0; b < n_cols / 32; ++b) {
      const std::byte* block = blocks + 34 * b;
      std::memcpy(row.units[2 * b], block + 2, 32);
      row.words[0] |= uint32_t{load<uint16_t>(block)} << (16 * b);
    }
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[0] >> (16 * block));
    for (uint32_t i = 0; i < 32; ++i) {
      out[i] = signed_byte(row.units[2 * block + i / 16][i % 16 / 4], i % 4) * d;
    }
  }
};

/// File block: half d, 32 nibbles holding value + 8, already in the order of a unit.
struct Q4_0 {
  static constexpr ResidentLayout kLayout{64, 2, 1};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    for (uint32_t b = 0; b < n_cols / 32; ++b) {
      const std::byte* block = blocks + 18 * b;
      std::memcpy(row.units[b], block + 2, 16);
      for (uint32_t& word : row.units[b]) word ^= 0x88888888u;
      row.words[0] |= uint32_t{load<uint16_t>(block)} << (16 * b);
    }
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[0] >> (16 * block));
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t bits = nibble(row.units[block], i);
      out[i] = static_cast<float>(static_cast<int32_t>(bits << 28) >> 28) * d;
    }
  }
};

/// Scales and minima of the eight sub-blocks of Q4_K: six bits each, in 12 bytes.
struct KScales {
  uint32_t scale[8];
  uint32_t minimum[8];

  explicit KScales(const std::byte* from) {
    for (uint32_t b = 0; b < 4; ++b) {
      const uint32_t first = byte_at(from, b);
      const uint32_t second = byte_at(from, b + 4);
      const uint32_t third = byte_at(from, b + 8);
      scale[b] = first & 63u;
      minimum[b] = second & 63u;
      scale[b + 4] = (third & 15u) | (first >> 6 << 4);
      minimum[b + 4] = third >> 4 | (second >> 6 << 4);
    }
  }
  void pack(uint32_t (&unit)[4]) const {
    for (uint32_t b = 0; b < 8; ++b) {
      unit[1] |= (scale[b] & 15u) << (4 * b);
      unit[2] |= (minimum[b] & 15u) << (4 * b);
      unit[3] |= (scale[b] >> 4 | minimum[b] >> 4 << 2) << (4 * b);
    }
  }
  static float scale_of(const uint32_t (&unit)[4], uint32_t block) {
    const uint32_t shift = 4 * block;
    return low_half(unit[0]) *
           static_cast<float>((unit[1] >> shift & 15u) | (unit[3] >> shift & 3u) << 4);
  }
  static float minimum_of(const uint32_t (&unit)[4], uint32_t block) {
    const uint32_t shift = 4 * block;
    return high_half(unit[0]) *
           static_cast<float>((unit[2] >> shift & 15u) | (unit[3] >> shift & 12u) << 2);
  }
};

/// File block: half d, half dmin, 12 bytes of scales, four times 32 bytes that hold the nibbles of
/// two sub-blocks of 32.
struct Q4_K {
  static constexpr ResidentLayout kLayout{256, 9, 0};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.units[0][0] = load<uint32_t>(block);
    KScales(block + 4).pack(row.units[0]);
    for (uint32_t b = 0; b < 8; ++b) {
      uint8_t values[32];
      for (uint32_t i = 0; i < 32; ++i) {
        values[i] = static_cast<uint8_t>(byte_at(block + 16, 32 * (b / 2) + i) >> (4 * (b % 2)));
      }
      pack_nibbles(values, row.units[1 + b]);
    }
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float scale = KScales::scale_of(row.units[0], block);
    const float minimum = KScales::minimum_of(row.units[0], block);
    for (uint32_t i = 0; i < 32; ++i) {
      out[i] = scale * static_cast<float>(nibble(row.units[1 + block], i)) - minimum;
    }
  }
};

/// File block: 128 bytes of low nibbles, 64 of high bit pairs, 16 int8 scales, half d. Each half of
/// 128 values takes 64 and 32 of those bytes.
struct Q6_K {
  static constexpr ResidentLayout kLayout{256, 13, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    for (uint32_t b = 0; b < 8; ++b) {
      const uint32_t quarter = b % 4;
      const std::byte* low = block + 64 * (b / 4) + 32 * (quarter % 2);
      const std::byte* high = block + 128 + 32 * (b / 4);
      uint8_t nibbles[32];
      uint32_t* pairs = row.units[8 + b / 2] + 2 * (b % 2);
      for (uint32_t i = 0; i < 32; ++i) {
        nibbles[i] = static_cast<uint8_t>(byte_at(low, i) >> (4 * (quarter / 2)));
        const uint32_t pair = (byte_at(high, i) >> (2 * quarter) & 3u) ^ 2u;  // value - 32
        pairs[i / 16] |= pair << (8 * (i % 4) + 2 * (i % 16 / 4));
      }
      pack_nibbles(nibbles, row.units[b]);
    }
    std::memcpy(row.units[12], block + 192, 16);
    row.words[0] = load<uint16_t>(block + 208);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float quarter_d = low_half(row.words[0]) * 0.25f;  // values come out times four
    const uint32_t scales = row.units[12][block / 2] >> (16 * (block % 2));
    const uint32_t* pairs = row.units[8 + block / 2] + 2 * (block % 2);
    for (uint32_t half = 0; half < 2; ++half) {
      const float scale = quarter_d * signed_byte(scales, half);
      for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t nibbles = row.units[block][k];
        const uint32_t low = (half == 0 ? nibbles << 2 : nibbles >> 2) & 0x3C3C3C3Cu;
        const uint32_t word = low | (pairs[half] << (6 - 2 * k) & 0xC0C0C0C0u);
        for (uint32_t i = 0; i < 4; ++i) out[16 * half + 4 * k + i] = signed_byte(word, i) * scale;
      }
    }
  }
};

}  // namespace pumice::codecs
