// Who has which slot, and which tokens a request knows: what an engine reads off the scheduler.
#include <gtest/gtest.h>

#include <set>
#include <span>
#include <string>
#include <vector>

#include "scheduler/request_slots.hpp"
#include "tests/scheduler/scheduler_fixture.hpp"

namespace pumice {
namespace {

using test::SchedulerBed;
using test::tokens_from;

std::vector<uint32_t> tokens_of(const SchedulerBed& bed, RequestId id) {
  const std::span<const uint32_t> tokens = bed.scheduler.tokens(id);
  return {tokens.begin(), tokens.end()};
}

TEST(RequestSlots, AreGivenOutOnceUntilTheirLastUseEnds) {
  RequestSlots slots(2);
  const uint32_t first = slots.take();
  slots.add_use(first);
  slots.drop_use(first);
  const uint32_t second = slots.take();
  EXPECT_NE(second, first);
  EXPECT_THROW(slots.take(), CheckFailure);
  slots.drop_use(first);
  EXPECT_EQ(slots.take(), first);
  EXPECT_THROW(slots.add_use(2), CheckFailure);
}

TEST(RequestSlots, IntegrityNamesTheSlotThatIsCountedWrong) {
  RequestSlots slots(3);
  slots.take();
  slots.drop_use(slots.take());
  EXPECT_TRUE(slots.check_integrity({1}).ok());
  EXPECT_TRUE(slots.check_integrity({1, 0}).ok());
  EXPECT_NE(slots.check_integrity({2}).error().message.find("slot 0 counts 1"), std::string::npos);
  EXPECT_NE(slots.check_integrity({1, 1}).error().message.find("slot 1 counts 0"),
            std::string::npos);
  EXPECT_NE(slots.check_integrity({1, 0, 1}).error().message.find("slot 2"), std::string::npos);
}

TEST(Slots, EveryRunningRequestHasItsOwnWhichItsChunksName) {
  SchedulerBed bed({.max_running = 3}, 64);
  EXPECT_EQ(bed.scheduler.n_slots(), 3 * Scheduler::kMaxOutstanding);
  for (uint32_t i = 0; i < 5; ++i) bed.add(tokens_from(i * 100, 10), 4 + i);
  while (!bed.scheduler.idle()) {
    std::set<uint32_t> seen;
    const StepPlan plan = bed.scheduler.plan_step(bed.now);
    for (const StepChunk& chunk : plan.chunks) {
      EXPECT_EQ(chunk.slot, bed.scheduler.request(chunk.request).slot);
      EXPECT_LT(chunk.slot, bed.scheduler.n_slots());
      EXPECT_TRUE(seen.insert(chunk.slot).second);
    }
    bed.commit(plan);
  }
}

TEST(Slots, OneThatAnOpenStepNamesGoesToNobodyElse) {
  SchedulerBed bed({.max_running = 1}, 8);
  const RequestId first = bed.add(tokens_from(0, 10), 4);
  const StepPlan one = bed.scheduler.plan_step(bed.now);
  bed.scheduler.cancel(first, bed.now);
  EXPECT_FALSE(bed.scheduler.request(first).slot);
  const RequestId second = bed.add(tokens_from(100, 10), 4);
  const StepPlan two = bed.scheduler.plan_step(bed.now);
  const uint32_t other = *bed.scheduler.request(second).slot;
  EXPECT_NE(other, one.chunks.at(0).slot);
  bed.scheduler.cancel(second, bed.now);
  bed.commit(one);  // now the first is free, and the second is not
  const RequestId third = bed.add(tokens_from(200, 10), 4);
  bed.scheduler.plan_step(bed.now);
  EXPECT_EQ(bed.scheduler.request(third).slot, one.chunks.at(0).slot);
  EXPECT_EQ(two.chunks.at(0).slot, other);
  EXPECT_TRUE(bed.scheduler.check_integrity().ok());
}

TEST(Slots, OneThatNoOpenStepNamesIsFreeAtOnce) {
  SchedulerBed bed({.max_running = 1}, 8);
  const RequestId first = bed.add(tokens_from(0, 10), 4);
  bed.step();
  const uint32_t slot = *bed.scheduler.request(first).slot;
  bed.scheduler.cancel(first, bed.now);
  const RequestId second = bed.add(tokens_from(100, 10), 4);
  bed.step();
  EXPECT_EQ(bed.scheduler.request(second).slot, slot);
}

TEST(Slots, ARollbackGivesThemBack) {
  SchedulerBed bed({.max_running = 2}, 8);
  const RequestId id = bed.add(tokens_from(0, 10), 4);
  for (int i = 0; i < 10; ++i) {  // more often than there are slots
    const StepPlan plan = bed.scheduler.plan_step(bed.now);
    bed.scheduler.plan_step(bed.now);
    EXPECT_TRUE(bed.scheduler.request(id).slot);
    bed.scheduler.rollback(plan.id);
    EXPECT_FALSE(bed.scheduler.request(id).slot);
    const Status integrity = bed.scheduler.check_integrity();
    ASSERT_TRUE(integrity.ok()) << integrity.error().message;
  }
}

TEST(Slots, ThereCanBeOnlySoManyAsThereAreNumbers) {
  const auto made = Scheduler::create({.max_running = 1u << 31}, {.n_pages = 8});
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalidArgument);
}

TEST(RequestTokens, AreThePromptAndWhatWasSampledWaitingOrRunning) {
  SchedulerBed bed({.token_budget = 128, .max_running = 2}, 6);
  const RequestId first = bed.add(tokens_from(0, 30), 40);
  const RequestId second = bed.add(tokens_from(1000, 30), 40);
  bool waited_with_sampled_ones = false;
  while (!bed.scheduler.idle()) {
    for (const RequestId id : {first, second}) {
      const Request& request = bed.scheduler.request(id);
      std::vector<uint32_t> expected = tokens_from(id == first ? 0 : 1000, 30);
      const auto sampled = tokens_from(id * 100000 + 30, request.generated_tokens);  // by the bed
      expected.insert(expected.end(), sampled.begin(), sampled.end());
      if (request.ended()) expected.clear();
      ASSERT_EQ(tokens_of(bed, id), expected);
      waited_with_sampled_ones |= request.state == RequestState::kWaiting && !sampled.empty();
    }
    bed.step();
  }
  EXPECT_TRUE(waited_with_sampled_ones);
}

TEST(RequestTokens, AreThoseOfARestart) {
  SchedulerBed bed({.window_tokens = 32, .stop_at_window = false}, 8);
  const RequestId id = bed.add(tokens_from(0, 20), 100);
  while (!bed.step().empty()) {
  }
  EXPECT_EQ(tokens_of(bed, id).size(), 33u);
  bed.scheduler.restart(id, tokens_from(17, 16));
  EXPECT_EQ(tokens_of(bed, id), tokens_from(17, 16));
  bed.step();
  EXPECT_EQ(tokens_of(bed, id).size(), 17u);
}

TEST(RequestTokens, AreNotThereWhereContentsAreKeys) {
  SchedulerBed bed({}, KvCacheOptions{.n_pages = 8, .block_tokens = 16, .keyed = true});
  const RequestId id = bed.add({}, 4, {.keys = {1, 2}, .n_keyed_tokens = 40});
  EXPECT_TRUE(tokens_of(bed, id).empty());
  bed.step();
  EXPECT_TRUE(tokens_of(bed, id).empty());
}

TEST(EndReasons, HaveTheirNames) {
  EXPECT_EQ(end_reason_name(EndReason::kStop), "stop");
  EXPECT_EQ(end_reason_name(EndReason::kStopString), "stop_string");
  EXPECT_EQ(end_reason_name(EndReason::kWindow), "window");
  EXPECT_EQ(end_reason_name(EndReason::kError), "error");
  SchedulerBed bed({}, 8);
  const RequestId id = bed.add(tokens_from(0, 10), 4);
  bed.step();
  bed.scheduler.end(id, EndReason::kStopString, bed.now);
  EXPECT_EQ(bed.scheduler.request(id).state, RequestState::kFinished);
  EXPECT_EQ(bed.scheduler.telemetry().finished, 1u);
}

}  // namespace
}  // namespace pumice
