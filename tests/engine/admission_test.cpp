// Budgets are kept by prediction, and by the clock once predictions have learned: under a virtual
// clock and a device that takes its own time.
#include "engine/admission.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <vector>

#include "engine/pace.hpp"
#include "engine/submitter.hpp"

namespace pumice {
namespace {

constexpr double kMs = 1e6;

TEST(Admission, NeverExceedsTheBudgetButByOneSegmentOfAnIdleDevice) {
  std::mt19937 random(1);
  std::uniform_real_distribution<double> ns(0.01 * kMs, 3 * kMs);
  for (int round = 0; round < 2000; ++round) {
    const double budget = ns(random);
    const double slice = ns(random);
    const bool has_work = round % 2 == 0;
    const double unfinished = has_work ? ns(random) : 0;
    Admission admission(unfinished, has_work, budget, slice);
    double admitted = 0;
    double in_slice = 0;
    size_t n_admitted = 0;
    while (true) {
      const double segment = ns(random);
      const Admission::Verdict verdict = admission.ask(segment);
      if (verdict == Admission::Verdict::kRefused) {
        EXPECT_GT(unfinished + admitted + segment, budget);
        break;
      }
      if (verdict == Admission::Verdict::kBegins) in_slice = 0;
      admitted += segment;
      in_slice += segment;
      ++n_admitted;
      EXPECT_EQ(in_slice, admission.slice_predicted_ns());
      EXPECT_TRUE(in_slice <= slice || in_slice == segment) << "a slice of several is too long";
    }
    if (n_admitted > 0 && (has_work || n_admitted > 1)) {
      EXPECT_LE(unfinished + admitted, budget);
    }
    EXPECT_TRUE(has_work || n_admitted > 0) << "an idle device gets something";
  }
}

/// A host that polls once a frame, and what each poll's work took.
struct Host {
  double budget_ns;
  std::mt19937 random{7};
  Pace pace{Pace::kCpu};
  Backlog backlog = {};
  uint64_t value = 0;
  double now_ns = 0;
  double free_ns = 0;  // when the device is done with all it has
  std::deque<std::pair<uint64_t, double>> ends = {};

  /// Truth: half as fast as was taken for granted at first, and never the same twice.
  double takes(const vk::Cost& cost) {
    std::normal_distribution<double> noise(1, 0.04);
    return std::max(static_cast<double>(cost.bytes) / 2.5, static_cast<double>(cost.flops) / 10) *
           std::clamp(noise(random), 0.8, 1.2);
  }
  vk::Cost segment() {
    const vk::SegmentLimit limit = pace.limit(budget_ns / 2);
    std::uniform_real_distribution<double> share(0.3, 1);
    const auto part = [&](uint64_t most) {
      return static_cast<uint64_t>(share(random) * static_cast<double>(most));
    };
    return random() % 2 == 0 ? vk::Cost{.bytes = part(limit.bytes)}
                             : vk::Cost{.flops = part(limit.flops)};
  }
  /// Nanoseconds by which the device is busy after a poll.
  double frame() {
    now_ns += 16.6 * kMs;
    while (!ends.empty() && ends.front().second <= now_ns) {
      backlog.reach(ends.front().first);
      ends.pop_front();
    }
    Admission admission(backlog.predicted_ns(), !backlog.empty(), budget_ns, budget_ns);
    while (true) {
      const vk::Cost cost = segment();
      const double predicted = pace.predict_ns(cost);
      if (admission.ask(predicted) == Admission::Verdict::kRefused) break;
      const double ns = takes(cost);
      free_ns = std::max(free_ns, now_ns) + ns;
      backlog.add(++value, predicted);
      ends.emplace_back(value, free_ns);
      pace.observe(cost, ns);
    }
    return free_ns - now_ns;
  }
};

TEST(Admission, IsKeptByTheClockOnceThePaceIsLearned) {
  for (const double budget_ms : {1, 2, 5, 10}) {
    Host host{.budget_ns = budget_ms * kMs};
    for (int i = 0; i < 50; ++i) host.frame();
    std::vector<double> busy;
    for (int i = 0; i < 2000; ++i) busy.push_back(host.frame() / host.budget_ns);
    std::ranges::sort(busy);
    EXPECT_GE(busy[busy.size() / 2], 0.5) << budget_ms << " ms: most of a budget is used";
    EXPECT_LE(busy[busy.size() * 99 / 100], 1.3) << budget_ms;
    EXPECT_LE(busy.back(), 2.0) << budget_ms;
  }
}

}  // namespace
}  // namespace pumice
