// The service rule (docs/ARCHITECTURE.md): who is served before whom, who makes way, whose turn it
// is.
#include <algorithm>
#include <string>
#include <vector>

#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::SchedulerBed;
using test::tokens_from;

const RequestSpec kInteractive{.service_class = ServiceClass::kInteractive};
const RequestSpec kBatch{.service_class = ServiceClass::kBatch};

bool has_chunk_of(const StepPlan& plan, RequestId id) {
  return std::ranges::find(plan.chunks, id, &StepChunk::request) != plan.chunks.end();
}

/// Steps until it has its first token, that one included; as an engine has them, one under way
/// while the next is planned.
uint32_t steps_to_first_token(SchedulerBed& bed, RequestId id) {
  std::vector<StepPlan> under_way;
  for (uint32_t n_steps = 1; n_steps < 10'000; ++n_steps) {
    under_way.push_back(bed.scheduler.plan_step(bed.now));
    if (under_way.size() < Scheduler::kMaxOutstanding) continue;
    bed.commit(under_way.front());
    under_way.erase(under_way.begin());
    if (bed.scheduler.request(id).generated_tokens == 0) continue;
    bed.scheduler.rollback(under_way.front().id);
    return n_steps - 1;
  }
  return UINT32_MAX;
}

// ---- clients

/// Who had its first token when, of requests of which one runs at a time.
std::vector<RequestId> order_of_service(SchedulerBed& bed, std::vector<RequestId> ids) {
  bed.run_to_idle();
  std::ranges::sort(ids, {},
                    [&](RequestId id) { return bed.scheduler.request(id).times.first_token; });
  return ids;
}

TEST(ServiceRule, ClientsThatWaitTakeTurnsHoweverManyEachSent) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  std::vector<RequestId> ids;
  for (const uint64_t client : {1, 1, 1, 1, 2, 2, 3}) {
    ids.push_back(
        bed.add(tokens_from(100 * static_cast<uint32_t>(ids.size()), 8), 2, {.client = client}));
  }
  const std::vector<RequestId> order = {ids[0], ids[4], ids[6], ids[1], ids[5], ids[2], ids[3]};
  EXPECT_EQ(order_of_service(bed, ids), order);
}

TEST(ServiceRule, AClientThatComesLaterIsServedWithinARoundAndNotBeforeAll) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 5; ++i) {
    ids.push_back(bed.add(tokens_from(100 * i, 8), 2, {.client = 1}));
  }
  while (bed.scheduler.request(ids[2]).generated_tokens == 0) bed.step();
  for (uint32_t i = 0; i < 2; ++i) {
    ids.push_back(bed.add(tokens_from(1000 + 100 * i, 8), 2, {.client = 2}));
  }
  const std::vector<RequestId> order = {ids[0], ids[1], ids[2], ids[3], ids[5], ids[4], ids[6]};
  EXPECT_EQ(order_of_service(bed, ids), order);
}

TEST(ServiceRule, AClientThatTookRequestsBackIsNotBehindOthersForThem) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  std::vector<RequestId> ids = {bed.add(tokens_from(0, 8), 2, {.client = 2})};
  bed.step();
  for (uint32_t i = 0; i < 3; ++i) {
    const RequestId taken_back = bed.add(tokens_from(100 + 100 * i, 8), 2, {.client = 1});
    bed.scheduler.cancel(taken_back, bed.now);
  }
  for (uint32_t i = 0; i < 3; ++i) {
    ids.push_back(bed.add(tokens_from(1000 + 100 * i, 8), 2, {.client = i == 1 ? 1u : 2u}));
  }
  EXPECT_EQ(order_of_service(bed, ids), ids);
}

TEST(ServiceRule, WithoutClientsTheyAreServedInTheOrderTheyCame) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 6; ++i) {
    if (i == 3) bed.step();
    ids.push_back(bed.add(tokens_from(100 * i, 8), 2));
  }
  EXPECT_EQ(order_of_service(bed, ids), ids);
}

TEST(ServiceRule, ClassesAndPrioritiesComeBeforeTurnsOfClients) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  std::vector<RequestId> ids;
  const auto add = [&](uint64_t client, RequestSpec spec) {
    spec.client = client;
    ids.push_back(bed.add(tokens_from(100 * static_cast<uint32_t>(ids.size()), 8), 2, spec));
  };
  add(1, kBatch);
  add(2, {.priority = 1});
  add(1, {.priority = -1});
  add(1, {.priority = -1});
  add(1, kInteractive);
  EXPECT_EQ(order_of_service(bed, ids),
            (std::vector<RequestId>{ids[4], ids[2], ids[3], ids[1], ids[0]}));
}

