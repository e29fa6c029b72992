// Requests whose tokens may come at a certain rate, under a virtual clock.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::SchedulerBed;
using test::tokens_from;

class Rates : public ::testing::Test {
 protected:
  static SchedulerOptions options(uint32_t max_running) {
    return {.token_budget = 64, .chunk_tokens = 64, .max_running = max_running};
  }
  /// As a host with a frame does: a step is planned every `frame_s` at most. When tokens came.
  static std::vector<double> frames(SchedulerBed& bed, RequestId id, double frame_s) {
    std::vector<double> times;
    while (!bed.scheduler.request(id).ended()) {
      const StepPlan plan = bed.scheduler.plan_step(bed.now);
      if (plan.empty()) {
        bed.now += frame_s;
        continue;
      }
      const double start = bed.now;
      bed.commit(plan);
      for (const StepChunk& chunk : plan.chunks) {
        if (chunk.request == id && chunk.n_samples > 0) times.push_back(start);
      }
      bed.now = std::max(bed.now, start + frame_s);
    }
    return times;
  }
};

TEST_F(Rates, AreNeverExceededButByOneTokenAndAreMet) {
  for (const double rate : {3.0, 20.0, 50.0, 59.0}) {
    SchedulerBed bed(options(1), 64);
    const RequestId id = bed.add(tokens_from(0, 20), 200, {.max_tokens_per_s = rate});
    const std::vector<double> times = frames(bed, id, 1.0 / 60);
    ASSERT_EQ(times.size(), 200u);
    for (size_t i = 0; i < times.size(); ++i) {
      for (size_t k = i + 1; k < times.size(); ++k) {
        ASSERT_LE(static_cast<double>(k - i), (times[k] - times[i]) * rate + 1 + 1e-6) << rate;
      }
    }
    EXPECT_NEAR(times.back() - times.front(), 199 / rate, 0.05) << "frames are not lost";
  }
}

TEST_F(Rates, OfOneDoNotConcernOthers) {
  SchedulerBed bed(options(2), 64);
  const RequestId slow = bed.add(tokens_from(0, 20), 50, {.max_tokens_per_s = 2});
  const RequestId fast = bed.add(tokens_from(100, 20), 50);
  while (!bed.scheduler.request(fast).ended()) ASSERT_FALSE(bed.step().empty());
  EXPECT_LT(bed.now, 0.2);
  EXPECT_LE(bed.scheduler.request(slow).generated_tokens, 2u);
}

TEST_F(Rates, WhereNothingElseIsToBeDoneSayWhenThereWillBe) {
  SchedulerBed bed(options(2), 64);
  const RequestId slow = bed.add(tokens_from(0, 20), 4, {.max_tokens_per_s = 2});
  EXPECT_EQ(bed.scheduler.next_due_s(), 0);
  const double start = bed.now;
  bed.step();
  EXPECT_EQ(bed.scheduler.next_due_s(), 0) << "not known yet";
  ASSERT_TRUE(bed.step().empty());
  EXPECT_DOUBLE_EQ(bed.scheduler.next_due_s(), start + 0.5);
  EXPECT_FALSE(bed.scheduler.request(slow).ended()) << "it is not stuck";
  bed.now = std::nextafter(start + 0.5, 0.0);
  ASSERT_TRUE(bed.step().empty());
  // Another request changes that.
  bed.add(tokens_from(100, 4), 1);
  EXPECT_EQ(bed.scheduler.next_due_s(), 0);
  ASSERT_FALSE(bed.step().empty());
  bed.now = start + 0.5;
  ASSERT_FALSE(bed.step().empty());
  EXPECT_EQ(bed.scheduler.request(slow).generated_tokens, 2u);
  bed.scheduler.cancel(slow, bed.now);
  EXPECT_EQ(bed.scheduler.next_due_s(), 0);
  ASSERT_TRUE(bed.step().empty());
  EXPECT_TRUE(std::isinf(bed.scheduler.next_due_s())) << "nothing is left";
}

