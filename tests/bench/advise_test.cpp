#include "bench/advise.hpp"

#include <gtest/gtest.h>

namespace pumice::bench {
namespace {

LeverRow row(LeverRow::Kind kind, const char* lever, double ttft_s, double tpot_s) {
  return {
      .kind = kind, .lever = lever, .with = {.ttft_ns = {ttft_s * 1e9}, .tpot_ns = {tpot_s * 1e9}}};
}

TEST(Advice, TheLeastChangeThatMeetsTheTargetsIsChosen) {
  using enum LeverRow::Kind;
  Advice advice{.options = {.ttft_target_s = 1, .tpot_target_s = 0.1}};
  EXPECT_EQ(advice.chosen(), nullptr);
  advice.levers = {row(kConfiguration, "fast prompts", 0.5, 0.2), row(kWindow, "half", 0.9, 0.09),
                   row(kWindow, "quarter", 0.3, 0.05)};
  ASSERT_NE(advice.chosen(), nullptr);
  EXPECT_EQ(advice.chosen()->lever, "half") << "the largest window, not the fastest";
  advice.levers.push_back(row(kReuse, "again", 0.01, 0.1));
  EXPECT_EQ(advice.chosen()->lever, "again");
  advice.levers.push_back(row(kConfiguration, "just", 1, 0.1));
  EXPECT_EQ(advice.chosen()->lever, "just");
  advice.levers.push_back(row(kConfiguration, "best", 0.8, 0.05));
  EXPECT_EQ(advice.chosen()->lever, "best");
}

TEST(Advice, ATargetThatNobodyGaveIsAlwaysMet) {
  const Advice advice{.options = {.ttft_target_s = 1}};
  EXPECT_TRUE(advice.met({.ttft_ns = {1e9}, .tpot_ns = {1e12}}));
  EXPECT_FALSE(advice.met({.ttft_ns = {1.1e9}, .tpot_ns = {1}}));
  EXPECT_DOUBLE_EQ(advice.score({.ttft_ns = {5e8}, .tpot_ns = {1e12}}), 0.5);
}

TEST(DefaultTpotTarget, IsWhatTheSmallestChunkTakesWhereThatIsLonger) {
  // 1 ms a step, 0.1 ms a row, 1 ms a prompt token, 1 us a token and position before it.
  const CostModel cost(StepCost{1e-3, 1e-4, 0, 1e-3, 1e-6});
  // Of 16 tokens at positions 1008 to 1023: 1 + 0.4 + 16 + (16 * 1008 + 120) / 1000 ms.
  EXPECT_NEAR(default_tpot_target(cost, 1e-3, 4, 1024), 1.25 * 33.648e-3, 1e-9);
  EXPECT_DOUBLE_EQ(default_tpot_target(cost, 20e-3, 4, 1024), 60e-3);
}

}  // namespace
}  // namespace pumice::bench
