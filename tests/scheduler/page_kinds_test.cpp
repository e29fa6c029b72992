// The scheduler over caches of several state kinds: room, where chunks end, what is resumed.
#include <algorithm>

#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::kFull;
using test::kLocal;
using test::kState;
using test::SchedulerBed;
using test::tokens_from;

KvCacheOptions cache_of(std::vector<PageKind> kinds, uint32_t n_pages) {
  return {.n_pages = n_pages, .block_tokens = 16, .kinds = std::move(kinds)};
}

TEST(SchedulerGroups, AWindowWithoutTokensIsRefusedByName) {
  const auto scheduler = Scheduler::create({}, cache_of({kFull, {"local", StateForm::kWindow}}, 8));
  ASSERT_FALSE(scheduler.ok());
  EXPECT_EQ(scheduler.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(scheduler.error().message.find("local"), std::string::npos);
}

TEST(SchedulerGroups, APromptLongerThanTheCacheFitsThroughItsWindow) {
  SchedulerBed bed({.token_budget = 64, .chunk_tokens = 32, .max_running = 2},
                   cache_of({kLocal}, 6));
  const RequestId id = bed.add(tokens_from(0, 1000), 40);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 40u);
  EXPECT_EQ(bed.scheduler.request(id).preemptions, 0u);
}

TEST(SchedulerGroups, WhatCanNeverFitSaysHowManyBlocksItNeeds) {
  SchedulerBed bed({.token_budget = 64}, cache_of({kFull, kLocal, kState}, 20));
  // 16 of the full kind, 3 of the window, 2 of the state.
  const auto id = bed.scheduler.add({.prompt = tokens_from(0, 250), .max_new_tokens = 6}, bed.now);
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(id.error().message.find("need 21 blocks of 3 state groups"), std::string::npos)
      << id.error().message;
  EXPECT_TRUE(
      bed.scheduler.add({.prompt = tokens_from(0, 230), .max_new_tokens = 6}, bed.now).ok());
  bed.run_to_idle();
}

TEST(SchedulerGroups, AChunkEndsWhereAStateIsKept) {
  SchedulerBed bed({.token_budget = 512}, cache_of({kFull, kState}, 64));
  bed.add(tokens_from(0, 50), 1);
  EXPECT_EQ(bed.step().chunks.at(0).n_tokens, 48u);
  EXPECT_EQ(bed.step().chunks.at(0).n_tokens, 2u);
  // The next goes its own way in the middle of the second block.
  std::vector<uint32_t> other = tokens_from(0, 50);
  std::fill(other.begin() + 40, other.end(), 7);
  bed.add(other, 1);
  EXPECT_EQ(bed.step().chunks.at(0).n_tokens, 32u);
  EXPECT_EQ(bed.step().chunks.at(0).n_tokens, 16u);
  EXPECT_EQ(bed.step().chunks.at(0).n_tokens, 2u);
  // Without such kinds chunks are as long as they may be.
  SchedulerBed plain({.token_budget = 512}, cache_of({kFull, kLocal}, 64));
  plain.add(tokens_from(0, 50), 1);
  EXPECT_EQ(plain.step().chunks.at(0).n_tokens, 50u);
}

TEST(SchedulerGroups, APreemptedRequestGoesOnWhereItWas) {
  SchedulerBed bed({.token_budget = 16, .max_running = 1}, cache_of({kFull, kLocal, kState}, 64));
  RequestSpec batch;
  batch.service_class = ServiceClass::kBatch;
  const RequestId lesser = bed.add(tokens_from(0, 40), 20, batch);
  for (int i = 0; i < 9; ++i) bed.step();
  RequestSpec interactive;
  interactive.service_class = ServiceClass::kInteractive;
  bed.add(tokens_from(300, 20), 2, interactive);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(lesser).preemptions, 1u);
  EXPECT_EQ(bed.scheduler.request(lesser).generated_tokens, 20u);
  // Of each, all but the last generated token are computed, once.
  EXPECT_EQ(bed.scheduler.telemetry().computed_tokens, 40u + 19 + 20 + 1);
}

TEST(SchedulerGroups, AStepThatFailsIsComputedAgainFromTheSameState) {
  SchedulerBed bed({.token_budget = 64}, cache_of({kState}, 8));
  const RequestId id = bed.add(tokens_from(0, 10), 5);
  bed.step();
  const PageId before = bed.scheduler.state(id, 0, 10);
  const StepPlan first = bed.scheduler.plan_step(bed.now);
  const StepPlan second = bed.scheduler.plan_step(bed.now);
  ASSERT_EQ(second.chunks.size(), 1u);
  EXPECT_NE(bed.scheduler.state(id, 0, 11), before);
  EXPECT_NE(bed.scheduler.state(id, 0, 12), before);
  bed.scheduler.rollback(first.id);
  EXPECT_EQ(bed.scheduler.state(id, 0, 10), before);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 5u);
}

}  // namespace
}  // namespace pumice
