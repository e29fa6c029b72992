// layer_norm in fp64, for its cases.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>

namespace pumice::ops {

/// One row: x += residual, y = (x - mean) / sqrt(variance + eps) * weight + bias; residual and bias
/// may be null. `bound` receives what a kernel in fp32 may miss each y by.
inline void layer_norm_row(std::span<double> x, const float* residual, const float* weight,
                           const float* bias, float eps, double* y, double* bound) {
  const auto n = static_cast<double>(x.size());
  double mean = 0;
  double rounding = 0;  // the largest of x + residual
  for (size_t i = 0; i < x.size(); ++i) {
    if (residual != nullptr) {
      x[i] += residual[i];
      rounding = std::max(rounding, 0x1p-24 * std::abs(x[i]));
    }
    mean += x[i] / n;
  }
  double variance = 0;
  for (const double value : x) variance += (value - mean) * (value - mean) / n;
  const double scale = 1 / std::sqrt(variance + eps);
  for (size_t i = 0; i < x.size(); ++i) {
    const double normed = (x[i] - mean) * scale * weight[i];
    y[i] = normed + (bias != nullptr ? bias[i] : 0.0f);
    // Roundings relative to deviations of about one, whatever the mean: those of the two means, of
    // the sum of squares, of a division, a square root and five products and sums. A rounded
    // x + residual moves its own deviation, and all of them the mean.
    bound[i] = 3e-6 * std::abs(normed) + 0x1p-23 * std::abs(y[i]) +
               (1e-6 + 2 * rounding * scale) * std::abs(weight[i]);
  }
}

}  // namespace pumice::ops
