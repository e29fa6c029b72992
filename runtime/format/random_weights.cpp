#include "format/random_weights.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.hpp"
#include "base/float16.hpp"

namespace pumice {
namespace {

static_assert(std::endian::native == std::endian::little, "file blocks are written in place");

constexpr uint64_t kGolden = 0x9E3779B97F4A7C15u;
constexpr size_t kSamples = 4096;  // their 16 KiB stay in the nearest cache

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014) at any
/// place of its sequence.
uint64_t random_word(uint64_t key, uint64_t index) {
  uint64_t z = key + (index + 1) * kGolden;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

/// Bytes [offset, offset + size) of the key's sequence.
void random_bytes(uint64_t key, uint64_t offset, std::span<std::byte> out) {
  uint64_t index = offset / 8;
  if (const size_t skip = offset % 8; skip != 0) {
    const uint64_t word = random_word(key, index++) >> (8 * skip);
    const size_t n = std::min(out.size(), 8 - skip);
    std::memcpy(out.data(), &word, n);
    out = out.subspan(n);
  }
  const size_t n_words = out.size() / 8;
  for (size_t i = 0; i < n_words; ++i) {
    const uint64_t word = random_word(key, index + i);
    std::memcpy(out.data() + 8 * i, &word, sizeof word);
  }
  const uint64_t last = random_word(key, index + n_words);
  std::memcpy(out.data() + 8 * n_words, &last, out.size() % 8);
}

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}
template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

using Scales = std::array<uint32_t, 256>;

// What is random in a block already and stays so is not touched. `pick`, where the scale goes,
// chooses one of the 256.

void put_scale(std::byte* at, const Scales& scales) {
  store(at, static_cast<uint16_t>(scales[std::to_integer<size_t>(*at)]));
}
void put_scale_and_minimum(std::byte* at, const Scales& scales) {
  store(at, scales[std::to_integer<size_t>(*at)]);
}

/// Q4_K, Q5_K: six bits each, 32 to 63, minimum equal to scale (the layout is KScales' in
/// weight_codecs.hpp). dmin then centres the quants.
void put_k_scales(std::byte* block) {
  std::byte* const at = block + 4;
  const uint32_t first = load<uint32_t>(at) | 0xA0A0A0A0u;
  const uint32_t nibbles = load<uint32_t>(at + 8) & 0x0F0F0F0Fu;
  store(at, first);
  store(at + 4, first);
  store(at + 8, nibbles | nibbles << 4);
}

/// Q2_K: four bits each, 8 to 15, minimum equal to scale.
void put_q2_scales(std::byte* at) {
  for (size_t i = 0; i < 16; i += 8) {
    const uint64_t nibbles = (load<uint64_t>(at + i) & 0x0707070707070707u) | 0x0808080808080808u;
    store(at + i, nibbles | nibbles << 4);
  }
}

/// Q6_K: int8 of 8 to 15, either sign.
void put_q6_scales(std::byte* block) {
  std::byte* const at = block + 192;
  for (size_t i = 0; i < 16; i += 8) {
    const uint64_t bits = load<uint64_t>(at + i);
    const uint64_t magnitude = (bits & 0x0707070707070707u) | 0x0808080808080808u;
    const uint64_t negative = bits >> 7 & 0x0101010101010101u;
    store(at + i, (magnitude ^ negative * 0xFF) + negative);  // no byte carries into the next
  }
}

/// IQ1_M: a half in four pieces, on top of each 16 bits of scales.
void put_scattered_scale(std::byte* at, const Scales& scales) {
  const uint32_t half = scales[std::to_integer<size_t>(*at)];
  for (size_t i = 0; i < 4; ++i) {
    const uint32_t rest = load<uint16_t>(at + 2 * i) & 0x0FFFu;
    store(at + 2 * i, static_cast<uint16_t>(rest | (half >> (4 * i) & 15u) << 12));
  }
}

/// TQ2_0: of the pairs 0 to 2, which stand for -1 to 1, the middle one twice as often.
void put_trits(std::byte* at) {
  for (size_t i = 0; i < 64; i += 8) {
    const auto bits = load<uint64_t>(at + i);
    store(at + i, bits & ~((bits & bits >> 1 & 0x5555555555555555u) << 1));
  }
}

/// MXFP4: its scales are powers of two, not halves.
void put_exponent(std::byte* at, const Scales& scales) {
  store(at, static_cast<uint8_t>(scales[std::to_integer<size_t>(*at)]));
}

/// How a quantised type's blocks become sane weights of deviation one.
struct BlockShape {
  std::string_view type;
  /// Mean square of quant × sub-block scale over random bits, after the minimum was taken off.
  double quant_square;
  size_t scale_at = 0;  ///< byte of a block
  void (*put)(std::byte* at, const Scales& scales) = put_scale;
  /// m or dmin as a multiple of d; 0 for none.
  double minimum = 0;
  /// What else may not be random.
  void (*finish)(std::byte* block) = nullptr;
  /// Negative d too, as real files have: it makes up for quants that are not centred (-8..7).
  bool either_sign = true;
};

// Mean squares: n equally likely consecutive values have (n² - 1) / 12 around their mean; the
// scales 8..15 have 137.5, 32..63 have 2341.5, -32..31 have 341.5, 0.5..15.5 have 85.25 and odd
// ones up to 15 have 85. Those of grids are their points'. Values of IQ1 are an eighth more or
// less.
constexpr BlockShape kShapes[] = {
    {"Q4_0", 21.5},
    {"Q4_1", 21.25, 0, put_scale_and_minimum, -7.5, nullptr, false},
    {"Q5_0", 85.5},
    {"Q5_1", 85.25, 0, put_scale_and_minimum, -15.5, nullptr, false},
    {"Q8_0", 5461.5, 0, put_scale, 0, nullptr, false},
    {"IQ4_NL", 4548.0},
    {"Q2_K", 137.5 * 1.25, 80, put_scale_and_minimum, 1.5, put_q2_scales, false},
    {"Q3_K", 341.5 * 5.5, 108},
    {"Q4_K", 2341.5 * 21.25, 0, put_scale_and_minimum, 7.5, put_k_scales, false},
    {"Q5_K", 2341.5 * 85.25, 0, put_scale_and_minimum, 15.5, put_k_scales, false},
    {"Q6_K", 137.5 * 341.5, 208, put_scale, 0, put_q6_scales},
    {"IQ1_S", 85 * 0.6098},
    {"IQ1_M", 85 * 0.6098, 48, put_scattered_scale},
    {"IQ2_XXS", 85.25 / 16 * 534.43},
    {"IQ2_XS", 85.25 / 16 * 586.48},
    {"IQ2_S", 85.25 / 16 * 596.84},
    {"IQ3_XXS", 85.25 / 4 * 951.64},
    {"IQ3_S", 85.25 * 4 * 57.672},
    {"IQ4_XS", 341.5 * 4548.0},
    {"TQ1_0", 0.66797, 52},
    {"TQ2_0", 0.5, 64, put_scale, 0, put_trits},
    {"MXFP4", 34.25, 0, put_exponent, 0, nullptr, false},
};

const BlockShape* shape_of(const WeightType& type) {
  const auto* found = std::ranges::find(kShapes, type.name, &BlockShape::type);
  return found == std::end(kShapes) ? nullptr : found;
}

/// A sample of the standard normal distribution: mean exactly 0, mean square exactly 1. No function
/// of the C library is used but sqrt, which is the same everywhere.
std::vector<double> normal_sample() {
  std::vector<double> sample(kSamples);
  double square = 0;
  for (size_t i = 0; i < kSamples / 2; ++i) {
    int64_t sum = 0;  // of 12 uniform numbers of 16 bits
    for (uint64_t word = 0; word < 3; ++word) {
      for (uint64_t bits = random_word(0, 3 * i + word); bits != 0; bits >>= 16) {
        sum += static_cast<int64_t>(bits & 0xFFFF);
      }
    }
    sample[i] = static_cast<double>(sum - 6 * 0xFFFF);
    square += sample[i] * sample[i];
  }
  const double scale = std::sqrt(kSamples / (2 * square));
  for (size_t i = 0; i < kSamples / 2; ++i) {
    sample[i] *= scale;
    sample[i + kSamples / 2] = -sample[i];
  }
  return sample;
}

}  // namespace

