#include "engine/pace.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/replays.hpp"
#include "engine/submitter.hpp"

namespace pumice {
namespace {

constexpr vk::Cost kCopy{.bytes = 1'000'000, .flops = 10};
constexpr vk::Cost kProduct{.bytes = 10'000, .flops = 100'000'000};

TEST(Pace, LearnsBytesAndFlopsApart) {
  Pace pace(Pace::kCpu);
  for (int i = 0; i < 60; ++i) {
    pace.observe(kCopy, 1000);      // 1000 bytes a nanosecond
    pace.observe(kProduct, 10000);  // 10000 flops a nanosecond
  }
  EXPECT_NEAR(pace.predict_ns(kCopy), 1000, 1);
  EXPECT_NEAR(pace.predict_ns(kProduct), 10000, 1);
  EXPECT_NEAR(pace.predict_ns({.bytes = 2'000'000, .flops = 200'000'000}), 20000, 2);
}

TEST(Pace, OneMeasurementMovesItHalfWay) {
  Pace pace(Pace::kCpu);
  const double before = pace.predict_ns(kCopy);
  pace.observe(kCopy, 3 * before);
  EXPECT_NEAR(pace.predict_ns(kCopy), 2 * before, 1e-6 * before);
}

TEST(Pace, LearnsNothingFromNothing) {
  Pace pace(Pace::kCpu);
  const double copy = pace.predict_ns(kCopy);
  const double product = pace.predict_ns(kProduct);
  pace.observe({}, 1000);
  pace.observe(kCopy, 0);
  pace.observe(kCopy, NAN);
  pace.observe(kProduct, -1);
  EXPECT_EQ(pace.predict_ns(kCopy), copy);
  EXPECT_EQ(pace.predict_ns(kProduct), product);
}

TEST(Pace, TimesOfSeveralPiecesAreSharedOutAsPredicted) {
  Pace apart(Pace::kCpu);
  Pace together(Pace::kCpu);
  const vk::Cost costs[] = {kCopy, kProduct, kCopy};
  const double copy = apart.predict_ns(kCopy);
  const double product = apart.predict_ns(kProduct);
  const double each[] = {2 * copy, 2 * product, 2 * copy};
  const double all = 4 * copy + 2 * product;
  apart.observe(costs, each);
  together.observe(costs, {&all, 1});
  EXPECT_NEAR(apart.predict_ns(kCopy), 1.5 * copy, 1e-6 * copy);
  EXPECT_NEAR(together.predict_ns(kCopy), 1.5 * copy, 1e-6 * copy);
  EXPECT_NEAR(together.predict_ns(kProduct), 1.5 * product, 1e-6 * product);
}

TEST(Pace, LimitsAreWhatIsPredictedToTakeThatLong) {
  const Pace pace(Pace::kGpu);
  const vk::SegmentLimit limit = pace.limit(1e6);
  EXPECT_NEAR(pace.predict_ns({.bytes = limit.bytes}), 1e6, 1);
  EXPECT_NEAR(pace.predict_ns({.flops = limit.flops}), 1e6, 1);
  EXPECT_EQ(pace.limit(INFINITY).bytes, vk::SegmentLimit::kNone);
  EXPECT_GE(pace.limit(0).flops, 1u);
}

TEST(Backlog, IsWhatTheTimelineHasNotReached) {
  Backlog backlog;
  EXPECT_TRUE(backlog.empty());
  backlog.add(3, 10);
  backlog.add(5, 20);
  backlog.add(6, 40);
  backlog.reach(2);
  EXPECT_EQ(backlog.predicted_ns(), 70);
  backlog.reach(5);
  EXPECT_EQ(backlog.predicted_ns(), 40);
  EXPECT_FALSE(backlog.empty());
  backlog.reach(9);
  EXPECT_TRUE(backlog.empty());
  EXPECT_EQ(backlog.predicted_ns(), 0);
}

TEST(Replays, AreRecordedAnewWherePredictionsDriftByTwo) {
  EXPECT_TRUE(Replays::stays(4, 7.9, 5));
  EXPECT_FALSE(Replays::stays(4, 8.1, 5));
  EXPECT_TRUE(Replays::stays(4, 2.1, 5));
  EXPECT_FALSE(Replays::stays(4, 1.9, 5));
  EXPECT_TRUE(Replays::stays(0.1, 0.9, 1)) << "it fits a segment still";
  EXPECT_FALSE(Replays::stays(0.1, 1.1, 1));
  EXPECT_TRUE(Replays::stays(0.9, 0.1, 1)) << "it cannot be cut less";
}

}  // namespace
}  // namespace pumice
