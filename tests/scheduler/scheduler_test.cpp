#include "scheduler/scheduler.hpp"

#include <gtest/gtest.h>

#include <random>

namespace pumice {
namespace {

TEST(Scheduler, CutsAPromptIntoChunksThatEndOnBlockBoundaries) {
  Scheduler scheduler({.token_budget = 64, .chunk_tokens = 20}, 8);
  const RequestId id = *scheduler.add(45, 3);
  std::vector<uint32_t> ends;
  for (int step = 0; step < 3; ++step) {
    const StepPlan plan = scheduler.plan_step();
    ASSERT_EQ(plan.chunks.size(), 1u);
    ends.push_back(plan.chunks[0].first_position + plan.chunks[0].n_tokens);
    EXPECT_EQ(plan.chunks[0].samples, step == 2);
    scheduler.commit(plan);
  }
  EXPECT_EQ(ends, (std::vector<uint32_t>{16, 32, 45}));
  EXPECT_EQ(scheduler.request(id).state, RequestState::kDecoding);
}

TEST(Scheduler, AChunkSmallerThanABlockStillMakesProgress) {
  Scheduler scheduler({.token_budget = 64, .chunk_tokens = 5}, 8);
  ASSERT_TRUE(scheduler.add(12, 0).ok());
  uint32_t steps = 0;
  while (!scheduler.idle()) {
    const StepPlan plan = scheduler.plan_step();
    ASSERT_FALSE(plan.empty());
    scheduler.commit(plan);
    ++steps;
  }
  EXPECT_EQ(steps, 3u);
}

TEST(Scheduler, DecodesBeforeItPrefillsUnderOneBudget) {
  Scheduler scheduler({.token_budget = 32, .chunk_tokens = 32, .max_running = 3}, 64);
  const RequestId first = *scheduler.add(8, 10);
  scheduler.commit(scheduler.plan_step());
  ASSERT_TRUE(scheduler.add(100, 1).ok());
  const StepPlan plan = scheduler.plan_step();
  ASSERT_EQ(plan.chunks.size(), 2u);
  EXPECT_EQ(plan.chunks[0].request, first);
  EXPECT_EQ(plan.chunks[0].n_tokens, 1u);
  EXPECT_EQ(plan.chunks[1].n_tokens, 16u);  // 31 left, cut back to a block boundary
}

TEST(Scheduler, AFailedStepIsPlannedAgainUnchanged) {
  Scheduler scheduler({.chunk_tokens = 16}, 8);
  ASSERT_TRUE(scheduler.add(40, 2).ok());
  const StepPlan failed = scheduler.plan_step();
  const StepPlan again = scheduler.plan_step();
  ASSERT_EQ(again.chunks.size(), 1u);
  EXPECT_EQ(again.chunks[0].first_position, failed.chunks[0].first_position);
  EXPECT_EQ(again.chunks[0].n_tokens, failed.chunks[0].n_tokens);
}

TEST(Scheduler, WhatCannotEverFitIsRefusedByHowMuch) {
  Scheduler scheduler({}, 4);
  const auto result = scheduler.add(60, 10);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(result.error().message.find("by 6 tokens"), std::string::npos);
  EXPECT_FALSE(scheduler.add(0, 10).ok());
}

TEST(Scheduler, WaitsForBlocksAndNeverLeaksThemThroughRandomCancels) {
  Scheduler scheduler({.token_budget = 48, .chunk_tokens = 24, .max_running = 4}, 20);
  std::mt19937 random(11);
  std::vector<RequestId> ids;
  for (int step = 0; step < 4000; ++step) {
    if (random() % 4 == 0) ids.push_back(*scheduler.add(1 + random() % 100, random() % 50));
    if (!ids.empty() && random() % 8 == 0) {
      const size_t victim = random() % ids.size();
      scheduler.finish(ids[victim], RequestState::kCancelled);
      scheduler.remove(ids[victim]);
      ids.erase(ids.begin() + static_cast<ptrdiff_t>(victim));
    }
    const StepPlan plan = scheduler.plan_step();
    EXPECT_LE(plan.n_tokens(), 48u);
    scheduler.commit(plan);
    ASSERT_TRUE(scheduler.check_integrity().ok());
  }
  while (!scheduler.idle()) scheduler.commit(scheduler.plan_step());
  EXPECT_EQ(scheduler.pool().n_free(), 20u);
}

}  // namespace
}  // namespace pumice
