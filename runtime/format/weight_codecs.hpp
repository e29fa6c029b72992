// The codecs of the types that models may use; included by weight_type.cpp only. What the packed
// fields are is said in resident_layout.hpp; `unpack` is mirrored by shaders/weights.
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
/// A unit of 32 nibbles: of each of 32 bytes, the four bits from `shift` on.
inline void pack_nibbles(const std::byte* from, uint32_t shift, uint32_t (&unit)[4]) {
  for (uint32_t k = 0; k < 4; ++k) {
    const uint32_t first = load<uint32_t>(from + 4 * k) >> shift & 0x0F0F0F0Fu;
    const uint32_t second = load<uint32_t>(from + 16 + 4 * k) >> shift & 0x0F0F0F0Fu;
    unit[k] = first | second << 4;
  }
}
/// Two words of 16 pairs: of each of 32 bytes, the two bits from `shift` on.
inline void pack_pairs(const std::byte* from, uint32_t shift, uint32_t* pairs) {
  for (uint32_t k = 0; k < 8; ++k) {
    const uint32_t four = load<uint32_t>(from + 4 * k) >> shift & 0x03030303u;
    pairs[k / 4] |= four << (2 * (k % 4));
  }
}
/// A word of 32 high bits: of each of 32 bytes, bit `shift`.
inline uint32_t pack_high_bits(const std::byte* from, uint32_t shift) {
  uint32_t word = 0;
  for (uint32_t k = 0; k < 8; ++k) {
    word |= (load<uint32_t>(from + 4 * k) >> shift & 0x01010101u) << k;
  }
  return word;
}
/// Bit of a word of pairs where the two bits of value `index` (of 16) begin.
inline uint32_t pair_shift(uint32_t index) { return 8 * (index % 4) + 2 * (index / 4); }
/// Bit of a word of high bits that belongs to value `index` (of 32).
inline uint32_t high_bit_shift(uint32_t index) {
  return 8 * (index % 4) + index % 16 / 4 + 4 * (index / 16);
}
inline uint32_t high_bit(uint32_t word, uint32_t index) {
  return word >> high_bit_shift(index) & 1u;
}
/// The `n_bits` low bits of `bits` as a signed number.
inline float signed_bits(uint32_t bits, uint32_t n_bits) {
  return static_cast<float>(static_cast<int32_t>(bits << (32 - n_bits)) >> (32 - n_bits));
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
  static constexpr auto pack = F16::pack;  // NOLINT(readability-identifier-naming): a function
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
      out[i] = signed_bits(bits, 4) * d;
    }
  }
};

/// File block: half d, half m, 32 nibbles.
struct Q4_1 {
  static constexpr ResidentLayout kLayout{64, 2, 2};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    for (uint32_t b = 0; b < n_cols / 32; ++b) {
      row.words[b] = load<uint32_t>(blocks + 20 * b);
      std::memcpy(row.units[b], blocks + 20 * b + 4, 16);
    }
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[block]);
    const float m = high_half(row.words[block]);
    for (uint32_t i = 0; i < 32; ++i) {
      out[i] = static_cast<float>(nibble(row.units[block], i)) * d + m;
    }
  }
};

/// A word of high bits from one that has value 0 in its lowest bit.
inline uint32_t spread_high_bits(uint32_t file_bits) {
  uint32_t word = 0;
  for (uint32_t i = 0; i < 32; ++i) word |= (file_bits >> i & 1u) << high_bit_shift(i);
  return word;
}

/// File block: half d, 32 high bits, 32 nibbles; together value + 16.
struct Q5_0 {
  static constexpr ResidentLayout kLayout{64, 2, 3};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    for (uint32_t b = 0; b < n_cols / 32; ++b) {
      const std::byte* block = blocks + 22 * b;
      std::memcpy(row.units[b], block + 6, 16);
      row.words[0] |= uint32_t{load<uint16_t>(block)} << (16 * b);
      row.words[1 + b] = ~spread_high_bits(load<uint32_t>(block + 2));
    }
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[0] >> (16 * block));
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t bits = nibble(row.units[block], i) | high_bit(row.words[1 + block], i) << 4;
      out[i] = signed_bits(bits, 5) * d;
    }
  }
};