TEST_F(Rates, DoNotHideADeadline) {
  SchedulerBed bed(options(1), 64);
  const RequestId id = bed.add(tokens_from(0, 20), 9, {.deadline_s = 0.25, .max_tokens_per_s = 1});
  bed.step();
  ASSERT_TRUE(bed.step().empty());
  EXPECT_DOUBLE_EQ(bed.scheduler.next_due_s(), 0.25);
  bed.now = 0.26;
  EXPECT_EQ(bed.step().ended, std::vector<RequestId>{id});
}

TEST_F(Rates, AreNotUsedUpByStepsThatFailed) {
  SchedulerBed bed(options(1), 64);
  const RequestId id = bed.add(tokens_from(0, 20), 9, {.max_tokens_per_s = 2});
  bed.step();
  bed.now = 1;
  for (int i = 0; i < 3; ++i) {
    const StepPlan plan = bed.scheduler.plan_step(bed.now);
    ASSERT_EQ(plan.chunks.size(), 1u) << i;
    bed.scheduler.rollback(plan.id);
  }
  ASSERT_FALSE(bed.step().empty());
  EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 2u);
}

// Who waits for its time keeps its blocks until another needs them; nobody fails for it.
TEST_F(Rates, MakeNobodyFail) {
  SchedulerBed bed(options(4), 8);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 4; ++i) {
    ids.push_back(bed.add(tokens_from(100 * i, 40), 40, {.max_tokens_per_s = 10.0 * (i + 1)}));
  }
  for (int i = 0; i < 100000 && !bed.scheduler.idle(); ++i) {
    if (!bed.step().empty()) continue;
    ASSERT_TRUE(std::isfinite(bed.scheduler.next_due_s()));
    ASSERT_GT(bed.scheduler.next_due_s(), bed.now);
    bed.now = bed.scheduler.next_due_s();
  }
  for (const RequestId id : ids) {
    EXPECT_EQ(bed.scheduler.request(id).end_reason, EndReason::kLength);
    EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 40u);
  }
  EXPECT_GT(bed.scheduler.telemetry().preemptions, 0u);
}

// A stream whose next token is not due yet is disturbed by a long step as much as any other.
TEST_F(Rates, AreMetBesideAPromptWithinTheTargetBetweenTokens) {
  const StepCost device{.fixed = 1e-3, .per_row = 1e-4, .per_token = 1e-4};
  SchedulerBed bed(
      {.token_budget = 512, .chunk_tokens = 512, .tpot_target_s = 20e-3, .max_running = 2}, 4000,
      CostModel(device));
  bed.device = device;
  const RequestId slow = bed.add(tokens_from(0, 20), 500, {.max_tokens_per_s = 10});
  bed.step();
  const RequestId prompt = bed.add(tokens_from(1000, 40'000), 1);
  double last = std::nan("");
  double longest = 0;
  uint32_t largest_chunk = 0;
  uint32_t n_gaps = 0;
  while (bed.scheduler.request(prompt).generated_tokens == 0) {
    const double start = bed.now;
    for (const StepChunk& chunk : bed.step().chunks) {
      if (!chunk.decodes) largest_chunk = std::max(largest_chunk, chunk.n_tokens);
      if (chunk.request != slow) continue;
      if (!std::isnan(last)) longest = std::max(longest, start - last);
      n_gaps += std::isnan(last) ? 0 : 1;
      last = start;
    }
  }
  EXPECT_GT(n_gaps, 20u);
  EXPECT_LE(longest, 0.1 + 20e-3 + 1e-9);
  EXPECT_EQ(largest_chunk, 512u) << "where there is time, chunks are whole";
}

TEST_F(Rates, ThatAreNoneAreRefused) {
  SchedulerBed bed(options(1), 8);
  for (const double rate : {-1.0, std::nan(""), std::numeric_limits<double>::infinity()}) {
    const auto id = bed.scheduler.add(
        {.prompt = tokens_from(0, 4), .max_new_tokens = 1, .max_tokens_per_s = rate}, 0);
    ASSERT_FALSE(id.ok());
    EXPECT_EQ(id.error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace pumice
