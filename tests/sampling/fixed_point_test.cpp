#include "sampling/fixed_point.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace pumice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

TEST(FixedExp, IsExpWithinAUnitAndMonotone) {
  // Every 257th float from 2^-27 to 18.
  uint32_t previous = kOneWeight;
  for (uint32_t bits = 0x32000000; bits < 0x41900000; bits += 257) {
    const float distance = std::bit_cast<float>(bits);
    const uint32_t weight = fixed_exp(distance);
    ASSERT_NEAR(weight, std::exp(-double{distance}) * kOneWeight, 1.1) << distance;
    ASSERT_LE(weight, previous) << distance;
    previous = weight;
  }
}

TEST(FixedExp, IsMonotoneAcrossThePowersOfTwo) {
  for (int n = 1; n <= 25; ++n) {
    uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(n * std::log(2.0))) - 3000;
    for (uint32_t previous = fixed_exp(std::bit_cast<float>(bits)), i = 0; i < 6000; ++i, ++bits) {
      const uint32_t weight = fixed_exp(std::bit_cast<float>(bits));
      ASSERT_LE(weight, previous) << std::bit_cast<float>(bits);
      previous = weight;
    }
  }
}

TEST(FixedExp, IsOneAtZeroAndNothingFarAway) {
  EXPECT_EQ(fixed_exp(0.0f), kOneWeight);
  EXPECT_EQ(fixed_exp(1e-30f), kOneWeight);
  EXPECT_EQ(fixed_exp(1e-42f), kOneWeight);
  EXPECT_EQ(fixed_exp(17.32f), 1u);
  EXPECT_EQ(fixed_exp(17.34f), 0u);
  for (float distance : {18.0f, 1e30f, kInfinity, std::nanf(""), -std::nanf("")}) {
    EXPECT_EQ(fixed_exp(distance), 0u);
  }
}

TEST(Canonical, LeavesOrdinaryNumbersAloneAndNothingElse) {
  for (float value : {1.0f, -1.0f, kMax, -kMax, 0x1p-126f, -0x1p-126f, -kInfinity}) {
    EXPECT_EQ(canonical(value), value);
  }
  EXPECT_EQ(canonical(kInfinity), kMax);
  EXPECT_EQ(canonical(std::nanf("")), -kInfinity);
  EXPECT_EQ(canonical(-std::nanf("")), -kInfinity);
  for (float value : {-0.0f, 1e-40f, -1e-40f}) {
    EXPECT_EQ(std::bit_cast<uint32_t>(canonical(value)), 0u);
  }
}

TEST(ScoreKey, OrdersAsScoresDo) {
  const float rising[] = {-kInfinity, -kMax, -1.0f, -0x1p-126f, 0.0f, 0x1p-126f, 1.0f, kMax};
  for (size_t i = 1; i < std::size(rising); ++i) {
    EXPECT_LT(score_key(rising[i - 1]), score_key(rising[i])) << rising[i];
  }
  EXPECT_EQ(score_key(-kInfinity), kKeyOfMinusInfinity);
}

TEST(Scale, IsExactUpToTheLargestTotal) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto fraction = static_cast<uint32_t>(random() >> (32 + random() % 32));
    const uint64_t total = random() >> (20 + random() % 44);
    const auto product = static_cast<unsigned __int128>(fraction) * total;
    const auto floor = static_cast<uint64_t>(product >> 32);
    ASSERT_EQ(scale_floor(fraction, total), floor);
    ASSERT_EQ(scale_ceil(fraction, total), floor + (static_cast<uint32_t>(product) != 0 ? 1 : 0));
  }
}

}  // namespace
}  // namespace pumice
