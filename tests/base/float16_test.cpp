#include "base/float16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pumice {
namespace {

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = half_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(half_to_float(float_to_half(value))));
    } else {
      ASSERT_EQ(float_to_half(value), half) << bits;
    }
  }
}

TEST(Half, MidpointsRoundToEvenAndNeighboursRoundToNearest) {
  for (uint32_t bits = 0; bits < 0x7BFF; ++bits) {
    const float low = half_to_float(static_cast<uint16_t>(bits));
    const float high = half_to_float(static_cast<uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact in float
    ASSERT_EQ(float_to_half(middle), (bits & 1) != 0 ? bits + 1 : bits) << bits;
    ASSERT_EQ(float_to_half(std::nextafterf(middle, low)), bits);
    ASSERT_EQ(float_to_half(std::nextafterf(middle, high)), bits + 1);
  }
}

TEST(Half, OverflowIsInfinity) {
  EXPECT_EQ(float_to_half(65519.996f), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(-std::numeric_limits<float>::infinity()), 0xFC00);
}

TEST(Bfloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(float_to_bfloat16(1.0f), 0x3F80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(float_to_bfloat16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_TRUE(std::isnan(bfloat16_to_float(float_to_bfloat16(std::nanf("")))));
}

}  // namespace
}  // namespace pumice
