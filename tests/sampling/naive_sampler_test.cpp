// A second implementation, in double precision and from the definition of each filter in the
// literature. Where it is not close to a boundary, it must agree.
#include <algorithm>
#include <numeric>
#include <optional>

#include "sampling/philox.hpp"
#include "tests/sampling/sampling_fixture.hpp"

namespace pumice {
namespace {

using test::Counts;
using test::Logits;

constexpr double kClose = 1e-4;

bool close(double a, double b) { return std::abs(a - b) < kClose; }

// Nothing where rounding could decide.
std::optional<uint32_t> naive_sample(const SamplerOptions& options, const Logits& logits,
                                     const Counts& counts, uint64_t index) {
  const size_t n = logits.size();
  std::vector<double> score(logits.begin(), logits.end());
  for (const auto& [id, bias] : options.logit_bias) score[id] += bias;
  for (size_t i = 0; i < n; ++i) {
    const double in_output = counts[i] & ~kInPrompt;
    if (counts[i] != 0) {
      score[i] =
          score[i] > 0 ? score[i] / options.repeat_penalty : score[i] * options.repeat_penalty;
    }
    score[i] -= options.frequency_penalty * in_output;
    if (in_output > 0) score[i] -= options.presence_penalty;
  }
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return score[a] > score[b]; });
  if (options.top_k > 0 && options.top_k < n) {
    if (close(score[order[options.top_k - 1]], score[order[options.top_k]])) return std::nullopt;
    order.resize(options.top_k);
  }
  const double best = score[order[0]];
  double total = 0;
  for (size_t id : order) total += std::exp(score[id] - best);
  if (options.top_p < 1) {
    double mass = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      mass += std::exp(score[order[i]] - best) / total;
      if (close(mass, options.top_p)) return std::nullopt;
      if (i + 1 < order.size() && mass > options.top_p) {
        if (close(score[order[i]], score[order[i + 1]])) return std::nullopt;
        order.resize(i + 1);
      }
    }
  }
  std::vector<double> probability(n);
  double sum = 0;
  for (size_t id : order) {
    const double relative = std::exp(score[id] - best);
    if (options.min_p > 0 && close(relative, options.min_p)) return std::nullopt;
    if (relative >= options.min_p) {
      sum += probability[id] = std::exp((score[id] - best) / options.temperature);
    }
  }
  const double target = random_word(options.seed, index) * 0x1p-32;
  double cumulative = 0;
  for (uint32_t id = 0; id < n; ++id) {
    if (probability[id] == 0) continue;
    cumulative += probability[id] / sum;
    if (close(cumulative, target)) return std::nullopt;
    if (cumulative > target) return id;
  }
  return std::nullopt;
}

TEST(ReferenceSampler, AgreesWithANaiveOneAwayFromBoundaries) {
  std::mt19937 random(9);
  const auto uniform = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(random);
  };
  int decided = 0;
  constexpr int kRounds = 5000;
  for (int round = 0; round < kRounds; ++round) {
    const size_t n = 2 + random() % 200;
    SamplerOptions options;
    options.temperature = uniform(0.2f, 2);
    options.seed = random();
    if (random() % 2 == 0) options.top_k = 1 + random() % 50;
    if (random() % 2 == 0) options.top_p = uniform(0.1f, 1);
    if (random() % 2 == 0) options.min_p = uniform(0, 0.3f);
    if (random() % 2 == 0) options.repeat_penalty = uniform(0.8f, 1.5f);
    if (random() % 2 == 0) options.frequency_penalty = uniform(-0.5f, 1);
    if (random() % 2 == 0) options.presence_penalty = uniform(-0.5f, 1);
    if (random() % 2 == 0) options.logit_bias = {{random() % n, uniform(-5, 5)}};
    const Logits logits = test::random_logits(n, random());
    Counts counts(n);
    for (uint32_t& count : counts) {
      if (random() % 4 == 0) count = random() % 5 + (random() % 2 == 0 ? kInPrompt : 0);
    }
    const uint64_t index = random();
    const auto expected = naive_sample(options, logits, counts, index);
    if (!expected) continue;
    ++decided;
    ReferenceSampler sampler = test::make_sampler(options, n);
    ASSERT_EQ(sampler.sample({.logits = logits, .counts = counts, .token_index = index}), *expected)
        << round;
  }
  EXPECT_GT(decided, kRounds * 9 / 10);
}

}  // namespace
}  // namespace pumice
