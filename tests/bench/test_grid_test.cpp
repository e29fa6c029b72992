#include "bench/test_grid.hpp"

#include <gtest/gtest.h>

namespace pumice::bench {
namespace {

std::vector<std::string> names(const std::vector<ModelTest>& tests) {
  std::vector<std::string> names;
  for (const ModelTest& test : tests) names.push_back(test.name());
  return names;
}

TEST(ModelTest, IsNamedAsInLlamaBench) {
  EXPECT_EQ((ModelTest{.n_prompt = 512}).name(), "pp512");
  EXPECT_EQ((ModelTest{.n_gen = 128}).name(), "tg128");
  EXPECT_EQ((ModelTest{.n_prompt = 512, .n_gen = 128, .n_depth = 4096}).name(),
            "pp512+tg128 @ d4096");
  EXPECT_EQ((ModelTest{.n_gen = 8, .n_parallel = 4}).name(), "tg8 x4");
}

TEST(ModelTest, CountsTheTokensOfAllRequestsAndThePositionsOfOne) {
  const ModelTest test{.n_prompt = 512, .n_gen = 128, .n_depth = 4096, .n_parallel = 3};
  EXPECT_EQ(test.n_tokens(), 3u * 640);
  EXPECT_EQ(test.context_tokens(), 4096u + 512 + 128 + 1);
  EXPECT_EQ((ModelTest{.n_gen = 128}).context_tokens(), 1u + 128 + 1);
}

TEST(ModelTest, AGridIsEveryCombinationInTheOrderOfItsLists) {
  const TestGrid grid{
      .n_prompt = {0, 64}, .n_gen = {8}, .prompt_and_gen = {{32, 4}}, .n_depth = {0, 100}};
  EXPECT_EQ(names(grid.tests()), (std::vector<std::string>{"pp64", "tg8", "pp32+tg4", "pp64 @ d100",
                                                           "tg8 @ d100", "pp32+tg4 @ d100"}));
  EXPECT_TRUE((TestGrid{.n_prompt = {0}, .n_gen = {0}}).tests().empty());
}

TEST(ModelTest, TestsShareAnEngineWhileBatchesCompanyAndDepthAgree) {
  const TestGrid grid{
      .n_prompt = {64}, .n_gen = {8}, .n_depth = {0, 100, 200}, .n_parallel = {1, 2}};
  const std::vector<ModelTest> tests = grid.tests();
  const std::vector<TestGroup> groups = group_tests(tests);
  ASSERT_EQ(groups.size(), 4u);
  EXPECT_EQ(groups[0].tests.size(), 2u);
  EXPECT_FALSE(groups[0].has_depth);
  EXPECT_EQ(groups[1].tests.size(), 4u);
  EXPECT_TRUE(groups[1].has_depth);
  EXPECT_EQ(groups[1].context_tokens, 200u + 64 + 1);
}

TEST(ModelTest, TheDefaultModelIsTheLargestThatFillsHalfTheMemory) {
  vk::DevicePlan plan;
  plan.device_class = vk::DeviceClass::kGpu;
  plan.device_budget_bytes = uint64_t{24} << 30;
  EXPECT_EQ(default_model(plan), "llama-8b:q4_k");
  plan.device_budget_bytes = uint64_t{8} << 30;
  EXPECT_EQ(default_model(plan), "llama-1b:q4_k");
  plan.device_budget_bytes = uint64_t{1} << 30;
  EXPECT_EQ(default_model(plan), "small-0.1b:q4_k");
  plan = {.device_class = vk::DeviceClass::kCpu, .device_budget_bytes = uint64_t{64} << 30};
  EXPECT_EQ(default_model(plan), "small-0.1b:q4_k");
}

TEST(ModelTest, DefaultSizesShrinkUntilTheyFitTheTime) {
  const DefaultSizes fast = default_sizes(1e-4, 1e-3, 60);
  EXPECT_FALSE(fast.scaled_down);
  EXPECT_EQ(fast.n_prompt, 512u);
  // 512 tokens at 10 ms and 128 at 50 ms are 11.5 s: six times too long, four times not.
  const DefaultSizes fewer = default_sizes(0.01, 0.05, 60);
  EXPECT_TRUE(fewer.scaled_down);
  EXPECT_EQ(fewer.repetitions, 3u);
  EXPECT_EQ(fewer.n_prompt, 512u);
  const DefaultSizes quarter = default_sizes(0.04, 0.2, 60);  // 46 s once
  EXPECT_EQ(quarter.n_prompt, 128u);
  EXPECT_EQ(quarter.n_gen, 32u);
  const DefaultSizes least = default_sizes(100, 100, 60);
  EXPECT_EQ(least.n_prompt, 32u);
  EXPECT_EQ(least.n_gen, 8u);
}

}  // namespace
}  // namespace pumice::bench
