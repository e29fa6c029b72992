// Choices of one prompt: it is computed once, whatever kinds of state it has and wherever it ends.
#include <algorithm>

#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::kFull;
using test::kLocal;
using test::kState;
using test::SchedulerBed;
using test::tokens_from;

constexpr uint32_t kNew = 20;

SchedulerBed bed_of(std::vector<PageKind> kinds, SchedulerOptions options = {.max_running = 4},
                    uint32_t n_pages = 200) {
  options.token_budget = 64;
  options.chunk_tokens = 32;
  return {options, {.n_pages = n_pages, .block_tokens = 16, .kinds = std::move(kinds)}};
}

TEST(Choices, ComputeTheirPromptOnce) {
  const std::vector<std::vector<PageKind>> caches = {
      {kFull}, {kLocal}, {kFull, kLocal}, {kState}, {kFull, kState}, {kFull, kLocal, kState}};
  for (const std::vector<PageKind>& kinds : caches) {
    for (const uint32_t n_prompt : {1u, 5u, 16u, 17u, 47u, 64u, 70u}) {
      SchedulerBed bed = bed_of(kinds);
      const RequestId first = bed.add(tokens_from(0, n_prompt), kNew);
      for (int i = 0; i < 3; ++i) bed.add(tokens_from(0, n_prompt), kNew, {.choice_of = first});
      bed.run_to_idle();
      const Telemetry& telemetry = bed.scheduler.telemetry();
      // Behind the prompt each token but the last of each is a row.
      EXPECT_EQ(telemetry.computed_tokens, n_prompt + 4 * (kNew - 1)) << n_prompt;
      EXPECT_EQ(telemetry.generated_tokens, 4 * kNew);
      EXPECT_EQ(telemetry.cached_tokens, 3 * n_prompt);
    }
  }
}

TEST(Choices, OfOneTokenEndWithThePrompt) {
  SchedulerBed bed = bed_of({kFull});
  const RequestId first = bed.add(tokens_from(0, 40), 1);
  const RequestId second = bed.add(tokens_from(0, 40), 1, {.choice_of = first});
  EXPECT_EQ(bed.step().chunks.size(), 1u);
  const StepPlan last = bed.step();
  ASSERT_EQ(last.chunks.size(), 2u);
  EXPECT_TRUE(last.chunks[1].shares_row);
  EXPECT_EQ(last.n_tokens(), 8u);
  EXPECT_EQ(bed.scheduler.request(second).end_reason, EndReason::kLength);
  EXPECT_TRUE(bed.scheduler.idle());
}

TEST(Choices, BeyondThePlacesBeginByThemselves) {
  SchedulerBed bed = bed_of({kFull}, {.max_running = 2});
  const RequestId first = bed.add(tokens_from(0, 40), kNew);
  for (int i = 0; i < 4; ++i) bed.add(tokens_from(0, 40), kNew, {.choice_of = first});
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.telemetry().generated_tokens, 5 * kNew);
}

TEST(Choices, HoldUpNobodyElse) {
  SchedulerBed bed = bed_of({kFull});
  const RequestId first = bed.add(tokens_from(0, 100), kNew);
  const RequestId choice = bed.add(tokens_from(0, 100), kNew, {.choice_of = first});
  const RequestId other = bed.add(tokens_from(1000, 10), 1);
  bed.step();
  EXPECT_TRUE(bed.scheduler.request(other).ended());
  EXPECT_EQ(bed.scheduler.request(choice).state, RequestState::kWaiting);
}

TEST(Choices, OfOtherTokensOrAnotherSaltAreNone) {
  SchedulerBed bed = bed_of({kFull});
  const RequestId first = bed.add(tokens_from(0, 40), kNew);
  bed.add(tokens_from(1, 40), kNew, {.choice_of = first});
  bed.add(tokens_from(0, 40), kNew, {.salt = "mine", .choice_of = first});
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.telemetry().computed_tokens, 3 * (40 + kNew - 1));
}

TEST(Choices, GoOnWhenTheFirstIsCancelledOrItsStepFails) {
  for (const bool fails : {false, true}) {
    SchedulerBed bed = bed_of({kFull, kState});
    const RequestId first = bed.add(tokens_from(0, 10), kNew);
    const RequestId second = bed.add(tokens_from(0, 10), kNew, {.choice_of = first});
    const RequestId third = bed.add(tokens_from(0, 10), kNew, {.choice_of = second});
    const StepPlan plan = bed.scheduler.plan_step(bed.now);
    ASSERT_EQ(plan.chunks.size(), 3u);
    if (fails) bed.scheduler.rollback(plan.id);
    bed.scheduler.cancel(first, bed.now);
    ASSERT_TRUE(bed.scheduler.check_integrity().ok());
    if (!fails) bed.commit(plan);
    EXPECT_EQ(bed.scheduler.request(second).generated_tokens, fails ? 0u : 1u);
    bed.run_to_idle();
    for (const RequestId id : {second, third}) {
      EXPECT_EQ(bed.scheduler.request(id).generated_tokens, kNew);
    }
  }
}

TEST(Choices, WaitNoLongerThanTheirDeadline) {
  SchedulerBed bed = bed_of({kFull});
  const RequestId first = bed.add(tokens_from(0, 500), kNew);
  const RequestId choice =
      bed.add(tokens_from(0, 500), kNew, {.deadline_s = bed.now + 1e-3, .choice_of = first});
  bed.step();
  bed.step();
  EXPECT_EQ(bed.scheduler.request(choice).end_reason, EndReason::kDeadline);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(first).generated_tokens, kNew);
}

}  // namespace
}  // namespace pumice
