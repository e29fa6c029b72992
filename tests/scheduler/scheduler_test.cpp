#include "scheduler/scheduler.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <random>

#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::SchedulerBed;
using test::tokens_from;

RequestSpec of_class(ServiceClass service_class) { return {.service_class = service_class}; }

std::vector<RequestId> requests_of(const StepPlan& plan) {
  std::vector<RequestId> ids;
  for (const StepChunk& chunk : plan.chunks) ids.push_back(chunk.request);
  return ids;
}

TEST(Scheduler, CutsAPromptIntoChunksThatEndOnBlockBoundaries) {
  SchedulerBed bed({.token_budget = 64, .chunk_tokens = 20}, 8);
  const RequestId id = bed.add(tokens_from(0, 45), 3);
  std::vector<uint32_t> ends;
  for (int step = 0; step < 3; ++step) {
    const StepPlan plan = bed.step();
    ASSERT_EQ(plan.chunks.size(), 1u);
    ends.push_back(plan.chunks[0].first_position + plan.chunks[0].n_tokens);
    EXPECT_EQ(plan.chunks[0].n_samples, step == 2 ? 1u : 0u);
    EXPECT_EQ(bed.scheduler.request(id).state,
              step == 2 ? RequestState::kDecoding : RequestState::kPrefilling);
  }
  EXPECT_EQ(ends, (std::vector<uint32_t>{16, 32, 45}));
}

TEST(Scheduler, AChunkSmallerThanABlockStillMakesProgress) {
  SchedulerBed bed({.token_budget = 64, .chunk_tokens = 5}, 8);
  bed.add(tokens_from(0, 12), 0);
  std::vector<uint32_t> sizes;
  while (!bed.scheduler.idle()) sizes.push_back(bed.step().n_tokens());
  EXPECT_EQ(sizes, (std::vector<uint32_t>{5, 5, 2}));
}

TEST(Scheduler, DecodesBeforeItPrefillsUnderOneBudget) {
  SchedulerBed bed({.token_budget = 32, .chunk_tokens = 32, .max_running = 3}, 64);
  const RequestId first = bed.add(tokens_from(0, 8), 10);
  bed.step();
  bed.add(tokens_from(1000, 100), 1);
  const StepPlan plan = bed.step();
  ASSERT_EQ(plan.chunks.size(), 2u);
  EXPECT_EQ(plan.chunks[0].request, first);
  EXPECT_TRUE(plan.chunks[0].decodes);
  EXPECT_EQ(plan.chunks[1].n_tokens, 16u);  // 31 left, cut back to a block boundary
}

TEST(Scheduler, PlansTheNextStepBeforeTheTokensOfThisOneAreKnown) {
  SchedulerBed bed({}, 8);
  const RequestId id = bed.add(tokens_from(0, 10), 3);
  const StepPlan first = bed.scheduler.plan_step(0);
  const StepPlan second = bed.scheduler.plan_step(0);
  ASSERT_EQ(second.chunks.size(), 1u);
  EXPECT_EQ(second.chunks[0].first_position, 10u);
  EXPECT_TRUE(second.chunks[0].decodes);
  EXPECT_TRUE(bed.commit(first)[0].sampled);
  bed.scheduler.end(id, EndReason::kStop, bed.now);  // that token was a stop token
  const std::vector<ChunkOutcome> discarded = bed.commit(second);
  EXPECT_FALSE(discarded[0].counts);
  EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 1u);
  EXPECT_EQ(bed.scheduler.telemetry().discarded_tokens, 1u);
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), 8u);
}

TEST(Scheduler, DoesNotRunAheadOfRequestsThatAskNotTo) {
  SchedulerBed bed({}, 8);
  bed.add(tokens_from(0, 10), 3, {.runs_ahead = false});
  const StepPlan first = bed.scheduler.plan_step(0);
  EXPECT_TRUE(bed.scheduler.plan_step(0).empty());
  bed.commit(first);
  EXPECT_EQ(bed.scheduler.plan_step(0).n_tokens(), 1u);
}

TEST(Scheduler, RunsAheadOfOthersBesideOneThatAsksNotTo) {
  SchedulerBed bed({.max_running = 2}, 8);
  bed.add(tokens_from(0, 10), 3, {.runs_ahead = false});
  const RequestId other = bed.add(tokens_from(100, 10), 3);
  bed.scheduler.plan_step(0);
  const StepPlan ahead = bed.scheduler.plan_step(0);
  ASSERT_EQ(ahead.chunks.size(), 1u);
  EXPECT_EQ(ahead.chunks[0].request, other);
}

