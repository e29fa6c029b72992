// A cache that gets smaller and larger under requests: none is lost, none waits for ever.
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::SchedulerBed;
using test::tokens_from;

void resize(SchedulerBed& bed, uint32_t n_pages) {
  KvCache& cache = bed.scheduler.cache();
  bed.scheduler.give_up_pages(n_pages);
  const Transfers saves = cache.take_transfers();
  EXPECT_TRUE(cache.finish_transfers(saves.batch).empty());
  while (!cache.take_moves(n_pages, 3).empty()) cache.finish_moves(true);
  EXPECT_TRUE(cache.resize(n_pages));
  const Status integrity = bed.scheduler.check_integrity();
  EXPECT_TRUE(integrity.ok()) << integrity.error().message;
}

TEST(SchedulerResize, ThoseServedLastWaitUntilTheRestFitAndGoOnWithTheirTokens) {
  SchedulerBed bed({.max_running = 4}, 32);
  std::vector<RequestId> ids;
  for (uint32_t i = 0; i < 4; ++i) ids.push_back(bed.add(tokens_from(1000 * i, 60), 40));
  for (int i = 0; i < 10; ++i) bed.step();
  ASSERT_EQ(bed.scheduler.n_running(), 4u);
  resize(bed, 10);
  EXPECT_EQ(bed.scheduler.n_running(), 2u);
  EXPECT_TRUE(bed.scheduler.request(ids[0]).running());
  EXPECT_TRUE(bed.scheduler.request(ids[1]).running());
  EXPECT_EQ(bed.scheduler.request(ids[3]).preemptions, 1u);
  EXPECT_EQ(bed.scheduler.request(ids[3]).sequence_tokens,
            bed.scheduler.request(ids[0]).sequence_tokens);
  bed.run_to_idle();
  for (const RequestId id : ids) {
    EXPECT_EQ(bed.scheduler.request(id).end_reason, EndReason::kLength);
    EXPECT_EQ(bed.scheduler.request(id).generated_tokens, 40u);
  }
}

TEST(SchedulerResize, WhatCannotFitAnyMoreFailsWithTheNumbersAndHoldsNobodyUp) {
  SchedulerBed bed({.max_running = 2}, 32);
  const RequestId big = bed.add(tokens_from(0, 200), 60);  // 13 blocks now, 17 in the end
  const RequestId small = bed.add(tokens_from(1000, 20), 30);
  const RequestId waits = bed.add(tokens_from(2000, 230), 10);
  for (int i = 0; i < 4; ++i) bed.step();
  resize(bed, 14);
  const StepPlan plan = bed.step();
  ASSERT_EQ(plan.ended, std::vector<RequestId>{waits});
  const Request& failed = bed.scheduler.request(waits);
  EXPECT_EQ(failed.end_reason, EndReason::kError);
  ASSERT_FALSE(failed.failure.ok());
  EXPECT_EQ(failed.failure.error().code, ErrorCode::kDoesNotFit);
  EXPECT_EQ(failed.failure.error().message,
            "230 tokens need 15 KV pages, and the cache was made smaller: it has 14 of 32");
  // It goes on as far as there is room.
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(big).end_reason, EndReason::kError);
  EXPECT_EQ(bed.scheduler.request(big).sequence_tokens, 14 * 16 + 1u);
  EXPECT_EQ(bed.scheduler.request(small).end_reason, EndReason::kLength);
  const Result<RequestId> refused =
      bed.scheduler.add({.prompt = tokens_from(0, 200), .max_new_tokens = 60}, bed.now);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  resize(bed, 32);
  const RequestId again = bed.add(tokens_from(0, 200), 60);
  bed.run_to_idle();
  EXPECT_EQ(bed.scheduler.request(again).end_reason, EndReason::kLength);
}

struct Bed {
  const char* name;
  KvCacheOptions cache;
};

class SchedulerResizes : public testing::TestWithParam<Bed> {};

TEST_P(SchedulerResizes, AtAnyTimeLoseNoRequestAndHangNone) {
  std::mt19937 random(11);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  const uint32_t all = GetParam().cache.n_pages;
  SchedulerBed bed({.token_budget = 64, .chunk_tokens = 40, .max_running = 6}, GetParam().cache);
  std::vector<RequestId> ids;
  for (int step = 0; step < 1500; ++step) {
    if (below(6) == 0) {
      RequestSpec spec;
      spec.prompt = tokens_from(below(3) * 1000, 1 + below(120));
      spec.max_new_tokens = 1 + below(40);
      const Result<RequestId> id = bed.scheduler.add(std::move(spec), bed.now);
      if (id.ok()) {
        ids.push_back(*id);
      } else {
        EXPECT_EQ(id.error().code, ErrorCode::kDoesNotFit);
      }
    }
    if (below(12) == 0) resize(bed, below(3) == 0 ? all : 6 + below(all - 6));
    if (!bed.scheduler.idle()) {
      const StepPlan plan = bed.step();
      EXPECT_FALSE(plan.empty() && plan.ended.empty()) << "nothing goes on, step " << step;
    }
  }
  resize(bed, 6);
  bed.run_to_idle();
  uint32_t n_failed = 0;
  for (const RequestId id : ids) {
    const Request& request = bed.scheduler.request(id);
    if (request.end_reason == EndReason::kLength) {
      EXPECT_EQ(request.generated_tokens, request.max_new_tokens);
      continue;
    }
    ++n_failed;
    EXPECT_EQ(request.end_reason, EndReason::kError);
    EXPECT_FALSE(request.failure.ok());
  }
  EXPECT_GT(ids.size(), 100u);
  EXPECT_GT(n_failed, 0u);
  EXPECT_LT(n_failed, ids.size() / 2);
  EXPECT_EQ(bed.scheduler.cache().n_free_pages(), 6u);
}

INSTANTIATE_TEST_SUITE_P(
    All, SchedulerResizes,
    testing::Values(Bed{"Plain", {.n_pages = 24, .block_tokens = 16}},
                    Bed{"HostTier",
                        {.n_pages = 24, .block_tokens = 16, .page_bytes = 8, .host_bytes = 20 * 8}},
                    Bed{"Groups",
                        {.n_pages = 48,
                         .block_tokens = 16,
                         .kinds = {{"full", StateForm::kFull},
                                   {"local", StateForm::kWindow, 33},
                                   {"state", StateForm::kRecurrent}}}}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pumice
