#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "sampling/fixed_point.hpp"
#include "sampling/reference_sampler.hpp"

namespace pumice::test {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline const float kNan = std::nanf("");

using Logits = std::vector<float>;
using Counts = std::vector<uint32_t>;
using Ids = std::vector<uint32_t>;

inline ReferenceSampler make_sampler(const SamplerOptions& options, size_t n_vocab) {
  return ReferenceSampler::create(options, static_cast<uint32_t>(n_vocab)).value();
}

inline uint32_t sample(const SamplerOptions& options, const Logits& logits, uint64_t index = 0) {
  return make_sampler(options, logits.size()).sample({.logits = logits, .token_index = index});
}

/// The tokens that could be chosen.
inline Ids survivors(const SamplerOptions& options, const Logits& logits,
                     const Counts& counts = {}) {
  ReferenceSampler sampler = make_sampler(options, logits.size());
  const auto weights = sampler.weights({.logits = logits, .counts = counts});
  Ids ids;
  for (uint32_t id = 0; id < weights.size(); ++id) {
    if (weights[id] > 0) ids.push_back(id);
  }
  return ids;
}

/// Logits of the given probabilities.
inline Logits log_of(const std::vector<double>& probabilities) {
  Logits logits;
  for (double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
  return logits;
}

inline Logits random_logits(size_t n_vocab, uint32_t seed, float deviation = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  Logits logits(n_vocab);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

}  // namespace pumice::test
