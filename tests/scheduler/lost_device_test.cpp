// Scheduler::lose_device: requests go on from what is left.
#include <gtest/gtest.h>

#include <span>
#include <vector>

#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::SchedulerBed;
using test::tokens_from;

TEST(LostDevice, RequestsWaitWithTheirTokensAndAreReadFromTheFirstPosition) {
  SchedulerBed bed({.max_running = 2}, 16);
  const RequestId id = bed.add(tokens_from(0, 40), 6);
  for (int i = 0; i < 3; ++i) bed.step();
  ASSERT_EQ(bed.scheduler.request(id).generated_tokens, 3u);
  const std::span<const uint32_t> known = bed.scheduler.tokens(id);
  const std::vector<uint32_t> before(known.begin(), known.end());
  bed.scheduler.lose_device();
  ASSERT_TRUE(bed.scheduler.check_integrity().ok());
  EXPECT_EQ(bed.scheduler.request(id).state, RequestState::kWaiting);
  EXPECT_EQ(std::vector<uint32_t>(bed.scheduler.tokens(id).begin(), bed.scheduler.tokens(id).end()),
            before);
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), 16u);
  const StepPlan plan = bed.step();
  ASSERT_EQ(plan.chunks.size(), 1u);
  EXPECT_EQ(plan.chunks[0].first_position, 0u);
  EXPECT_EQ(plan.chunks[0].n_tokens, 43u);
  EXPECT_EQ(plan.chunks[0].n_samples, 1u);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(id).end_reason, EndReason::kLength);
  EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 6u);
}

TEST(LostDevice, OpenStepsAreRolledBackAndNobodyCountsAsPreempted) {
  SchedulerBed bed({.max_running = 2}, 16);
  const RequestId running = bed.add(tokens_from(0, 40), 6);
  bed.step();
  const RequestId started = bed.add(tokens_from(100, 40), 6);
  bed.scheduler.plan_step(bed.now);
  bed.scheduler.plan_step(bed.now);
  bed.scheduler.lose_device();
  ASSERT_TRUE(bed.scheduler.check_integrity().ok());
  EXPECT_EQ(bed.scheduler.outstanding(), 0u);
  EXPECT_EQ(bed.scheduler.n_running(), 0u);
  EXPECT_EQ(bed.scheduler.telemetry().failed_steps, 2u);
  EXPECT_EQ(bed.scheduler.telemetry().preemptions, 0u);
  EXPECT_EQ(bed.scheduler.request(running).preemptions, 0u);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(running).generated_tokens, 6u);
  EXPECT_EQ(bed.scheduler.request(started).generated_tokens, 6u);
}

TEST(LostDevice, RequestsGoOnFromWhatHostMemoryHas) {
  SchedulerBed bed(
      {}, KvCacheOptions{.n_pages = 7, .block_tokens = 16, .page_bytes = 8, .host_bytes = 100 * 8});
  bed.add(tokens_from(0, 100), 1);
  bed.run_to_idle();
  bed.add(tokens_from(1000, 100), 1);  // evicts the first prompt
  bed.run_to_idle();
  const RequestId id = bed.add(tokens_from(0, 100), 4);
  bed.step();
  bed.scheduler.lose_device();
  const StepPlan plan = bed.step();
  EXPECT_EQ(plan.transfers.restores.size(), 7u);
  EXPECT_EQ(plan.chunks.at(0).request, id);
  EXPECT_EQ(plan.chunks.at(0).first_position, 100u);
  bed.run_to_idle();
}

TEST(LostDevice, ATransferThatWasUnderWayIsNotAnswered) {
  SchedulerBed bed(
      {}, KvCacheOptions{.n_pages = 7, .block_tokens = 16, .page_bytes = 8, .host_bytes = 100 * 8});
  bed.add(tokens_from(0, 100), 1);
  bed.run_to_idle();
  const RequestId id = bed.add(tokens_from(1000, 100), 1);
  const StepPlan plan = bed.scheduler.plan_step(bed.now);
  ASSERT_FALSE(plan.transfers.saves.empty());
  bed.scheduler.lose_device();
  ASSERT_TRUE(bed.scheduler.check_integrity().ok());
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 1u);
}

}  // namespace
}  // namespace pumice
