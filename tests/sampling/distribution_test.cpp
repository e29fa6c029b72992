// Draws follow the distribution, and nothing but seed and token index decides them.
#include "sampling/philox.hpp"
#include "tests/sampling/sampling_fixture.hpp"

namespace pumice {
namespace {

using test::Ids;
using test::Logits;
using test::make_sampler;

SamplerOptions seeded(uint64_t seed, float temperature = 1) {
  SamplerOptions options;
  options.temperature = temperature;
  options.seed = seed;
  return options;
}

Ids draw(const SamplerOptions& options, const Logits& logits, uint64_t count) {
  ReferenceSampler sampler = make_sampler(options, logits.size());
  Ids ids;
  for (uint64_t index = 0; index < count; ++index) {
    ids.push_back(sampler.sample({.logits = logits, .token_index = index}));
  }
  return ids;
}

TEST(Draw, FollowsTheDistributionAtEveryTemperature) {
  const Logits logits = test::random_logits(20, 1, 1.0f);
  for (float temperature : {0.5f, 1.0f, 3.0f}) {
    constexpr uint64_t kDraws = 200000;
    std::vector<double> expected;
    double sum = 0;
    for (float logit : logits) sum += expected.emplace_back(std::exp(logit / temperature));
    std::vector<double> counts(logits.size());
    for (uint32_t id : draw(seeded(42, temperature), logits, kDraws)) ++counts[id];
    double chi_square = 0;
    for (size_t i = 0; i < logits.size(); ++i) {
      const double mean = kDraws * expected[i] / sum;
      chi_square += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
    EXPECT_LT(chi_square, 43.8) << "19 degrees of freedom: 43.8 has probability 0.001";
    EXPECT_GT(chi_square, 5.4) << "and less than 5.4 too";
  }
}

TEST(Draw, TheSameSeedGivesTheSameTokensAndAnotherSeedOthers) {
  const Logits logits = test::random_logits(1000, 2);
  EXPECT_EQ(draw(seeded(7), logits, 100), draw(seeded(7), logits, 100));
  EXPECT_NE(draw(seeded(7), logits, 100), draw(seeded(8), logits, 100));
  EXPECT_NE(draw(seeded(7), logits, 100), draw(seeded(7 + (uint64_t{1} << 32)), logits, 100));
}

TEST(Draw, DoesNotDependOnWhatWasDrawnBefore) {
  const Logits logits = test::random_logits(1000, 2);
  const Ids all = draw(seeded(7), logits, 20);
  EXPECT_EQ(test::sample(seeded(7), logits, 19), all[19]);
}

TEST(Draw, WalksTheIdsInRisingOrderToTheTarget) {
  const Logits logits = {0, 0, 0, 0};
  for (uint64_t index = 0; index < 100; ++index) {
    EXPECT_EQ(test::sample(seeded(3), logits, index), random_word(3, index) >> 30);
  }
}

// Seeds found by search: their first words are just what the boundary needs.
TEST(Draw, ATargetEqualToASumBelongsToTheNextToken) {
  const uint64_t seed = 89966413;  // target 2^24 of 2^25
  ASSERT_EQ(random_word(seed, 0) >> 7, kOneWeight);
  EXPECT_EQ(test::sample(seeded(seed), {0, 0}), 1u);
}

TEST(Draw, ATargetOfZeroSkipsTokensWithoutWeight) {
  const uint64_t seed = 12121362;  // target 0 of 2^24
  ASSERT_EQ(random_word(seed, 0) >> 8, 0u);
  EXPECT_EQ(test::sample(seeded(seed), {-test::kInfinity, 0, -test::kInfinity}), 1u);
}

TEST(Draw, ALargeVocabularyOfEqualsReachesItsEnds) {
  const Logits logits(kMaxSampledVocabulary, 0.0f);
  ReferenceSampler sampler = make_sampler(seeded(1), logits.size());
  for (uint64_t index = 0; index < 20; ++index) {
    EXPECT_EQ(sampler.sample({.logits = logits, .token_index = index}),
              random_word(1, index) >> 13);
  }
}

}  // namespace
}  // namespace pumice
