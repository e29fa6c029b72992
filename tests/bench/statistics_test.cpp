#include "bench/statistics.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace pumice::bench {
namespace {

TEST(Statistics, OneSampleIsItsOwnMedianWithoutSpread) {
  const Summary summary = summarize(std::vector<double>{7});
  EXPECT_EQ(summary.median, 7);
  EXPECT_EQ(summary.mean, 7);
  EXPECT_EQ(summary.stddev, 0);
  EXPECT_EQ(summary.spread_percent(), 0);
}

TEST(Statistics, QuantilesOfUnsortedSamplesLieBetweenThem) {
  const Summary odd = summarize(std::vector<double>{5, 1, 3, 2, 4});
  EXPECT_EQ(odd.median, 3);
  EXPECT_EQ(odd.low, 2);
  EXPECT_EQ(odd.high, 4);
  EXPECT_NEAR(odd.spread_percent(), 100.0 * 2 / 3, 1e-12);
  const Summary even = summarize(std::vector<double>{4, 1, 2, 3});
  EXPECT_EQ(even.median, 2.5);
  EXPECT_EQ(even.low, 1.75);
  EXPECT_EQ(even.high, 3.25);
}

TEST(Statistics, TheDeviationIsThatOfASample) {
  const Summary summary = summarize(std::vector<double>{2, 4, 4, 4, 5, 5, 7, 9});
  EXPECT_EQ(summary.mean, 5);
  EXPECT_NEAR(summary.stddev, 2.13808993529939, 1e-12);  // sqrt(32 / 7)
}

TEST(Statistics, AnOutlierMovesTheMeanAndNotTheMedian) {
  const Summary summary = summarize(std::vector<double>{10, 10, 10, 10, 1000});
  EXPECT_EQ(summary.median, 10);
  EXPECT_EQ(summary.spread_percent(), 0);
  EXPECT_EQ(summary.mean, 208);
}

TEST(Statistics, NoSamplesAreAllZero) {
  EXPECT_EQ(summarize({}).median, 0);
  EXPECT_EQ(summarize({}).spread_percent(), 0);
}

}  // namespace
}  // namespace pumice::bench
