#include "tests/sampling/sampling_fixture.hpp"

namespace pumice {
namespace {

using test::Counts;
using test::kInfinity;
using test::kNan;
using test::Logits;

// Greedy over two tokens tells on which side of the threshold the first one's score is.
bool first_beats(float threshold, float logit, uint32_t count, const SamplerOptions& options) {
  return test::make_sampler(options, 2)
             .sample({.logits = Logits{logit, threshold}, .counts = Counts{count, 0}}) == 0;
}

void expect_score(float expected, float logit, uint32_t count, const SamplerOptions& options) {
  EXPECT_TRUE(first_beats(expected, logit, count, options)) << logit << " " << count;
  EXPECT_FALSE(first_beats(std::nextafterf(expected, kInfinity), logit, count, options));
}

TEST(RepeatPenalty, ShrinksPositiveAndGrowsNegativeLogitsOfTokensInPromptOrOutput) {
  SamplerOptions options;
  options.repeat_penalty = 2;
  for (uint32_t count : {kInPrompt, 1u, kInPrompt | 5u}) {
    expect_score(2, 4, count, options);
    expect_score(-8, -4, count, options);
  }
  expect_score(4, 4, 0, options);
}

TEST(FrequencyPenalty, CountsTheOutputAlone) {
  SamplerOptions options;
  options.frequency_penalty = 0.5f;
  expect_score(2.5f, 4, 3, options);
  expect_score(2.5f, 4, kInPrompt | 3, options);
  expect_score(4, 4, kInPrompt, options);
}

TEST(PresencePenalty, IsTheSameForOneAndMany) {
  SamplerOptions options;
  options.presence_penalty = 1.5f;
  expect_score(2.5f, 4, 1, options);
  expect_score(2.5f, 4, 100, options);
  expect_score(4, 4, kInPrompt, options);
}

TEST(Penalties, RepeatComesBeforeFrequencyAndPresence) {
  SamplerOptions options;
  options.repeat_penalty = 2;
  options.frequency_penalty = 0.5f;
  options.presence_penalty = 1;
  expect_score(8 / 2.0f - 2 * 0.5f - 1, 8, 2, options);
}

TEST(Penalties, NegativeOnesFavourRepetition) {
  SamplerOptions options;
  options.frequency_penalty = -1;
  expect_score(7, 4, 3, options);
}

TEST(LogitBias, IsAddedBeforePenalties) {
  SamplerOptions options;
  options.repeat_penalty = 2;
  options.logit_bias = {{0, 4.0f}};
  expect_score(4, 4, 1, options);
}

TEST(LogitBias, MinusInfinityBansAToken) {
  SamplerOptions options;
  options.temperature = 1;
  options.logit_bias = {{1, -kInfinity}};
  EXPECT_EQ(test::survivors(options, {1, 100, 1}), (test::Ids{0, 2}));
  EXPECT_EQ(test::survivors(options, {1, kInfinity, 1}), (test::Ids{0, 2}));
}

TEST(Penalties, NeitherOverflowNorReviveWhatIsNotANumber) {
  SamplerOptions options;
  options.temperature = 1;
  options.repeat_penalty = 1000;
  options.frequency_penalty = -std::numeric_limits<float>::max();
  options.presence_penalty = -std::numeric_limits<float>::max();
  const Counts counts = {~0u, ~0u, ~0u, 0};
  EXPECT_EQ(test::survivors(options, {kNan, -kInfinity, 1, 1}, counts), (test::Ids{2}));
}

}  // namespace
}  // namespace pumice