TEST(Scheduler, NeverRunsAheadPastTheLastToken) {
  SchedulerBed bed({}, 8);
  bed.add(tokens_from(0, 10), 1);
  bed.scheduler.plan_step(0);
  EXPECT_TRUE(bed.scheduler.plan_step(0).empty());
}

TEST(Scheduler, AFailedStepIsRolledBackAndPlannedAgainUnchanged) {
  SchedulerBed bed({.chunk_tokens = 16}, 8);
  const RequestId id = bed.add(tokens_from(0, 40), 2);
  bed.step();
  const uint32_t free_before = bed.scheduler.cache().n_free_pages();
  const StepPlan failed = bed.scheduler.plan_step(0);
  bed.scheduler.plan_step(0);
  bed.scheduler.rollback(failed.id);
  ASSERT_TRUE(bed.scheduler.check_integrity().ok());
  EXPECT_EQ(bed.scheduler.request(id).computed_tokens, 16u);
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), free_before);
  const StepPlan again = bed.scheduler.plan_step(0);
  ASSERT_EQ(again.chunks.size(), 1u);
  EXPECT_EQ(again.chunks[0].first_position, failed.chunks[0].first_position);
  EXPECT_EQ(again.chunks[0].n_tokens, failed.chunks[0].n_tokens);
}

TEST(Scheduler, ARequestStartedByAFailedStepWaitsAgain) {
  SchedulerBed bed({}, 8);
  const RequestId id = bed.add(tokens_from(0, 40), 2);
  bed.scheduler.rollback(bed.scheduler.plan_step(0).id);
  EXPECT_EQ(bed.scheduler.request(id).state, RequestState::kWaiting);
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), 8u);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 2u);
}

TEST(Scheduler, RefusesWhatCannotBeAndChangesNothing) {
  SchedulerBed bed({.window_tokens = 50}, 3);
  const auto error_of = [&](RequestSpec spec) {
    const auto result = bed.scheduler.add(std::move(spec), 0);
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_NE(error_of({}).find("empty"), std::string::npos);
  EXPECT_NE(error_of({.prompt = tokens_from(0, 60)}).find("window of 50 by 10"), std::string::npos);
  EXPECT_NE(error_of({.prompt = tokens_from(0, 45), .max_new_tokens = 9}).find("by 2"),
            std::string::npos);
  EXPECT_EQ(error_of({.prompt = tokens_from(0, 5), .id = 7}), "");
  EXPECT_NE(error_of({.prompt = tokens_from(0, 5), .id = 7}).find("7 is in use"),
            std::string::npos);
  EXPECT_EQ(bed.scheduler.n_waiting(), 1u);
  EXPECT_TRUE(bed.scheduler.check_integrity().ok());
}

TEST(Scheduler, RefusesOptionsThatCannotWork) {
  const KvCacheOptions cache{.n_pages = 8, .block_tokens = 16};
  const auto error_of = [&](const SchedulerOptions& options, const CostModel& cost = {}) {
    const auto result = Scheduler::create(options, cache, cost);
    return result.ok() ? std::string() : result.error().message;
  };
  EXPECT_EQ(error_of({}), "");
  EXPECT_NE(error_of({.token_budget = 15}).find("below one block of 16"), std::string::npos);
  EXPECT_NE(error_of({.chunk_tokens = 0}), "");
  EXPECT_NE(error_of({.tpot_target_s = -1}), "");
  EXPECT_NE(error_of({.aging_s = -1}).find("gets a turn"), std::string::npos);
  EXPECT_NE(error_of({.aging_s = std::nan("")}), "");
  const CostModel slow({.fixed = 0.01, .per_row = 0.001, .per_token = 0.001});
  EXPECT_NE(error_of({.tpot_target_s = 0.005}, slow).find("5.00 ms"), std::string::npos);
  EXPECT_EQ(error_of({.tpot_target_s = 0.05}, slow), "");
}

TEST(Scheduler, ServesBetterClassesAndLowerPriorityValuesFirst) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  const RequestId batch = bed.add(tokens_from(0, 16), 1, of_class(ServiceClass::kBatch));
  const RequestId late = bed.add(tokens_from(100, 16), 1, {.priority = 5});
  const RequestId early = bed.add(tokens_from(200, 16), 1, {.priority = -1});
  const RequestId first = bed.add(tokens_from(300, 16), 1, of_class(ServiceClass::kInteractive));
  std::vector<RequestId> order;
  while (!bed.scheduler.idle()) order.push_back(bed.step().chunks.at(0).request);
  EXPECT_EQ(order, (std::vector<RequestId>{first, early, late, batch}));
}

