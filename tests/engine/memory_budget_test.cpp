// A memory budget that changes while an engine works: no token changes, the device's ledger stays
// within it once it is met, and what can never fit any more is told so.
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/engine/synthetic_fixture.hpp"
#include "vk/memory.hpp"

namespace pumice {
namespace {

constexpr uint32_t kGenerations = 8;
constexpr uint32_t kNew = 40;

struct Kind {
  const char* name;
  bool invariant = false;
  uint64_t host_bytes = 0;
  double poll_budget_s = 0;  // 0: by `step`
};

class MemoryBudget : public test::SyntheticEngineTest {
 protected:
  using Told = std::map<RequestId, std::vector<TokenId>>;

  std::unique_ptr<Engine> engine(const Kind& kind = {}) const {
    return make_engine(model_, {.kv_type = KvType::kF32,
                                .math = ops::Math::kF32,
                                .context_tokens = 256,
                                .n_sequences = kGenerations,
                                .token_budget = 64,
                                .chunk_tokens = 32,
                                .cache_host_bytes = kind.host_bytes,
                                .invariant = kind.invariant});
  }
  /// With `invariant` half of them are sampled with penalties: their tokens hang by every bit.
  static void submit_all(Engine& engine, bool sampled) {
    for (uint32_t i = 0; i < kGenerations; ++i) {
      GenerationRequest request{.prompt = tokens(40 + 9 * i, i), .max_new_tokens = kNew};
      if (sampled && i % 2 == 1) request.sampling = with_penalties(i);
      const Result<RequestId> id = engine.submit(std::move(request));
      EXPECT_TRUE(id.ok()) << id.error().message;
    }
  }
  static void keep(const std::vector<StepEvent>& events, Told& told) {
    for (const StepEvent& event : events) {
      if (event.token) told[event.request].push_back(*event.token);
      if (event.report) {
        EXPECT_EQ(event.report->end_reason, EndReason::kLength);
      }
    }
  }
  static uint64_t ledger_bytes() { return pipelines_->device()->ledger().total_bytes(); }
  static uint64_t quarter(const Engine& engine) {
    return engine.memory().used_bytes - engine.memory().kv_bytes * 3 / 4;
  }
  /// One call, and what must hold after each.
  static std::vector<StepEvent> go_on(Engine& engine, double poll_budget_s) {
    auto events = poll_budget_s > 0 ? engine.poll(poll_budget_s) : engine.step();
    EXPECT_TRUE(events.ok()) << events.error().message;
    const Status whole = engine.check_integrity();
    EXPECT_TRUE(whole.ok()) << whole.error().message;
    const MemoryStatus& memory = engine.memory();
    if (memory.met && memory.budget_bytes != UINT64_MAX) {
      EXPECT_LE(ledger_bytes(), memory.budget_bytes);
    }
    return events.ok() ? std::move(events).value() : std::vector<StepEvent>();
  }
  /// Until a budget is met, with nothing to do besides.
  static void meet(Engine& engine) {
    for (int i = 0; i < 1000 && !engine.memory().met; ++i) {
      EXPECT_TRUE(engine.wait(1).ok());
      go_on(engine, 1.0);
    }
    EXPECT_TRUE(engine.memory().met);
    EXPECT_LE(ledger_bytes(), engine.memory().budget_bytes);
  }
};

class MemoryBudgets : public MemoryBudget, public ::testing::WithParamInterface<Kind> {};

TEST_P(MemoryBudgets, AQuarterAndAllAgainAmidGenerationsChangeNoToken) {
  const Kind& kind = GetParam();
  Told expected;
  {
    const auto undisturbed = engine(kind);
    submit_all(*undisturbed, kind.invariant);
    while (!undisturbed->idle()) keep(step(*undisturbed), expected);
  }
  const auto engine = this->engine(kind);
  submit_all(*engine, kind.invariant);
  const uint32_t all_blocks = engine->memory().kv_blocks;
  const uint64_t all_bytes = ledger_bytes();
  Told told;
  const auto n_told = [&] {
    size_t n = 0;
    for (const auto& [id, tokens] : told) n += tokens.size();
    return n;
  };
  uint32_t n_met = 0;
  for (int round = 0; round < 2; ++round) {
    const size_t shrink_at = n_told() + 25;
    while (!engine->idle() && n_told() < shrink_at) keep(go_on(*engine, kind.poll_budget_s), told);
    ASSERT_FALSE(engine->idle());
    const uint64_t budget = quarter(*engine);
    const Status asked = engine->set_memory_budget(budget);
    ASSERT_TRUE(asked.ok()) << asked.error().message;
    EXPECT_FALSE(engine->memory().met) << "before anything moved";
    while (!engine->idle() && !engine->memory().met) {
      keep(go_on(*engine, kind.poll_budget_s), told);
    }
    ASSERT_TRUE(engine->memory().met);
    ++n_met;
    EXPECT_LE(engine->memory().kv_blocks, all_blocks / 4);
    EXPECT_GE(engine->memory().kv_blocks, all_blocks / 16);
    const size_t grow_at = n_told() + 40;
    while (!engine->idle() && n_told() < grow_at) keep(go_on(*engine, kind.poll_budget_s), told);
    ASSERT_TRUE(engine->set_memory_budget(UINT64_MAX).ok());
    keep(go_on(*engine, kind.poll_budget_s), told);
    keep(go_on(*engine, kind.poll_budget_s), told);
    EXPECT_EQ(engine->memory().kv_blocks_all, all_blocks);
    EXPECT_EQ(engine->scheduler().cache().n_pages(), all_blocks);
  }
  while (!engine->idle()) keep(go_on(*engine, kind.poll_budget_s), told);
  EXPECT_EQ(n_met, 2u);
  EXPECT_EQ(told, expected);
  EXPECT_GT(engine->scheduler().telemetry().preemptions, 0u);
  EXPECT_EQ(ledger_bytes(), all_bytes);
  if (kind.host_bytes > 0) {
    EXPECT_GT(engine->scheduler().cache().stats().saved_blocks, 0u);
    EXPECT_GT(engine->scheduler().cache().stats().host_tokens, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, MemoryBudgets,
    ::testing::Values(Kind{.name = "Steps"}, Kind{.name = "Polls", .poll_budget_s = 2e-4},
                      Kind{.name = "Invariant", .invariant = true},
                      Kind{.name = "HostTier", .invariant = true, .host_bytes = uint64_t{4} << 20}),
    [](const auto& given) { return std::string(given.param.name); });

TEST_F(MemoryBudget, ThatCannotBeMetIsRefusedWithTheSmallestAndChangesNothing) {
  const auto engine = this->engine();
  const uint64_t before = ledger_bytes();
  const Status refused = engine->set_memory_budget(1000);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(refused.error().message.find("the smallest is"), std::string::npos);
  EXPECT_EQ(refused.error().message.find("no other memory") != std::string::npos,
            !pipelines_->device()->plan().beside_device().has_value());
  EXPECT_EQ(engine->memory().budget_bytes, UINT64_MAX);
  go_on(*engine, 1.0);
  EXPECT_EQ(ledger_bytes(), before);
  // The smallest that is taken is met.
  uint64_t refused_bytes = 0;
  uint64_t taken_bytes = before * 2;
  while (taken_bytes - refused_bytes > 1) {
    const uint64_t middle = refused_bytes + (taken_bytes - refused_bytes) / 2;
    (engine->set_memory_budget(middle).ok() ? taken_bytes : refused_bytes) = middle;
  }
  ASSERT_TRUE(engine->set_memory_budget(taken_bytes).ok());
  meet(*engine);
  EXPECT_EQ(engine->scheduler().cache().n_pages(), engine->memory().kv_blocks);
  EXPECT_EQ(greedy(*engine, tokens(20, 1), 5).size(), 5u);
}

TEST_F(MemoryBudget, WaitsForBlocksThatComeBackFromTheHost) {
  const auto engine = this->engine({.invariant = true, .host_bytes = uint64_t{4} << 20});
  const auto prompt = tokens(100, 5);
  const std::vector<TokenId> expected = greedy(*engine, prompt, 12);
  for (const uint32_t seed : {6, 7}) greedy(*engine, tokens(100, seed), 2);
  const uint64_t budget = quarter(*engine);
  ASSERT_TRUE(engine->set_memory_budget(budget - engine->memory().kv_bytes / 8).ok());
  meet(*engine);
  EXPECT_GT(engine->scheduler().cache().stats().saved_blocks, 0u);
  ASSERT_TRUE(engine->set_memory_budget(UINT64_MAX).ok());
  go_on(*engine, 1.0);
  const Result<RequestId> id = engine->submit({.prompt = prompt, .max_new_tokens = 12});
  ASSERT_TRUE(id.ok()) << id.error().message;
  Told told;
  keep(go_on(*engine, 1e-9), told);
  ASSERT_TRUE(engine->moves_blocks()) << "nothing comes back";
  ASSERT_TRUE(engine->set_memory_budget(budget).ok());
  while (!engine->idle()) keep(go_on(*engine, 1e-9), told);
  meet(*engine);
  EXPECT_EQ(told[*id], expected);
  EXPECT_GT(engine->scheduler().cache().stats().host_tokens, 0u);
}

TEST_F(MemoryBudget, TheDriversIsAskedWhereItTells) {
  const auto engine = this->engine();
  const std::optional<vk::HeapUse>& driver = engine->memory().driver;
  EXPECT_EQ(driver.has_value(), pipelines_->device()->plan().has_memory_budget);
  if (driver) {
    EXPECT_GT(driver->budget_bytes, 0u);
    EXPECT_EQ(engine->memory().n_overcommitted, driver->is_overcommitted() ? 1u : 0u);
  }
}

TEST_F(MemoryBudget, ARequestThatCanNeverFitAnyMoreFailsAndOthersGoOn) {
  const auto engine = this->engine();
  const auto big = engine->submit({.prompt = tokens(200, 1), .max_new_tokens = 50});
  const auto small = engine->submit({.prompt = tokens(20, 2), .max_new_tokens = 50});
  for (int i = 0; i < 12; ++i) step(*engine);
  const uint64_t one_slab = engine->memory().kv_bytes / 16;
  ASSERT_TRUE(engine
                  ->set_memory_budget(engine->memory().used_bytes - engine->memory().kv_bytes +
                                      one_slab + (uint64_t{32} << 10))
                  .ok());
  std::map<RequestId, RequestReport> reports;
  while (!engine->idle()) {
    for (const StepEvent& event : go_on(*engine, 0)) {
      if (event.report) reports[event.request] = *event.report;
    }
  }
  ASSERT_EQ(reports.size(), 2u);
  EXPECT_LT(engine->memory().kv_blocks, 13u);
  EXPECT_EQ(reports[*small].end_reason, EndReason::kLength);
  EXPECT_TRUE(reports[*small].failure.ok());
  EXPECT_EQ(reports[*big].end_reason, EndReason::kError);
  ASSERT_FALSE(reports[*big].failure.ok());
  EXPECT_EQ(reports[*big].failure.error().code, ErrorCode::kDoesNotFit);
}

TEST_F(MemoryBudget, HoldsForADeviceStateMadeAnewAndWhereOthersTakeMemory) {
  const auto engine = this->engine();
  const auto prompt = tokens(60, 3);
  const std::vector<TokenId> expected = greedy(*engine, prompt, 20);
  ASSERT_TRUE(engine->set_memory_budget(quarter(*engine)).ok());
  meet(*engine);
  const uint32_t n_blocks = engine->memory().kv_blocks;
  ASSERT_TRUE(engine->rebuild(pipelines_, model_).ok());
  EXPECT_EQ(engine->memory().kv_blocks, n_blocks);
  EXPECT_LE(ledger_bytes(), engine->memory().budget_bytes);
  EXPECT_EQ(greedy(*engine, prompt, 20), expected);
  meet(*engine);

  vk::Arena other(pipelines_->device(), vk::MemoryDomain::kDevice, "another's");
  ASSERT_TRUE(other.allocate(engine->memory().kv_bytes / 2).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));  // it looks once a second
  go_on(*engine, 1.0);
  meet(*engine);
  EXPECT_LT(engine->memory().kv_blocks, n_blocks);
  EXPECT_EQ(greedy(*engine, prompt, 20), expected);
}

}  // namespace
}  // namespace pumice
