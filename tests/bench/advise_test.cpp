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

TEST(DefaultTpotTarget, IsTheBestGapOfFixedChunksWhereThatIsLonger) {
  const ArrivalRow rows[] = {{.gap_p99_s = 4.6, .idle_gap_s = 2e-3},
                             {.gap_p99_s = 23e-3, .idle_gap_s = 2e-3}};
  EXPECT_DOUBLE_EQ(default_tpot_target(rows), 23e-3);
  const ArrivalRow idle_is_slow[] = {{.gap_p99_s = 23e-3, .idle_gap_s = 20e-3}};
  EXPECT_DOUBLE_EQ(default_tpot_target(idle_is_slow), 60e-3);
}

}  // namespace
}  // namespace pumice::bench
