#include "engine/pace.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "engine/replays.hpp"
#include "engine/submitter.hpp"

namespace pumice {
namespace {

Pace::Segment segment(const vk::Cost& cost, size_t n_commands = 1) {
  return {.cost = cost, .n_commands = n_commands};
}
const Pace::Segment kCopy = segment({.bytes = 1'000'000, .flops = 10});
const Pace::Segment kProduct = segment({.bytes = 10'000, .flops = 100'000'000});

/// A device as it is, and what it is given.
struct VirtualDevice {
  Pace::Rates rates;
  double noise = 0;      // deviation, relative
  double p_hiccup = 0;   // of a segment
  double hiccup_ns = 0;  // what that adds
  std::mt19937 random{5};

  double exact_ns(const Pace::Segment& piece) const {
    return rates.per_segment + static_cast<double>(piece.n_commands) * rates.per_command +
           std::max(static_cast<double>(piece.cost.bytes) * rates.per_byte,
                    static_cast<double>(piece.cost.flops) * rates.per_flop);
  }
  double takes_ns(const Pace::Segment& piece) {
    std::normal_distribution<double> deviation;
    std::bernoulli_distribution hiccups(p_hiccup);
    return exact_ns(piece) * std::max(1 + noise * deviation(random), 0.1) +
           (hiccups(random) ? hiccup_ns : 0);
  }
  /// Of any composition: single small commands, many of them, large products and copies.
  Pace::Segment any_segment() {
    std::uniform_real_distribution<double> log_amount(8, 16);
    const auto amount = [&] { return static_cast<uint64_t>(std::exp(log_amount(random))); };
    return segment({.bytes = amount(), .flops = 10 * amount()}, 1 + random() % 12);
  }
  void teach(Pace& pace, int n_segments) {
    for (int i = 0; i < n_segments; ++i) {
      const Pace::Segment piece = any_segment();
      pace.observe(piece, takes_ns(piece));
    }
  }
  /// The median and the worst of how far off predictions are: 1 is right, 2 twice or half.
  std::pair<double, double> off(const Pace& pace) {
    std::vector<double> factors;
    for (int i = 0; i < 500; ++i) {
      const Pace::Segment piece = any_segment();
      factors.push_back(std::exp(std::abs(std::log(pace.predict_ns(piece) / exact_ns(piece)))));
    }
    std::ranges::sort(factors);
    return {factors[factors.size() / 2], factors.back()};
  }
};

constexpr Pace::Rates kTruth = {80e3, 30e3, 0.3, 0.05};

TEST(Pace, LearnsWhatSegmentsCommandsBytesAndFlopsTake) {
  for (const Pace::Rates& start : {Pace::kCpu, Pace::kGpu}) {
    for (const Pace::Rates& truth : {kTruth, Pace::Rates{2e3, 5e3, 0.004, 0.0002}}) {
      VirtualDevice device{.rates = truth};
      Pace pace(start);
      device.teach(pace, 3000);
      EXPECT_LT(device.off(pace).second, 1.02);
      EXPECT_NEAR(pace.predict_ns(segment({}, 1)), truth.per_segment + truth.per_command,
                  0.1 * (truth.per_segment + truth.per_command));
    }
  }
}

TEST(Pace, LearnsThroughNoiseAndHiccups) {
  VirtualDevice device{.rates = kTruth, .noise = 0.1, .p_hiccup = 0.03, .hiccup_ns = 20e6};
  Pace pace(Pace::kCpu);
  device.teach(pace, 3000);
  const auto [median, worst] = device.off(pace);
  EXPECT_LT(median, 1.15);
  EXPECT_LT(worst, 1.6);
}

TEST(Pace, OneHiccupTeachesLittleAndAnotherClockIsLearnedSoon) {
  VirtualDevice device{.rates = kTruth};
  Pace pace(Pace::kCpu);
  device.teach(pace, 1000);
  const double before = pace.predict_ns(kCopy);
  pace.observe(kCopy, 1000 * before);
  EXPECT_LT(pace.predict_ns(kCopy), 1.3 * before);
  for (const double speed : {0.2, 30.0, 1.0}) {
    device.rates = {kTruth.per_segment / speed, kTruth.per_command / speed, kTruth.per_byte / speed,
                    kTruth.per_flop / speed};
    device.teach(pace, 30);
    EXPECT_LT(device.off(pace).first, 1.3) << speed;
  }
}

TEST(Pace, PredictsMoreForMoreWhateverItIsTold) {
  Pace pace(Pace::kCpu);
  std::mt19937 random(3);
  std::uniform_real_distribution<double> log_ns(-700, 700);
  VirtualDevice device{.rates = kTruth};
  for (int i = 0; i < 20000; ++i) {
    pace.observe(device.any_segment(), std::exp(log_ns(random)));
    const double little = pace.predict_ns(segment({.bytes = 1, .flops = 1}));
    EXPECT_GT(little, 0);
    EXPECT_TRUE(std::isfinite(little));
    EXPECT_GE(pace.predict_ns(segment({.bytes = 1, .flops = 1}, 2)), little);
    EXPECT_GE(pace.predict_ns(segment({.bytes = UINT32_MAX, .flops = UINT32_MAX})), little);
    const vk::SegmentLimit limit = pace.limit(1e6);
    EXPECT_TRUE(limit.bytes > 0 && limit.flops > 0);
  }
}

TEST(Pace, LearnsNothingFromNothing) {
  Pace pace(Pace::kCpu);
  const double copy = pace.predict_ns(kCopy);
  const double product = pace.predict_ns(kProduct);
  pace.observe(segment({}, 0), 1000);
  pace.observe(kCopy, 0);
  pace.observe(kCopy, NAN);
  pace.observe(kCopy, INFINITY);
  pace.observe(kProduct, -1);
  EXPECT_EQ(pace.predict_ns(kCopy), copy);
  EXPECT_EQ(pace.predict_ns(kProduct), product);
}

TEST(Pace, LearnsFromTheTimeOfSeveralTogether) {
  const Pace::Segment segments[] = {kCopy, kProduct, segment({.bytes = 5000}, 20)};
  VirtualDevice device{.rates = kTruth};
  double all = 0, predicted = 0;
  for (const Pace::Segment& piece : segments) all += device.exact_ns(piece);
  Pace pace(Pace::kCpu);
  for (int i = 0; i < 60; ++i) pace.observe(segments, {&all, 1});
  for (const Pace::Segment& piece : segments) predicted += pace.predict_ns(piece);
  EXPECT_NEAR(predicted, all, 0.01 * all);
}

TEST(Pace, LimitsAreWhatIsPredictedToTakeThatLong) {
  const Pace pace(kTruth);
  const vk::SegmentLimit limit = pace.limit(1e6);
  EXPECT_NEAR(pace.predict_ns(segment({.bytes = limit.bytes})), 1e6, 1);
  EXPECT_NEAR(pace.predict_ns(segment({.flops = limit.flops})), 1e6, 1);
  for (const size_t n : {2, 9}) {  // a command takes as much from both
    const vk::Cost most{.bytes = limit.bytes - (n - 1) * limit.command_bytes};
    EXPECT_NEAR(pace.predict_ns(segment(most, n)), 1e6, 10);
    EXPECT_TRUE(limit.holds(most, n));
    EXPECT_FALSE(limit.holds(most, n + 1));
    EXPECT_FALSE(limit.holds({.bytes = most.bytes + 1}, n));
    EXPECT_TRUE(limit.holds({.flops = limit.flops - (n - 1) * limit.command_flops}, n));
    EXPECT_FALSE(limit.holds({.flops = limit.flops - (n - 1) * limit.command_flops + 1}, n));
  }
  EXPECT_FALSE(limit.holds({}, 1000));
  EXPECT_EQ(pace.limit(INFINITY).bytes, vk::SegmentLimit::kNone);
  EXPECT_TRUE(pace.limit(INFINITY).holds({.bytes = UINT64_MAX / 2}, 1000));
  EXPECT_GE(pace.limit(0).flops, 1u);
}

TEST(Pace, SegmentsDoNotShrinkToTheirOwnCost) {
  const Pace pace(kTruth);
  const vk::SegmentLimit limit = pace.limit(100e3);  // 110 are those of a segment and its command
  EXPECT_NEAR(pace.predict_ns(segment({.bytes = limit.bytes})), 160e3, 1);
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

TEST(Pace, IsWorthKeepingOnceEnoughWasObserved) {
  const Pace::Segment segment{.cost = {.bytes = 1 << 20}, .n_commands = 3};
  Pace pace(Pace::kCpu);
  int n_observed = 0;
  for (; !pace.learned() && n_observed < 100; ++n_observed) {
    pace.observe(Pace::Segment{}, 1e6);  // teaches nothing
    pace.observe(segment, 1e6);
  }
  EXPECT_GE(n_observed, 5);
  EXPECT_LT(n_observed, 100);
  ASSERT_TRUE(pace.learned());
  const Pace next(*pace.learned(), true);
  EXPECT_EQ(next.predict_ns(segment), pace.predict_ns(segment));
  EXPECT_EQ(next.learned(), pace.learned());
}

}  // namespace
}  // namespace pumice
