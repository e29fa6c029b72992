#include "shaders/rope_kv/rope_table.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace pumice::ops {
namespace {

RopeFrequencies frequencies_of(const RopeConfig& config) {
  Result<RopeFrequencies> frequencies = rope_frequencies(config);
  EXPECT_TRUE(frequencies.ok());
  return *frequencies;
}

double frequency(const RopeConfig& config, uint32_t pair) {
  return frequencies_of(config).radians_per_position[pair];
}

TEST(RopeTable, PairsTurnAtPowersOfTheBase) {
  const RopeConfig config{.dims = 128, .base = 500000.0};
  EXPECT_DOUBLE_EQ(frequency(config, 0), 1.0);
  EXPECT_DOUBLE_EQ(frequency(config, 32), 1.0 / std::sqrt(500000.0));
  EXPECT_NEAR(frequency(config, 63), 1.0 / 500000.0 * std::pow(500000.0, 1.0 / 64), 1e-20);
  EXPECT_EQ(frequencies_of(config).magnitude, 1.0);
}

TEST(RopeTable, IsRightToTheLastBitAtPosition131071) {
  const RopeConfig config{.dims = 64};
  constexpr uint32_t kPosition = 131071;
  std::vector<float> table(64);
  fill_rope_table(frequencies_of(config), kPosition, table);
  for (uint32_t pair = 0; pair < 32; ++pair) {
    const long double angle =
        kPosition * std::pow(10000.0L, -2.0L * static_cast<long double>(pair) / 64.0L);
    EXPECT_NEAR(table[2 * pair], static_cast<double>(std::cos(angle)), 6e-8) << pair;
    EXPECT_NEAR(table[2 * pair + 1], static_cast<double>(std::sin(angle)), 6e-8) << pair;
  }
}

TEST(RopeTable, RowsAreConsecutivePositions) {
  const RopeFrequencies frequencies = frequencies_of({.dims = 8});
  std::vector<float> all(5 * 8);
  fill_rope_table(frequencies, 0, all);
  std::vector<float> tail(2 * 8);
  fill_rope_table(frequencies, 3, tail);
  EXPECT_EQ(std::vector<float>(all.begin() + 3 * 8, all.end()), tail);
  for (int i = 0; i < 8; ++i)
    EXPECT_EQ(all[i], i % 2 == 0 ? 1.0f : 0.0f) << "position 0 turns nothing";
}

TEST(RopeTable, LinearScalingStretchesPositions) {
  const RopeFrequencies plain = frequencies_of({.dims = 32});
  const RopeFrequencies stretched =
      frequencies_of({.dims = 32, .scaling = RopeScaling::kLinear, .factor = 4.0});
  for (uint32_t pair = 0; pair < 16; ++pair) {
    EXPECT_DOUBLE_EQ(stretched.radians_per_position[pair], plain.radians_per_position[pair] / 4);
  }
  EXPECT_EQ(stretched.magnitude, 1.0);
}

TEST(RopeTable, DivisorsSlowTheirOwnPair) {
  EXPECT_DOUBLE_EQ(frequency({.dims = 4, .freq_divisors = {1.0f, 8.0f}}, 0), 1.0);
  EXPECT_DOUBLE_EQ(frequency({.dims = 4, .freq_divisors = {1.0f, 8.0f}}, 1), 0.01 / 8);
}

// dims 128, base 10000, context 4096: 32 turns fall at pair 20.94, one turn at 45.03, so the ramp
// runs from 20 to 46 and pair 33 is in its middle.
TEST(RopeTable, YarnKeepsFastPairsSlowsSlowOnesAndRampsBetween) {
  const RopeConfig plain{.dims = 128};
  RopeConfig yarn = plain;
  yarn.scaling = RopeScaling::kYarn;
  yarn.factor = 16.0;
  yarn.original_context = 4096;
  for (const uint32_t pair : {0u, 10u, 20u}) {
    EXPECT_DOUBLE_EQ(frequency(yarn, pair), frequency(plain, pair)) << pair;
  }
  for (const uint32_t pair : {46u, 50u, 63u}) {
    EXPECT_DOUBLE_EQ(frequency(yarn, pair), frequency(plain, pair) / 16) << pair;
  }
  EXPECT_DOUBLE_EQ(frequency(yarn, 33), frequency(plain, 33) * (0.5 + 0.5 / 16));
  EXPECT_DOUBLE_EQ(frequencies_of(yarn).magnitude, 1.0 + 0.1 * std::log(16.0));
  std::vector<float> table(128);
  fill_rope_table(frequencies_of(yarn), 0, table);
  EXPECT_FLOAT_EQ(table[0], 1.2772589f) << "the magnitude is in the table";

  yarn.attn_factor = 0.5;
  EXPECT_DOUBLE_EQ(frequencies_of(yarn).magnitude, 0.5 * (1.0 + 0.1 * std::log(16.0)));
  yarn.ext_factor = 0.0;
  EXPECT_DOUBLE_EQ(frequency(yarn, 0), 1.0 / 16) << "without extrapolation it is linear";
  EXPECT_DOUBLE_EQ(frequencies_of(yarn).magnitude, 0.5);
}

TEST(RopeTable, RefusesFieldsOutOfRangeByName) {
  const auto message = [](const RopeConfig& config) {
    const Result<RopeFrequencies> result = rope_frequencies(config);
    return result.ok() ? std::string("accepted") : result.error().message;
  };
  EXPECT_NE(message({.dims = 7}).find("7 dimensions"), std::string::npos);
  EXPECT_NE(message({.dims = 8, .base = -1}).find("base -1"), std::string::npos);
  EXPECT_NE(message({.dims = 8, .base = std::nan("")}).find("base nan"), std::string::npos);
  EXPECT_NE(message({.dims = 8, .factor = 0}).find("factor 0"), std::string::npos);
  EXPECT_NE(message({.dims = 8, .freq_divisors = {1, 1, 1}}).find("3 frequency divisors"),
            std::string::npos);
  EXPECT_NE(message({.dims = 4, .freq_divisors = {1, 0}}).find("divisor is 0"), std::string::npos);
  EXPECT_NE(message({.dims = 8, .scaling = RopeScaling::kYarn}).find("original context"),
            std::string::npos);
}

}  // namespace
}  // namespace pumice::ops
