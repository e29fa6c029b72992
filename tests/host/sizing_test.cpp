// Windows and KV pools on made-up budgets.
#include "host/sizing.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>

#include "engine/engine_sizes.hpp"
#include "engine/kv_memory.hpp"
#include "engine/memory_plan.hpp"
#include "models/families.hpp"
#include "models/lowering.hpp"
#include "models/model_source.hpp"
#include "models/state_layout.hpp"
#include "models/synthetic.hpp"

namespace pumice::host {
namespace {

class Sizing : public ::testing::Test {
 protected:
  static constexpr uint64_t kSlabBytes = 1 << 30;

  MemoryPlanner with_free(uint64_t free_bytes) const {
    return MemoryPlanner::of_plan(
               plan_, {.name = "device", .free_bytes = free_bytes, .slab_bytes = kSlabBytes})
        .value();
  }
  /// What such an engine takes beside KV with this window, its weights included.
  uint64_t others(uint32_t context_tokens) const {
    EngineOptions engine = engine_;
    engine.context_tokens = context_tokens;
    const MemoryPlan plan = with_free(0).plan(engine).value();
    return plan.budgeted_bytes - plan.bytes(MemoryUse::kKv);
  }
  uint64_t page_bytes() const { return state_layout(program_, engine_.kv_type).page_bytes; }
  uint64_t pool_bytes(uint32_t n_pages) const {
    return KvMemory::allocated_bytes(page_bytes(), n_pages, kSlabBytes);
  }
  Result<uint32_t> fit(uint64_t free_bytes) {
    said_.clear();
    const Logger logger([this](LogLevel, std::string_view line) { said_ += line; },
                        LogLevel::kWarning);
    return context_of_machine(with_free(free_bytes), engine_, logger);
  }

  ModelSource source_ = ModelSource::synthetic(SyntheticModel::create({}, {}).value()).value();
  std::shared_ptr<const ModelPlan> plan_ = ModelPlan::of_source(source_).value();
  Program program_ = plan_->program();  // a context of 2048
  EngineOptions engine_{.token_budget = 64};
  std::string said_;
};

TEST_F(Sizing, AKnownPromptGetsAWindowOfItsOwnLength) {
  EXPECT_EQ(context_for(program_, 100, 28).value(), 128u);
  EXPECT_EQ(context_for(program_, 2000, 48).value(), 2048u);
}

TEST_F(Sizing, BeyondTheModelsLengthIsAnErrorUnlessTheWindowMakesRoom) {
  const Result<uint32_t> beyond = context_for(program_, 2000, 60);
  ASSERT_FALSE(beyond.ok());
  EXPECT_EQ(beyond.error().code, ErrorCode::kDoesNotFit);
  EXPECT_NE(beyond.error().message.find("by 12 tokens"), std::string::npos)
      << beyond.error().message;
  EXPECT_EQ(context_for(program_, 2000, 60, OverflowPolicy::kShift).value(), 2048u);
  EXPECT_EQ(context_for(program_, 5000, 60, OverflowPolicy::kTruncateOldest).value(), 2048u);
  EXPECT_FALSE(context_for(program_, SIZE_MAX / 2, 1).ok());
}

TEST_F(Sizing, TheWindowOfAMachineIsTheModelsOrWhatFits) {
  const uint64_t enough = others(2048) + 128 * page_bytes();
  EXPECT_EQ(fit(enough).value(), 2048u);
  EXPECT_EQ(fit(UINT64_MAX / 2).value(), 2048u);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(fit(enough - 1).value(), 2032u);
  EXPECT_NE(said_.find("2032 tokens instead of the model's 2048"), std::string::npos) << said_;
  // A pool's slab is 64 KiB at least.
  const uint64_t least = others(16) + std::max(page_bytes(), uint64_t{64} << 10);
  EXPECT_GE(fit(least).value(), 16u);
  for (const uint64_t too_little : {least - 1, others(16), uint64_t{0}}) {
    const Result<uint32_t> none = fit(too_little);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kDoesNotFit);
  }
}

TEST_F(Sizing, HalfPrecisionHoldsTwiceTheContext) {
  engine_.kv_type = KvType::kF32;
  const uint64_t f32_page = page_bytes();
  const uint64_t bytes = others(40 * 16) + pool_bytes(40);
  EXPECT_EQ(fit(bytes).value(), 40u * 16);
  engine_.kv_type = KvType::kF16;
  const uint64_t half_bytes = others(80 * 16) + pool_bytes(80);
  EXPECT_EQ(fit(half_bytes).value(), 80u * 16);
  EXPECT_LT(half_bytes - bytes, others(80 * 16) - others(40 * 16) + 1);
  engine_.kv_type = {KvType::kF16, KvType::kF32};
  EXPECT_EQ(page_bytes() * 4, f32_page * 3);
  EXPECT_EQ(fit(others(50 * 16) + pool_bytes(50)).value(), 50u * 16);
}

TEST_F(Sizing, LayersWithAWindowTakeNoMoreThanIt) {
  // Half of the layers see 128 positions; a page holds one group's layers.
  Program program = program_;
  StateGroup windowed = program.state_groups.at(0);
  windowed.window = 128;
  program.state_groups.push_back(windowed);
  const auto pages_of_window = [&](uint32_t tokens) {
    engine_.context_tokens = tokens;
    return engine_sizes(program, lower(program).value(), engine_).value().n_pages - tokens / 16;
  };
  EXPECT_LT(pages_of_window(1600), 50u);
  EXPECT_EQ(pages_of_window(3200), pages_of_window(1600));
}

TEST_F(Sizing, ThePoolHoldsFourContextsOrWhatFitsButAlwaysOne) {
  engine_.context_tokens = 100;  // seven blocks
  const auto blocks = [&](uint64_t free_bytes) {
    return kv_blocks_for_reuse(with_free(free_bytes), engine_);
  };
  EXPECT_EQ(blocks(UINT64_MAX / 2), 25u);
  EXPECT_EQ(blocks(others(100) + 20 * page_bytes()), 20u);
  EXPECT_EQ(blocks(others(100) + 3 * page_bytes()), 7u);
  EXPECT_EQ(blocks(0), 7u);
}

TEST_F(Sizing, MoreThanAnyDeviceRunsIsRefusedAndProductsDoNotWrap) {
  const auto sizes = [&] { return engine_sizes(program_, lower(program_).value(), engine_); };
  engine_.kv_blocks = 10;
  engine_.n_sequences = 1 << 16;
  engine_.context_tokens = 1 << 16;
  engine_.token_budget = 512;
  EXPECT_EQ(sizes().value().limits.rows, 512u) << "2^32 rows are not none";
  engine_.n_sequences = 1 << 31;
  EXPECT_EQ(sizes().error().code, ErrorCode::kInvalidArgument);
  engine_.n_sequences = 1;
  engine_.context_tokens = UINT32_MAX;
  EXPECT_EQ(sizes().error().code, ErrorCode::kInvalidArgument);
  engine_.context_tokens = 64;
  engine_.token_budget = UINT32_MAX;
  EXPECT_EQ(sizes().error().code, ErrorCode::kInvalidArgument);
  engine_.token_budget = 1 << 20;
  engine_.context_tokens = 1 << 28;
  engine_.n_sequences = 1 << 16;
  EXPECT_EQ(sizes().error().code, ErrorCode::kDoesNotFit);
}

}  // namespace
}  // namespace pumice::host