/// File block: half d, half m, 32 high bits, 32 nibbles.
struct Q5_1 {
  static constexpr ResidentLayout kLayout{64, 2, 4};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    for (uint32_t b = 0; b < n_cols / 32; ++b) {
      const std::byte* block = blocks + 24 * b;
      std::memcpy(row.units[b], block + 8, 16);
      row.words[b] = load<uint32_t>(block);
      row.words[2 + b] = spread_high_bits(load<uint32_t>(block + 4));
    }
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[block]);
    const float m = high_half(row.words[block]);
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t bits = nibble(row.units[block], i) | high_bit(row.words[2 + block], i) << 4;
      out[i] = static_cast<float>(bits) * d + m;
    }
  }
};

/// File block: half d, 32 nibbles that select a value of a table.
struct IQ4_NL {
  static constexpr ResidentLayout kLayout{64, 2, 1};
  static constexpr int8_t kTable[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
  static void pack(const std::byte* blocks, uint32_t n_cols, TileRow& row) {
    for (uint32_t b = 0; b < n_cols / 32; ++b) {
      std::memcpy(row.units[b], blocks + 18 * b + 2, 16);
      row.words[0] |= uint32_t{load<uint16_t>(blocks + 18 * b)} << (16 * b);
    }
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[0] >> (16 * block));
    for (uint32_t i = 0; i < 32; ++i) {
      out[i] = static_cast<float>(kTable[nibble(row.units[block], i)]) * d;
    }
  }
};

/// Bit pairs of sub-block `block`: two words in the units from `first` on.
inline const uint32_t* pairs_of(const TileRow& row, uint32_t first, uint32_t block) {
  return row.units[first + block / 2] + 2 * (block % 2);
}
inline uint32_t* pairs_of(TileRow& row, uint32_t first, uint32_t block) {
  return row.units[first + block / 2] + 2 * (block % 2);
}
/// The 256 bit pairs of Q2_K and Q3_K: 64 bytes in the file, 32 for each half of the values.
inline void pack_all_pairs(const std::byte* from, uint32_t first, TileRow& row) {
  for (uint32_t b = 0; b < 8; ++b) {
    pack_pairs(from + 32 * (b / 4), 2 * (b % 4), pairs_of(row, first, b));
  }
}

/// File block: 16 bytes of scale (low) and minimum (high nibble), 64 of bit pairs, half d, half
/// dmin.
struct Q2_K {
  static constexpr ResidentLayout kLayout{256, 5, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    std::memcpy(row.units[0], block, 16);
    pack_all_pairs(block + 16, 1, row);
    row.words[0] = load<uint32_t>(block + 80);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const uint32_t* pairs = pairs_of(row, 1, block);
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t bits = row.units[0][block / 2] >> (16 * (block % 2) + 8 * half);
      const float scale = low_half(row.words[0]) * static_cast<float>(bits & 15u);
      const float minimum = high_half(row.words[0]) * static_cast<float>(bits >> 4 & 15u);
      for (uint32_t i = 0; i < 16; ++i) {
        out[16 * half + i] =
            scale * static_cast<float>(pairs[half] >> pair_shift(i) & 3u) - minimum;
      }
    }
  }
};