// ---- better classes

TEST(ServiceRule, ABetterClassTakesAPlaceFromRowsThatDecode) {
  SchedulerBed bed({.token_budget = 512, .max_running = 8}, 4000);
  std::vector<RequestId> batch;
  for (uint32_t i = 0; i < 8; ++i) batch.push_back(bed.add(tokens_from(1000 * i, 64), 400, kBatch));
  for (int i = 0; i < 20; ++i) bed.step();
  const RequestId urgent = bed.add(tokens_from(90'000, 40), 5, kInteractive);
  const StepPlan plan = bed.step();
  EXPECT_TRUE(has_chunk_of(plan, urgent));
  EXPECT_EQ(plan.preempted, std::vector<RequestId>{batch.back()});
  EXPECT_FALSE(has_chunk_of(plan, batch.back()));
  EXPECT_EQ(bed.scheduler.request(urgent).generated_tokens, 1u);
  bed.run_to_idle();
  EXPECT_LT(bed.scheduler.request(urgent).times.ended, bed.scheduler.request(batch[0]).times.ended);
  for (const RequestId id : batch) EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 400u);
  EXPECT_EQ(bed.scheduler.telemetry().preemptions, 1u);
}

TEST(ServiceRule, ARowThatMakesWayLosesTheStepUnderWayAndNoToken) {
  SchedulerBed bed({.token_budget = 64, .max_running = 1}, 64);
  const RequestId batch = bed.add(tokens_from(0, 20), 10, kBatch);
  bed.step();
  const StepPlan under_way = bed.scheduler.plan_step(bed.now);
  ASSERT_TRUE(has_chunk_of(under_way, batch));
  const RequestId urgent = bed.add(tokens_from(300, 16), 2, kInteractive);
  const StepPlan next = bed.scheduler.plan_step(bed.now);
  EXPECT_TRUE(has_chunk_of(next, urgent));
  EXPECT_FALSE(bed.commit(under_way).at(0).counts);
  EXPECT_TRUE(bed.commit(next).at(0).sampled);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(urgent).generated_tokens, 2u);
  EXPECT_EQ(bed.scheduler.request(batch).generated_tokens, 10u);
}

