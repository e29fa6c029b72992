// Activations in fp64, for cases of the ops that compute them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "shaders/common/activation.h"

namespace pumice::ops {

inline double activation_value(uint32_t kind, double x) {
  if (kind == ACTIVATION_SILU) return x / (1 + std::exp(-x));
  if (kind == ACTIVATION_GELU) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  if (kind == ACTIVATION_SIGMOID) return 1 / (1 + std::exp(-x));
  if (kind == ACTIVATION_RELU) return std::max(x, 0.0);
  // (1 + tanh(z)) / 2 without the cancellation of a negative z.
  const double z = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * z));
}

/// What a kernel in fp32 may miss activation_value by. Vulkan allows exp() an error of 3 + 2|x|
/// units in the last place, the division 2.5, the additions and products half a unit each. A result
/// may be flushed where the exponential or it is subnormal.
inline double activation_bound(uint32_t kind, double x) {
  constexpr double kUnit = 0x1p-23;
  const double value = std::abs(activation_value(kind, x));
  const double flushed = (std::abs(x) + 1) * 0x1p-126;
  if (kind == ACTIVATION_GELU) {
    // max(x, 0) minus |x| times the tail: the interpolation's 1.9e-7, ten units, and the exponent's
    // own roundings and error.
    const double tail = std::abs(x) * 0.5 * std::erfc(std::abs(x) / std::numbers::sqrt2);
    return tail * (2e-7 + (10 + 1.5 * x * x) * kUnit) + std::max(x, 0.0) * kUnit / 2 + flushed;
  }
  // The error of the exponential e of -|w| enters by e / (1 + e) where x is positive, so weighs at
  // most |w|e / (1 + e) < 0.3 of a unit for each unit of w.
  if (kind == ACTIVATION_RELU) return 0x1p-126;
  if (kind == ACTIVATION_SILU || kind == ACTIVATION_SIGMOID) {
    return (7.5 + (x < 0 ? 2 * std::abs(x) : 0)) * kUnit * value + flushed;
  }
  const double w = 2 * std::sqrt(2 / std::numbers::pi) * std::abs(x + 0.044715 * x * x * x);
  return (9.5 + (x < 0 ? 5 * std::min(w, 200.0) : 0)) * kUnit * value + flushed;
}

}  // namespace pumice::ops
