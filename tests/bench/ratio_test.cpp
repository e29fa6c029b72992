#include "bench/ratio.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace pumice::bench {
namespace {

/// `n` pairs of which the first is `ratio` times the second, both with 5 % of noise.
struct Pairs {
  std::vector<double> numerator;
  std::vector<double> denominator;

  Pairs(size_t n, double ratio, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> noise(0, 0.05);
    for (size_t i = 0; i < n; ++i) {
      numerator.push_back(ratio * std::exp(noise(random)));
      denominator.push_back(std::exp(noise(random)));
    }
  }
  RatioInterval interval() const { return paired_ratio(numerator, denominator); }
};

TEST(PairedRatio, OfSixPairsIsTheirMiddleAndTheIntervalAllOfThem) {
  // Logarithms 1, 2, 3, 4, 5, 6: the means of two are 1 to 6, their median 3.5; with T = 0 left out
  // at each end (2/64) the interval goes from the least to the greatest.
  std::vector<double> numerator;
  for (int i = 1; i <= 6; ++i) numerator.push_back(std::exp(i));
  const RatioInterval interval = paired_ratio(numerator, std::vector<double>(6, 1));
  EXPECT_NEAR(std::log(interval.ratio), 3.5, 1e-12);
  EXPECT_NEAR(std::log(interval.low), 1, 1e-12);
  EXPECT_NEAR(std::log(interval.high), 6, 1e-12);
  EXPECT_NEAR(interval.confidence, 1 - 2.0 / 64, 1e-12);
}

TEST(PairedRatio, OfTenPairsLeavesOutEightMeansAtEachEnd) {
  // Logarithms 1, 2, 4, ..., 512. Of 10 pairs P(T <= 8) = 25/1024, P(T <= 9) = 33/1024 (tables of
  // the signed-rank test), so the ninth mean of two from either end: 1 1.5 2 2.5 3 4 4.5 5 6 ...,
  // 512 384 320 288 272 264 260 258 257 ...
  std::vector<double> numerator;
  for (int i = 0; i < 10; ++i) numerator.push_back(std::exp(std::ldexp(1, i)));
  const RatioInterval interval = paired_ratio(numerator, std::vector<double>(10, 1));
  EXPECT_NEAR(std::log(interval.low), 6, 1e-12);
  EXPECT_NEAR(std::log(interval.high), 257, 1e-12);
  EXPECT_NEAR(interval.confidence, 1 - 50.0 / 1024, 1e-12);
}

TEST(PairedRatio, OfFewPairsSaysThatItIsWorthLess) {
  EXPECT_EQ(paired_ratio({}, {}).confidence, 0);
  const RatioInterval one = paired_ratio(std::vector<double>{6}, std::vector<double>{3});
  EXPECT_NEAR(one.ratio, 2, 1e-12);
  EXPECT_EQ(one.low, one.high);
  EXPECT_EQ(one.confidence, 0);
  EXPECT_NEAR(Pairs(5, 1, 1).interval().confidence, 1 - 2.0 / 32, 1e-12);
}

TEST(PairedRatio, ADifferenceBeyondTheNoiseIsFoundAndItsSizeLiesInTheInterval) {
  const RatioInterval interval = Pairs(12, 1.2, 5).interval();
  EXPECT_TRUE(interval.contains(1.2)) << interval.low << " to " << interval.high;
  EXPECT_FALSE(interval.contains(1)) << interval.low << " to " << interval.high;
  EXPECT_NEAR(interval.ratio, 1.2, 0.05);
}

TEST(PairedRatio, OfEqualSidesHoldsOneInNineteenOfTwentyTrials) {
  for (const size_t n : {6u, 10u, 25u}) {
    const double expected = Pairs(n, 1, 0).interval().confidence;
    constexpr int kTrials = 4000;
    int held = 0;
    for (uint32_t trial = 0; trial < kTrials; ++trial) {
      held += Pairs(n, 1, trial).interval().contains(1) ? 1 : 0;
    }
    EXPECT_GE(expected, 0.95);
    const double deviation = std::sqrt(expected * (1 - expected) / kTrials);
    EXPECT_NEAR(static_cast<double>(held) / kTrials, expected, 4 * deviation) << n << " pairs";
  }
}

TEST(PairedRatio, AHiccupOnOneSideHardlyMovesIt) {
  Pairs pairs(20, 1.2, 5);
  pairs.denominator[3] *= 30;
  EXPECT_NEAR(pairs.interval().ratio, 1.2, 0.06);
  EXPECT_FALSE(pairs.interval().contains(1));
}

}  // namespace
}  // namespace pumice::bench