uint64_t random_key(uint64_t seed, std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325u;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return random_word(random_word(seed, 0) ^ hash, 0);
}

RandomWeights::RandomWeights(const WeightType& type, uint64_t key, float deviation, float mean)
    : type_(type), key_(key) {
  if (const BlockShape* shape = shape_of(type)) {
    PUMICE_CHECK(mean == 0, "quantised random weights need mean 0");
    const double quant_deviation = deviation / std::sqrt(shape->quant_square);
    if (shape->put == put_exponent) {
      make_exponents(quant_deviation);
    } else {
      make_scales(quant_deviation, shape->either_sign, shape->minimum);
    }
    return;
  }
  for (const double value : normal_sample()) {
    const auto weight = static_cast<float>(mean + deviation * value);
    if (type.name == "F32") {
      values_.push_back(std::bit_cast<uint32_t>(weight));
    } else if (type.name == "F16") {
      values_.push_back(float_to_half(weight));
    } else {
      PUMICE_CHECK(type.name == "BF16", "no random weights of type " + std::string(type.name));
      values_.push_back(float_to_bfloat16(weight));
    }
  }
}

void RandomWeights::make_scales(double deviation, bool either_sign, double minimum_over_scale) {
  // Magnitudes spread evenly over 0.75..1.25 have a mean square of 0.75² + 0.75 × 0.5 + 0.5² / 3.
  const double unit = deviation / std::sqrt(0.5625 + 0.375 + 0.25 / 3);
  for (size_t i = 0; i < scales_.size(); ++i) {
    double d = unit * (0.75 + 0.5 * static_cast<double>(i % 128) / 127);
    if (either_sign && i >= 128) d = -d;
    const uint16_t scale = float_to_half(static_cast<float>(d));
    const uint16_t minimum =
        float_to_half(static_cast<float>(minimum_over_scale) * half_to_float(scale));
    scales_[i] = scale | uint32_t{minimum} << 16;
  }
}

