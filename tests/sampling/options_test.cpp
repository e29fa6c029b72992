#include "sampling/options.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace pumice {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::string error_of(const SamplerOptions& options, size_t n_vocab = 100) {
  const Status status = options.validate(n_vocab);
  return status.ok() ? "" : status.error().message;
}

TEST(SamplerOptions, DefaultsAreValidAndGreedy) {
  EXPECT_EQ(error_of({}), "");
  EXPECT_EQ(error_of({}, 1), "");
  EXPECT_EQ(sampler_constants({}).inverse_temperature, 0);
}

TEST(SamplerOptions, ErrorsNameTheOptionAndItsRange) {
  SamplerOptions options;
  options.temperature = -1;
  EXPECT_EQ(error_of(options), "temperature is -1, expected 0 (greedy) or more");
  options.temperature = std::nanf("");
  EXPECT_NE(error_of(options), "");
  options.temperature = kInfinity;
  EXPECT_NE(error_of(options), "");

  options = {};
  options.top_p = 1.5f;
  EXPECT_EQ(error_of(options), "top_p is 1.5, expected 0 to 1");
  options = {};
  options.min_p = -0.5f;
  EXPECT_EQ(error_of(options), "min_p is -0.5, expected 0 to 1");
  options = {};
  options.repeat_penalty = 0;
  EXPECT_EQ(error_of(options), "repeat_penalty is 0, expected 0.001 to 1000 (1 is off)");
  options = {};
  options.frequency_penalty = kInfinity;
  EXPECT_EQ(error_of(options), "frequency_penalty is inf, expected a finite number");
  options = {};
  options.presence_penalty = kInfinity;
  EXPECT_EQ(error_of(options), "presence_penalty is inf, expected a finite number");
}

TEST(SamplerOptions, BiasIsOnTokensThatExistOnce) {
  SamplerOptions options;
  options.logit_bias = {{99, -kInfinity}, {0, 5.0f}};
  EXPECT_EQ(error_of(options), "");
  options.logit_bias.emplace_back(99, 1.0f);
  EXPECT_EQ(error_of(options), "logit_bias names token 99 twice");
  options.logit_bias = {{100, 1}};
  EXPECT_EQ(error_of(options), "logit_bias names token 100, the vocabulary has 100");
  options.logit_bias = {{3, kInfinity}};
  EXPECT_EQ(error_of(options), "logit_bias of token 3 is inf, expected a finite number or -inf");
}

TEST(SamplerOptions, TheVocabularyMayNotOverflowTheSums) {
  EXPECT_EQ(error_of({}, (1u << 19) + 1),
            "the vocabulary has 524289 tokens, sampling handles 1 to 524288");
  EXPECT_NE(error_of({}, 0), "");
}

TEST(SamplerConstants, RoundTowardsKeepingATokenAndNeverReachOff) {
  SamplerOptions options;
  options.temperature = 4;
  options.top_p = std::nextafterf(1, 0);
  options.min_p = 0.5f;
  options.seed = 0x123456789ABCDEF0;
  const SamplerConstants constants = sampler_constants(options);
  EXPECT_EQ(constants.inverse_temperature, 0.25f);
  EXPECT_EQ(constants.top_p_q32, 0xFFFFFF00u);
  EXPECT_EQ(constants.min_p_q24, 1u << 23);
  EXPECT_EQ(constants.top_k, SamplerConstants::kOff);
  EXPECT_EQ(constants.seed_low, 0x9ABCDEF0u);
  EXPECT_EQ(constants.seed_high, 0x12345678u);
}

TEST(SamplerConstants, ExtremeTemperaturesStayUsable) {
  SamplerOptions options;
  options.temperature = std::numeric_limits<float>::max();
  EXPECT_EQ(sampler_constants(options).inverse_temperature, 0x1p-126f);
  options.temperature = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(sampler_constants(options).inverse_temperature, 0) << "greedy";
}

TEST(TokenCounts, RememberThePromptAndCountTheOutput) {
  uint32_t counts[2] = {};
  count_prompt_token(counts, 1);
  count_prompt_token(counts, 1);
  count_output_token(counts, 1);
  count_output_token(counts, 0);
  count_output_token(counts, 0);
  EXPECT_EQ(counts[0], 2u);
  EXPECT_EQ(counts[1], kInPrompt | 1);
  counts[0] = kInPrompt - 1;
  count_output_token(counts, 0);
  EXPECT_EQ(counts[0], kInPrompt - 1) << "saturates";
}

}  // namespace
}  // namespace pumice