TEST(Scheduler, ABetterClassTakesThePlaceOfALesserOneWhichLosesNothing) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  const RequestId batch = bed.add(tokens_from(0, 20), 10, of_class(ServiceClass::kBatch));
  bed.step();
  bed.step();
  const RequestId urgent = bed.add(tokens_from(300, 16), 2, of_class(ServiceClass::kInteractive));
  EXPECT_EQ(requests_of(bed.step()), std::vector<RequestId>{urgent});
  EXPECT_EQ(requests_of(bed.step()), std::vector<RequestId>{urgent});
  EXPECT_EQ(requests_of(bed.step()), std::vector<RequestId>{batch});
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(urgent).generated_tokens, 2u);
  EXPECT_EQ(bed.scheduler.request(batch).generated_tokens, 10u);
}

TEST(Scheduler, PartialPrefillsTakeTurnsUpToTheirCap) {
  SchedulerBed bed(
      {.token_budget = 16, .chunk_tokens = 16, .max_running = 4, .max_partial_prefills = 2}, 64);
  const RequestId a = bed.add(tokens_from(0, 48), 0);
  const RequestId b = bed.add(tokens_from(1000, 48), 0);
  const RequestId c = bed.add(tokens_from(2000, 48), 0);
  std::vector<RequestId> order;
  while (!bed.scheduler.idle()) {
    order.push_back(bed.step().chunks.at(0).request);
    size_t partial = 0;
    for (const RequestId id : {a, b, c}) {
      partial += bed.scheduler.request(id).state == RequestState::kPrefilling;
    }
    EXPECT_LE(partial, 2u);
  }
  EXPECT_EQ(order, (std::vector<RequestId>{a, b, a, b, a, c, b, c, c}));
}

TEST(Scheduler, PreemptsTheLastServedWhenBlocksRunOutAndRecomputes) {
  SchedulerBed bed({.token_budget = 128, .max_running = 2}, 6);
  const RequestId first = bed.add(tokens_from(0, 30), 40);
  const RequestId second = bed.add(tokens_from(1000, 30), 40);
  bed.run_to_idle();
  EXPECT_GT(bed.scheduler.telemetry().preemptions, 0u);
  EXPECT_EQ(bed.scheduler.request(first).preemptions, 0u);
  EXPECT_GT(bed.scheduler.request(second).preemptions, 0u);
  EXPECT_EQ(bed.scheduler.request(first).generated_tokens, 40u);
  EXPECT_EQ(bed.scheduler.request(second).generated_tokens, 40u);
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), 6u);
}

// What a later start finds again is its own work, not what the cache brought to the client.
TEST(Scheduler, APreemptedRequestReportsTheCacheOfItsFirstStart) {
  SchedulerBed bed({.token_budget = 128, .max_running = 2}, 6);
  bed.add(tokens_from(1000, 17), 1);
  bed.run_to_idle();
  bed.add(tokens_from(0, 30), 40);
  const RequestId preempted = bed.add(tokens_from(1000, 30), 40);
  bed.run_to_idle();
  const Request& request = bed.scheduler.request(preempted);
  EXPECT_GT(request.preemptions, 0u);
  EXPECT_EQ(request.cache.prompt_tokens, 30u);
  EXPECT_EQ(request.cache.cached_tokens, 17u);  // a block, and the head of the next
  EXPECT_EQ(bed.scheduler.telemetry().prompt_tokens, 17u + 30 + 30);
  EXPECT_EQ(bed.scheduler.telemetry().cached_tokens, 17u);
}

TEST(Scheduler, MeasuresTimesAsTheirNamesSay) {
  SchedulerBed bed({}, 8);
  bed.now = 10;
  const RequestId id = bed.add(tokens_from(0, 16), 4);
  bed.now = 11;
  for (const double seconds : {1.0, 0.25, 0.5, 2.25}) {
    const StepPlan plan = bed.scheduler.plan_step(bed.now);
    bed.now += seconds;
    const uint32_t token = 1;
    const std::span<const uint32_t> taken(&token, 1);
    bed.scheduler.commit(plan.id, {&taken, 1}, bed.now, seconds);
  }
  ASSERT_TRUE(bed.scheduler.request(id).ended());
  const Telemetry& telemetry = bed.scheduler.telemetry();
  EXPECT_EQ(telemetry.wait_seconds.sum(), 1);
  EXPECT_EQ(telemetry.ttft_seconds.sum(), 2);
  EXPECT_EQ(telemetry.prefill_seconds.sum(), 1);
  EXPECT_EQ(telemetry.decode_seconds.sum(), 3);
  EXPECT_EQ(telemetry.tpot_seconds.sum(), 1);  // three gaps after the first token
  EXPECT_EQ(telemetry.tpot_seconds.count(), 1u);
  EXPECT_EQ(telemetry.itl_seconds.count(), 3u);
  EXPECT_EQ(telemetry.itl_seconds.max(), 2.25);
  EXPECT_EQ(telemetry.e2e_seconds.sum(), 5);
}