void RandomWeights::make_exponents(double deviation) {
  int exponent = 0;  // of the smaller of two neighbouring powers; 128 is that of 1
  const double half = 2 * std::frexp(deviation, &exponent);
  const auto small = static_cast<uint32_t>(std::clamp(exponent - 1 + 128, 0, 253));
  // As many of the larger as give the mean square.
  const double large = 256 * (half * half - 1) / 3;
  for (size_t i = 0; i < scales_.size(); ++i) {
    scales_[i] = static_cast<double>(i) + 0.5 < large ? small + 1 : small;
  }
}

void RandomWeights::fill_values(std::span<std::byte> out) const {
  constexpr uint32_t kIndexBits = std::countr_zero(kSamples);
  if (type_.block_bytes == 4) {
    for (size_t i = 0; i < out.size(); i += 4) {
      const auto bits = load<uint32_t>(out.data() + i);
      // The low bits of the mantissa are random too: more than 4096 different weights.
      store(out.data() + i, values_[bits >> (32 - kIndexBits)] ^ (bits & 0x3FFF));
    }
    return;
  }
  for (size_t i = 0; i < out.size(); i += 2) {
    const auto bits = load<uint16_t>(out.data() + i);
    store(out.data() + i, static_cast<uint16_t>(values_[bits >> (16 - kIndexBits)]));
  }
}

void RandomWeights::fill(uint64_t first_block, std::span<std::byte> out) const {
  PUMICE_CHECK(out.size() % type_.block_bytes == 0, "only whole blocks can be filled");
  random_bytes(key_, first_block * type_.block_bytes, out);
  const BlockShape* shape = shape_of(type_);
  if (shape == nullptr) return fill_values(out);
  for (size_t i = 0; i < out.size(); i += type_.block_bytes) {
    std::byte* const block = out.data() + i;
    if (shape->finish != nullptr) shape->finish(block);
    shape->put(block + shape->scale_at, scales_);
  }
}

}  // namespace pumice
