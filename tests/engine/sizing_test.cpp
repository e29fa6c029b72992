// Windows and KV pools on made-up budgets.
#include "engine/sizing.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "models/decoder.hpp"
#include "models/families.hpp"
#include "models/state_layout.hpp"
#include "models/synthetic.hpp"

namespace pumice {
namespace {

class Sizing : public ::testing::Test {
 protected:
  /// What an engine takes beside KV when its window is the model's.
  uint64_t others() const {
    const DecoderLimits limits{.rows = engine_.token_budget,
                               .logit_rows = engine_.n_sequences,
                               .context_tokens = program_.context_length};
    return Decoder::buffer_bytes(program_, limits) + (uint64_t{64} << 20);
  }
  uint64_t page_bytes() const { return state_layout(program_, engine_.kv_type).page_bytes; }
  Result<uint32_t> fit(uint64_t free_bytes) {
    said_.clear();
    const Logger logger([this](LogLevel, std::string_view line) { said_ += line; },
                        LogLevel::kWarning);
    return context_of_machine(program_, engine_, free_bytes, logger);
  }

  Program program_ =
      build_program(ModelSource::synthetic(SyntheticModel::create({}, {}).value()).value())
          .value();  // a context of 2048
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
  EXPECT_EQ(fit(others() + 128 * page_bytes()).value(), 2048u);
  EXPECT_EQ(fit(UINT64_MAX / 2).value(), 2048u);
  EXPECT_EQ(said_, "");
  EXPECT_EQ(fit(others() + 128 * page_bytes() - 1).value(), 127u * 16);
  EXPECT_NE(said_.find("2032 tokens, of the model's 2048"), std::string::npos) << said_;
  EXPECT_EQ(fit(others() + page_bytes()).value(), 16u);
  for (const uint64_t too_little : {others() + page_bytes() - 1, others(), uint64_t{0}}) {
    const Result<uint32_t> none = fit(too_little);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kDoesNotFit);
  }
}

TEST_F(Sizing, HalfPrecisionHoldsTwiceTheContext) {
  engine_.kv_type = KvType::kF32;
  const uint64_t bytes = others() + 40 * page_bytes();
  EXPECT_EQ(fit(bytes).value(), 40u * 16);
  engine_.kv_type = KvType::kF16;
  EXPECT_EQ(fit(bytes).value(), 80u * 16);
}

TEST_F(Sizing, LayersWithAWindowTakeNoMoreThanIt) {
  // Half of the layers see 128 positions; a page holds one group's layers.
  StateGroup windowed = program_.state_groups.at(0);
  windowed.window = 128;
  program_.state_groups.push_back(windowed);
  const uint64_t of_window =
      pages_of_context(cache_groups(program_, state_layout(program_, engine_.kv_type)), 1600,
                       engine_.token_budget) -
      100;
  ASSERT_LT(of_window, 100u);
  EXPECT_EQ(fit(others() + (100 + of_window) * page_bytes()).value(), 1600u);
}

TEST_F(Sizing, ThePoolHoldsFourContextsOrWhatFitsButAlwaysOne) {
  engine_.context_tokens = 100;  // seven blocks
  const uint64_t others_of_it =
      Decoder::buffer_bytes(program_, {.rows = 64, .logit_rows = 1, .context_tokens = 100}) +
      (uint64_t{64} << 20);
  EXPECT_EQ(kv_blocks_for_reuse(program_, engine_, UINT64_MAX / 2), 25u);
  EXPECT_EQ(kv_blocks_for_reuse(program_, engine_, others_of_it + 20 * page_bytes()), 20u);
  EXPECT_EQ(kv_blocks_for_reuse(program_, engine_, others_of_it + 3 * page_bytes()), 7u);
  EXPECT_EQ(kv_blocks_for_reuse(program_, engine_, 0), 7u);
}

}  // namespace
}  // namespace pumice