TEST(Scheduler, AFullHouseOfOneClassLeavesOthersTheirReservedTokens) {
  const auto tokens_in_three_steps = [](uint32_t reserved) {
    SchedulerBed bed({.token_budget = 16,
                      .max_running = 40,
                      .max_partial_prefills = 40,
                      .reserved_decode_tokens = {0, 0, reserved}},
                     200);
    for (uint32_t i = 0; i < 16; ++i) bed.add({i, 1}, 200, of_class(ServiceClass::kInteractive));
    for (int i = 0; i < 20; ++i) bed.step();
    EXPECT_EQ(bed.step().n_tokens(), 16u);
    const RequestId batch = bed.add({7, 7, 7}, 50, of_class(ServiceClass::kBatch));
    for (int i = 0; i < 3; ++i) bed.step();
    return bed.scheduler.request(batch).generated_tokens;
  };
  EXPECT_EQ(tokens_in_three_steps(0), 0u);
  EXPECT_EQ(tokens_in_three_steps(4), 3u);
}

TEST(Scheduler, ADeadlineEndsARequestAndFreesItsBlocks) {
  SchedulerBed bed({}, 8);
  const RequestId id = bed.add(tokens_from(0, 10), 50, {.deadline_s = 0.01});
  while (!bed.scheduler.request(id).ended()) bed.step();
  EXPECT_EQ(bed.scheduler.request(id).end_reason, EndReason::kDeadline);
  EXPECT_GT(bed.scheduler.request(id).generated_tokens, 0u);
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), 8u);
}

TEST(Scheduler, StopsAtTheWindowOrWaitsToBeRestarted) {
  SchedulerBed stops({.window_tokens = 32}, 8);
  const RequestId stopped = stops.add(tokens_from(0, 20), 100);
  stops.run_to_idle();
  EXPECT_EQ(stops.scheduler.request(stopped).end_reason, EndReason::kWindow);
  EXPECT_EQ(stops.scheduler.request(stopped).generated_tokens, 13u);  // the last is not fed back

  SchedulerBed shifts({.window_tokens = 32, .stop_at_window = false}, 8);
  const RequestId id = shifts.add(tokens_from(0, 20), 100);
  int restarts = 0;
  while (!shifts.scheduler.idle()) {
    if (shifts.step().empty()) {
      ASSERT_EQ(shifts.scheduler.request(id).sequence_tokens, 33u);
      shifts.scheduler.restart(id, tokens_from(17, 16));
      ++restarts;
    }
  }
  EXPECT_EQ(shifts.scheduler.request(id).end_reason, EndReason::kLength);
  EXPECT_EQ(shifts.scheduler.request(id).generated_tokens, 100u);
  EXPECT_GT(restarts, 3);
}

TEST(Scheduler, ASecondRequestWithTheSamePromptComputesOneToken) {
  SchedulerBed bed({}, 32);
  bed.add(tokens_from(0, 100), 4);
  bed.run_to_idle();
  const RequestId again = bed.add(tokens_from(0, 100), 4);
  const StepPlan plan = bed.step();
  EXPECT_EQ(plan.chunks.at(0).first_position, 99u);
  EXPECT_EQ(plan.n_tokens(), 1u);
  EXPECT_EQ(bed.scheduler.request(again).cache.cached_tokens, 99u);
}

TEST(Scheduler, WhatCouldNotBeRestoredIsNotReportedAsReused) {
  SchedulerBed bed({}, KvCacheOptions{.n_pages = 7, .block_tokens = 16, .page_bytes = 8});
  const auto file = std::filesystem::temp_directory_path() / "pumice-no-such-prompt-cache";
  ASSERT_TRUE(bed.scheduler.cache().open_prompt_cache(file, 1 << 20).ok());
  bed.add(tokens_from(0, 100), 1);
  bed.run_to_idle();
  bed.add(tokens_from(1000, 100), 1);  // evicts the first prompt
  bed.run_to_idle();
  const RequestId id = bed.add(tokens_from(0, 100), 4);
  const StepPlan plan = bed.scheduler.plan_step(bed.now);
  ASSERT_GE(plan.transfers.restores.size(), 3u);
  EXPECT_FALSE(
      bed.scheduler.finish_transfers(plan, {.restores = {2}}));  // the third block is damaged
  bed.step();
  EXPECT_EQ(bed.scheduler.request(id).cache.cached_tokens, 32u);
  EXPECT_EQ(bed.scheduler.telemetry().cached_tokens, 32u);
  EXPECT_EQ(bed.scheduler.telemetry().prompt_tokens, 300u);
  bed.run_to_idle();
}

