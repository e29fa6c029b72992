#include "format/random_weights.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace pumice {
namespace {

constexpr float kDeviation = 0.02f;

std::vector<const WeightType*> usable_types() {
  std::vector<const WeightType*> types;
  for (const WeightType& type : weight_types()) {
    if (type.has_codec()) types.push_back(&type);
  }
  return types;
}

std::vector<std::byte> blocks(const WeightType& type, uint64_t n_elements, uint64_t key = 1) {
  std::vector<std::byte> out(type.file_bytes(n_elements));
  RandomWeights(type, key, kDeviation).fill(0, out);
  return out;
}

std::vector<float> weights(const WeightType& type, uint64_t n_elements) {
  std::vector<float> values(n_elements);
  dequantize(type, blocks(type, n_elements).data(), n_elements, values.data());
  return values;
}

TEST(RandomWeights, OfEveryTypeHaveTheDeviationAskedForAndNoMean) {
  constexpr uint64_t kElements = 1 << 18;
  EXPECT_EQ(usable_types().size(), 25u);
  for (const WeightType* type : usable_types()) {
    double sum = 0;
    double square = 0;
    float largest = 0;
    for (const float weight : weights(*type, kElements)) {
      sum += weight;
      square += static_cast<double>(weight) * weight;
      largest = std::max(largest, std::abs(weight));
    }
    const double deviation = std::sqrt(square / kElements);
    EXPECT_NEAR(deviation, kDeviation, 0.02 * kDeviation) << type->name;
    EXPECT_NEAR(sum / kElements, 0, 0.02 * kDeviation) << type->name;
    EXPECT_LT(largest, 8 * kDeviation) << type->name;  // not NaN either
    EXPECT_GT(largest, 1.5f * kDeviation) << type->name;
  }
}

TEST(RandomWeights, AreTheSameInPiecesOfAnySize) {
  for (const WeightType* type : usable_types()) {
    const uint64_t n_blocks = 53;
    const std::vector<std::byte> whole = blocks(*type, n_blocks * type->block_elements);
    const RandomWeights random(*type, 1, kDeviation);
    for (const uint64_t step : {1u, 3u, 52u}) {
      std::vector<std::byte> pieces(whole.size());
      for (uint64_t first = 0; first < n_blocks; first += step) {
        const uint64_t n = std::min(step, n_blocks - first) * type->block_bytes;
        random.fill(first, std::span(pieces).subspan(first * type->block_bytes, n));
      }
      EXPECT_EQ(pieces, whole) << type->name << " in pieces of " << step;
    }
  }
}

TEST(RandomWeights, OfAnotherKeyAreOthers) {
  for (const WeightType* type : usable_types()) {
    const std::vector<std::byte> one = blocks(*type, 4096, random_key(1, "a"));
    EXPECT_EQ(one, blocks(*type, 4096, random_key(1, "a")));
    EXPECT_NE(one, blocks(*type, 4096, random_key(2, "a"))) << type->name;
    EXPECT_NE(one, blocks(*type, 4096, random_key(1, "b"))) << type->name;
  }
}

TEST(RandomWeights, OfVectorsLieAroundTheirMean) {
  std::vector<float> values(4096);
  RandomWeights(weight_type("F32"), 1, 0.1f, 1.0f)
      .fill(0, std::as_writable_bytes(std::span(values)));
  double sum = 0;
  for (const float value : values) {
    sum += value;
    EXPECT_GT(value, 0.4f);
    EXPECT_LT(value, 1.6f);
  }
  EXPECT_NEAR(sum / 4096, 1, 0.01);
}

// Files written with a seed are compared between machines and versions.
TEST(RandomWeights, NeverChange) {
  const auto digest = [](std::string_view type) {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const std::byte byte : blocks(weight_type(type), 1 << 14, random_key(7, "x"))) {
      hash = (hash ^ std::to_integer<uint64_t>(byte)) * 0x100000001B3u;
    }
    return hash;
  };
  EXPECT_EQ(digest("F32"), 0x83B3329AE8E8E6BEu);
  EXPECT_EQ(digest("F16"), 0xD653A410CA4AB771u);
  EXPECT_EQ(digest("Q8_0"), 0x18BEA7F0A73EE97Fu);
  EXPECT_EQ(digest("Q4_K"), 0x5A6DDABF2820A83Eu);
  EXPECT_EQ(digest("Q6_K"), 0x84B3BFF4C266E6FAu);
}

}  // namespace
}  // namespace pumice
