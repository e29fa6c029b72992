#include "scheduler/cost_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "scheduler/histogram.hpp"

namespace pumice {
namespace {

const StepCost kDevice{.fixed = 2e-3,
                       .per_row = 3e-4,
                       .per_row_context = 1e-7,
                       .per_token = 8e-5,
                       .per_token_context = 2e-9};

StepShape random_shape(std::mt19937& random) {
  StepShape shape;
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (uint32_t row = below(20); row > 0; --row) shape.add_decode(below(4000));
  if (below(2) == 0) shape.add_prefill(below(4000), 16 + below(500));
  if (shape == StepShape{}) shape.add_decode(1);
  return shape;
}

TEST(CostModel, LearnsADeviceFromNoisySteps) {
  std::mt19937 random(3);
  std::normal_distribution<double> noise(1, 0.05);
  CostModel model;
  for (int i = 0; i < 400; ++i) {
    const StepShape shape = random_shape(random);
    model.observe(shape, kDevice.seconds(shape) * std::max(0.5, noise(random)));
  }
  for (int i = 0; i < 100; ++i) {
    const StepShape shape = random_shape(random);
    EXPECT_NEAR(model.predict(shape) / kDevice.seconds(shape), 1, 0.12);
  }
}

TEST(CostModel, FollowsADeviceThatBecomesSlower) {
  std::mt19937 random(4);
  CostModel model(kDevice);
  for (int i = 0; i < 300; ++i) {
    const StepShape shape = random_shape(random);
    model.observe(shape, 3 * kDevice.seconds(shape));
  }
  const StepShape shape = random_shape(random);
  EXPECT_NEAR(model.predict(shape) / kDevice.seconds(shape), 3, 0.3);
}

// One step among few, so that forgetting or many others cannot hide what it did.
TEST(CostModel, OneStepOfAnImpossibleTimeBarelyMovesIt) {
  for (const double factor : {100.0, 1e6, 0.01, 1e-6}) {
    CostModel model;
    StepShape prompt;
    prompt.add_prefill(0, 100);
    StepShape shape;
    shape.add_decode(100);
    for (int i = 0; i < 4; ++i) {
      model.observe(prompt, kDevice.seconds(prompt));
      model.observe(shape, kDevice.seconds(shape));
    }
    const double before = model.predict(shape);
    ASSERT_NEAR(before, kDevice.seconds(shape), 0.05 * before);
    model.observe(shape, factor * before);
    EXPECT_NEAR(model.predict(shape), before, 0.25 * before) << factor;
  }
}

TEST(CostModel, FindsTheMostTokensWithinATime) {
  const CostModel model(kDevice);
  StepShape others;
  others.add_decode(1000);
  const uint32_t tokens = model.tokens_within(20e-3, others, 512, 4096);
  const auto seconds = [&](uint32_t n) {
    StepShape shape = others;
    shape.add_prefill(512, n);
    return model.predict(shape);
  };
  EXPECT_LE(seconds(tokens), 20e-3);
  EXPECT_GT(seconds(tokens + 1), 20e-3);
  EXPECT_EQ(model.tokens_within(1e-6, others, 0, 100), 0u);
  EXPECT_EQ(model.tokens_within(1e6, others, 0, 100), 100u);
}

TEST(CostModel, SurvivesJsonAndRefusesBadCoefficients) {
  const nlohmann::json json = kDevice;
  const Result<StepCost> read = step_cost_from_json(json);
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->per_token, kDevice.per_token);
  for (const char* bad : {R"({})", R"([])", R"({"fixed_s": -1, "per_row_s": 0,
       "per_row_context_s": 0, "per_token_s": 0, "per_token_context_s": 0})",
                          R"({"fixed_s": "x"})"}) {
    EXPECT_FALSE(step_cost_from_json(nlohmann::json::parse(bad)).ok()) << bad;
  }
}

TEST(Histogram, PercentilesAreWithinTwoPercent) {
  Histogram histogram;
  for (int i = 1; i <= 10000; ++i) histogram.add(i * 1e-4);
  EXPECT_NEAR(histogram.percentile(0.5), 0.5, 0.01);
  EXPECT_NEAR(histogram.percentile(0.9), 0.9, 0.018);
  EXPECT_NEAR(histogram.percentile(0.99), 0.99, 0.02);
  EXPECT_EQ(histogram.max(), 1.0);
  EXPECT_NEAR(histogram.mean(), 0.50005, 1e-9);
  EXPECT_EQ(Histogram{}.percentile(0.5), 0);
}

}  // namespace
}  // namespace pumice