TEST(Scheduler, WhoDidNotFitStartsOnceTheSamePromptIsReadAndCanBeShared) {
  SchedulerBed bed({.token_budget = 128, .chunk_tokens = 64, .max_running = 2}, 7);
  bed.add(tokens_from(0, 64), 40);
  const RequestId second = bed.add(tokens_from(0, 64), 4);
  bed.step();  // reads the first prompt: 4 of 7 blocks, and the second wants 4 and one to grow into
  EXPECT_EQ(bed.scheduler.request(second).state, RequestState::kWaiting);
  bed.step();
  EXPECT_TRUE(bed.scheduler.request(second).running());
  EXPECT_EQ(bed.scheduler.request(second).cache.cached_tokens, 63u);
}

TEST(AdaptiveChunks, ShrinkAsDecodeLoadRisesAndGrowWhenNothingElseRuns) {
  const StepCost device{.fixed = 1e-3, .per_row = 2e-4, .per_token = 1e-4};
  const auto chunk_beside = [&](uint32_t n_streams, const StepCost& cost) {
    SchedulerBed bed(
        {.token_budget = 512, .chunk_tokens = 512, .tpot_target_s = 20e-3, .max_running = 64}, 4000,
        CostModel(cost));
    bed.device = cost;
    for (uint32_t i = 0; i < n_streams; ++i) bed.add({i}, 1000);
    for (int i = 0; i < 10; ++i) bed.step();
    bed.add(tokens_from(5000, 4000), 1);
    const StepPlan plan = bed.step();
    EXPECT_TRUE(n_streams == 0 || bed.device.seconds(plan.shape) <= 20e-3) << n_streams;
    return plan.chunks.back().n_tokens;
  };
  EXPECT_EQ(chunk_beside(0, device), 512u);
  const uint32_t one = chunk_beside(1, device);
  const uint32_t many = chunk_beside(40, device);
  EXPECT_EQ(one, 176u);
  EXPECT_EQ(many, 96u);
  StepCost slow = device;
  slow.per_token *= 10;
  EXPECT_EQ(chunk_beside(1, slow), 16u);
}

TEST(AdaptiveChunks, ATargetMissedUnderLoadUsesTheSmallestChunkAndIsCounted) {
  const StepCost device{.fixed = 1e-3, .per_row = 1e-3, .per_token = 1e-4};
  SchedulerBed bed(
      {.token_budget = 512, .chunk_tokens = 512, .tpot_target_s = 5e-3, .max_running = 64}, 4000,
      CostModel(device));
  bed.device = device;
  for (uint32_t i = 0; i < 20; ++i) bed.add({i}, 1000);
  for (int i = 0; i < 30; ++i) bed.step();
  bed.add(tokens_from(5000, 400), 1);
  EXPECT_EQ(bed.step().chunks.back().n_tokens, 16u);
  EXPECT_GT(bed.scheduler.telemetry().target_misses, 0u);
}

TEST(Scheduler, TenThousandRequestsCancelledAtRandomLeaveThePoolFull) {
  SchedulerBed bed({.token_budget = 64, .chunk_tokens = 32, .max_running = 6}, 40);
  std::mt19937 random(5);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  std::vector<RequestId> live;
  uint32_t submitted = 0;
  std::optional<StepPlan> open;
  while (submitted < 10000 || !live.empty()) {
    while (live.size() < 12 && submitted < 10000) {
      live.push_back(bed.add(tokens_from(below(4) * 1000, 1 + below(120)), below(60)));
      ++submitted;
    }
    StepPlan next = bed.scheduler.plan_step(bed.now);
    const size_t victim = below(static_cast<uint32_t>(live.size()));
    bed.scheduler.cancel(live[victim], bed.now);
    bed.scheduler.remove(live[victim]);
    live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
    if (open) bed.commit(*open);
    open.reset();
    if (!next.empty()) open = std::move(next);
  }
  if (open) bed.commit(*open);
  EXPECT_TRUE(bed.scheduler.idle());
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), 40u);
}

}  // namespace
}  // namespace pumice
