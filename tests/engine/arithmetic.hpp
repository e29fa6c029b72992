// The arithmetics in which the tests of partitioning run, and what each promises.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/engine/engine_fixture.hpp"
#include "tests/engine/synthetic_model.hpp"

namespace pumice::test {

/// Products of few rows are always fp32: with kF16 and kI8 it depends on how work is cut which of a
/// prompt's tokens are computed less precisely, and logits differ by what that arithmetic loses.
struct Arithmetic {
  ops::Math math;
  double bound;  ///< normalised mean-square error of logits that two ways of cutting are apart
  const char* weight_type;  ///< one whose products are computed that way
};

/// Of results that each err by 2e-6 or 5e-4 (reference_test.cpp): errors add, their squares up to
/// fourfold.
inline constexpr Arithmetic kF32Arithmetic{ops::Math::kF32, 1e-9, "F32"};
inline constexpr Arithmetic kF16Arithmetic{ops::Math::kF16, 4 * 2e-6, "F32"};
inline constexpr Arithmetic kI8Arithmetic{ops::Math::kI8, 4 * 5e-4, "Q8_0"};

inline std::string arithmetic_name(const Arithmetic& arithmetic) {
  return std::string(ops::math_name(arithmetic.math));
}

/// Empty, or why this device or build cannot compute `model` that way.
inline std::string arithmetic_obstacle(const std::shared_ptr<vk::PipelineLibrary>& pipelines,
                                       const std::shared_ptr<const Model>& model,
                                       const Arithmetic& arithmetic) {
  const auto engine = Engine::create(
      pipelines, model,
      {.math = arithmetic.math, .context_tokens = 32, .prompt_logits = true, .greedy_only = true});
  return engine.ok() ? "" : engine.error().message;
}

/// How far the best of these logits is ahead of the next.
inline double margin_of(const std::vector<float>& logits) {
  std::vector<float> sorted = logits;
  std::partial_sort(sorted.begin(), sorted.begin() + 2, sorted.end(), std::greater<>());
  return sorted[0] - sorted[1];
}

/// A margin that errors within the bound do not overcome: six standard deviations of the difference
/// of two logits, but 0.01 at least.
inline double clear_margin(const std::vector<float>& logits, const Arithmetic& arithmetic) {
  double power = 0;
  for (const float logit : logits) power += static_cast<double>(logit) * logit;
  const double deviation = std::sqrt(arithmetic.bound * power / static_cast<double>(logits.size()));
  return std::max(0.01, 6 * std::sqrt(2.0) * deviation);
}

}  // namespace pumice::test