TEST(ServiceRule, ABetterClassTakesBlocksFromRowsThatDecode) {
  SchedulerBed bed({.token_budget = 512, .max_running = 16}, 40);
  for (uint32_t i = 0; i < 8; ++i) bed.add(tokens_from(1000 * i, 60), 200, kBatch);
  for (int i = 0; i < 10; ++i) bed.step();
  ASSERT_EQ(bed.scheduler.n_running(), 8u);
  const RequestId urgent = bed.add(tokens_from(90'000, 100), 5, kInteractive);
  const StepPlan plan = bed.step();
  EXPECT_TRUE(has_chunk_of(plan, urgent));
  EXPECT_GE(plan.preempted.size(), 1u);
  EXPECT_LE(plan.preempted.size(), 3u) << "no more than it needs";
  bed.run_to_idle();
}

TEST(ServiceRule, NobodyMakesWayForOneThatCouldNotStartAllTheSame) {
  SchedulerBed bed({.token_budget = 512, .max_running = 8}, 40);
  const RequestId large = bed.add(tokens_from(0, 400), 100, kInteractive);  // 25 blocks
  const RequestId batch = bed.add(tokens_from(1000, 60), 100, kBatch);
  bed.step();
  bed.step();
  const RequestId other = bed.add(tokens_from(2000, 400), 1, kInteractive);
  for (int i = 0; i < 20; ++i) {
    const StepPlan plan = bed.step();
    EXPECT_TRUE(plan.preempted.empty());
    EXPECT_TRUE(has_chunk_of(plan, batch));
  }
  EXPECT_EQ(bed.scheduler.request(other).state, RequestState::kWaiting);
  while (!bed.scheduler.request(large).ended()) bed.step();
  EXPECT_TRUE(has_chunk_of(bed.step(), other));
  bed.run_to_idle();
}

TEST(ServiceRule, EqualsNeverMakeWayForOneThatStarts) {
  SchedulerBed bed({.token_budget = 512, .max_running = 2}, 400);
  bed.add(tokens_from(0, 40), 50, {.priority = 7});
  bed.add(tokens_from(1000, 40), 50, {.priority = 7});
  bed.step();
  bed.add(tokens_from(2000, 40), 50, {.priority = -7});
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.telemetry().preemptions, 0u);
}

/// Eight batch requests have all places and a prompt of 100,000 tokens is being read.
TEST(ServiceRule, AnInteractiveRequestHasItsFirstTokenInTwoStepsMoreThanItsPromptTakes) {
  for (const ServiceClass of_the_long_one :
       {ServiceClass::kInteractive, ServiceClass::kNormal, ServiceClass::kBatch}) {
    for (const uint32_t n_pages : {20'000u, 6'600u}) {  // all are taken, or nearly
      SchedulerBed bed({.token_budget = 512, .chunk_tokens = 512, .max_running = 8}, n_pages);
      for (uint32_t i = 0; i < 7; ++i) bed.add(tokens_from(1000 * i, 64), 4000, kBatch);
      const RequestId long_one =
          bed.add(tokens_from(1'000'000, 100'000), 10, {.service_class = of_the_long_one});
      bed.add(tokens_from(9000, 64), 4000, kBatch);
      for (int i = 0; i < 10; ++i) bed.step();
      ASSERT_EQ(bed.scheduler.request(long_one).state, RequestState::kPrefilling);
      const RequestId urgent = bed.add(tokens_from(50'000, 400), 5, kInteractive);
      EXPECT_LE(steps_to_first_token(bed, urgent), 2u + 1)
          << service_class_name(of_the_long_one) << ", " << n_pages;
    }
  }
}

TEST(ServiceRule, RowsOfALesserClassLeaveABlockOfTheBudgetToABetterPrompt) {
  SchedulerBed bed({.token_budget = 32, .max_running = 64, .max_partial_prefills = 40}, 400);
  for (uint32_t i = 0; i < 40; ++i) bed.add({i, 1}, 300, kBatch);
  for (int i = 0; i < 10; ++i) bed.step();
  const RequestId urgent = bed.add(tokens_from(5000, 48), 5, kInteractive);
  for (int i = 0; i < 3; ++i) {
    const StepPlan plan = bed.step();
    EXPECT_TRUE(has_chunk_of(plan, urgent));
    EXPECT_EQ(plan.chunks.back().n_tokens, 16u);
    EXPECT_EQ(plan.chunks.size(), 17u) << "the rest of the budget is theirs";
  }
  EXPECT_EQ(bed.scheduler.request(urgent).generated_tokens, 1u);
}

// ---- turns

TEST(ServiceRule, AShortPromptTakesTurnsWithALongOne) {
  SchedulerBed bed({.token_budget = 16, .chunk_tokens = 16, .max_running = 4}, 100);
  const RequestId a = bed.add(tokens_from(0, 160), 1);
  bed.step();
  const RequestId b = bed.add(tokens_from(1000, 16), 1);
  const StepPlan first = bed.step();
  EXPECT_TRUE(has_chunk_of(first, a));
  EXPECT_TRUE(has_chunk_of(bed.step(), b));
}

TEST(ServiceRule, ABetterPriorityIsReadInTheNextStep) {
  SchedulerBed bed({.token_budget = 16, .chunk_tokens = 16, .max_running = 4}, 100);
  bed.add(tokens_from(0, 160), 1);
  bed.step();
  const RequestId b = bed.add(tokens_from(1000, 32), 1, {.priority = -1});
  EXPECT_TRUE(has_chunk_of(bed.step(), b));
  EXPECT_TRUE(has_chunk_of(bed.step(), b));
}

TEST(ServiceRule, ALongPromptIsNotStarvedByShortOnes) {
  SchedulerBed bed({.token_budget = 16, .chunk_tokens = 16, .max_running = 8}, 400);
  const RequestId a = bed.add(tokens_from(0, 320), 1);  // 20 chunks
  for (uint32_t i = 1; i < 50 && !bed.scheduler.request(a).ended(); ++i) {
    if (i % 2 == 0) bed.add(tokens_from(1000 * i, 16), 1);
    bed.step();
  }
  EXPECT_TRUE(bed.scheduler.request(a).ended()) << "it has every second step at least";
}

TEST(ServiceRule, RowsThatTheBudgetCannotHoldTakeTurns) {
  SchedulerBed bed({.token_budget = 16, .max_running = 24, .max_partial_prefills = 24}, 400);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 24; ++i) ids.push_back(bed.add({i}, 100));
  for (int i = 0; i < 40; ++i) bed.step();
  const auto tokens_of = [&](RequestId id) { return bed.scheduler.request(id).generated_tokens; };
  std::vector<uint32_t> before;
  for (const RequestId id : ids) before.push_back(tokens_of(id));
  for (int i = 0; i < 6; ++i) bed.step();
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(tokens_of(ids[i]) - before[i], 4u) << "two of three steps for each";
  }
}

// ---- what a start costs

TEST(ServiceRule, WhatIsCachedAndInNoUseCostsAStartAsMuchAsAnyBlock) {
  SchedulerBed bed({.token_budget = 512, .max_running = 4}, 20);
  bed.add(tokens_from(5000, 160), 1);  // leaves 10 blocks cached
  bed.run_to_idle();
  const RequestId running = bed.add(tokens_from(0, 140), 40);  // 9 blocks, soon 10 and 11
  bed.step();
  ASSERT_EQ(bed.scheduler.cache().n_free_pages(), 11u);
  // 11 blocks, 10 of them cached: nothing is left for the one that runs to grow into.
  const RequestId next = bed.add(tokens_from(5000, 170), 30);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.telemetry().preemptions, 0u);
  EXPECT_EQ(bed.scheduler.request(running).generated_tokens, 40u);
  EXPECT_EQ(bed.scheduler.request(next).generated_tokens, 30u);
}

TEST(ServiceRule, WhatRunningRequestsHoldCostsAStartNothing) {
  SchedulerBed bed({.token_budget = 512, .max_running = 4}, 20);
  bed.add(tokens_from(0, 224), 40);  // 14 blocks
  bed.step();
  std::vector<uint32_t> longer = tokens_from(0, 224);
  longer.resize(250, 7);  // 16 blocks, 14 of them shared
  const RequestId next = bed.add(longer, 4);
  EXPECT_TRUE(has_chunk_of(bed.step(), next));
}

// ---- classes age

/// One place, an interactive request that would have it for good, and one of another class.
struct Contention {
  SchedulerBed bed;
  RequestId stream;
  double longest_gap_s = 0;  ///< between tokens of the stream

  explicit Contention(double aging_s)
      : bed({.token_budget = 512, .max_running = 1, .aging_s = aging_s}, 4000),
        stream(bed.add(tokens_from(0, 40), 50'000, kInteractive)) {
    bed.step();
  }
  void run_until(double time_s) {
    while (bed.now < time_s && !bed.scheduler.idle()) step();
  }
  void step() {
    const uint32_t before = bed.scheduler.request(stream).generated_tokens;
    const double last_s = bed.scheduler.request(stream).times.last_token;
    bed.step();
    if (bed.scheduler.request(stream).generated_tokens == before) return;
    longest_gap_s = std::max(longest_gap_s, bed.now - last_s);
  }
};

TEST(Aging, DelaysBatchByItsTimeAtMostAndTheStreamByATurn) {
  Contention contention(2);
  SchedulerBed& bed = contention.bed;
  const RequestId batch = bed.add(tokens_from(9000, 100), 500, kBatch);
  const double start = bed.now;
  contention.run_until(start + 1.99);
  EXPECT_EQ(bed.scheduler.request(batch).generated_tokens, 0u);
  contention.run_until(start + 2.05);
  EXPECT_GT(bed.scheduler.request(batch).generated_tokens, 0u);
  // 1.1 ms a token and 250 ms a turn: three turns.
  while (bed.now < start + 20 && !bed.scheduler.request(batch).ended()) contention.step();
  EXPECT_LE(bed.now - start, 3 * (2 + 0.25 + 0.05));
  EXPECT_GT(bed.now - start, 2 * (2 + 0.25));
  EXPECT_LE(contention.longest_gap_s, 0.25 + 0.02);
  EXPECT_GT(contention.longest_gap_s, 0.25);
}

TEST(Aging, IsOfClassesOneAfterTheOther) {
  Contention contention(2);
  SchedulerBed& bed = contention.bed;
  const RequestId batch = bed.add(tokens_from(9000, 100), 5000, kBatch);
  const RequestId normal = bed.add(tokens_from(7000, 100), 5000);
  const double start = bed.now;
  contention.run_until(start + 2 + 0.25 + 0.1);
  const RequestTimes& of_normal = bed.scheduler.request(normal).times;
  const RequestTimes& of_batch = bed.scheduler.request(batch).times;
  EXPECT_LE(of_normal.first_token - start, 2 + 0.05);
  EXPECT_LE(of_batch.first_token - start, 2 + 0.25 + 0.1) << "after the turn of the other";
  EXPECT_GT(of_batch.first_token, of_normal.last_token);
}

/// It computes all the time, and each time what it computed before.
TEST(Aging, CountsWhatIsNewAndNotWhatIsReadAgain) {
  const auto runs_for_s = [](double aging_s) {
    SchedulerBed bed({.token_budget = 64, .max_running = 1, .aging_s = aging_s}, 34);
    const double start = bed.now;
    const RequestId batch = bed.add(tokens_from(0, 500), 20, kBatch);
    double next_s = 0;
    for (uint32_t i = 1; bed.now < 10 && !bed.scheduler.request(batch).ended(); ++i) {
      if (bed.now >= next_s) {
        bed.add(tokens_from(10'000 * i, 480), 2, kInteractive);
        next_s = bed.now + 0.1;
      }
      bed.step();
    }
    EXPECT_GT(bed.scheduler.request(batch).preemptions, 2u);
    return bed.now - start;
  };
  EXPECT_GE(runs_for_s(0), 10) << "it never gets on";
  EXPECT_LE(runs_for_s(1), 1.5);
}

TEST(Aging, IsNotForThoseWhoWaitBehindTheirOwnClass) {
  SchedulerBed bed({.token_budget = 512, .max_running = 2, .aging_s = 0.5}, 4000);
  for (uint32_t i = 0; i < 10; ++i) bed.add(tokens_from(1000 * i, 40), 3000, kBatch);
  while (bed.now < 2) bed.step();
  for (uint32_t i = 0; i < 10; ++i) {
    const RequestId urgent = bed.add(tokens_from(50'000 + 100 * i, 40), 5, kInteractive);
    EXPECT_TRUE(has_chunk_of(bed.step(), urgent));
    while (!bed.scheduler.request(urgent).ended()) bed.step();
  }
}

TEST(Aging, IsNotWhileTheHostDoesSomethingElse) {
  Contention contention(2);
  SchedulerBed& bed = contention.bed;
  const RequestId batch = bed.add(tokens_from(9000, 100), 500, kBatch);
  contention.run_until(bed.now + 0.5);
  bed.now += 600;
  contention.run_until(bed.now + 1);
  EXPECT_EQ(bed.scheduler.request(batch).generated_tokens, 0u);
  contention.run_until(bed.now + 1);
  EXPECT_GT(bed.scheduler.request(batch).generated_tokens, 0u);
}

TEST(Aging, WakesWhoSleepsUntilSomethingIsDue) {
  SchedulerBed bed({.token_budget = 512, .max_running = 1, .aging_s = 2}, 400);
  RequestSpec paced = kInteractive;
  paced.max_tokens_per_s = 0.01;
  bed.add(tokens_from(0, 40), 5, paced);
  bed.step();
  const RequestId batch = bed.add(tokens_from(1000, 40), 5, kBatch);
  const double start = bed.now;
  EXPECT_TRUE(bed.step().empty());
  EXPECT_DOUBLE_EQ(bed.scheduler.next_due_s(), start + 2);
  bed.now = start + 2;
  EXPECT_TRUE(has_chunk_of(bed.step(), batch));
}

// ---- starting over

TEST(ServiceRule, AReplacementIsNotRefusedForWhatWasLearned) {
  SchedulerBed bed({.token_budget = 512, .tpot_target_s = 5e-3, .max_running = 4}, 40);
  bed.device = {.fixed = 20e-3, .per_row = 1e-3, .per_token = 1e-3};
  bed.add(tokens_from(0, 100), 30);
  bed.run_to_idle();
  ASSERT_FALSE(bed.scheduler.check_target().ok()) << "a row alone takes longer than the target";
  Scheduler again = Scheduler::in_place_of(bed.scheduler);
  EXPECT_EQ(again.options().tpot_target_s, 5e-3);
  EXPECT_TRUE(again.add({.prompt = tokens_from(0, 10), .max_new_tokens = 1}, bed.now).ok());
}

}  // namespace
}  // namespace pumice
