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
#include <utility>
#include <vector>

#include "engine/pace.hpp"
#include "engine/replays.hpp"
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

/// A device that takes its own time: each segment and command something, and never the same twice.
class Device {
 public:
  explicit Device(const Pace::Rates& rates) : rates_(rates) {}

  double takes_ns(const Pace::Segment& segment) {
    std::normal_distribution<double> noise(1, 0.04);
    const double ns = rates_.per_segment +
                      static_cast<double>(segment.n_commands) * rates_.per_command +
                      std::max(static_cast<double>(segment.cost.bytes) * rates_.per_byte,
                               static_cast<double>(segment.cost.flops) * rates_.per_flop);
    return ns * std::clamp(noise(random_), 0.8, 1.2);
  }

 private:
  Pace::Rates rates_;
  std::mt19937 random_{7};
};

/// What a model of six small layers computes for a token: products between commands of rows.
std::vector<vk::Cost> step_commands() {
  std::vector<vk::Cost> commands;
  for (int layer = 0; layer < 6; ++layer) {
    for (const uint64_t kilobytes : {4, 600, 8, 200, 4, 1200, 8, 600}) {
      commands.push_back({.bytes = 1000 * kilobytes, .flops = 3500 * kilobytes});
    }
  }
  commands.push_back({.bytes = 6'000'000, .flops = 21'000'000});
  return commands;
}

/// A host that polls once a frame, what each poll's work takes, and what is learned of it once a
/// step has ended.
class Host {
 public:
  Host(const Pace::Rates& truth, double budget_ns) : budget_ns_(budget_ns), device_(truth) {}

  /// Nanoseconds by which the device is busy after a poll.
  double frame() {
    now_ns_ += 16.6 * kMs;
    while (!ends_.empty() && ends_.front().second <= now_ns_) {
      backlog_.reach(ends_.front().first);
      ends_.pop_front();
    }
    Admission admission(backlog_.predicted_ns(), !backlog_.empty(), budget_ns_, budget_ns_);
    while (true) {
      if (next_ == step_.size()) begin_step();
      const double predicted = pace_.predict_ns(step_[next_]);
      if (admission.ask(predicted) == Admission::Verdict::kRefused) break;
      took_ns_.push_back(device_.takes_ns(step_[next_++]));
      free_ns_ = std::max(free_ns_, now_ns_) + took_ns_.back();
      backlog_.add(++value_, predicted);
      ends_.emplace_back(value_, free_ns_);
    }
    return free_ns_ - now_ns_;
  }
  /// Of a step.
  size_t n_segments() const { return step_.size(); }

 private:
  double in_segments() const {
    double predicted_ns = 0;
    for (const Pace::Segment& segment : step_) predicted_ns += pace_.predict_ns(segment);
    return predicted_ns / (budget_ns_ / 2);
  }
  /// It is replayed as long as its cuts are right.
  void begin_step() {
    if (!step_.empty()) pace_.observe(step_, took_ns_);
    took_ns_.clear();
    next_ = 0;
    if (!step_.empty() && Replays::stays(recorded_as_, in_segments(), step_.size())) return;
    cut();
    recorded_as_ = in_segments();
  }
  /// As the recorder does, and products before it.
  void cut() {
    const vk::SegmentLimit limit = pace_.limit(budget_ns_ / 2);
    step_.assign(1, {});
    for (const vk::Cost& command : step_commands()) {
      uint64_t n_parts = 1;
      while (!limit.holds({command.bytes / n_parts, command.flops / n_parts})) ++n_parts;
      for (uint64_t part = 0; part < n_parts; ++part) {
        const vk::Cost cost{command.bytes / n_parts, command.flops / n_parts};
        vk::Cost with = step_.back().cost;
        with += cost;
        const size_t n_commands = step_.back().n_commands;
        if (n_commands > 0 && !limit.holds(with, n_commands + 1)) step_.emplace_back();
        step_.back().cost += cost;
        ++step_.back().n_commands;
      }
    }
  }

  double budget_ns_;
  Device device_;
  Pace pace_{Pace::kCpu};
  Backlog backlog_;
  std::vector<Pace::Segment> step_;
  double recorded_as_ = 0;
  size_t next_ = 0;              // of its segments
  std::vector<double> took_ns_;  // those before
  uint64_t value_ = 0;
  double now_ns_ = 0;
  double free_ns_ = 0;  // when the device is done with all it has
  std::deque<std::pair<uint64_t, double>> ends_;
};

/// Twice as slow as is taken for granted of a CPU, and ten times as fast; one of which segments
/// cost as much as their work.
constexpr Pace::Rates kDevices[] = {
    {60e3, 30e3, 0.4, 0.1}, {5e3, 2e3, 0.02, 0.005}, {200e3, 10e3, 0.2, 0.02}};

TEST(Admission, IsKeptByTheClockOnceThePaceIsLearned) {
  for (const Pace::Rates& truth : kDevices) {
    for (const double budget_ms : {1, 2, 5, 10}) {
      Host host(truth, budget_ms * kMs);
      for (int i = 0; i < 200; ++i) host.frame();
      std::vector<double> busy;
      for (int i = 0; i < 2000; ++i) busy.push_back(host.frame() / (budget_ms * kMs));
      std::ranges::sort(busy);
      const auto told = ::testing::Message() << budget_ms << " ms, a segment " << truth.per_segment;
      EXPECT_GE(busy[busy.size() / 2], 0.5) << told << ": most of a budget is used";
      EXPECT_LE(busy[busy.size() * 99 / 100], 1.3) << told;
      EXPECT_LE(busy.back(), 2.0) << told;
    }
  }
}

TEST(Admission, SegmentsAreAsLongAsASliceAllowsWhateverOneCosts) {
  for (const Pace::Rates& truth : kDevices) {
    Host host(truth, kMs);
    for (int i = 0; i < 1000; ++i) host.frame();
    Device device(truth);
    double work_ns = 0;  // without what segments take
    for (const vk::Cost& command : step_commands()) {
      work_ns += device.takes_ns({.cost = command, .n_commands = 1}) - truth.per_segment;
    }
    const double most_work_ns = 0.5 * kMs - truth.per_segment;
    EXPECT_LE(static_cast<double>(host.n_segments()), 2 * work_ns / most_work_ns + 1)
        << "a segment " << truth.per_segment;
  }
}

}  // namespace
}  // namespace pumice
