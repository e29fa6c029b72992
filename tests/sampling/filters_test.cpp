// Each filter alone, ties, and the extremes of every option.
#include "tests/sampling/sampling_fixture.hpp"

namespace pumice {
namespace {

using test::Ids;
using test::kInfinity;
using test::kNan;
using test::log_of;
using test::Logits;
using test::sample;
using test::survivors;

SamplerOptions warm() {
  SamplerOptions options;
  options.temperature = 1;
  return options;
}

TEST(Greedy, TakesTheLargestAndOfEqualsTheLowestId) {
  EXPECT_EQ(sample({}, {1, 3, 2}), 1u);
  EXPECT_EQ(sample({}, {1, 3, 3, 3}), 1u);
  EXPECT_EQ(sample({}, {-0.0f, 0.0f}), 0u);
  EXPECT_EQ(sample({}, {-5}), 0u);
}

TEST(Greedy, NeverTakesNanAndTakesTheFirstOfSeveralInfinities) {
  EXPECT_EQ(sample({}, {kNan, -3, kNan, -2}), 3u);
  EXPECT_EQ(sample({}, {1, kInfinity, 5, kInfinity}), 1u);
  EXPECT_EQ(sample({}, {-kInfinity, -1e38f}), 1u);
}

TEST(Sampling, WithNothingToChooseTakesTheLowestId) {
  for (float temperature : {0.0f, 1.0f}) {
    SamplerOptions options;
    options.temperature = temperature;
    EXPECT_EQ(sample(options, {-kInfinity, kNan, -kInfinity}), 0u);
    options.logit_bias = {{0, -kInfinity}, {1, -kInfinity}};
    EXPECT_EQ(sample(options, {1, 2}), 0u);
  }
}

TEST(Sampling, NeverChoosesNanOrMinusInfinity) {
  EXPECT_EQ(survivors(warm(), {kNan, 1, -kInfinity, 1, kNan}), (Ids{1, 3}));
  SamplerOptions hot = warm();
  hot.temperature = std::numeric_limits<float>::max();
  EXPECT_EQ(survivors(hot, {kNan, 1, -kInfinity, -100, kNan}), (Ids{1, 3}));
}

TEST(Sampling, PlusInfinityLeavesOnlyItsOwnKind) {
  EXPECT_EQ(survivors(warm(), {1, kInfinity, 1e30f, kInfinity}), (Ids{1, 3}));
}

TEST(TopK, KeepsTheKLargest) {
  SamplerOptions options = warm();
  options.top_k = 2;
  EXPECT_EQ(survivors(options, {1, 4, 2, 3}), (Ids{1, 3}));
  options.top_k = 1;
  EXPECT_EQ(survivors(options, {1, 4, 2, 3}), (Ids{1}));
  for (uint32_t k : {0u, 4u, 5u, ~0u}) {
    options.top_k = k;
    EXPECT_EQ(survivors(options, {1, 4, 2, 3}), (Ids{0, 1, 2, 3})) << k;
  }
}

TEST(TopK, OfEqualsKeepsTheLowestIds) {
  SamplerOptions options = warm();
  options.top_k = 3;
  EXPECT_EQ(survivors(options, {0, 7, 7, 9, 7, 7}), (Ids{1, 2, 3}));
}

TEST(TopP, KeepsTheSmallestSetWithThatMass) {
  const Logits logits = log_of({0.1, 0.4, 0.3, 0.15, 0.05});
  SamplerOptions options = warm();
  const std::pair<float, Ids> cases[] = {{0, {1}},
                                         {0.39f, {1}},
                                         {0.41f, {1, 2}},
                                         {0.71f, {1, 2, 3}},
                                         {0.86f, {0, 1, 2, 3}},
                                         {0.96f, {0, 1, 2, 3, 4}},
                                         {1, {0, 1, 2, 3, 4}}};
  for (const auto& [top_p, expected] : cases) {
    options.top_p = top_p;
    EXPECT_EQ(survivors(options, logits), expected) << top_p;
  }
}

TEST(TopP, ExactlyReachedIsEnoughAndOfEqualsTheLowestIdsAreKept) {
  SamplerOptions options = warm();
  options.top_p = 0.5f;
  EXPECT_EQ(survivors(options, {2, 2, 2, 2}), (Ids{0, 1}));
  options.top_p = std::nextafterf(0.5f, 1);
  EXPECT_EQ(survivors(options, {2, 2, 2, 2}), (Ids{0, 1, 2}));
}

TEST(TopP, LooksAtWhatTopKLeftAndAtTheUntemperedDistribution) {
  SamplerOptions options = warm();
  options.top_k = 2;
  options.top_p = 0.5f;
  EXPECT_EQ(survivors(options, log_of({0.4, 0.3, 0.3})), (Ids{0})) << "0.4 of 0.7 is enough";
  options.top_k = 0;
  options.temperature = 100;
  EXPECT_EQ(survivors(options, log_of({0.6, 0.3, 0.1})), (Ids{0}));
}

TEST(MinP, KeepsWhatIsLikelyEnoughAgainstTheBest) {
  const Logits logits = log_of({0.1, 0.4, 0.3, 0.15, 0.05});
  SamplerOptions options = warm();
  const std::pair<float, Ids> cases[] = {
      {0, {0, 1, 2, 3, 4}}, {0.2f, {0, 1, 2, 3}}, {0.7f, {1, 2}}, {0.8f, {1}}, {1, {1}}};
  for (const auto& [min_p, expected] : cases) {
    options.min_p = min_p;
    EXPECT_EQ(survivors(options, logits), expected) << min_p;
  }
  options.min_p = 1;
  EXPECT_EQ(survivors(options, {2, 1, 2}), (Ids{0, 2})) << "ties with the best stay";
}

TEST(Mask, ForbidsTokensBeforeEverythingElse) {
  const Logits logits = {9, 1, 8, 2};
  const uint32_t mask[] = {0b1010};
  ReferenceSampler greedy = test::make_sampler({}, 4);
  EXPECT_EQ(greedy.sample({.logits = logits, .mask = mask}), 3u);
  SamplerOptions options = warm();
  options.top_k = 2;
  ReferenceSampler sampler = test::make_sampler(options, 4);
  const auto weights = sampler.weights({.logits = logits, .mask = mask});
  EXPECT_EQ(weights[0] + weights[2], 0u);
  EXPECT_GT(weights[1], 0u);
}

TEST(Mask, WithNothingToChooseTheLowestAllowedIdOrZero) {
  const Logits logits = {1, kNan, -kInfinity};
  ReferenceSampler greedy = test::make_sampler({}, 3);
  EXPECT_EQ(greedy.sample({.logits = logits, .mask = Ids{0b110}}), 1u);
  EXPECT_EQ(greedy.sample({.logits = logits, .mask = Ids{0}}), 0u);
}

TEST(Temperature, SmallIsGreedyAndLargeIsUniform) {
  const Logits logits = {1, 1.001f, 0.5f, 1.001f};
  SamplerOptions options;
  options.temperature = 1e-6f;
  EXPECT_EQ(survivors(options, logits), (Ids{1, 3})) << "a tie is still a draw";
  options.temperature = 100;
  ReferenceSampler sampler = test::make_sampler(options, 4);
  for (uint32_t weight : sampler.weights({.logits = logits})) {
    EXPECT_NEAR(weight, kOneWeight, kOneWeight / 100.0);
  }
}

TEST(Temperature, BringsBackTokensThatAreHopelessAtOne) {
  SamplerOptions options = warm();
  EXPECT_EQ(survivors(options, {0, -40}), (Ids{0}));
  options.temperature = 100;
  EXPECT_EQ(survivors(options, {0, -40}), (Ids{0, 1}));
}

TEST(Sampling, AVocabularyOfOneTokenHasOneAnswer) {
  SamplerOptions options = warm();
  options.top_k = 5;
  options.top_p = 0;
  options.min_p = 1;
  for (float logit : {0.0f, kNan, kInfinity, -kInfinity, 1e30f})
    EXPECT_EQ(sample(options, {logit}), 0u);
}

TEST(Sampling, TheWrongNumberOfLogitsIsABug) {
  ReferenceSampler sampler = test::make_sampler({}, 3);
  EXPECT_THROW(sampler.sample({.logits = Logits{1, 2}}), CheckFailure);
  EXPECT_THROW(sampler.sample({.logits = Logits{1, 2, 3}, .counts = Ids{1}}), CheckFailure);
}

}  // namespace
}  // namespace pumice