/// File block: 32 bytes of high bits, 64 of bit pairs (together value + 4), 16 scales + 32 of six
/// bits in 12 bytes, half d.
struct Q3_K {
  static constexpr ResidentLayout kLayout{256, 7, 1};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    const std::byte* scales = block + 96;
    for (uint32_t s = 0; s < 16; ++s) {
      const uint32_t low = byte_at(scales, s % 8) >> (4 * (s / 8)) & 15u;
      const uint32_t high = byte_at(scales, 8 + s % 4) >> (2 * (s / 4)) & 3u;
      row.units[0][s / 4] |= (((low | high << 4) - 32u) & 0xFFu) << (8 * (s % 4));
    }
    pack_all_pairs(block + 32, 1, row);
    for (uint32_t b = 0; b < 8; ++b) row.units[5 + b / 4][b % 4] = ~pack_high_bits(block, b);
    row.words[0] = load<uint16_t>(block + 108);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float d = low_half(row.words[0]);
    const uint32_t scales = row.units[0][block / 2] >> (16 * (block % 2));
    const uint32_t high = row.units[5 + block / 4][block % 4];
    const uint32_t* pairs = pairs_of(row, 1, block);
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t bits = (pairs[i / 16] >> pair_shift(i % 16) & 3u) | high_bit(high, i) << 2;
      out[i] = signed_bits(bits, 3) * (d * signed_byte(scales, i / 16));
    }
  }
};

/// Scales and minima of the eight sub-blocks of Q4_K and Q5_K: six bits each, in 12 bytes.
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

/// Nibbles of Q4_K and Q5_K: 32 bytes in the file hold two sub-blocks, one in the low halves.
inline void pack_k_nibbles(const std::byte* from, TileRow& row) {
  for (uint32_t b = 0; b < 8; ++b) {
    pack_nibbles(from + 32 * (b / 2), 4 * (b % 2), row.units[1 + b]);
  }
}

/// File block: half d, half dmin, 12 bytes of scales, 128 of nibbles.
struct Q4_K {
  static constexpr ResidentLayout kLayout{256, 9, 0};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.units[0][0] = load<uint32_t>(block);
    KScales(block + 4).pack(row.units[0]);
    pack_k_nibbles(block + 16, row);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float scale = KScales::scale_of(row.units[0], block);
    const float minimum = KScales::minimum_of(row.units[0], block);
    for (uint32_t i = 0; i < 32; ++i) {
      out[i] = scale * static_cast<float>(nibble(row.units[1 + block], i)) - minimum;
    }
  }
};

/// File block: half d, half dmin, 12 bytes of scales, 32 of high bits, 128 of nibbles.
struct Q5_K {
  static constexpr ResidentLayout kLayout{256, 11, 0};
  static void pack(const std::byte* block, uint32_t, TileRow& row) {
    row.units[0][0] = load<uint32_t>(block);
    KScales(block + 4).pack(row.units[0]);
    for (uint32_t b = 0; b < 8; ++b) row.units[9 + b / 4][b % 4] = pack_high_bits(block + 16, b);
    pack_k_nibbles(block + 48, row);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float scale = KScales::scale_of(row.units[0], block);
    const float minimum = KScales::minimum_of(row.units[0], block);
    const uint32_t high = row.units[9 + block / 4][block % 4];
    for (uint32_t i = 0; i < 32; ++i) {
      const uint32_t bits = nibble(row.units[1 + block], i) | high_bit(high, i) << 4;
      out[i] = scale * static_cast<float>(bits) - minimum;
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
      pack_nibbles(low, 4 * (quarter / 2), row.units[b]);
      uint32_t* pairs = pairs_of(row, 8, b);
      pack_pairs(high, 2 * quarter, pairs);
      for (uint32_t half = 0; half < 2; ++half) pairs[half] ^= 0xAAAAAAAAu;  // value - 32
    }
    std::memcpy(row.units[12], block + 192, 16);
    row.words[0] = load<uint16_t>(block + 208);
  }
  static void unpack(const TileRow& row, uint32_t block, float* out) {
    const float quarter_d = low_half(row.words[0]) * 0.25f;  // values come out times four
    const uint32_t scales = row.units[12][block / 2] >> (16 * (block % 2));
    const uint32_t* pairs = pairs_of(row, 8, block);
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
